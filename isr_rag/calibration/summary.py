"""The figures every calibration report states, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from isr_rag.calibration import metrics
from isr_rag.calibration.metrics import Interval, Statistic

RISKS = (0.05, 0.10, 0.20)
"""Risks at which coverage is stated."""

NAMES = {
    "auroc": "AUROC",
    "brier": "Brier score",
    "log_loss": "log loss (nats)",
    "ece_mass": "ECE, 15 bins of equal mass",
    "ece_width": "ECE, 15 bins of equal width",
    "accuracy": "accuracy at 0.5",
    "balanced_accuracy": "balanced accuracy at 0.5",
    "aurc": "AURC",
    "precision_surest_fifth": "precision in the surest fifth",
    **{f"coverage_at_risk_{risk:.2f}": f"coverage at {risk:.0%} risk" for risk in RISKS},
}
"""Metric -> how a reader is told of it."""


def _coverage_at(risk: float) -> Statistic:
    def statistic(scores: ArrayLike, labels: ArrayLike) -> float:
        return metrics.coverage_at_risk(scores, labels, risk).coverage

    return statistic


def _ece_width(scores: ArrayLike, labels: ArrayLike) -> float:
    return metrics.expected_calibration_error(scores, labels, strategy="width")


_STATISTICS: dict[str, Statistic] = {
    "auroc": metrics.auroc,
    "brier": metrics.brier,
    "log_loss": metrics.log_loss,
    "ece_mass": metrics.expected_calibration_error,
    "ece_width": _ece_width,
    "accuracy": metrics.accuracy,
    "balanced_accuracy": metrics.balanced_accuracy,
    "aurc": metrics.aurc,
    "precision_surest_fifth": metrics.precision_in_surest,
    **{f"coverage_at_risk_{risk:.2f}": _coverage_at(risk) for risk in RISKS},
}


def summarise(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    groups: Sequence[object] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """All figures with 95% bootstrap intervals, over groups where given.

    Raises:
        MetricError: for bad input, or one class only.
    """
    return metrics.bootstrap_intervals(_STATISTICS, scores, labels, groups=groups, resamples=resamples, seed=seed)
