"""What a calibration is worth on items it has not seen: cross-validated probabilities and their figures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_rag.calibration.best_chunk import split
from isr_rag.calibration.errors import CalibrationWarning, fitting_libraries
from isr_rag.calibration.records import CalibrationRecord, groups_of
from isr_rag.calibration.venn_abers import VennAbers
from isr_rag.core.bounds import TOLERANCE

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Calibrated probabilities of items, from a calibrator that had not seen them; shape (n,) each.

    Attributes:
        ids: the items, sorted.
        scores: what was calibrated: q_bar, joined with the best chunk read alone if that counts.
        lower: Venn-Abers lower probabilities.
        upper: Venn-Abers upper probabilities.
        mean: one calibrated probability each.
        labels: 0 or 1.
        groups: the items' groups.
    """

    ids: tuple[str, ...]
    scores: Floats
    lower: Floats
    upper: Floats
    mean: Floats
    labels: NDArray[np.int64]
    groups: tuple[str, ...]


def cross_validate(records: Sequence[CalibrationRecord], scores: Sequence[float], folds: int, seed: int) -> HeldOut:
    """Calibrate each fold of groups with the others.

    Raises:
        CalibrationError: if there are fewer groups than folds, or too few items of a class.
    """
    s = np.array(scores, dtype=np.float64)
    labels = np.array([record.label for record in records], dtype=np.int64)
    lower, upper, mean = np.empty_like(s), np.empty_like(s), np.empty_like(s)
    for seen, unseen in split(records, folds, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # the fit on all items has warned already
            calibrator = VennAbers.fit(s[seen], labels[seen])
        lower[unseen], upper[unseen] = calibrator.apply_many(s[unseen])
        mean[unseen] = calibrator.mean(s[unseen])
    return HeldOut(tuple(r.id for r in records), s, lower, upper, mean, labels, tuple(groups_of(records)))


def figures(held: HeldOut, h_stars: Sequence[float], resamples: int, seed: int) -> dict[str, Any]:
    """Figures of raw and calibrated scores with intervals, and what the reference alone would answer."""
    with fitting_libraries():
        from isr_rag.calibration.metrics import summarise, wilson_interval

    found: dict[str, Any] = {"items": len(held.ids), "groups": len(set(held.groups))}
    for name, scores in (("score", held.scores), ("calibrated", held.mean)):
        summary = summarise(scores, held.labels, groups=held.groups, resamples=resamples, seed=seed)
        found[name] = {metric: [i.estimate, i.lower, i.upper] for metric, i in summary.items()}
    for h_star in sorted(set(h_stars)):
        answered = held.lower >= 1.0 - h_star - TOLERANCE
        count, wrong = int(answered.sum()), int((answered & (held.labels == 0)).sum())
        entry: dict[str, Any] = {"answered": count, "wrong": wrong, "coverage": count / len(held.ids)}
        entry["recall"] = float(answered[held.labels == 1].mean())
        if count:
            interval = wilson_interval(wrong, count)
            entry["risk"] = [interval.estimate, interval.lower, interval.upper]
        found[f"p_ref_at_h_star_{h_star:g}"] = entry
    return found
