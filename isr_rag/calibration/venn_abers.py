"""Venn-Abers calibration: fitted by its library, applied as two step functions."""

from __future__ import annotations

import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag.calibration.checks import labelled_scores
from isr_rag.calibration.errors import CalibrationError, fitting_libraries

Floats = NDArray[np.float64]
_SAME = 1e-12


@dataclass(frozen=True)
class VennAbers:
    """Inductive Venn-Abers predictor of "the predicate holds" from a score in [0, 1] (Vovk, Petej, Fedorova 2015).

    For each score it gives two probabilities, the isotonic fits with the item itself added as a 0 and as a 1. One of
    the two is perfectly calibrated, whatever the score's distribution, as long as items are exchangeable with the
    calibration data. The lower one serves as `p_ref`. It is calibrated on average over the items, and is not a
    confidence bound for a single one; `LearnThenTest` gives the finite-sample bound.

    With k correct items and no wrong one above a score the lower probability there is k / (k + 1): to reach 0.95, the
    surest part of the data needs 19 correct items without a wrong one.

    Attributes:
        lower_breaks: scores at which the lower probability rises, ascending; at a break the higher value holds.
        lower_values: its values, ascending, one more than the breaks.
        upper_breaks: scores after which the upper probability rises, ascending; at a break the lower value holds.
        upper_values: its values, ascending, one more than the breaks.
        n_true: calibration items for which the predicate holds.
        n_false: calibration items for which it does not.
    """

    lower_breaks: tuple[float, ...]
    lower_values: tuple[float, ...]
    upper_breaks: tuple[float, ...]
    upper_values: tuple[float, ...]
    n_true: int
    n_false: int

    def __post_init__(self) -> None:
        for breaks, values in ((self.lower_breaks, self.lower_values), (self.upper_breaks, self.upper_values)):
            _check_steps(breaks, values)
        lower, upper = self.apply_many([0.0, *self.lower_breaks, *self.upper_breaks])
        if np.any(lower > upper):
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
        scores_seen = np.asarray(fitted.c, dtype=np.float64)
        upper_breaks, upper_values = _compress(scores_seen, fitted.p1[:, 1])
        lower_breaks, lower_values = _compress(scores_seen, fitted.p0[:, 1])
        return cls(lower_breaks, lower_values, upper_breaks, upper_values, int(y.sum()), int((~y).sum()))

    def apply(self, score: float) -> tuple[float, float]:
        """Lower and upper probability for one score, by two table look-ups.

        Raises:
            CalibrationError: if the score is NaN or outside [0, 1].
        """
        if not 0.0 <= score <= 1.0:  # also False for NaN
            raise CalibrationError(f"a score must be a probability in [0, 1], not {score}")
        lower = self.lower_values[bisect_right(self.lower_breaks, score)]
        return lower, self.upper_values[bisect_left(self.upper_breaks, score)]

    def lower(self, score: float) -> float:
        """Lower probability for one score: p_ref. Never falls when the score rises."""
        return self.apply(score)[0]

    def apply_many(self, scores: ArrayLike) -> tuple[Floats, Floats]:
        """Lower and upper probabilities, shape of `scores` each.

        Raises:
            CalibrationError: if a score is NaN or outside [0, 1].
        """
        s = np.asarray(scores, dtype=np.float64)
        if not np.all((s >= 0.0) & (s <= 1.0)):
            raise CalibrationError("scores must be probabilities in [0, 1]")
        lower = np.asarray(self.lower_values)[np.searchsorted(self.lower_breaks, s, side="right")]
        upper = np.asarray(self.upper_values)[np.searchsorted(self.upper_breaks, s, side="left")]
        return lower, upper

    def mean(self, scores: ArrayLike) -> Floats:
        """One calibrated probability per score, for reports: p1 / (1 - p0 + p1), which minimises the worst log loss."""
        lower, upper = self.apply_many(scores)
        return upper / (1.0 - lower + upper)

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, for JSON."""
        return {name: list(cast(Any, v)) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> VennAbers:
        """The inverse of `to_dict`, bit for bit.

        Raises:
            CalibrationError: if a field is missing or makes no step function.
        """
        try:
            return cls(
                tuple(map(float, data["lower_breaks"])),
                tuple(map(float, data["lower_values"])),
                tuple(map(float, data["upper_breaks"])),
                tuple(map(float, data["upper_values"])),
                n_true=int(data["n_true"]),
                n_false=int(data["n_false"]),
            )
        except (KeyError, TypeError) as error:
            raise CalibrationError(f"no Venn-Abers calibration: {error!r}") from error


def _compress(scores: Floats, values: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Only the scores at which a step function really rises; shape (k,) and (k + 1,) in, the same relation out."""
    steps = np.maximum.accumulate(np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0))
    breaks: list[float] = []
    kept = [float(steps[0])]
    for score, value in zip(scores, steps[1:], strict=True):
        if value - kept[-1] > _SAME:
            breaks.append(float(score))
            kept.append(float(value))
    return tuple(breaks), tuple(kept)


def _check_steps(breaks: tuple[float, ...], values: tuple[float, ...]) -> None:
    if len(values) != len(breaks) + 1:
        raise CalibrationError("a step function needs one value more than it has breaks")
    inside = all(0.0 <= x <= 1.0 for x in (*breaks, *values))
    rising = all(a < b for part in (breaks, values) for a, b in pairwise(part))
    if not inside or not rising:
        raise CalibrationError("the breaks and values of a step function must rise strictly inside [0, 1]")
