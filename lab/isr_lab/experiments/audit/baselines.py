"""Scores that could be in the gate's place, compared as selectors: answer "supported" to the items they put highest.

Every score is made from the audit's own passes. Risk is the share of items that are not supported among the answered,
coverage the share of all items answered, as for the gate's readings `supported` and `calibrated`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_lab.experiments.audit.boundary import triple
from isr_lab.experiments.audit.items import AuditItem
from isr_lab.metrics import (
    Interval,
    MetricError,
    Statistic,
    aurc,
    auroc,
    bootstrap_intervals,
    coverage_at_risk,
    risk_coverage_curve,
)

Floats = NDArray[np.float64]
MEAN = "mean"
RISKS = (0.01, 0.05, 0.10)
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5)
NAMES = {
    "one ordering": "q of the retriever's own order: one pass an item",
    MEAN: "mean q over the orderings",
    "lowest": "lowest q over the orderings",
    "majority": "share of the orderings with q >= 1/2 (self-consistency over orderings)",
    "ablation": "mean q less q with no evidence: one pass more an item",
}


def selector_scores(items: Sequence[AuditItem], m: int) -> dict[str, Floats]:
    """Each selector's score in [0, 1] for every item, shape (n,) each.

    The ablation is there only where every item was also scored without evidence; its difference in [-1, 1] is mapped
    onto [0, 1], which changes no rank.
    """
    rows = [np.array(item.q(m)) for item in items]
    mean = np.array([item.q_bar(m) for item in items])
    scores = {
        "one ordering": np.array([item.identity for item in items]),
        MEAN: mean,
        "lowest": np.array([row.min() for row in rows]),
        "majority": np.array([(row >= 0.5).mean() for row in rows]),
    }
    without = [item.without for item in items if item.without is not None]
    if len(without) == len(items):
        scores["ablation"] = (1.0 + mean - np.array(without)) / 2.0
    # a mean of equal values differs from them by rounding, which must not rank items that are tied
    return {name: values.round(12) for name, values in scores.items()}


def compare_selectors(
    scores: Mapping[str, Floats], labels: NDArray[np.int64], groups: Sequence[str], *, resamples: int, seed: int
) -> dict[str, Any]:
    """AURC, AUROC and coverage at given risks of every selector, and each one's difference from the mean.

    Args:
        scores: of each selector, the mean among them.
        labels: 1 where the item is supported.
        groups: items of one group are drawn together.
        resamples: bootstrap resamples behind each 95% interval.
        seed: of the resamples.

    Returns:
        `{"own": {selector: {statistic: [estimate, lower, upper] or None}}, "less_mean": the same}`; None where the
        statistic is undefined, as AUROC with one class.
    """
    statistics: dict[str, Callable[[Any, Any], float]] = {"AURC": aurc, "AUROC": auroc}
    for risk in RISKS:
        statistics[f"coverage at {risk:.0%} risk"] = _coverage_at(risk)
    names = list(scores)
    matrix = np.column_stack([scores[name] for name in names])
    own: dict[str, dict[str, Any]] = {name: {} for name in names}
    less_mean: dict[str, dict[str, Any]] = {name: {} for name in names if name != MEAN}
    for title, statistic in statistics.items():
        questions: dict[str, Statistic] = {f"own {name}": _of(statistic, k) for k, name in enumerate(names)}
        for k, name in enumerate(names):
            if name != MEAN:
                questions[f"less {name}"] = _difference(statistic, k, names.index(MEAN))
        answers = _intervals(questions, matrix, labels, groups, resamples, seed)
        for name in names:
            own[name][title] = triple(answers.get(f"own {name}"))
            if name != MEAN:
                less_mean[name][title] = triple(answers.get(f"less {name}"))
    return {"own": own, "less_mean": less_mean}


def _intervals(
    questions: Mapping[str, Statistic],
    matrix: Floats,
    labels: NDArray[np.int64],
    groups: Sequence[str],
    resamples: int,
    seed: int,
) -> dict[str, Interval]:
    try:
        return bootstrap_intervals(questions, matrix, labels, groups=groups, resamples=resamples, seed=seed)
    except MetricError:  # undefined with one class, or on most resamples of very few items: reported as undefined
        return {}


def _of(statistic: Callable[[Any, Any], float], column: int) -> Statistic:
    def value(matrix: Floats, labels: NDArray[np.int64]) -> float:
        return statistic(matrix[:, column], labels)

    return value


def _difference(statistic: Callable[[Any, Any], float], first: int, second: int) -> Statistic:
    def value(matrix: Floats, labels: NDArray[np.int64]) -> float:
        return statistic(matrix[:, first], labels) - statistic(matrix[:, second], labels)

    return value


def _coverage_at(risk: float) -> Callable[[Any, Any], float]:
    def value(scores: Floats, labels: NDArray[np.int64]) -> float:
        return coverage_at_risk(scores, labels, risk)

    return value


def risk_at_coverage(
    scores: Mapping[str, Floats], labels: NDArray[np.int64], coverages: Sequence[float]
) -> dict[str, list[float]]:
    """Each selector's risk when it answers the same share of the items, for every coverage in (0, 1].

    Inside a block of equal scores the expected risk under a random order is taken.
    """
    surest = [max(1, round(coverage * len(labels))) for coverage in coverages]
    return {
        name: (risk_coverage_curve(values, labels).errors(surest) / surest).tolist() for name, values in scores.items()
    }
