"""From a score or a verdict to p_ref: the rate among the answered, Venn-Abers, and a bound for verdicts."""

from __future__ import annotations

import warnings
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag.calibration.checks import enough_of_each_class, labelled_scores, scored_labels
from isr_rag.core.bounds import TOLERANCE
from isr_rag.errors import CalibrationError, needed_for

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Steps:
    """A step function of the score that never falls; at a break the higher value holds.

    Attributes:
        breaks: scores at which it rises, strictly ascending, shape (k,).
        values: its values in [0, 1], strictly ascending, shape (k + 1,).
    """

    breaks: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for part in (self.breaks, self.values) for a, b in pairwise(part))
        inside = all(0.0 <= x <= 1.0 for x in (*self.breaks, *self.values))
        if len(self.values) != len(self.breaks) + 1 or not rising or not inside:
            raise CalibrationError("a step function needs strictly rising breaks and values in [0, 1]")

    @classmethod
    def highest_so_far(cls, scores: ArrayLike, values: ArrayLike) -> Steps:
        """From values at ascending scores, each raised to the highest before it; the first also holds below."""
        rising = np.maximum.accumulate(np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0))
        breaks: list[float] = []
        kept = [float(rising[0])]
        for score, value in zip(np.asarray(scores)[1:].tolist(), rising[1:].tolist(), strict=True):
            if value > kept[-1] + 1e-12:
                breaks.append(float(score))
                kept.append(value)
        return cls(tuple(breaks), tuple(kept))

    def at(self, score: float) -> float:
        """The value at a score; CalibrationError if that is NaN or outside [0, 1]."""
        if not 0.0 <= score <= 1.0:  # also False for NaN
            raise CalibrationError(f"a score must be a probability in [0, 1], not {score}")
        return self.values[bisect_right(self.breaks, score)]

    def at_most(self, highest: float) -> Steps:
        """The same, with a highest value."""
        lower = bisect_left(self.values, highest)
        return self if lower == len(self.values) else Steps(self.breaks[:lower], (*self.values[:lower], highest))

    def threshold(self, target: float) -> float | None:
        """The lowest score with at least this value (up to rounding); None if there is none."""
        reached = bisect_left(self.values, target - TOLERANCE)
        return None if reached == len(self.values) else (0.0, *self.breaks)[reached]


@dataclass(frozen=True, slots=True)
class Tail:
    """Labelled scores by class, and what they say about all cases at least as sure as one.

    With E false and C true items at or above a score s, the reference is

        p_ref(s) = 1 - (E + 1) / (E + C + 1),

    raised to the highest value at any lower score. So `p_ref(s) >= 1 - h` holds exactly from the lowest score t on
    at which (E + 1) / (E + C + 1) <= h: the largest set that the labelled items allow at the rate h.

    **What it promises.** Assume that the labelled items and the case to decide are exchangeable, and that h was chosen
    without looking at them. Let T be the lowest score at which the share of errors is at most h, counted over the
    labelled items and the new case together. Then T <= t, and

        P(answered and wrong) <= h * P(score >= T).

    (conformal risk control, for selection: docs/method.md), since a wrong new case counts itself as the "+ 1". The
    expectation is also over the labelled items; for *this* calibration use `LearnThenTest` (`delta=`).

    A stated prevalence weighs the two classes: E + 1 with (1 - prevalence) / n_false, C with prevalence / n_true. The
    promise then needs only each class by itself to be exchangeable with the labelled one, and the prevalence right.

    Attributes:
        true: scores of items for which the predicate holds, ascending, in [0, 1].
        false: scores of items for which it does not, ascending, in [0, 1].
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
        """From labelled scores, shape (n,) each; refused and warned of as by `labelled_scores`."""
        s, y = labelled_scores(scores, labels)
        return cls(tuple(np.sort(s[y]).tolist()), tuple(np.sort(s[~y]).tolist()))

    def counts(self, scores: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of true and of false items at or above each score, shape of `scores` each."""
        at = np.asarray(scores, dtype=np.float64)
        found = [len(part) - np.searchsorted(np.asarray(part), at, side="left") for part in (self.true, self.false)]
        return found[0].astype(np.int64), found[1].astype(np.int64)

    def steps(self, prevalence: float | None = None, share: float | None = None) -> Steps:
        """p_ref by score, where this share of the cases to decide is supported (None: as among the labelled items)."""
        # `share` is that of all labelled items, of which this tail may hold only some numbers of chunks.
        right, wrong = 1.0, 1.0
        if prevalence is not None:
            if not 0.0 < prevalence < 1.0:
                raise CalibrationError(f"prevalence must lie in (0, 1), not {prevalence}")
            share = share or len(self.true) / (len(self.true) + len(self.false))
            right, wrong = prevalence / share, (1.0 - prevalence) / (1.0 - share)
        scores = np.unique([*self.true, *self.false])
        true, false = self.counts(scores)
        errors = wrong * (false + 1)
        return Steps.highest_so_far(scores, 1.0 - errors / (errors + right * true))


