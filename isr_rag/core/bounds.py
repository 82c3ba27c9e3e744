"""The method's quantities as pure functions over arrays (Sections 2.2 to 2.6, Appendices A and B), and the verdict.

The quantities take floats or arrays, broadcast as numpy does, in float64, and are arrays (0-d for scalars:
`float(...)` makes it plain), in nats where they are information. What is not a probability in [0, 1] raises
`InvalidInputError`. The axis of orderings is the last one and has length m >= 1.

`weigh` is lines 4 to 14 of Algorithm 1. With a cascade a decision may be made before all orderings are scored: after
the *exact* stop (`hopeless`) no remaining ordering could have changed the action; after the *early* one
(`far_from_boundary`) the decision stands for the orderings scored (Section 4.4 and Appendix E).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag.core.settings import Settings
from isr_rag.errors import InvalidInputError

Float: TypeAlias = NDArray[np.float64]
Reals: TypeAlias = Sequence[float]

EPS = 1e-9
"""Smoothing of zero-probability labels: both arguments of a divergence are kept in [EPS, 1 - EPS] (Section 2.1)."""

TOLERANCE = 1e-9
"""Tolerance of every comparison with a threshold: exact ties occur, and rounding breaks them both ways."""

STAGES = (3, 6)  # numbers of orderings after which a cascade may stop before it reaches m
FAR = 2.0  # an abstention is far from the boundary when twice the ISR would still abstain


def _probability(value: ArrayLike, name: str) -> Float:
    array = np.asarray(value, dtype=np.float64)
    if not np.all((array >= 0.0) & (array <= 1.0)):
        raise InvalidInputError(f"{name} must be probabilities in [0, 1], got {array!r}")
    return array


def checked_orderings(value: ArrayLike, name: str) -> Float:
    """Probabilities of shape (..., m), m >= 1, as float64; InvalidInputError for anything else."""
    array = _probability(value, name)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise InvalidInputError(f"{name} needs a last axis of at least one ordering, got shape {array.shape}")
    return array


def checked_at_least(value: ArrayLike, name: str, least: float, *, strict: bool = False) -> Float:
    """Numbers of at least (or, with `strict`, above) a limit, as float64; raises InvalidInputError otherwise."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array > least if strict else array >= least):
        raise InvalidInputError(f"{name} must be {'above' if strict else 'at least'} {least}, got {array!r}")
    return array


def log_odds(p: ArrayLike, *, eps: float = EPS) -> Float:
    """ln(p / (1 - p)) of probabilities, kept in [eps, 1 - eps]."""
    inside = np.clip(np.asarray(p, dtype=np.float64), eps, 1.0 - eps)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def _kl(p: Float, q: Float, eps: float = EPS) -> Float:
    """KL(Ber(p) || Ber(q)) of arrays that are known to be probabilities: sum of a log(a / b), with 0 log(0 / b) = 0.

    Near a = b the logarithm is taken of 1 + (b - a) / a: the difference of two logarithms would leave an error of
    1e-16 in a divergence of order (b - a)^2, and so one of 1e-8 in p_max.
    """
    p, q = np.broadcast_arrays(np.clip(p, eps, 1.0 - eps), np.clip(q, eps, 1.0 - eps))
    a, step = np.stack([p, 1.0 - p]), np.stack([q - p, p - q])
    b = np.stack([q, 1.0 - q])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(np.abs(step) < 0.5 * a, -np.log1p(step / a), np.log(a) - np.log(b))
        terms = np.where(a == 0.0, 0.0, a * ratio)
    total: Float = np.maximum(terms.sum(axis=0), 0.0)
    return total


