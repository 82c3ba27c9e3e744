"""Lines 4 to 14 of Algorithm 1: from the probabilities of the orderings and the reference to a verdict.

With a cascade a decision may be made before all orderings are scored. There are two different stops: an *exact* one
(`hopeless`), after which no remaining ordering could have changed the action, so that the decision is that of all m;
and an *early* one (`far_from_boundary`), after which it stands for the orderings scored (Section 4.4 and Appendix E).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from isr_rag.core import bounds
from isr_rag.core.settings import Settings

STAGES = (3, 6)
"""Numbers of orderings after which a cascade may stop before it reaches m."""

FAR = 2.0
"""An abstention is far from the boundary when twice the ISR would still abstain."""


class Action(StrEnum):
    """What to do with the answer."""

    ANSWER = "answer"
    ABSTAIN = "abstain"
    ACQUIRE = "acquire"


class Reason(StrEnum):
    """Why a gate decided as it did."""

    SUFFICIENT = "sufficient"
    """ISR >= 1, and the reference reaches the target."""
    REFERENCE_BELOW_TARGET = "reference_below_target"
    """p_ref < p*: what is trusted about the case does not reach the target, whatever the model says."""
    ORDER_SENSITIVE = "order_sensitive"
    """ISR < 1 only because some ordering's probability lies far below the mean."""
    INSUFFICIENT_INFORMATION = "insufficient_information"
    """ISR < 1 even for the mean over the orderings: the budget does not reach the bits to trust."""
    CUT_NOT_REACHED = "cut_not_reached"
    """The calibrated cut with the finite-sample guarantee was asked for and is not reached."""
    OUTSIDE_CALIBRATION = "outside_calibration"
    """The case lies outside of what the reference was calibrated for; the detail says what does."""
    NO_EVIDENCE = "no_evidence"
    """There was no chunk to look at; nothing was scored."""
    REFERENCE_FAILED = "reference_failed"
    """The reference raised or returned no probability, and the policy is to abstain."""
    SCORER_FAILED = "scorer_failed"
    """The scorer raised or returned no probabilities, and the policy is to abstain."""
    RETRIEVER_FAILED = "retriever_failed"
    """The retriever of an acquisition loop raised, and the policy is to abstain."""
    SHIFTED = "shifted"
    """Live scores no longer look like those of the calibration, and a watch was told to abstain."""


class DecidedBy(StrEnum):
    """What settled a decision."""

    ISR = "isr"
    """The ratio of the paper's rule."""
    REFERENCE = "reference"
    """p_ref against p*, as for every calibrated decision of an order-invariant scorer, whose ISR follows from p_ref."""


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


def weigh(q: Sequence[float], p_ref: float, settings: Settings, q_high: Sequence[float] = ()) -> Verdict:
    """Algorithm 1 from line 4 on.

    Where probabilities are known only up to intervals, the ISR is the lowest that they allow: the budget where each
    lies nearest to p_ref, B2T where the lowest lies lowest. The risk of hallucination stays a lower bound: it comes
    from the highest budget and mean.

    Args:
        q: probability of g = 1 for each ordering, at least one; the low ends of the intervals.
        p_ref: the reference's probability of g = 1.
        settings: h* and the rule.
        q_high: the high ends; empty where every probability is exact.
    """
    rule, p_star = settings.rule, settings.p_star
    safe = rule.convention == "safe"
    budget = most = float(bounds.budget(p_ref, np.clip(p_ref, q, q_high) if q_high else q, clip=rule.clip))
    if q_high:  # each term is highest at an end of its interval
        most = float(bounds.budget_terms([p_ref, p_ref], np.stack([q, q_high]), clip=rule.clip).max(axis=0).mean())
    q_bar, q_lo = mean(q), min(q)
    needed = float(bounds.bits_to_trust(p_star, q_lo, one_sided=safe))
    if q_high and not safe:
        needed = max(needed, float(bounds.bits_to_trust(p_star, min(q_high), one_sided=False)))
    isr = float(bounds.information_sufficiency_ratio(budget, needed))
    if safe and p_ref < p_star - bounds.TOLERANCE:
        reason = Reason.REFERENCE_BELOW_TARGET
    elif isr >= 1.0 - bounds.TOLERANCE:
        reason = Reason.SUFFICIENT
    else:
        of_the_mean = float(bounds.bits_to_trust(p_star, q_bar, one_sided=safe))
        enough_for_mean = budget >= of_the_mean * (1.0 - bounds.TOLERANCE)
        reason = Reason.ORDER_SENSITIVE if enough_for_mean else Reason.INSUFFICIENT_INFORMATION
    risk = float(bounds.risk_of_hallucination(most, mean(q_high) if q_high else q_bar))
    return Verdict(q_bar, q_lo, float(p_ref), budget, needed, risk, isr, reason)


