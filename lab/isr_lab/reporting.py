"""Calibrated probabilities to judge a calibration by: of items that the calibrator had not seen."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from isr_lab.metrics import merged
from isr_rag.calibration import CalibrationRecord, VennAbers
from isr_rag.calibration.records import groups_of
from isr_rag.errors import CalibrationError, CalibrationWarning

Floats = NDArray[np.float64]
FOLDS = 5


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Calibrated probabilities of items, from a calibrator that had not seen them; shape (n,) each.

    Attributes:
        scores: what was calibrated.
        mean: one calibrated probability each.
        labels: 0 or 1.
    """

    scores: Floats
    mean: Floats
    labels: NDArray[np.int64]


def cross_validate(records: Sequence[CalibrationRecord], scores: Sequence[float]) -> HeldOut:
    """Calibrate the scores of records of one predicate, each fold of groups with the others.

    Raises:
        CalibrationError: if there are fewer groups than folds.
    """
    s = np.array(scores, dtype=np.float64)
    labels = np.array([record.label for record in records], dtype=np.int64)
    mean = np.empty_like(s)
    for seen, unseen in _folds(records):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # the fit on all items has warned already
            calibrator = VennAbers.fit(s[seen], labels[seen])
        mean[unseen] = merged(*calibrator.apply_many(s[unseen]))
    return HeldOut(s, mean, labels)


def _folds(records: Sequence[CalibrationRecord]) -> list[tuple[list[int], list[int]]]:
    """Rows seen and unseen in each of `FOLDS` folds; classes spread evenly, groups kept together."""
    groups = groups_of(records)
    if len(set(groups)) < FOLDS:
        raise CalibrationError(f"{len(set(groups))} groups do not make {FOLDS} folds; label items from more sources")
    splitter = StratifiedGroupKFold(n_splits=FOLDS, shuffle=True, random_state=0)
    labels = [record.label for record in records]
    return [(seen.tolist(), unseen.tolist()) for seen, unseen in splitter.split(np.zeros(len(labels)), labels, groups)]
