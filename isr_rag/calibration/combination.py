"""A mean probability joined with what the words show against the claim, so that both are calibrated as one score."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isr_rag.calibration.errors import CalibrationError, fitting_libraries
from isr_rag.wording import FEATURES, VERSION, Wording

Floats = NDArray[np.float64]
LEAST_OF_A_CLASS = 200
"""Items of each class from which on a combination is tried: weights fitted on few cost more than they bring."""
LEAST_FOR_A_WEIGHT = 100
"""Items of each class from which on the best chunk alone may count."""
WEIGHT = 2.0 / 3.0
"""What the best chunk read alone counts, see `closely`. Of 1/3, 1/2, 2/3, 3/4 and 1, tried on the calibration items of
the standard adjudicator with one source left out at a time, those from 1/2 on were wrong about equally often among the
surest, and 1 had the highest log loss."""
CHOICES = 2
"""It counts, or it does not: as many scores are tried on the labelled items."""
COVERAGES = (0.1, 0.2, 0.4)
"""Shares of the surest items at which a combination must not be wrong more often than the probability alone."""
_LEAST_OF_A_SOURCE = 40
_EPS = 1e-6
_STANDARD_ERRORS = 2.0
_RIDGE = 1.0
_ROUNDS = 4
_LEAST_SLOPE = 1e-3


@dataclass(frozen=True, slots=True)
class Combination:
    """One score from q_bar and the wording, monotone in both.

    `sigmoid(intercept + slope * logit(q_bar) - penalty)`, where the penalty is the lowest of any sentence:
    the sum of weight * feature (`isr_rag.wording.FEATURES`). As no weight is negative and each feature counts against
    the claim, nothing that makes the wording worse can raise the score.

    Attributes:
        intercept: in log-odds.
        slope: factor of the log-odds of q_bar; above 0, so that the score never falls when a q rises.
        weights: log-odds taken off for each feature, by name; none below 0.
        version: of the wording that it was fitted on.

    Raises:
        CalibrationError: if the slope is not above 0, a weight is below 0, a number is not finite, or the wording is
            another version's.
    """

    intercept: float
    slope: float
    weights: Mapping[str, float]
    version: str = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION or set(self.weights) != set(FEATURES):
            raise CalibrationError(
                f"the combination weighs {sorted(self.weights)} of {self.version}; this version of isr-rag reads "
                f"{sorted(FEATURES)} of {VERSION}"
            )
        if not all(map(math.isfinite, (self.intercept, self.slope, *self.weights.values()))) or self.slope <= 0.0:
            raise CalibrationError("a combination needs finite weights, and a slope above 0")
        if min(self.weights.values()) < 0.0:
            raise CalibrationError(f"a combination must not reward what speaks against a claim: {dict(self.weights)}")

    def score(self, q_bar: float, wording: Wording) -> float:
        """The score in [0, 1] of a case with this mean probability and wording."""
        weights = [self.weights[name] for name in FEATURES]
        penalty = min(
            math.fsum(w * x for w, x in zip(weights, sentence, strict=True)) for sentence in wording.sentences
        )
        x = self.intercept + self.slope * _logit(q_bar) - penalty
        return 1.0 / (1.0 + math.exp(-x)) if x >= 0.0 else math.exp(x) / (1.0 + math.exp(x))

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Combination:
        """The inverse of `to_dict`."""
        weights = {str(name): float(weight) for name, weight in data["weights"].items()}
        return cls(float(data["intercept"]), float(data["slope"]), weights, str(data["version"]))


@dataclass(frozen=True, slots=True)
class Cases:
    """Labelled scores with their wording: lists of one length; groups stay together in a fold."""

    q_bar: Sequence[float]
    wording: Sequence[Wording]
    labels: Sequence[int]
    groups: Sequence[str]
    sources: Sequence[str | None]

    def take(self, rows: Sequence[int]) -> Cases:
        """Some of them."""
        return Cases(
            [self.q_bar[row] for row in rows],
            [self.wording[row] for row in rows],
            [self.labels[row] for row in rows],
            [self.groups[row] for row in rows],
            [self.sources[row] for row in rows],
        )


def closely(q_bar: float, alone: float, weight: float) -> float:
    """The mean of q_bar and of the best chunk's probability read alone, in log-odds; the latter counts `weight`.

    The same mean joins q_bar with what a second reader says. It rises with both, so that nothing that either says
    against a claim can raise the score.
    """
    if alone == q_bar or weight == 0.0:
        return q_bar
    x = (1.0 - weight) * _logit(q_bar) + weight * _logit(alone)
    low, high = sorted((q_bar, alone))
    return min(high, max(low, 1.0 / (1.0 + math.exp(-x))))  # between both, also where log-odds are cut off


def second_weight(q_bar: Sequence[float], second: Sequence[float], labels: Sequence[int]) -> float:
    """What a second reader counts in the mean of its log-odds and those of q_bar, by a regression with bounds.

    Never below 0, so that nothing can gain by a lower probability; 0 where only a negative weight would fit.
    """
    x = np.array([[_logit(q), _logit(other)] for q, other in zip(q_bar, second, strict=True)])
    _, slope, weight = _regress(x, np.asarray(labels))
    return weight / (slope + weight)


def fit(cases: Cases) -> Combination:
    """Logistic regression with bounds: slope above 0, no weight of the wording below 0, a light ridge.

    Each item counts by its nearest sentence, the one with the lowest penalty; which one that is and the weights are
    found in turn.
    """
    logits = np.array([_logit(q) for q in cases.q_bar])
    labels = np.asarray(cases.labels)
    weights = np.ones(len(FEATURES))
    intercept, slope = 0.0, 1.0
    for _ in range(_ROUNDS):
        nearest = np.array([min(w.sentences, key=lambda s: float(weights @ s)) for w in cases.wording])
        intercept, slope, *rest = _regress(np.column_stack([logits, -nearest]), labels)
        weights = np.asarray(rest)
    return Combination(intercept, slope, dict(zip(FEATURES, map(float, weights), strict=True)))


def out_of_fold(cases: Cases, folds: int, seed: int) -> Floats:
    """Each case's score by a combination that was fitted without its fold; shape (n,)."""
    return _scores(cases, split(cases.labels, cases.groups, folds, seed))