@dataclass(frozen=True)
class VennAbers:
    """Inductive Venn-Abers predictor of "the predicate holds" from a score in [0, 1] (Vovk, Petej, Fedorova 2015).

    For each score it gives two probabilities, the isotonic fits with the item itself added as a 0 and as a 1. One of
    the two is perfectly calibrated for any distribution of scores, as long as items are exchangeable with the
    calibration data. The lower one serves as `p_ref`: calibrated on average over the items, no bound for a single one.

    With k correct items and no wrong one above a score the lower probability there is k / (k + 1): to reach 0.95, the
    surest part of the data needs 19 correct items without a wrong one.

    Attributes:
        p0: the lower probability.
        p1: the upper probability; unlike `p0` it rises only after each of its breaks.
    """

    p0: Steps
    p1: Steps

    def __post_init__(self) -> None:
        lower, upper = self.apply_many((0.0, *self.p0.breaks, *self.p1.breaks))
        if (lower > upper).any():
            raise CalibrationError("a Venn-Abers lower probability lies above the upper one")

    @classmethod
    def fit(cls, scores: ArrayLike, labels: ArrayLike) -> VennAbers:
        """Fit on scores in [0, 1] and labels, shape (n,) each; refused and warned of as by `labelled_scores`.

        The result does not depend on the order of the items.
        """
        s, y = labelled_scores(scores, labels)
        # importing the library changes numpy's error state for the whole process, so both stay inside
        with np.errstate(all="ignore"), warnings.catch_warnings(), needed_for("fitting a calibration", "calibrate"):
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
        """Lower and upper probabilities, shape of `scores` each; CalibrationError for a score outside [0, 1]."""
        s = np.asarray(scores, dtype=np.float64)
        if not np.all((s >= 0.0) & (s <= 1.0)):
            raise CalibrationError("scores must be probabilities in [0, 1]")
        lower = np.asarray(self.p0.values)[np.searchsorted(self.p0.breaks, s, side="right")]
        upper = np.asarray(self.p1.values)[np.searchsorted(self.p1.breaks, s, side="left")]
        return lower, upper


@dataclass(frozen=True, kw_only=True)
class NoisyChannel:
    """Lower bounds on the truth behind the verdicts of a hard verifier (Section 2.5.1: "lower-bounded").

    For each verdict the bound is the one-sided Clopper-Pearson bound on the share of true items among the labelled
    items with this verdict. It holds with probability >= the confidence over the labelled items, for each verdict by
    itself. The labelled items must be a random sample of what the gate will see.

    Attributes:
        p_true_if_positive: lower bound on P(g = 1 | verdict 1).
        p_true_if_negative: lower bound on P(g = 1 | verdict 0).
    """

    p_true_if_positive: float
    p_true_if_negative: float

    @classmethod
    def fit(cls, verdicts: ArrayLike, labels: ArrayLike, *, confidence: float = 0.95) -> NoisyChannel:
        """From verdicts and labels of the same items, 0 or 1, shape (n,) each.

        CalibrationError for other values, one class only, or a confidence outside (0, 1); a warning under 50 of one.
        """
        v, y = scored_labels(verdicts, labels)
        if not ((v == 0.0) | (v == 1.0)).all():
            raise CalibrationError("a channel takes verdicts 0 or 1; for a verifier with scores fit VennAbers")
        if not 0.0 < confidence < 1.0:
            raise CalibrationError(f"confidence must be in (0, 1), not {confidence}")
        enough_of_each_class(int(y.sum()), int((~y).sum()), least=1)  # with few labels the bounds are wide enough
        with needed_for("fitting a calibration", "calibrate"):
            from scipy.stats import binomtest

        low = [0.0, 0.0]
        for verdict in (0, 1):
            if (own := y[v == verdict]).size:
                test = binomtest(int(own.sum()), own.size, alternative="greater")
                low[verdict] = float(test.proportion_ci(confidence, method="exact").low)
        return cls(p_true_if_positive=low[1], p_true_if_negative=low[0])

    def lower(self, verdict: float) -> float:
        """Lower bound on P(g = 1) given the verdict: p_ref; CalibrationError if it is neither 0 nor 1."""
        if verdict not in (0, 1):
            raise CalibrationError(f"a channel takes a verdict of 0 or 1, not {verdict}")
        return self.p_true_if_positive if verdict == 1 else self.p_true_if_negative
