"""How good a probability, a ranking or a gate is: pure functions over arrays, with intervals.

Conventions: `scores` are probabilities in [0, 1] that the predicate holds, `labels` are 1 where it does and 0 where
it does not; both have shape (n,). An item is *answered* when its score reaches a threshold, so items with equal scores
are answered together. *Risk* is the share of label 0 among the answered, *coverage* the share of items answered.
No figure depends on the order of the items.

Each figure is computed thousands of times inside a bootstrap, where the input checks of a general library take most of
the time; so the one-line formulas are here, and the tests hold them equal to scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from isr_rag.calibration import checks
from isr_rag.errors import ISRError

Floats = NDArray[np.float64]
Statistic = Callable[..., float]
_scipy = cast(Any, stats)  # ships no types


class MetricError(ISRError, ValueError):
    """A metric is undefined on these scores and labels; the message says why."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its interval.

    Attributes:
        estimate: the statistic on all items.
        lower: lower end.
        upper: upper end.
        confidence: nominal coverage of [lower, upper].
    """

    estimate: float
    lower: float
    upper: float
    confidence: float

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.lower:.3f}, {self.upper:.3f}]"


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """The risk-coverage curve, one point per distinct score, from the surest down.

    Attributes:
        thresholds: answer when score >= threshold; strictly descending, shape (k,).
        coverage: share of the items answered, ascending to 1, shape (k,).
        risk: share of label 0 among the answered, shape (k,).
        recall: share of the label-1 items answered (nan where there are none), shape (k,).
        answered: items answered, shape (k,).
    """

    thresholds: Floats
    coverage: Floats
    risk: Floats
    recall: Floats
    answered: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """One threshold on a risk-coverage curve; coverage 0 and threshold None where no threshold qualifies."""

    threshold: float | None
    coverage: float
    recall: float
    risk: float | None


@dataclass(frozen=True, slots=True)
class Bins:
    """A reliability diagram in numbers, empty bins left out; shape (k,) each.

    Attributes:
        confidence: mean score in the bin.
        frequency: share of label 1 in the bin.
        count: items in the bin.
    """

    confidence: Floats
    frequency: Floats
    count: NDArray[np.int64]


def scored_labels(scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    """Scores as float64 and labels as 0 or 1, checked.

    Raises:
        MetricError: when empty, of unequal length, outside [0, 1], NaN, or a label is neither 0 nor 1.
    """
    s, y = checks.scored_labels(scores, labels, error=MetricError)
    if not s.size:
        raise MetricError("no items: a metric needs at least one scored and labelled item")
    return s, y.astype(np.int64)


def _both_classes(labels: NDArray[np.int64], metric: str) -> None:
    if labels.min() == labels.max():
        raise MetricError(f"{metric} needs items of both classes; every label here is {int(labels[0])}")


def auroc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Area under the ROC curve; ties count one half.

    Raises:
        MetricError: if only one class is there.
    """
    s, y = scored_labels(scores, labels)
    _both_classes(y, "AUROC")
    positive = int(y.sum())
    rank_sum = float(_scipy.rankdata(s)[y == 1].sum())
    return (rank_sum - positive * (positive + 1) / 2) / (positive * (len(y) - positive))


def brier(scores: ArrayLike, labels: ArrayLike) -> float:
    """Brier score, mean squared difference of score and label, in [0, 1]."""
    s, y = scored_labels(scores, labels)
    return float(np.mean((s - y) ** 2))


def log_loss(scores: ArrayLike, labels: ArrayLike, *, eps: float = 1e-9) -> float:
    """Mean negative log-likelihood in nats; scores are kept in [eps, 1 - eps] so that it stays finite."""
    s, y = scored_labels(scores, labels)
    given = np.where(y == 1, s, 1.0 - s)  # probability given to the true label
    return -float(np.mean(np.log(np.clip(given, eps, 1.0 - eps))))


def accuracy(scores: ArrayLike, labels: ArrayLike, *, threshold: float = 0.5) -> float:
    """Share of items on the right side of the threshold (score >= threshold means true)."""
    s, y = scored_labels(scores, labels)
    return int(np.count_nonzero((s >= threshold) == (y == 1))) / len(y)


