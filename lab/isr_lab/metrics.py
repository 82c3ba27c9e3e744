"""How good a probability or a ranking is: pure functions over arrays, with intervals.

Conventions: `scores` are probabilities in [0, 1] that the predicate holds, `labels` are 1 where it does and 0 where
it does not; both have shape (n,). An item is *answered* when its score reaches a threshold, so items with equal scores
are answered together. *Risk* is the share of label 0 among the answered, *coverage* the share of items answered.
No figure depends on the order of the items.

AUROC and Brier score equal scikit-learn's. They are written out because a bootstrap computes them thousands
of times, where the library's input checks take nine tenths of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from isr_rag.calibration import checks
from isr_rag.errors import CalibrationError

Floats = NDArray[np.float64]
Statistic = Callable[..., float]
_scipy = cast(Any, stats)  # has no types


class MetricError(CalibrationError):
    """A metric is undefined on these scores and labels; the message says why."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate on all items with an interval [lower, upper] of a nominal confidence."""

    estimate: float
    lower: float
    upper: float
    confidence: float

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.lower:.3f}, {self.upper:.3f}]"


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """The risk-coverage curve, one point per distinct score, from the surest down; shape (k,) each.

    Attributes:
        thresholds: answer when score >= threshold; strictly descending.
        coverage: share of the items answered, ascending to 1.
        risk: share of label 0 among the answered.
        answered: items answered.
    """

    thresholds: Floats
    coverage: Floats
    risk: Floats
    answered: NDArray[np.int64]

    def errors(self, ranks: Sequence[int] | NDArray[np.int64]) -> Floats:
        """Items with label 0 among the k surest, for each k in `ranks`; inside a tie the mean over its orders."""
        errors = np.append(0.0, self.risk * self.answered)
        return np.asarray(np.interp(ranks, np.append(0, self.answered), errors), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Bins:
    """A reliability diagram without empty bins: mean score, share of label 1, and items; shape (k,) each."""

    confidence: Floats
    frequency: Floats
    count: NDArray[np.int64]


def scored_labels(scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    """Scores as float64 and labels as 0 or 1, at least one; CalibrationError for anything else."""
    s, y = checks.scored_labels(scores, labels)
    if not s.size:
        raise MetricError("no items: a metric needs at least one scored and labelled item")
    return s, y.astype(np.int64)


def auroc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Area under the ROC curve; ties count one half. MetricError for items of one class only."""
    s, y = scored_labels(scores, labels)
    positive, negative = int(y.sum()), int(len(y) - y.sum())
    if not positive or not negative:
        raise MetricError(f"AUROC needs items of both classes; every label here is {int(y[0])}")
    rank_sum = float(_scipy.rankdata(s)[y == 1].sum())
    return (rank_sum - positive * (positive + 1) / 2) / (positive * negative)


def merged(lower: Floats, upper: Floats) -> Floats:
    """One probability of Venn-Abers' two, shape of either: p1 / (1 - p0 + p1), which minimises the worst log loss."""
    return upper / (1.0 - lower + upper)


def brier(scores: ArrayLike, labels: ArrayLike) -> float:
    """Brier score, mean squared difference of score and label, in [0, 1]."""
    s, y = scored_labels(scores, labels)
    return float(np.mean((s - y) ** 2))


def reliability_bins(scores: ArrayLike, labels: ArrayLike, *, bins: int = 15) -> Bins:
    """Mean score and observed frequency in at most `bins` >= 1 bins of equal mass; equal scores share a bin."""
    s, y = scored_labels(scores, labels)
    if bins < 1:
        raise MetricError(f"bins must be >= 1, not {bins}")
    edges = np.unique(np.quantile(s, np.linspace(0.0, 1.0, bins + 1)))
    index = np.searchsorted(edges[1:-1], s, side="right")
    count = np.bincount(index)
    used = count > 0
    mean, rate = (np.bincount(index, weights=values)[used] / count[used] for values in (s, y))
    return Bins(mean, rate, count[used].astype(np.int64))


def expected_calibration_error(scores: ArrayLike, labels: ArrayLike, *, bins: int = 15) -> float:
    """ECE: mean absolute difference of mean score and observed frequency over bins of equal mass, weighted by count.

    It is biased upwards on few items, by up to 0.4 sqrt(b / n) for n items in b bins, and bootstrap resamples add to
    that: the lower end of its interval can lie above the estimate.
    """
    table = reliability_bins(scores, labels, bins=bins)
    return float(np.average(np.abs(table.confidence - table.frequency), weights=table.count))


def risk_coverage_curve(scores: ArrayLike, labels: ArrayLike) -> RiskCoverage:
    """Risk and coverage of answering when score >= threshold, for every distinct score as threshold."""
    s, y = scored_labels(scores, labels)
    ascending, inverse = np.unique(s, return_inverse=True)
    answered = np.cumsum(np.bincount(inverse)[::-1])
    hits = np.cumsum(np.bincount(inverse, weights=y)[::-1])
    return RiskCoverage(ascending[::-1], answered / len(s), (answered - hits) / answered, answered.astype(np.int64))


def aurc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Area under the risk-coverage curve: the mean over k = 1..n of the risk of answering the k surest items."""
    curve = risk_coverage_curve(scores, labels)
    ranks = np.arange(1, int(curve.answered[-1]) + 1)
    return float(np.mean(curve.errors(ranks) / ranks))


def coverage_at_risk(scores: ArrayLike, labels: ArrayLike, risk: float) -> float:
    """The largest coverage whose risk on these items is at most `risk`; 0 if no threshold reaches it.

    The threshold is chosen on the items it is judged on, so this flatters; it promises nothing about new items.
    """
    curve = risk_coverage_curve(scores, labels)
    return float(np.max(curve.coverage[curve.risk <= risk + 1e-12], initial=0.0))


def wilson_interval(successes: int, n: int) -> Interval:
    """95% Wilson score interval of a proportion; MetricError for impossible counts."""
    if n < 1 or not 0 <= successes <= n:
        raise MetricError(f"a proportion needs 0 <= successes <= n and n >= 1, not {successes} of {n}")
    low, high = _scipy.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    return Interval(successes / n, float(low), float(high), 0.95)


def bootstrap_intervals(
    statistics: Mapping[str, Statistic],
    *arrays: ArrayLike,
    groups: Sequence[object] | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """Percentile bootstrap intervals of several statistics over the same resamples.

    Args:
        statistics: name -> function of the resampled arrays.
        arrays: shape (n, ...) each, resampled together (so differences of two models are paired).
        groups: shape (n,); whole groups are drawn, for items that are not independent inside one. None: items.
        resamples: number of resamples, >= 1.
        confidence: nominal coverage.
        seed: seed of the draws.

    Raises:
        MetricError: if lengths differ, or a statistic is undefined on more than half of the resamples.
    """
    data: list[NDArray[Any]] = [np.asarray(array) for array in arrays]
    n = len(data[0]) if data else 0
    if not data or any(len(array) != n for array in data):
        raise MetricError("bootstrap needs at least one array, and all of equal length")
    if groups is not None and len(groups) != n:
        raise MetricError(f"{len(groups)} groups for {n} items")
    rows: dict[object, list[int]] = {}
    for row, group in enumerate(range(n) if groups is None else groups):
        rows.setdefault(group, []).append(row)
    members = [np.array(own) for own in rows.values()]
    estimates = {name: float(statistic(*data)) for name, statistic in statistics.items()}
    draws: dict[str, list[float]] = {name: [] for name in statistics}
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        drawn = np.concatenate([members[i] for i in rng.integers(0, len(members), len(members)).tolist()])
        resampled = [array[drawn] for array in data]
        for name, statistic in statistics.items():
            try:
                draws[name].append(statistic(*resampled))
            except MetricError:
                continue  # undefined on this resample; too many of them are refused below
    intervals: dict[str, Interval] = {}
    for name, values in draws.items():
        if 2 * len(values) < resamples or not values:
            raise MetricError(
                f"{name} is undefined on {resamples - len(values)} of {resamples} resamples: too few items"
            )
        low, high = np.percentile(values, [50.0 * (1.0 - confidence), 50.0 * (1.0 + confidence)])
        intervals[name] = Interval(estimates[name], float(low), float(high), confidence)
    return intervals


def bootstrap_interval(statistic: Statistic, *arrays: ArrayLike, **settings: Any) -> Interval:
    """Percentile bootstrap interval of one statistic; settings as for `bootstrap_intervals`."""
    return bootstrap_intervals({"statistic": statistic}, *arrays, **settings)["statistic"]
