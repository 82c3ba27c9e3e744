"""A mean probability joined with what the words show, so that both are calibrated as one score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isr_rag.calibration.errors import CalibrationError, fitting_libraries
from isr_rag.wording import VERSION, Wording

Floats = NDArray[np.float64]
LEAST_OF_A_CLASS = 200
"""Items of each class from which on a combination is tried: weights fitted on few cost more than they bring."""
_NAMES = tuple(field.name for field in fields(Wording))
_EPS = 1e-6
_STANDARD_ERRORS = 2.0


@dataclass(frozen=True, slots=True)
class Combination:
    """One score from q_bar and the wording: `sigmoid(intercept + slope * logit(q_bar) + sum of weight * value)`.

    Attributes:
        intercept: in log-odds.
        slope: factor of the log-odds of q_bar; above 0, so that the score never falls when a q rises.
        weights: log-odds for each value of `Wording`, by name.
        version: of the wording that it was fitted on.

    Raises:
        CalibrationError: if the slope is not above 0, a number is not finite, or the wording is another version's.
    """

    intercept: float
    slope: float
    weights: Mapping[str, float]
    version: str = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION or set(self.weights) != set(_NAMES):
            raise CalibrationError(
                f"the combination weighs {sorted(self.weights)} of {self.version}; this version of isr-rag reads "
                f"{sorted(_NAMES)} of {VERSION}"
            )
        if not all(map(math.isfinite, (self.intercept, self.slope, *self.weights.values()))) or self.slope <= 0.0:
            raise CalibrationError("a combination needs finite weights, and a slope above 0")

    def score(self, q_bar: float, wording: Wording) -> float:
        """The score in [0, 1] of a case with this mean probability and wording."""
        x = self.intercept + self.slope * _logit(q_bar)
        x += math.fsum(self.weights[name] * getattr(wording, name) for name in _NAMES)
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
    """Labelled scores with their wording: lists of one length, and the groups that stay together in a fold."""

    q_bar: Sequence[float]
    wording: Sequence[Wording]
    labels: Sequence[int]
    groups: Sequence[str]

    def take(self, rows: Sequence[int]) -> Cases:
        """Some of them."""
        return Cases(
            [self.q_bar[row] for row in rows],
            [self.wording[row] for row in rows],
            [self.labels[row] for row in rows],
            [self.groups[row] for row in rows],
        )


def fit(cases: Cases) -> Combination:
    """Logistic regression of the labels on the log-odds of q_bar and the wording, with a light ridge.

    Raises:
        CalibrationError: if the scores would fall when q_bar rises.
    """
    weights, intercept = _regress(_columns(cases), cases.labels)
    return Combination(intercept, float(weights[0]), dict(zip(_NAMES, map(float, weights[1:]), strict=True)))


def out_of_fold(cases: Cases, folds: int, seed: int) -> Floats:
    """Each case's score by a combination that was fitted without its fold; shape (n,)."""
    scores = np.empty(len(cases.labels))
    for seen, unseen in split(cases.labels, cases.groups, folds, seed):
        combination = fit(cases.take(seen))
        for row in unseen:
            scores[row] = combination.score(cases.q_bar[row], cases.wording[row])
    return scores


def helps(cases: Cases, folds: int, seed: int) -> bool:
    """Whether the combination predicts held-out labels better than q_bar alone, by two standard errors.

    Compared is the log loss of logistic regressions, averaged within groups. False under
    `LEAST_OF_A_CLASS` items of a class, or where q_bar points the wrong way.
    """
    labels = np.asarray(cases.labels)
    if min(labels.sum(), len(labels) - labels.sum()) < LEAST_OF_A_CLASS or len(set(cases.groups)) < folds:
        return False
    try:
        joined = out_of_fold(cases, folds, seed)
    except CalibrationError:
        return False
    alone = np.empty(len(labels))
    x = _columns(cases)[:, :1]
    for seen, unseen in split(cases.labels, cases.groups, folds, seed):
        weights, intercept = _regress(x[seen], labels[seen])
        alone[unseen] = 1.0 / (1.0 + np.exp(-(x[unseen] @ weights + intercept)))
    gain: dict[str, list[float]] = {}
    for group, value in zip(cases.groups, _log_loss(alone, labels) - _log_loss(joined, labels), strict=True):
        gain.setdefault(group, []).append(float(value))
    means = np.array([np.mean(values) for values in gain.values()])
    return bool(means.mean() > _STANDARD_ERRORS * means.std(ddof=1) / math.sqrt(len(means)))


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


def _regress(x: Floats, labels: Sequence[int] | NDArray[Any]) -> tuple[Floats, float]:
    """Weights and intercept of a logistic regression; the ridge acts on columns of unit spread."""
    with fitting_libraries():
        from sklearn.linear_model import LogisticRegression

        mean, spread = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
        fitted: Any = LogisticRegression(max_iter=5000).fit((x - mean) / spread, np.asarray(labels))
    weights = cast(Floats, fitted.coef_[0] / spread)
    return weights, float(fitted.intercept_[0] - weights @ mean)


def _columns(cases: Cases) -> Floats:
    rows = zip(cases.q_bar, cases.wording, strict=True)
    return np.array([[_logit(q), *(getattr(wording, name) for name in _NAMES)] for q, wording in rows])


def _logit(q: float) -> float:
    inside = min(max(q, _EPS), 1.0 - _EPS)
    return math.log(inside) - math.log1p(-inside)


def _log_loss(p: Floats, labels: NDArray[Any]) -> Floats:
    inside = np.clip(p, _EPS, 1.0 - _EPS)
    return -np.where(labels == 1, np.log(inside), np.log1p(-inside))
