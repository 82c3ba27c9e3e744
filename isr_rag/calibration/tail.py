"""The rate among the answered: p_ref of a case is the reliability of all cases at least as sure as it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag.calibration.checks import labelled_scores
from isr_rag.calibration.errors import CalibrationError
from isr_rag.calibration.steps import Steps


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

    This is the argument of conformal risk control (Angelopoulos et al., "Conformal Risk Control", 2022, and for
    selection Jin and Candes, "Selection by Prediction with Conformal p-values", 2023): a wrong new case counts itself
    as the "+ 1", so the threshold does not depend on whether it was among the labelled ones. Therefore
    P(wrong | answered) is at most h * P(score >= T) / P(score >= t), which is h except for the cases between T and t.
    They are few where many labelled items are answered.

    The expectation is also over the labelled items, and a calibration that answers nothing counts as never wrong. A
    single calibration may exceed h; on average they do not. `isr_lab.simulations` measures both. For a bound that
    holds with a stated probability use `LearnThenTest` (`delta=`).

    A stated prevalence weighs the two classes: E + 1 with (1 - prevalence) / n_false, C with prevalence / n_true. The
    promise then needs only each class by itself to be exchangeable with the labelled one, and the prevalence right.

    Attributes:
        true: scores of items for which the predicate holds, ascending, in [0, 1].
        false: scores of items for which it does not, ascending, in [0, 1].

    Raises:
        CalibrationError: if a class is empty, or scores are not sorted or lie outside [0, 1].

    Examples:
        >>> from isr_rag.calibration import Tail
        >>> tail = Tail.fit([0.2] * 60 + [0.9] * 60, [0] * 60 + [1] * 60)
        >>> round(tail.steps().at(0.93), 3)  # p_ref of a case with this score: 1 - 1 / 61
        0.984
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

    def counts(self, scores: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of true and of false items at or above each score, shape of `scores` each."""
        at = np.asarray(scores, dtype=np.float64)
        found = [len(part) - np.searchsorted(np.asarray(part), at, side="left") for part in (self.true, self.false)]
        return found[0].astype(np.int64), found[1].astype(np.int64)

    def steps(self, prevalence: float | None = None) -> Steps:
        """p_ref as a function of the score.

        Args:
            prevalence: share of supported cases among those to decide, in (0, 1); None: as among the labelled
                items.

        Raises:
            CalibrationError: if the share lies outside (0, 1).
        """
        right, wrong = 1.0, 1.0
        if prevalence is not None:
            if not 0.0 < prevalence < 1.0:
                raise CalibrationError(f"prevalence must lie in (0, 1), not {prevalence}")
            right, wrong = prevalence / len(self.true), (1.0 - prevalence) / len(self.false)
        scores = np.unique([*self.true, *self.false])
        true, false = self.counts(scores)
        errors = wrong * (false + 1)
        return Steps.highest_so_far(scores, 1.0 - errors / (errors + right * true))


def loop_steps(scores: Sequence[Sequence[float]], labels: Sequence[Sequence[int]]) -> Steps:
    """p_ref of a whole acquisition loop: the same rate, over cases that stop at the first round that reaches a score.

    At a threshold t a case is answered at its first round whose score is at least t, and is wrong where the predicate
    does not hold for the evidence gathered by then. The argument of `Tail` applies, as the errors of a case depend only
    on the case and t.

    Args:
        scores: of each round of each case, shape (n, rounds of that case).
        labels: whether the predicate holds for the evidence of that round, same shape.

    Raises:
        CalibrationError: for no cases, or a case whose scores and labels differ in length.
    """
    if not scores or any(len(s) != len(y) or not s for s, y in zip(scores, labels, strict=True)):
        raise CalibrationError("a loop needs cases with a label for the score of each round")
    thresholds = np.unique([score for case in scores for score in case])
    answered, wrong = np.zeros(len(thresholds), dtype=np.int64), np.zeros(len(thresholds), dtype=np.int64)
    for case, held in zip(scores, labels, strict=True):
        reached = -1.0
        for score, label in zip(case, held, strict=True):
            if score > reached:  # this round is the first for the thresholds in (reached, score]
                first, last = np.searchsorted(thresholds, [reached, score], side="right")
                answered[first:last] += 1
                wrong[first:last] += not label
                reached = score
    return Steps.highest_so_far(thresholds, 1.0 - (wrong + 1) / (answered + 1))