def helps(cases: Cases, folds: int, seed: int) -> bool:
    """Whether the combination ranks and predicts better than q_bar alone where it was not fitted.

    Fitted without one source at a time (without one fold of groups where there are fewer than three sources large
    enough), it must predict the labels left out better by two standard errors of the log loss, averaged within groups,
    and must not be wrong more often at any of `COVERAGES`, averaged over what was left out. False under
    `LEAST_OF_A_CLASS` items of a class.
    """
    labels = np.asarray(cases.labels)
    if min(labels.sum(), len(labels) - labels.sum()) < LEAST_OF_A_CLASS or len(set(cases.groups)) < folds:
        return False
    parts = _by_source(cases.labels, cases.sources) or split(cases.labels, cases.groups, folds, seed)
    q_bar = np.asarray(cases.q_bar)
    joined, alone = _scores(cases, parts), _fitted_elsewhere(q_bar, labels, parts)
    if _more_wrong(joined, q_bar, labels, parts).max() > 0.0:
        return False
    gain = _gain(joined, alone, labels, cases.groups, parts)
    return bool(gain.mean() > _STANDARD_ERRORS * gain.std(ddof=1) / math.sqrt(len(gain)))


def best_weight(
    q_bar: Sequence[float],
    alone: Sequence[float],
    labels: Sequence[int],
    groups: Sequence[str],
    sources: Sequence[str | None],
    folds: int,
    seed: int,
) -> float:
    """`WEIGHT` where the best chunk read alone makes the surest wrong less often, else 0.

    Averaged over `COVERAGES` and over sources (folds of groups where there are fewer than three sources large enough).
    0 under `LEAST_FOR_A_WEIGHT` items of a class.
    """
    y, old = np.asarray(labels), np.asarray(q_bar)
    if min(y.sum(), len(y) - y.sum()) < LEAST_FOR_A_WEIGHT or len(set(groups)) < folds:
        return 0.0
    new = np.array([closely(q, best, WEIGHT) for q, best in zip(q_bar, alone, strict=True)])
    parts = _by_source(labels, sources) or split(labels, groups, folds, seed)
    return WEIGHT if _more_wrong(new, old, y, parts).mean() < 0.0 else 0.0


Parts = list[tuple[list[int], list[int]]]


def _fitted_elsewhere(scores: Floats, labels: NDArray[Any], parts: Parts) -> Floats:
    """A logistic curve of the scores, for each part fitted without it."""
    fitted, x = np.empty(len(labels)), np.array([[_logit(score)] for score in scores.tolist()])
    for seen, unseen in parts:
        intercept, slope = _regress(x[seen], labels[seen])
        fitted[unseen] = 1.0 / (1.0 + np.exp(-(intercept + slope * x[unseen, 0])))
    return fitted


