"""The audit calibration of a scorer from scored, labelled answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from isr_lab.answers.figures import judged, with_budget
from isr_lab.answers.scoring import ScoredAnswer, ScoredStatement
from isr_lab.metrics import auroc
from isr_rag.audit import AuditCalibration, Budget
from isr_rag.errors import ConfigurationError

VERDICTS = ("supported", "refuted", "not_enough")
_FOLDS = 5
_RIDGE = 1.0
_LEAST = 0.05
"""Least weight of the log-odds of q."""
_EPS = 1e-6


def fit(answers: Sequence[ScoredAnswer]) -> AuditCalibration:
    """Fit the three probabilities on the sources for verdicts, and the cut on those for the cut.

    Whether the best chunk read alone counts (`close`) is decided by the AUROC on the sources for the cut, whose
    evidence is several chunks; that of the sources for verdicts is mostly one, where it cannot matter.

    Raises:
        ConfigurationError: if the answers were scored by more than one scorer, or a verdict has no statement.
    """
    scorers = {(one.scorer, one.focus) for one in answers}
    if len(scorers) != 1:
        raise ConfigurationError(f"the answers were scored by {len(scorers)} scorers: one calibration is for one")
    scorer, focus = scorers.pop()
    for_verdicts = [answer for answer in answers if answer.use == "verdicts"]
    labelled = [(one, answer.group) for answer in for_verdicts for one in judged(answer) if one.label in VERDICTS]
    fitted, groups = [one for one, _ in labelled], [group for _, group in labelled]
    whole = [answer for answer in answers if answer.use == "cut"]
    tried: dict[bool, tuple[AuditCalibration, dict[str, Any]]] = {}
    for close in (False, True):
        q, r = _features(fitted, close=close)
        labels = [str(one.label) for one in fitted]
        loss = _held_out_loss(q, r, labels, groups)
        found = AuditCalibration(scorer, focus, *fit_verdicts(q, r, labels), Budget(), close=close)
        own = [(one, answer) for answer in whole for one in judged(answer) if one.label is not None]
        rank = (
            auroc(
                [one.closest if close else float(one.q or 0.0) for one, _ in own],
                [one.label == "supported" for one, _ in own],
            )
            if own
            else 0.5
        )
        tried[close] = found, {"held_out_log_loss": loss, "auroc_on_answers": rank}
    metrics = {("close" if close else "plain"): figures for close, (_, figures) in tried.items()}
    use = metrics["close"]["auroc_on_answers"] >= metrics["plain"]["auroc_on_answers"]
    chosen = tried[use][0]
    counts = Counter(answer.source for answer in for_verdicts)
    calibration = AuditCalibration(
        scorer,
        focus,
        chosen.supported,
        chosen.refuted,
        Budget(calibrated=True),
        close=use,
        statements=dict(Counter(str(one.label) for one in fitted)),
        sources=", ".join(f"{name} {count}" for name, count in sorted(counts.items())),
        metrics=metrics,
    )
    return with_budget(calibration, whole)


def _features(found: Sequence[ScoredStatement], *, close: bool) -> tuple[list[float], list[float]]:
    return [one.closest if close else float(one.q or 0.0) for one in found], [float(one.r or 0.0) for one in found]


def _held_out_loss(q: Sequence[float], r: Sequence[float], labels: Sequence[str], groups: Sequence[str]) -> float:
    """Log loss of the three verdicts on folds that were not fitted on; groups stay together."""
    names = sorted(set(groups))
    fold_of = dict(zip(names, np.random.default_rng(0).integers(_FOLDS, size=len(names)).tolist(), strict=True))
    folds = [fold_of[group] for group in groups]
    losses: list[float] = []
    for fold in range(_FOLDS):
        seen = [i for i, own in enumerate(folds) if own != fold]
        fitted = fit_verdicts([q[i] for i in seen], [r[i] for i in seen], [labels[i] for i in seen])
        model = AuditCalibration("fold", None, *fitted, Budget())
        for i, own in enumerate(folds):
            if own == fold:
                p = model.probabilities(q[i], r[i])
                losses.append(-float(np.log(max(getattr(p, labels[i]), 1e-9))))
    return float(np.mean(losses))


def fit_verdicts(
    q: Sequence[float], r: Sequence[float], verdicts: Sequence[str]
) -> tuple[tuple[float, float], tuple[float, float, float]]:
    """`supported` and `refuted` of an `AuditCalibration`, by maximum likelihood with a light ridge and bounded signs.

    Args:
        q: the model's probabilities that each statement is supported, shape (n,).
        r: that it is contradicted, shape (n,).
        verdicts: the labels, each of `VERDICTS`, shape (n,).

    Raises:
        ConfigurationError: if a verdict has no statement.
    """
    missing = set(VERDICTS) - set(verdicts)
    if missing:
        raise ConfigurationError(f"no labelled statement is {' or '.join(sorted(missing))}: three verdicts need all")
    x, y = np.array([_logit(one) for one in q]), np.array([_logit(one) for one in r])
    said = np.array([VERDICTS.index(one) for one in verdicts])
    none = np.zeros_like(x)

    def loss(weights: NDArray[np.float64]) -> float:
        a, b, c, less, e = weights
        odds = np.column_stack([a + b * x, c + (b - less) * x + e * y, none])
        slopes = np.array([b, b - less, e])
        return float(0.5 * _RIDGE * slopes @ slopes - log_softmax(odds, axis=1)[np.arange(len(said)), said].sum())

    free, at_least_0 = (None, None), (0.0, None)
    bounds = [free, (_LEAST, None), free, at_least_0, at_least_0]
    found = minimize(loss, np.array([0.0, 0.5, 0.0, 0.5, 0.5]), method="L-BFGS-B", bounds=bounds)
    a, b, c, less, e = map(float, found.x)
    return (a, b), (c, b - less, e)


def _logit(p: float) -> float:
    inside = min(max(p, _EPS), 1.0 - _EPS)
    return math.log(inside) - math.log1p(-inside)
