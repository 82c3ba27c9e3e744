"""The best chunk read by itself, joined with the mean over the orderings.

Two chunks that speak of different things can look like support when they are read together. Where each chunk is also
read by itself, no single one carries such a claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isr_rag.calibration.artefact import joined
from isr_rag.calibration.errors import CalibrationError, fitting_libraries
from isr_rag.calibration.records import CalibrationRecord, groups_of

Floats = NDArray[np.float64]

WEIGHT = 2.0 / 3.0
"""Weight of the best chunk where it counts. Of 1/3, 1/2, 2/3, 3/4 and 1, tried on the calibration items of the standard
adjudicator with one source left out at a time, those from 1/2 on were wrong about equally often among the surest, and 1
had the highest log loss."""
WEIGHTS_TRIED = 2
"""The best chunk counts with `WEIGHT` or not at all: two scores are tried on the labelled items."""
LEAST_OF_A_CLASS = 100
"""Items of each class below which the best chunk never counts."""
COVERAGES = (0.1, 0.2, 0.4)
"""Shares of the surest items among which errors are compared."""
FOLDS = 5
_LEAST_OF_A_SOURCE = 40


def best_weight(records: Sequence[CalibrationRecord], seed: int) -> float:
    """`WEIGHT` if the surest items are then wrong less often, else 0.

    Averaged over `COVERAGES` and over sources (over folds of groups if there are fewer than three large sources). 0 if
    a record lacks the best chunk's probability, or there are fewer than `LEAST_OF_A_CLASS` items of a class.
    """
    alone = [record.alone for record in records if record.alone is not None]
    labels = np.array([record.label for record in records])
    few = min(labels.sum(), len(labels) - labels.sum()) < LEAST_OF_A_CLASS
    if len(alone) < len(records) or few or len(set(groups_of(records))) < FOLDS:
        return 0.0
    mean = np.array([record.q_bar for record in records])
    both = np.array([joined(q, best, WEIGHT) for q, best in zip(mean.tolist(), alone, strict=True)])
    parts = _large_sources(records) or [unseen for _, unseen in split(records, seed)]
    worse = [
        [
            _errors_in_surest(both[rows], labels[rows], coverage)
            - _errors_in_surest(mean[rows], labels[rows], coverage)
            for rows in parts
        ]
        for coverage in COVERAGES
    ]
    return WEIGHT if np.mean(worse, axis=1).mean() < 0.0 else 0.0


def split(records: Sequence[CalibrationRecord], seed: int) -> list[tuple[list[int], list[int]]]:
    """Rows seen and unseen in each of `FOLDS` folds; classes spread evenly, groups kept together.

    Raises:
        CalibrationError: if there are fewer groups than folds.
    """
    with fitting_libraries():
        from sklearn.model_selection import StratifiedGroupKFold

    groups = groups_of(records)
    if len(set(groups)) < FOLDS:
        raise CalibrationError(f"{len(set(groups))} groups do not make {FOLDS} folds; label items from more sources")
    splitter = cast(Any, StratifiedGroupKFold)(n_splits=FOLDS, shuffle=True, random_state=seed)
    labels = [record.label for record in records]
    return [(seen.tolist(), unseen.tolist()) for seen, unseen in splitter.split(np.zeros(len(labels)), labels, groups)]


def _large_sources(records: Sequence[CalibrationRecord]) -> list[list[int]]:
    """Rows of each large source; empty if there are fewer than three."""
    by_source: dict[str, list[int]] = defaultdict(list)
    for row, record in enumerate(records):
        by_source[record.source or ""].append(row)
    large: list[list[int]] = []
    for name, rows in sorted(by_source.items()):
        positive = sum(records[row].label for row in rows)
        if name and min(positive, len(rows) - positive) >= _LEAST_OF_A_SOURCE:
            large.append(rows)
    return large if len(large) >= 3 else []


def _errors_in_surest(scores: Floats, labels: NDArray[Any], coverage: float) -> float:
    """Share of errors among the surest; all items with a score equal to the last one's count."""
    count = max(1, round(coverage * len(scores)))
    return float(1.0 - labels[scores >= np.sort(scores)[-count]].mean())