def p_max(budget: ArrayLike, q_bar: ArrayLike) -> Float:
    """The largest p with KL(Ber(p) || Ber(q_bar)) <= budget, in [q_bar, 1]: the inverse of EDFL (Theorem 4, Box 1).

    Solved to 1e-12 by Newton's method, all elements at once. It is 1 where budget (in nats, infinity allowed) is at
    least -ln q_bar, and 0 where q_bar is 0.
    """
    b, q = np.broadcast_arrays(checked_at_least(budget, "budget", 0.0), _probability(q_bar, "q_bar"))
    with np.errstate(divide="ignore", invalid="ignore"):
        certain = (b >= -np.log(q)) & (q > 0.0)
        # Pinsker's inequality gives a start above the solution; the divergence is convex, so Newton's steps
        # come down to it and never pass it.
        p = np.maximum(np.minimum(q + np.sqrt(0.5 * b), 1.0 - 2.0**-53), q)
        for _ in range(100):
            slope = np.log(p) - np.log(q) - np.log1p(-p) + np.log1p(-q)
            lower = np.clip(np.where(slope > 0.0, p - (_kl(p, q, 0.0) - b) / slope, p), q, p)
            done = np.all(certain | (p - lower <= 1e-13 * p))
            p = lower
            if done:
                break
    return np.where(q == 0.0, 0.0, np.where(certain, 1.0, p))


def budget_terms(p_ref: ArrayLike, q: ArrayLike, *, clip: float = 6.0) -> Float:
    """u_k = KL(Ber(p_ref) || Ber(q_k)), clipped above at `clip` nats (Algorithm 1, lines 4 and 7); shape (..., m).

    p_ref has shape (...), q has shape (..., m). The terms are never negative, so only the upper side acts. A.6 clips
    the log-ratio: less where 0 < p_ref < 1.
    """
    limit = checked_at_least(clip, "clip", 0.0, strict=True)
    terms = _kl(np.expand_dims(_probability(p_ref, "p_ref"), -1), checked_orderings(q, "q"))
    return np.minimum(terms, limit)


def budget(p_ref: ArrayLike, q: ArrayLike, *, clip: float = 6.0) -> Float:
    """The information budget: mean over orderings of `budget_terms`, in nats, shape (...)."""
    return np.asarray(budget_terms(p_ref, q, clip=clip).mean(axis=-1))


def bits_to_trust(p_star: ArrayLike, q_lo: ArrayLike, *, one_sided: bool = True) -> Float:
    """B2T = KL(Ber(p*) || Ber(q_lo)) in nats: the least budget that reaches the target (Box 1).

    Args:
        p_star: target reliability 1 - h*.
        q_lo: lowest probability over the orderings, broadcast against p_star.
        one_sided: 0 where q_lo >= p* (this project's convention, Appendix F's last row); False: the paper's own rule.
    """
    target, low = _probability(p_star, "p_star"), _probability(q_lo, "q_lo")
    needed = _kl(target, low)
    return np.where(low >= target - TOLERANCE, 0.0, needed) if one_sided else needed