def mean(q: Sequence[float]) -> float:
    """The mean that scores, calibrations and cuts are about: the same to the last bit wherever it is taken."""
    return math.fsum(q) / len(q)


def settled_by(verdict: Verdict, *, invariant: bool, calibrated: bool) -> DecidedBy:
    """What settled a decision, `Decision.decided_by`: the ratio, or p_ref against p*.

    Without dispersion ISR >= 1 follows from a calibrated p_ref that reaches p*, so that p_ref settled it.
    """
    implied = invariant and calibrated and verdict.reason is Reason.SUFFICIENT
    by_reference = implied or verdict.reason is Reason.REFERENCE_BELOW_TARGET
    return DecidedBy.REFERENCE if by_reference else DecidedBy.ISR


def stages(drawn: int, cascade: bool) -> list[int]:
    """Numbers of orderings to have scored at each step; the last is all that were drawn."""
    return [stage for stage in STAGES if cascade and stage < drawn] + [drawn]


def hopeless(
    q: Sequence[float],
    drawn: int,
    p_ref: float,
    ceiling: float | None,
    settings: Settings,
    q_high: Sequence[float] = (),
) -> bool:
    """Whether no value of the remaining orderings could bring the verdict to ANSWER: the exact stop.

    A remaining term adds at most B to the budget's sum, and q_lo can only fall, so B2T can only rise from its
    one-sided value.

    Args:
        q: probabilities scored so far, one at least.
        drawn: number of orderings that would be scored in all.
        p_ref: the reference's probability as it stands.
        ceiling: the highest p_ref that the remaining orderings could bring about; None for a reference that does
            not depend on them.
        settings: h* and the rule.
        q_high: high ends where q holds the low ends of intervals; empty where every probability is exact.
    """
    highest = p_ref if ceiling is None else ceiling
    if settings.rule.convention == "safe" and highest < settings.p_star - bounds.TOLERANCE:
        return True
    most = settings.rule.clip
    if ceiling is None:
        terms = bounds.budget_terms(p_ref, np.clip(p_ref, q, q_high) if q_high else q, clip=settings.rule.clip)
        most = (float(np.sum(terms)) + (drawn - len(q)) * settings.rule.clip) / drawn
    least = float(bounds.bits_to_trust(settings.p_star, min(q)))
    return most < least * (1.0 - bounds.TOLERANCE) - bounds.TOLERANCE


def far_from_boundary(q: Sequence[float], verdict: Verdict, settings: Settings, q_high: Sequence[float] = ()) -> bool:
    """Whether more orderings are unlikely to change the action: the early stop.

    An answer must survive one more ordering that lies below the lowest by the whole spread seen so far, in
    log-odds; an abstention must keep even at twice its ISR.
    """
    if not verdict.answers:
        return verdict.isr * FAR < 1.0
    logits = bounds.log_odds(q)
    worse = float(1.0 / (1.0 + np.exp(-(2.0 * logits.min() - logits.max()))))
    return weigh([*q, worse], verdict.p_ref, settings, [*q_high, worse] if q_high else ()).answers
