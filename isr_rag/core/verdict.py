"""Lines 4 to 14 of Algorithm 1: from the probabilities of the orderings and the reference to a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isr_rag.core import bounds
from isr_rag.core.reason import DecidedBy, Reason
from isr_rag.core.settings import Rule, Settings


@dataclass(frozen=True, slots=True)
class Verdict:
    """The numbers of one verdict, in nats where they are information, and what follows from them."""

    q_bar: float
    q_lo: float
    p_ref: float
    budget: float
    bits_to_trust: float
    risk_of_hallucination: float
    isr: float
    reason: Reason

    @property
    def answers(self) -> bool:
        """Whether the answer goes through."""
        return self.reason is Reason.SUFFICIENT


def weigh(q: Sequence[float], p_ref: float, settings: Settings, q_high: Sequence[float] | None = None) -> Verdict:
    """Algorithm 1 from line 4 on.

    Where probabilities are known only up to intervals, the ISR is the lowest that they allow: the budget where each
    lies nearest to p_ref, B2T where the lowest lies lowest. The risk of hallucination stays a lower bound: it comes
    from the highest budget and mean.

    Args:
        q: probability of g = 1 for each ordering, at least one; the low ends of the intervals.
        p_ref: the reference's probability of g = 1.
        settings: h* and the rule.
        q_high: the high ends; None where every probability is exact.
    """
    probabilities = np.asarray(q, dtype=np.float64)
    high = probabilities if q_high is None else np.asarray(q_high, dtype=np.float64)
    rule, p_star = settings.rule, settings.p_star
    safe = rule.convention == "safe"
    budget = float(bounds.budget(p_ref, nearest(p_ref, probabilities, high), clip=rule.clip))
    q_bar, q_lo = mean(q), float(probabilities.min())
    q_most = q_bar if q_high is None else mean(q_high)
    needed = float(bounds.bits_to_trust(p_star, q_lo, one_sided=safe))
    if not safe:
        needed = max(needed, float(bounds.bits_to_trust(p_star, high.min(), one_sided=False)))
    isr = float(bounds.information_sufficiency_ratio(budget, needed))
    if safe and p_ref < p_star - bounds.TOLERANCE:
        reason = Reason.REFERENCE_BELOW_TARGET
    elif isr >= 1.0 - bounds.TOLERANCE:
        reason = Reason.SUFFICIENT
    else:
        of_the_mean = float(bounds.bits_to_trust(p_star, q_bar, one_sided=safe))
        enough_for_mean = budget >= of_the_mean * (1.0 - bounds.TOLERANCE)
        reason = Reason.ORDER_SENSITIVE if enough_for_mean else Reason.INSUFFICIENT_INFORMATION
    return Verdict(
        q_bar=q_bar,
        q_lo=q_lo,
        p_ref=float(p_ref),
        budget=budget,
        bits_to_trust=needed,
        risk_of_hallucination=float(bounds.risk_of_hallucination(_most(p_ref, probabilities, high, rule), q_most)),
        isr=isr,
        reason=reason,
    )


def mean(q: Sequence[float]) -> float:
    """The mean that scores, calibrations and cuts are about: the same to the last bit wherever it is taken."""
    return math.fsum(q) / len(q)


def nearest(p_ref: float, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """The points of the intervals nearest to p_ref, where the terms of the budget are least."""
    points: NDArray[np.float64] = np.clip(p_ref, low, high)
    return points


def _most(p_ref: float, low: NDArray[np.float64], high: NDArray[np.float64], rule: Rule) -> float:
    """The highest budget that the intervals allow: each term is highest at an end."""
    ends = bounds.budget_terms([p_ref, p_ref], np.stack([low, high]), clip=rule.clip)
    return float(ends.max(axis=0).mean())


def settled_by(verdict: Verdict, *, invariant: bool, calibrated: bool) -> DecidedBy:
    """What settled a decision, `Decision.decided_by`: the ratio, or p_ref against p*.

    Without dispersion ISR >= 1 follows from a calibrated p_ref that reaches p*, so that p_ref settled it.
    """
    implied = invariant and calibrated and verdict.answers
    by_reference = implied or verdict.reason is Reason.REFERENCE_BELOW_TARGET
    return DecidedBy.REFERENCE if by_reference else DecidedBy.ISR