def balanced_accuracy(scores: ArrayLike, labels: ArrayLike, *, threshold: float = 0.5) -> float:
    """Mean of the two classes' accuracies at the threshold.

    Raises:
        MetricError: if only one class is there.
    """
    s, y = scored_labels(scores, labels)
    _both_classes(y, "balanced accuracy")
    said = s >= threshold
    return float((said[y == 1].mean() + (~said[y == 0]).mean()) / 2)


def reliability_bins(
    scores: ArrayLike, labels: ArrayLike, *, bins: int = 15, strategy: Literal["mass", "width"] = "mass"
) -> Bins:
    """Mean score and observed frequency by bin.

    Args:
        scores: probabilities, shape (n,).
        labels: 0 or 1, shape (n,).
        bins: number of bins, >= 1.
        strategy: `mass`: edges at the scores' quantiles, equal scores in one bin; `width`: equal steps of [0, 1].
    """
    s, y = scored_labels(scores, labels)
    if bins < 1:
        raise MetricError(f"bins must be >= 1, not {bins}")
    steps = np.linspace(0.0, 1.0, bins + 1)
    edges = np.unique(np.quantile(s, steps)) if strategy == "mass" else steps
    index = np.searchsorted(edges[1:-1], s, side="right")
    count = np.bincount(index, minlength=len(edges))
    used = count > 0
    mean = np.bincount(index, weights=s, minlength=len(edges))[used] / count[used]
    rate = np.bincount(index, weights=y, minlength=len(edges))[used] / count[used]
    return Bins(mean, rate, count[used].astype(np.int64))


def expected_calibration_error(
    scores: ArrayLike, labels: ArrayLike, *, bins: int = 15, strategy: Literal["mass", "width"] = "mass"
) -> float:
    """ECE: mean absolute difference of mean score and observed frequency over bins, weighted by count.

    It is biased upwards on few items: with n items in b equal bins a perfect score shows up to 0.4 sqrt(b / n).
    Bootstrap resamples add to that bias, so the lower end of its interval can lie above the estimate.
    """
    table = reliability_bins(scores, labels, bins=bins, strategy=strategy)
    return float(np.average(np.abs(table.confidence - table.frequency), weights=table.count))


def risk_coverage_curve(scores: ArrayLike, labels: ArrayLike) -> RiskCoverage:
    """Risk and coverage of answering when score >= threshold, for every distinct score as threshold."""
    s, y = scored_labels(scores, labels)
    ascending, inverse = np.unique(s, return_inverse=True)
    answered = np.cumsum(np.bincount(inverse)[::-1])
    hits = np.cumsum(np.bincount(inverse, weights=y)[::-1])
    positives = int(y.sum())
    recall = hits / positives if positives else np.full(len(hits), np.nan)
    return RiskCoverage(
        ascending[::-1], answered / len(s), (answered - hits) / answered, recall, answered.astype(np.int64)
    )


def aurc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Area under the risk-coverage curve: the mean over k = 1..n of the risk of answering the k surest items.

    Inside a block of equal scores the expected risk under a random order is taken.
    """
    curve = risk_coverage_curve(scores, labels)
    ranks = np.arange(1, int(curve.answered[-1]) + 1)
    return float(np.mean(_expected_errors(curve, ranks) / ranks))


def _expected_errors(curve: RiskCoverage, ranks: NDArray[np.int64]) -> Floats:
    """Items with label 0 among the k surest, in expectation over the order inside ties; shape of `ranks`."""
    errors = np.concatenate([[0.0], curve.risk * curve.answered])
    expected: Floats = np.interp(ranks, np.concatenate([[0], curve.answered]), errors)
    return expected


def coverage_at_risk(scores: ArrayLike, labels: ArrayLike, risk: float) -> OperatingPoint:
    """The largest coverage whose risk on these items is at most `risk`.

    The threshold is chosen on the items it is judged on, so this flatters; it promises nothing about new items.
    """
    curve = risk_coverage_curve(scores, labels)
    within = np.flatnonzero(curve.risk <= risk + 1e-12)
    if not within.size:
        return OperatingPoint(None, 0.0, 0.0, None)
    best = int(within[-1])
    return OperatingPoint(
        float(curve.thresholds[best]), float(curve.coverage[best]), float(curve.recall[best]), float(curve.risk[best])
    )


def precision_in_surest(scores: ArrayLike, labels: ArrayLike, *, fraction: float = 0.2) -> float:
    """Share of label 1 among the highest-scored fraction of the items (at least one; ties in expectation).

    Raises:
        MetricError: if fraction is outside (0, 1].
    """
    if not 0.0 < fraction <= 1.0:
        raise MetricError(f"fraction must be in (0, 1], not {fraction}")
    curve = risk_coverage_curve(scores, labels)
    k = max(1, round(fraction * int(curve.answered[-1])))
    return 1.0 - float(_expected_errors(curve, np.array([k]))[0]) / k


# -- intervals ---------------------------------------------------------------------------------------------------


def _counts(successes: int, n: int, confidence: float) -> None:
    if n < 1 or not 0 <= successes <= n:
        raise MetricError(f"a proportion needs 0 <= successes <= n and n >= 1, not {successes} of {n}")
    if not 0.0 < confidence < 1.0:
        raise MetricError(f"confidence must be in (0, 1), not {confidence}")


def wilson_interval(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Wilson score interval of a proportion."""
    _counts(successes, n, confidence)
    low, high = _scipy.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return Interval(successes / n, float(low), float(high), confidence)


