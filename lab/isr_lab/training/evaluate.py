"""Figures of scored items of the slice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isr_lab.metrics import auroc, brier, expected_calibration_error, risk_coverage_curve
from isr_lab.slice.schema import SliceItem

_Scored = tuple[SliceItem, float]


def summary(scored: Sequence[_Scored]) -> dict[str, dict[str, float]]:
    """Figures for all items with their q, each task, each task and source, and multi-hop items by themselves.

    `auroc` and `balanced_accuracy` are left out where there is one class only.
    """
    parts: dict[str, list[_Scored]] = {"all": list(scored)}
    for item, q in scored:
        for name in (item.task, f"{item.task}/{item.source}", *(["multi-hop"] if item.multi_hop else [])):
            parts.setdefault(name, []).append((item, q))
    verdicts = [one for one in scored if one[0].task == "claim" and one[0].kind in ("supported", "refuted")]
    if verdicts:
        parts["claim: supported or refuted"] = verdicts
    return {name: _figures(members) for name, members in sorted(parts.items())}


def _figures(members: Sequence[_Scored]) -> dict[str, float]:
    q = np.asarray([q for _, q in members])
    labels = np.asarray([item.label for item, _ in members])
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
