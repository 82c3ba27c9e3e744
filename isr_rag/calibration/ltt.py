"""Learn-then-Test: a score threshold with a finite-sample bound on the hallucination rate among the answered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag.calibration.checks import scored_labels
from isr_rag.errors import CalibrationError, needed_for

Floats = NDArray[np.float64]
Scope = Literal["score", "gate"]
_FAR = 10_000_000


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a Learn-then-Test fit found: a threshold, or the reason why there is none.

    Attributes:
        h_star: highest hallucination rate among answered items.
        delta: probability, over the labelled items, that the rate at the threshold exceeds it.
        scope: what "answered" means. `score`: every item with score >= value. `gate`: those of them that the gate
            also answers by its own rule. A bound for one of the two says nothing about the other.
        value: answer only when score >= value; None: no valid threshold.
        reason: in a sentence, what was found.
        items: labelled items counted (one per group).
        answered: of these, items answered at the threshold, or at the first candidate if there is no threshold.
        errors: of the answered, items for which the predicate does not hold.
        p_value: of the test at that candidate.
        tested: candidates tested before the sequence stopped, the failing one included.
        needed: labelled items needed to pass at the error rate seen; None if more labels would not help.
    """

    h_star: float
    delta: float
    scope: Scope
    value: float | None
    reason: str
    items: int
    answered: int
    errors: int
    p_value: float
    tested: int
    needed: int | None = None

    def allows(self, score: float) -> bool:
        """Whether an item with this score is among those that the bound covers."""
        return self.value is not None and score >= self.value

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class LearnThenTest:
    """Fixed-sequence testing over descending score thresholds (Angelopoulos et al. 2021), with exact binomial tests.

    At threshold t the hypothesis "P(g = 0 | score >= t) > h_star" is tested by p = P(Bin(answered, h_star) <= errors).
    Thresholds are tested one after the other, each at level delta, until one is not rejected; the last rejected one is
    the result. Then, over the draw of the labelled items, P(hallucination rate among answered > h_star) <= delta, for
    items independent of each other and drawn like those the gate will see. One item of each group is counted.

    The bound is exact only if the thresholds were fixed without looking at the items tested: `plan` makes them from
    other labelled items (a pilot), and begins where the test is most likely to pass.

    Attributes:
        h_star: target hallucination rate in (0, 1).
        delta: tolerated probability of exceeding it, in (0, 1).
    """

    h_star: float
    delta: float

    def __post_init__(self) -> None:
        for name, value in (("h_star", self.h_star), ("delta", self.delta)):
            if not 0.0 < value < 1.0:
                raise CalibrationError(f"{name} must lie strictly between 0 and 1, not {value}")

    @property
    def fewest(self) -> int:
        """The fewest answered items with which a test can pass, none of them wrong."""
        return math.ceil(math.log(self.delta) / math.log1p(-self.h_star))

    def plan(self, scores: ArrayLike, labels: ArrayLike, *, items: int, answerable: ArrayLike | None = None) -> Floats:
        """Descending thresholds for `fit`, from pilot items disjoint from those that will be tested; shape (k,).

        Args:
            scores, labels, answerable: of the pilot items, as in `fit`.
            items: number of items (groups) that will be tested, >= 1.
        """
        s, y, may = _checked(scores, labels, answerable)
        if not may.any():
            return np.ones(1)
        candidates = np.unique(np.quantile(s[may], np.linspace(0.0, 1.0, 100), method="inverted_cdf"))[::-1]
        answered = np.array([np.sum(may & (s >= t)) for t in candidates])
        errors = np.array([np.sum(may & (s >= t) & ~y) for t in candidates])
        power = self._power(items, answered / len(s), (errors + 0.5) / (answered + 1.0))
        if power.max() > 0.01:
            start = int(np.argmax(power >= power.max() - 0.01))
        else:  # hopeless everywhere: begin where the refusal says most about what is missing
            start = int(np.argmin(_binomial().cdf(errors, answered, self.h_star)))
        return candidates[start:]

    def fit(
        self,
        scores: ArrayLike,
        labels: ArrayLike,
        *,
        thresholds: ArrayLike,
        answerable: ArrayLike | None = None,
        groups: Sequence[object] | None = None,
        seed: int = 0,
    ) -> Threshold:
        """Find the lowest threshold that keeps to h_star.

        Args:
            scores: in [0, 1], shape (n,).
            labels: 1 where the predicate holds, shape (n,).
            thresholds: fixed before these items were looked at, strictly descending, shape (k,).
            answerable: whether the gate's own rule answers the item, shape (n,), made without its label (scope `gate`).
            groups: shape (n,); one item of each group is counted, drawn by `seed`.
            seed: seed of that draw.

        Raises:
            CalibrationError: for bad scores, labels or thresholds.
        """
        s, y, may = _checked(scores, labels, answerable)
        grid = np.asarray(thresholds, dtype=np.float64)
        if grid.ndim != 1 or not grid.size or not np.all(np.isfinite(grid)) or np.any(np.diff(grid) >= 0.0):
            raise CalibrationError("thresholds must be finite and strictly descending, at least one")
        if groups is not None:
            rows = _one_of_each(groups, len(s), seed)
            s, y, may = s[rows], y[rows], may[rows]
        answered = np.array([np.sum(may & (s >= t)) for t in grid])
        errors = np.array([np.sum(may & (s >= t) & ~y) for t in grid])
        p_values = _binomial().cdf(errors, answered, self.h_star)
        passed = int(np.argmin(np.append(p_values <= self.delta, False)))  # thresholds rejected in sequence
        at = max(passed - 1, 0)
        needed = None if passed else self._needed(len(s), int(answered[at]), int(errors[at]))
        seen = (
            f"P(hallucination rate among answered > {self.h_star:g}) <= {self.delta:g}: {errors[at]} of {answered[at]} "
            f"answered wrong at score >= {grid[at]:.6g} ({len(s)} independent labelled items)"
        )
        return Threshold(
            h_star=self.h_star,
            delta=self.delta,
            scope="score" if answerable is None else "gate",
            value=float(grid[at]) if passed else None,
            reason=seen if passed else f"no valid threshold for {seen}; {_advice(int(answered[at]), needed)}",
            items=len(s),
            answered=int(answered[at]),
            errors=int(errors[at]),
            p_value=float(p_values[at]),
            tested=min(passed + 1, grid.size),
            needed=needed,
        )

    def _needed(self, items: int, answered: int, errors: int) -> int | None:
        """Labelled items at which the test would pass with the shares answered and wrong that were seen."""
        if not answered or errors >= self.h_star * answered:
            return None
        rate, n = errors / answered, self.fewest
        while n < _FAR and _binomial().cdf(math.ceil(rate * n), n, self.h_star) > self.delta:
            n = math.ceil(n * 1.02) + 1
        return math.ceil(n * items / answered) if n < _FAR else None

    def _power(self, items: int, coverage: Floats, error_rate: Floats) -> Floats:
        """Chance that a test on this many items passes, if no more are answered than in one draw of ten; shape (k,)."""
        binom = _binomial()
        n = binom.ppf(0.1, items, coverage)
        allowed = binom.ppf(self.delta, n, self.h_star)  # smallest k with cdf >= delta: may be one too many
        allowed = allowed - (binom.cdf(allowed, n, self.h_star) > self.delta)
        return cast(Floats, binom.cdf(allowed, n, error_rate))  # 0 where allowed is -1


def _advice(answered: int, needed: int | None) -> str:
    if not answered:
        return "no item was answered there, so there was nothing to test"
    if needed is None:
        return "the rate seen is not below the target, so more labels would not help: the scores must improve"
    return f"at these rates about {needed} independent labelled items would be needed for this test"


def _binomial() -> Any:
    with needed_for("fitting a calibration", "calibrate"):
        from scipy import stats
    return cast(Any, stats).binom


def _checked(
    scores: ArrayLike, labels: ArrayLike, answerable: ArrayLike | None
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    s, y = scored_labels(scores, labels)
    may = np.ones(s.shape, dtype=bool) if answerable is None else np.asarray(answerable, dtype=bool)
    if not s.size or s.shape != may.shape:
        raise CalibrationError("scores, labels and answerable must have one and the same length, at least 1")
    return s, y, may


def _one_of_each(groups: Sequence[object], n: int, seed: int) -> NDArray[np.int64]:
    if len(groups) != n:
        raise CalibrationError(f"{len(groups)} groups for {n} items")
    drawn = np.random.default_rng(seed).permutation(n)
    return np.array(sorted({groups[row]: int(row) for row in drawn[::-1]}.values()))  # the first drawn of each