def clopper_pearson_interval(
    successes: int, n: int, *, confidence: float = 0.95, side: Literal["both", "lower", "upper"] = "both"
) -> Interval:
    """Exact interval of a proportion; one-sided (the other end 0 or 1) for `side` lower or upper."""
    _counts(successes, n, confidence)
    alternative = {"both": "two-sided", "lower": "greater", "upper": "less"}[side]
    test = _scipy.binomtest(successes, n, alternative=alternative)
    low, high = test.proportion_ci(confidence, method="exact")
    return Interval(successes / n, float(low), float(high), confidence)


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
        seed: seed of the draws; the same seed gives the same interval on any machine.

    Raises:
        MetricError: if lengths differ, or a statistic is undefined on more than half of the resamples (one class
            only); fewer are left out.
    """
    data: list[NDArray[Any]] = [np.asarray(array) for array in arrays]
    if not data or any(len(array) != len(data[0]) for array in data):
        raise MetricError("bootstrap needs at least one array, and all of equal length")
    if groups is not None and len(groups) != len(data[0]):
        raise MetricError(f"{len(groups)} groups for {len(data[0])} items")
    members = _group_members(groups, len(data[0]))
    estimates = {name: statistic(*data) for name, statistic in statistics.items()}
    draws: dict[str, list[float]] = {name: [] for name in statistics}
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        drawn: list[int] = rng.integers(0, len(members), len(members)).tolist()
        rows = np.concatenate([members[i] for i in drawn])
        resampled = [array[rows] for array in data]
        for name, statistic in statistics.items():
            try:
                draws[name].append(statistic(*resampled))
            except MetricError:
                continue  # undefined on this resample; too many of them are refused below
    tails = [50.0 * (1.0 - confidence), 50.0 * (1.0 + confidence)]
    intervals: dict[str, Interval] = {}
    for name, values in draws.items():
        if 2 * len(values) < resamples or not values:
            raise MetricError(
                f"{name} is undefined on {resamples - len(values)} of {resamples} resamples: too few items"
            )
        low, high = np.percentile(values, tails)
        intervals[name] = Interval(float(estimates[name]), float(low), float(high), confidence)
    return intervals


def bootstrap_interval(
    statistic: Statistic,
    *arrays: ArrayLike,
    groups: Sequence[object] | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of one statistic; see `bootstrap_intervals`."""
    return bootstrap_intervals(
        {"statistic": statistic}, *arrays, groups=groups, resamples=resamples, confidence=confidence, seed=seed
    )["statistic"]


def paired_bootstrap_interval(
    metric: Statistic,
    first: ArrayLike,
    second: ArrayLike,
    labels: ArrayLike,
    *,
    groups: Sequence[object] | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Interval of `metric(first, labels) - metric(second, labels)` for two score vectors over the same items."""

    def difference(a: Floats, b: Floats, y: Floats) -> float:
        return metric(a, y) - metric(b, y)

    return bootstrap_interval(
        difference, first, second, labels, groups=groups, resamples=resamples, confidence=confidence, seed=seed
    )


def _group_members(groups: Sequence[object] | None, n: int) -> list[NDArray[np.int64]]:
    if groups is None:
        return [np.array([row]) for row in range(n)]
    rows: dict[object, list[int]] = {}
    for row, group in enumerate(groups):
        rows.setdefault(group, []).append(row)
    return [np.array(indices) for indices in rows.values()]
