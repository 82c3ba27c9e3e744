"""What a scored item of the slice shows, and figures of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isr_lab.metrics import auroc, brier, expected_calibration_error, risk_coverage_curve
from isr_lab.slice.schema import SliceChunk, SliceItem


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """One item with its probability of "yes"."""

    id: str
    task: str
    source: str
    kind: str
    multi_hop: bool
    template: str
    n: int
    label: int
    q: float


def first_chunks(item: SliceItem, most: int | None) -> list[SliceChunk]:
    """All support and the first other chunks, `most` in all (None: every chunk), in the item's own order."""
    if most is None:
        return list(item.chunks)
    room = max(most - sum(chunk.is_support for chunk in item.chunks), 0)
    chosen: list[SliceChunk] = []
    for chunk in item.chunks:
        if chunk.is_support or room:
            chosen.append(chunk)
            room -= not chunk.is_support
    return chosen


def summary(scored: Sequence[ScoredItem]) -> dict[str, dict[str, float]]:
    """Figures for all items, each task, each task and source, and multi-hop items by themselves.

    `auroc` and `balanced_accuracy` are left out where there is one class only.
    """
    parts: dict[str, list[ScoredItem]] = {"all": list(scored)}
    for one in scored:
        for name in (one.task, f"{one.task}/{one.source}", *(["multi-hop"] if one.multi_hop else [])):
            parts.setdefault(name, []).append(one)
    verdicts = [one for one in scored if one.task == "claim" and one.kind in ("supported", "refuted")]
    if verdicts:
        parts["claim: supported or refuted"] = verdicts
    return {name: _figures(members) for name, members in sorted(parts.items())}


def _figures(members: Sequence[ScoredItem]) -> dict[str, float]:
    q = np.asarray([one.q for one in members])
    labels = np.asarray([one.label for one in members])
    found = {
        "n": float(len(members)),
        "supported": float(labels.mean()),
        "accuracy": float(np.mean((q >= 0.5) == (labels == 1))),
        "brier": brier(q, labels),
        "ece": expected_calibration_error(q, labels),
    }
    if 0 < labels.sum() < len(labels):
        found["auroc"] = auroc(q, labels)
        said = q >= 0.5
        found["balanced_accuracy"] = float((said[labels == 1].mean() + (~said[labels == 0]).mean()) / 2)
    surest = max(1, round(0.2 * len(members)))
    found["precision_surest_fifth"] = 1.0 - float(risk_coverage_curve(q, labels).errors([surest])[0]) / surest
    return {name: round(value, 4) for name, value in found.items()}