def information_sufficiency_ratio(budget: ArrayLike, bits_to_trust: ArrayLike) -> Float:
    """ISR = budget / B2T, and +inf where B2T is 0 (Box 1). Both in nats and >= 0; the ratio has no unit."""
    b, needed = checked_at_least(budget, "budget", 0.0), checked_at_least(bits_to_trust, "bits_to_trust", 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(needed == 0.0, np.inf, b / needed)


def risk_of_hallucination(budget: ArrayLike, q_bar: ArrayLike) -> Float:
    """RoH = 1 - p_max(budget, q_bar) (Box 1).

    EDFL bounds the achievable p from above, so this is a *lower* bound on the risk, never a guarantee.
    """
    return 1.0 - p_max(budget, q_bar)


def js_certificate(q: ArrayLike) -> Float:
    """sqrt(JSD / 2), an assumption-free upper bound on the mean absolute residual (Proposition 2.9).

    JSD is the generalised Jensen-Shannon divergence E KL(S_pi || S_bar) over the last axis of q.
    """
    q_ = checked_orderings(q, "q")
    divergence = _kl(q_, q_.mean(axis=-1, keepdims=True), 0.0).mean(axis=-1)
    return np.asarray(np.sqrt(0.5 * np.minimum(divergence, np.log(2.0))))  # it overflows where the mean underflows


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
    QUOTE_NOT_FOUND = "quote_not_found"
    """A passage in quotation marks is not in the evidence, letter for letter."""
    NUMBER_NOT_FOUND = "number_not_found"
    """A number or date is not in the evidence, and does not follow by a conversion of units."""
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


def weigh(q: Reals, p_ref: float, settings: Settings, q_high: Reals = ()) -> Verdict:
    """Algorithm 1 from line 4 on.

    Where probabilities are known only up to intervals, the ISR is the lowest that they allow. The risk of hallucination
    stays a lower bound: it comes from the highest budget and mean.

    Args:
        q: probability of g = 1 for each ordering, at least one; the low ends of the intervals.
        p_ref: the reference's probability of g = 1.
        settings: h* and the rule.
        q_high: the high ends; empty where every probability is exact.
    """
    rule, p_star = settings.rule, settings.p_star
    safe = rule.convention == "safe"
    spent = most = float(budget(p_ref, np.clip(p_ref, q, q_high) if q_high else q, clip=rule.clip))
    if q_high:  # each term is highest at an end of its interval
        most = float(budget_terms([p_ref, p_ref], np.stack([q, q_high]), clip=rule.clip).max(axis=0).mean())
    q_bar, q_lo = mean(q), min(q)
    needed = float(bits_to_trust(p_star, q_lo, one_sided=safe))
    if q_high and not safe:
        needed = max(needed, float(bits_to_trust(p_star, min(q_high), one_sided=False)))
    isr = float(information_sufficiency_ratio(spent, needed))
    if safe and p_ref < p_star - TOLERANCE:
        reason = Reason.REFERENCE_BELOW_TARGET
    elif isr >= 1.0 - TOLERANCE:
        reason = Reason.SUFFICIENT
    else:
        of_the_mean = float(bits_to_trust(p_star, q_bar, one_sided=safe))
        enough_for_mean = spent >= of_the_mean * (1.0 - TOLERANCE)
        reason = Reason.ORDER_SENSITIVE if enough_for_mean else Reason.INSUFFICIENT_INFORMATION
    risk = float(risk_of_hallucination(most, mean(q_high) if q_high else q_bar))
    return Verdict(q_bar, q_lo, float(p_ref), spent, needed, risk, isr, reason)


def mean(q: Reals) -> float:
    """The mean that scores, calibrations and cuts are about: the same to the last bit wherever it is taken."""
    return math.fsum(q) / len(q)


def settled_by(verdict: Verdict, *, invariant: bool, calibrated: bool) -> DecidedBy:
    """What settled a decision: the ratio, or p_ref against p* where ISR >= 1 follows from that, without dispersion."""
    implied = invariant and calibrated and verdict.reason is Reason.SUFFICIENT
    by_reference = implied or verdict.reason is Reason.REFERENCE_BELOW_TARGET
    return DecidedBy.REFERENCE if by_reference else DecidedBy.ISR


def stages(drawn: int, cascade: bool) -> list[int]:
    """Numbers of orderings to have scored at each step; the last is all that were drawn."""
    return [stage for stage in STAGES if cascade and stage < drawn] + [drawn]


def hopeless(q: Reals, drawn: int, p_ref: float, ceiling: float | None, settings: Settings, q_high: Reals = ()) -> bool:
    """Whether no value of the remaining orderings could bring the verdict to ANSWER: the exact stop.

    A remaining term adds at most B to the budget's sum, and q_lo can only fall, so B2T can only rise. The arguments are
    those of `weigh`, for the orderings scored so far of all that are `drawn`; `ceiling` is the highest p_ref that the
    others could bring (None if it does not depend on them).
    """
    highest = p_ref if ceiling is None else ceiling
    if settings.rule.convention == "safe" and highest < settings.p_star - TOLERANCE:
        return True
    most = settings.rule.clip
    if ceiling is None:
        terms = budget_terms(p_ref, np.clip(p_ref, q, q_high) if q_high else q, clip=settings.rule.clip)
        most = (float(np.sum(terms)) + (drawn - len(q)) * settings.rule.clip) / drawn
    least = float(bits_to_trust(settings.p_star, min(q)))
    return most < least * (1.0 - TOLERANCE) - TOLERANCE


def far_from_boundary(q: Reals, verdict: Verdict, settings: Settings, q_high: Reals = ()) -> bool:
    """Whether more orderings are unlikely to change the action: the early stop.

    An answer must survive one more ordering that lies below the lowest by the whole spread seen so far, in log-odds; an
    abstention must keep even at twice its ISR.
    """
    if not verdict.answers:
        return verdict.isr * FAR < 1.0
    logits = log_odds(q)
    worse = float(1.0 / (1.0 + np.exp(-(2.0 * logits.min() - logits.max()))))
    return weigh([*q, worse], verdict.p_ref, settings, [*q_high, worse] if q_high else ()).answers