def _more_wrong(new: Floats, old: Floats, labels: NDArray[Any], parts: Parts) -> Floats:
    """By how much the share wrong among the surest rises at each of `COVERAGES`, averaged over the parts left out."""
    worse = [
        [
            _wrong_in_surest(new[unseen], labels[unseen], coverage)
            - _wrong_in_surest(old[unseen], labels[unseen], coverage)
            for _, unseen in parts
        ]
        for coverage in COVERAGES
    ]
    return cast(Floats, np.mean(worse, axis=1))


def _gain(new: Floats, old: Floats, labels: NDArray[Any], groups: Sequence[str], parts: Parts) -> Floats:
    """By how much the log loss falls in each group that was left out; shape (groups,)."""
    tested = np.concatenate([unseen for _, unseen in parts])
    gain: dict[str, list[float]] = defaultdict(list)
    for row, value in zip(tested, (_log_loss(old, labels) - _log_loss(new, labels))[tested], strict=True):
        gain[groups[int(row)]].append(float(value))
    return np.array([float(np.mean(values)) for values in gain.values()])


def _by_source(given: Sequence[int], sources: Sequence[str | None]) -> Parts:
    """Rows seen and unseen when each source that is large enough is left out in turn; empty for fewer than three."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, source in enumerate(sources):
        rows[source or ""].append(row)
    labels = np.asarray(given)
    parts = [
        ([row for row in range(len(labels)) if sources[row] != name], own)
        for name, own in sorted(rows.items())
        if name and min(labels[own].sum(), len(own) - labels[own].sum()) >= _LEAST_OF_A_SOURCE
    ]
    return parts if len(parts) >= 3 else []


def _scores(cases: Cases, parts: Sequence[tuple[list[int], list[int]]]) -> Floats:
    scores = np.full(len(cases.labels), np.nan)
    for seen, unseen in parts:
        combination = fit(cases.take(seen))
        for row in unseen:
            scores[row] = combination.score(cases.q_bar[row], cases.wording[row])
    return scores


def _wrong_in_surest(scores: Floats, labels: NDArray[Any], coverage: float) -> float:
    """Share wrong among the surest; of equal scores at the border, all."""
    count = max(1, round(coverage * len(scores)))
    border = np.sort(scores)[-count]
    return float(1.0 - labels[scores >= border].mean())


def split(labels: Sequence[int], groups: Sequence[str], folds: int, seed: int) -> list[tuple[list[int], list[int]]]:
    """Rows seen and unseen in each fold; classes spread evenly, groups kept together.

    Raises:
        CalibrationError: if there are fewer groups than folds.
    """
    with fitting_libraries():
        from sklearn.model_selection import StratifiedGroupKFold

    if len(set(groups)) < folds:
        raise CalibrationError(f"{len(set(groups))} groups do not make {folds} folds; label items from more sources")
    splitter = cast(Any, StratifiedGroupKFold)(n_splits=folds, shuffle=True, random_state=seed)
    return [(seen.tolist(), unseen.tolist()) for seen, unseen in splitter.split(np.zeros(len(labels)), labels, groups)]


def _regress(x: Floats, labels: NDArray[Any]) -> list[float]:
    """Intercept and weights of a logistic regression; the first weight at least `_LEAST_SLOPE`, the others >= 0."""
    with fitting_libraries():
        from scipy.optimize import minimize

    signs, ones = np.where(labels == 1, 1.0, -1.0), np.column_stack([np.ones(len(x)), x])
    ridge = np.array([0.0, *[_RIDGE] * x.shape[1]])

    def loss(beta: Floats) -> tuple[float, Floats]:
        margin = signs * (ones @ beta)
        gradient = -(signs / (1.0 + np.exp(np.clip(margin, -500, 500)))) @ ones + ridge * beta
        return float(np.logaddexp(0.0, -margin).sum() + 0.5 * ridge @ beta**2), gradient

    bounds = [(None, None), (_LEAST_SLOPE, None), *[(0.0, None)] * (x.shape[1] - 1)]
    start = np.array([0.0, 1.0, *[0.5] * (x.shape[1] - 1)])
    found: Any = cast(Any, minimize)(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return [float(value) for value in found.x]


def _logit(q: float) -> float:
    inside = min(max(q, _EPS), 1.0 - _EPS)
    return math.log(inside) - math.log1p(-inside)


def _log_loss(p: Floats, labels: NDArray[Any]) -> Floats:
    inside = np.clip(p, _EPS, 1.0 - _EPS)
    return -np.where(labels == 1, np.log(inside), np.log1p(-inside))
