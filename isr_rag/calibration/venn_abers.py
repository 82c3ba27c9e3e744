"""Venn-Abers calibration: fitted by its library, applied as two step functions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag.calibration.checks import labelled_scores
from isr_rag.calibration.errors import CalibrationError, fitting_libraries
from isr_rag.calibration.steps import Steps

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class VennAbers:
    """Inductive Venn-Abers predictor of "the predicate holds" from a score in [0, 1] (Vovk, Petej, Fedorova 2015).

    For each score it gives two probabilities, the isotonic fits with the item itself added as a 0 and as a 1. One of
    the two is perfectly calibrated for any distribution of scores, as long as items are exchangeable with the
    calibration data. The lower one serves as `p_ref`. It is calibrated on average over the items and is not a
    confidence bound for a single one; `LearnThenTest` gives the finite-sample bound.

    With k correct items and no wrong one above a score the lower probability there is k / (k + 1): to reach 0.95, the
    surest part of the data needs 19 correct items without a wrong one.

    Attributes:
        p0: the lower probability.
        p1: the upper probability; unlike `p0` it rises only after each of its breaks.

    Raises:
        CalibrationError: if a lower probability lies above the upper one.

    Examples:
        >>> from isr_rag.calibration import VennAbers
        >>> calibration = VennAbers.fit([0.2] * 60 + [0.9] * 60, [0] * 60 + [1] * 60)
        >>> round(calibration.lower(0.95), 3)
        0.984
    """

    p0: Steps
    p1: Steps

    def __post_init__(self) -> None:
        lower, upper = self.apply_many((0.0, *self.p0.breaks, *self.p1.breaks))
        if (lower > upper).any():
            raise CalibrationError("a Venn-Abers lower probability lies above the upper one")

    @classmethod
    def fit(cls, scores: ArrayLike, labels: ArrayLike) -> VennAbers:
        """Fit on labelled scores; the result does not depend on the order of the items.

        Args:
            scores: in [0, 1], shape (n,): q_bar of each item, or a verifier's score.
            labels: 1 where the predicate holds, shape (n,).

        Raises:
            CalibrationError: for bad scores or labels, one class only, or fewer than 10 items of a class.

        Warns:
            CalibrationWarning: under 50 items of a class.
        """
        s, y = labelled_scores(scores, labels)
        # importing the library changes numpy's error state for the whole process, so both stay inside
        with np.errstate(all="ignore"), warnings.catch_warnings(), fitting_libraries():
            warnings.simplefilter("ignore", RuntimeWarning)
            from venn_abers.venn_abers import VennAbers as Library

            fitted: Any = Library()
            fitted.fit(np.column_stack([1.0 - s, s]), y.astype(np.float64))
        breaks = np.append(0.0, fitted.c)  # the first value holds below the first break
        return cls(Steps.highest_so_far(breaks, fitted.p0[:, 1]), Steps.highest_so_far(breaks, fitted.p1[:, 1]))

    def lower(self, score: float) -> float:
        """Lower probability for one score: p_ref. Never falls when the score rises."""
        return self.p0.at(score)

    def apply_many(self, scores: ArrayLike) -> tuple[Floats, Floats]:
        """Lower and upper probabilities, shape of `scores` each.

        Raises:
            CalibrationError: if a score is NaN or outside [0, 1].
        """
        s = np.asarray(scores, dtype=np.float64)
        if not np.all((s >= 0.0) & (s <= 1.0)):
            raise CalibrationError("scores must be probabilities in [0, 1]")
        lower = np.asarray(self.p0.values)[np.searchsorted(self.p0.breaks, s, side="right")]
        upper = np.asarray(self.p1.values)[np.searchsorted(self.p1.breaks, s, side="left")]
        return lower, upper

    def mean(self, scores: ArrayLike) -> Floats:
        """One calibrated probability per score, for reports: p1 / (1 - p0 + p1), which minimises the worst log loss."""
        lower, upper = self.apply_many(scores)
        return upper / (1.0 - lower + upper)
