"""The figures of a contrast run: plain numbers for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, get_args

from isr_lab.contrast.asking import ContrastRow, Setting
from isr_lab.contrast.data import DetailKind
from isr_lab.metrics import auroc

ContrastFigures: TypeAlias = dict[str, Any]
"""Keys: twins (by setting, then group), drafts and sufficiency (by group), denials (by kind)."""

SETTINGS: tuple[Setting, ...] = ("alone", "among")
ALL, KEPT, CHANGED = "all", "words kept", "a word differs"


def figures(rows: Sequence[ContrastRow]) -> ContrastFigures:
    """Sum a run up.

    In every group: `n` rows of each label, mean q of each, AUROC of q and of p_ref (None where a label or a p_ref is
    missing), and for each h* how many of each label were answered. Of twins also `above`: the share of pairs whose
    true statement has the higher q; equal ones count one half.
    """
    twins: dict[str, dict[str, ContrastFigures]] = {}
    for setting in SETTINGS:
        shown = [row for row in rows if row.part == "twins" and row.setting == setting]
        groups = {
            ALL: shown,
            KEPT: [row for row in shown if row.words_kept],
            CHANGED: [row for row in shown if not row.words_kept],
        }
        groups |= {kind: [row for row in shown if row.kind == kind] for kind in get_args(DetailKind)}
        twins[setting] = {name: _group(group) | {"above": above(group)} for name, group in groups.items() if group}
    drafts = [row for row in rows if row.part == "drafts"]
    right = [row for row in drafts if row.label]
    against = {kind: right + [r for r in drafts if not r.label and r.kind == kind] for kind in _by_kind(drafts)}
    sufficiency = [row for row in rows if row.part == "sufficiency"]
    denials = [row for row in rows if row.part == "denials"]
    return {
        "twins": twins,
        "drafts": _groups({ALL: drafts} | against),
        "sufficiency": _groups({ALL: sufficiency}),
        "denials": _groups({ALL: denials} | _by_kind(denials)),
    }


def above(rows: Sequence[ContrastRow]) -> float:
    """Share of pairs (rows of one id) whose row of label 1 has the higher q; equal ones count one half."""
    true = {row.id: row.q for row in rows if row.label}
    false = {row.id: row.q for row in rows if not row.label}
    return math.fsum((true[i] > false[i]) + (true[i] == false[i]) / 2 for i in true) / len(true)


def _by_kind(rows: Sequence[ContrastRow]) -> dict[str, list[ContrastRow]]:
    return {kind: [row for row in rows if row.kind == kind] for kind in dict.fromkeys(row.kind for row in rows)}


def _groups(groups: dict[str, list[ContrastRow]]) -> dict[str, ContrastFigures]:
    return {name: _group(group) for name, group in groups.items() if group}


def _group(rows: Sequence[ContrastRow]) -> ContrastFigures:
    by_label = {"true": [row for row in rows if row.label], "false": [row for row in rows if not row.label]}
    labels = [row.label for row in rows]
    both = all(by_label.values())
    p_refs = [row.p_ref for row in rows if row.p_ref is not None]
    return {
        "n": {name: len(group) for name, group in by_label.items()},
        "mean_q": {
            name: math.fsum(row.q for row in group) / len(group) if group else None for name, group in by_label.items()
        },
        "auroc_q": auroc([row.q for row in rows], labels) if both else None,
        "auroc_p_ref": auroc(p_refs, labels) if both and len(p_refs) == len(rows) else None,
        "answered": {
            str(h_star): {name: sum(row.answered[h_star] for row in group) for name, group in by_label.items()}
            for h_star in rows[0].answered
        },
    }
