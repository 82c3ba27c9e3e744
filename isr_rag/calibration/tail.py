"""The rate among the answered: p_ref of a case is the reliability of all cases at least as sure as it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag.bounds import TOLERANCE
from isr_rag.calibration.checks import labelled_scores
from isr_rag.calibration.errors import CalibrationError, fitting_libraries

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Steps:
    """A step function of the score that never falls: at a break the higher value holds.

    Attributes:
        breaks: scores at which it rises, strictly ascending, shape (k,).
        values: its values in [0, 1], strictly ascending, shape (k + 1,).

    Raises:
        CalibrationError: if the shapes or the order do not fit.
    """

    breaks: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for part in (self.breaks, self.values) for a, b in pairwise(part))
        inside = all(0.0 <= x <= 1.0 for x in (*self.breaks, *self.values))
        if len(self.values) != len(self.breaks) + 1 or not rising or not inside:
            raise CalibrationError("a step function needs strictly rising breaks and values in [0, 1]")

    @classmethod
    def highest_so_far(cls, scores: Floats, values: Floats) -> Steps:
        """From values at ascending scores, each raised to the highest before it; the first also holds below."""
        breaks: list[float] = []
        kept = [float(np.clip(values[0], 0.0, 1.0))]
        for score, value in zip(scores[1:].tolist(), values[1:].tolist(), strict=True):
            if value > kept[-1] + 1e-12:
                breaks.append(score)
                kept.append(min(value, 1.0))
        return cls(tuple(breaks), tuple(kept))

    def at(self, score: float) -> float:
        """The value at a score.

        Raises:
            CalibrationError: if the score is NaN or outside [0, 1].
        """
        if not 0.0 <= score <= 1.0:  # also False for NaN
            raise CalibrationError(f"a score must be a probability in [0, 1], not {score}")
        return self.values[bisect_right(self.breaks, score)]

    def cut(self, target: float) -> float | None:
        """The lowest score with at least this value (up to rounding); None where none has it."""
        if self.values[0] >= target - TOLERANCE:
            return 0.0
        rises = zip(self.breaks, self.values[1:], strict=True)
        return next((score for score, value in rises if value >= target - TOLERANCE), None)

    @property
    def ceiling(self) -> float:
        """The highest value."""
        return self.values[-1]

    def at_share(self, share: float, given: float) -> Steps:
        """Reliabilities at a share of supported cases, turned into those at another, `given`; both in (0, 1)."""
        factor = (share / (1.0 - share)) * ((1.0 - given) / given)
        risks = [1.0 - value for value in self.values]
        turned = np.array([1.0 - risk * factor / (1.0 - risk + risk * factor) for risk in risks])
        return Steps.highest_so_far(np.array([0.0, *self.breaks]), turned)

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, for JSON."""
        return {"breaks": list(self.breaks), "values": list(self.values)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Steps:
        """The inverse of `to_dict`."""
        return cls(tuple(map(float, data["breaks"])), tuple(map(float, data["values"])))


@dataclass(frozen=True, slots=True)
class Tail:
    """Labelled scores by class, and what they say of all cases at least as sure as one.

    With E false and C true items at or above a score s, the reference is

        p_ref(s) = 1 - (E + 1) / (E + C + 1),

    raised to the highest value at any lower score. So `p_ref(s) >= 1 - h` holds exactly from the lowest score t on
    at which (E + 1) / (E + C + 1) <= h: the largest set that the labelled items allow at the rate h.

    **What it promises.** The labelled items and the case to decide are exchangeable (drawn alike, in any order), and h
    was chosen without looking at them. Let T be the lowest score at which the share of errors is at most h, counted
    over the labelled items and the new case together. Then T <= t, and

        P(answered and wrong) <= h * P(score >= T).

    This is the argument of conformal risk control (Angelopoulos et al., "Conformal Risk Control", 2022, and for
    selection Jin and Candes, "Selection by Prediction with Conformal p-values", 2023): a wrong new case counts itself
    as the "+ 1", so that the cut does not depend on whether it was among the labelled ones. The share of wrong among
    the answered, P(wrong | answered), is therefore at most h * P(score >= T) / P(score >= t): that is h, except for the
    cases between T and t, which one more error among the labelled items shuts out. They are few where many labelled
    items are answered. The expectation is over the labelled items too, and counts nothing where no cut is found: one
    set of labelled items may lie above h, on average they do not. `isr_lab.simulations` measures both; for a bound that
    holds with a stated probability use `LearnThenTest` (`delta=`).

    A stated share of supported cases weighs the two classes: E + 1 with (1 - share) / n_false, C with share / n_true.
    The promise then needs only each class by itself to be exchangeable with the labelled one, and the share right.

    Attributes:
        true: scores of items for which the predicate holds, ascending, in [0, 1].
        false: scores of items for which it does not, ascending, in [0, 1].

    Raises:
        CalibrationError: if a class is empty, or scores are not sorted or lie outside [0, 1].
    """

    true: tuple[float, ...]
    false: tuple[float, ...]

    def __post_init__(self) -> None:
        for part in (self.true, self.false):
            inside = all(0.0 <= score <= 1.0 for score in part)
            if not part or not inside or any(a > b for a, b in pairwise(part)):
                raise CalibrationError("a tail needs ascending scores in [0, 1] of both classes")

    @classmethod
    def fit(cls, scores: ArrayLike, labels: ArrayLike) -> Tail:
        """From labelled scores, shape (n,) each.

        Raises:
            CalibrationError: for bad scores or labels, one class only, or fewer than 10 items of a class.

        Warns:
            CalibrationWarning: under 50 items of a class.
        """
        s, y = labelled_scores(scores, labels)
        return cls(tuple(np.sort(s[y]).tolist()), tuple(np.sort(s[~y]).tolist()))

    @property
    def share(self) -> float:
        """Share of true items among the labelled ones."""
        return len(self.true) / (len(self.true) + len(self.false))

    def counts(self, scores: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """True and false items at or above each score, shape of `scores` each."""
        at = np.asarray(scores, dtype=np.float64)
        found = [len(part) - np.searchsorted(np.asarray(part), at, side="left") for part in (self.true, self.false)]
        return found[0].astype(np.int64), found[1].astype(np.int64)

    def steps(self, share: float | None = None) -> Steps:
        """p_ref as a function of the score.

        Args:
            share: share of supported cases among those to decide, in (0, 1); None: as among the labelled items.

        Raises:
            CalibrationError: if the share lies outside (0, 1).
        """
        scores = np.unique([*self.true, *self.false])
        true, false = self.counts(scores)
        right, wrong = self._weights(share)
        errors = wrong * (false + 1)
        return Steps.highest_so_far(scores, 1.0 - errors / (errors + right * true))

    def _weights(self, share: float | None) -> tuple[float, float]:
        if share is None:
            return 1.0, 1.0
        if not 0.0 < share < 1.0:
            raise CalibrationError(f"the share of supported cases must lie in (0, 1), not {share}")
        return share / len(self.true), (1.0 - share) / len(self.false)

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, for JSON."""
        return {"true": list(self.true), "false": list(self.false)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tail:
        """The inverse of `to_dict`."""
        return cls(tuple(map(float, data["true"])), tuple(map(float, data["false"])))


def source_steps(tail: Tail, share: float, confidence: float) -> Steps:
    """What the labelled items of one source prove against it: the highest p_ref that they leave possible.

    One minus the lower end of the one-sided Clopper-Pearson interval of the share of wrong items among those at or
    above a score, turned to a share of supported cases; raised to the highest value at any lower score. A source with
    few answered items proves little and leaves p_ref alone; one that is wrong too often lowers it.

    Args:
        tail: the source's labelled scores.
        share: share of supported cases, in (0, 1).
        confidence: of each bound.
    """
    with fitting_libraries():
        from scipy.stats import beta

    scores = np.unique([*tail.true, *tail.false])
    true, false = tail.counts(scores)
    low = np.nan_to_num(beta.ppf(1.0 - confidence, false, true + 1))  # no wrong item: nothing is proven
    factor = ((1.0 - share) / share) * (tail.share / (1.0 - tail.share))
    return Steps.highest_so_far(scores, 1.0 - low * factor / (1.0 - low + low * factor))


def loop_steps(scores: Sequence[Sequence[float]], labels: Sequence[Sequence[int]]) -> Steps:
    """p_ref of a whole loop: the same rate, counted over cases that stop at the first look that reaches a score.

    At a cut t a case is answered at its first look whose score is at least t, and is wrong where the predicate does
    not hold for the evidence gathered by then. The argument of `Tail` holds unchanged, as cut and errors of a case
    depend on nothing but the case and t.

    Args:
        scores: of each look of each case, shape (n, looks of that case).
        labels: whether the predicate holds for the evidence of that look, same shape.

    Raises:
        CalibrationError: for no cases, or a case whose scores and labels differ in length.
    """
    if not scores or any(len(s) != len(y) or not s for s, y in zip(scores, labels, strict=True)):
        raise CalibrationError("a loop needs cases with a label for the score of each look")
    cuts = np.unique([score for case in scores for score in case])
    answered, wrong = np.zeros(len(cuts), dtype=np.int64), np.zeros(len(cuts), dtype=np.int64)
    for case, held in zip(scores, labels, strict=True):
        reached = -1.0
        for score, label in zip(case, held, strict=True):
            if score > reached:  # this look is the first for the cuts in (reached, score]
                first, last = np.searchsorted(cuts, reached, side="right"), np.searchsorted(cuts, score, side="right")
                answered[first:last] += 1
                wrong[first:last] += not label
                reached = score
    return Steps.highest_so_far(cuts, 1.0 - (wrong + 1) / (answered + 1))
