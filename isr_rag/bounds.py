"""The method's quantities as pure functions over arrays (Sections 2.2 to 2.6, Appendices A and B).

Every function takes floats or arrays, broadcasts them as numpy does, computes in float64 and returns an array (0-d
for scalars: `float(...)` makes it plain). All information quantities are in nats. Probabilities must lie in [0, 1];
anything else, NaN included, raises `InvalidInputError`. Where a function averages over
orderings, the last axis is the axis of orderings and has length m >= 1.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag.errors import InvalidInputError

__all__ = [
    "EPS",
    "TOLERANCE",
    "Float",
    "bernoulli_kl",
    "bits_to_trust",
    "budget",
    "budget_terms",
    "first_order_bound",
    "information_sufficiency_ratio",
    "jensen_gap",
    "js_certificate",
    "js_divergence",
    "mean_absolute_residual",
    "p_max",
    "pairwise_difference",
    "partial_sum",
    "qmv_bound",
    "qmv_bound_total_variation",
    "risk_of_hallucination",
]

Float: TypeAlias = NDArray[np.float64]

EPS = 1e-9
"""Smoothing of zero-probability labels: both arguments of a divergence are kept in [EPS, 1 - EPS] (Section 2.1)."""

TOLERANCE = 1e-9
"""Tolerance of every comparison with a threshold: exact ties occur, and rounding breaks them both ways."""


def _probability(value: ArrayLike, name: str) -> Float:
    array = np.asarray(value, dtype=np.float64)
    if not np.all((array >= 0.0) & (array <= 1.0)):
        raise InvalidInputError(f"{name} must be probabilities in [0, 1], got {array!r}")
    return array


def _orderings(value: ArrayLike, name: str) -> Float:
    array = _probability(value, name)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise InvalidInputError(f"{name} needs a last axis of at least one ordering, got shape {array.shape}")
    return array


def _mean(array: Float) -> Float:
    """Mean over the orderings."""
    return np.asarray(array.mean(axis=-1), dtype=np.float64)


def _at_least(value: ArrayLike, name: str, least: float, *, strict: bool = False) -> Float:
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array > least if strict else array >= least):
        raise InvalidInputError(f"{name} must be {'above' if strict else 'at least'} {least}, got {array!r}")
    return array


def bernoulli_kl(p: ArrayLike, q: ArrayLike, *, eps: float = EPS) -> Float:
    """KL(Ber(p) || Ber(q)) in nats, both arguments kept in [eps, 1 - eps].

    Args:
        p: probability, any shape.
        q: probability, broadcast against p.
        eps: smoothing in [0, 0.5). `eps=0` gives the exact divergence, which may be infinite.

    Returns:
        Divergence >= 0, of the broadcast shape.
    """
    p_, q_ = _probability(p, "p"), _probability(q, "q")
    if eps:
        p_, q_ = np.clip(p_, eps, 1.0 - eps), np.clip(q_, eps, 1.0 - eps)
    return _kl(p_, q_)


def _kl(p: Float, q: Float) -> Float:
    """KL(Ber(p) || Ber(q)) of arrays that are known to be probabilities."""
    step = q - p
    return np.maximum(_term(p, q, step) + _term(1.0 - p, 1.0 - q, -step), 0.0)


def _term(a: Float, b: Float, step: Float) -> Float:
    """a log(a / b) with 0 log(0 / b) = 0, given step = b - a.

    Near a = b the logarithm is taken of 1 + step / a: the difference of two logarithms would leave an error of
    1e-16 in a divergence of order step^2, and so one of 1e-8 in p_max.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(np.abs(step) < 0.5 * a, -np.log1p(step / a), np.log(a) - np.log(b))
        return np.where(a == 0.0, 0.0, a * ratio)


def p_max(budget: ArrayLike, q_bar: ArrayLike) -> Float:
    """The largest p with KL(Ber(p) || Ber(q_bar)) <= budget: the inverse of EDFL (Theorem 4, Box 1).

    Solved to 1e-12 by Newton's method, all elements at once. It is 1 where budget >= -ln q_bar, and 0 where q_bar
    is 0.

    Args:
        budget: information budget in nats, >= 0 (infinity allowed), any shape.
        q_bar: prior mass, broadcast against budget.

    Returns:
        Probability in [q_bar, 1], of the broadcast shape.
    """
    b, q = np.broadcast_arrays(_at_least(budget, "budget", 0.0), _probability(q_bar, "q_bar"))
    with np.errstate(divide="ignore", invalid="ignore"):
        certain = (b >= -np.log(q)) & (q > 0.0)
        # Pinsker's inequality gives a start above the solution; the divergence is convex, so Newton's steps
        # come down to it and never pass it.
        p = np.maximum(np.minimum(q + np.sqrt(0.5 * b), 1.0 - 2.0**-53), q)
        for _ in range(100):
            slope = np.log(p) - np.log(q) - np.log1p(-p) + np.log1p(-q)
            lower = np.clip(np.where(slope > 0.0, p - (_kl(p, q) - b) / slope, p), q, p)
            done = np.all(p - lower <= 1e-13 * p)
            p = lower
            if done:
                break
    return np.where(q == 0.0, 0.0, np.where(certain, 1.0, p))


def budget_terms(p_ref: ArrayLike, q: ArrayLike, *, clip: float = 6.0) -> Float:
    """u_k = KL(Ber(p_ref) || Ber(q_k)), clipped above at `clip` nats (Algorithm 1, lines 4 and 7).

    The paper clips symmetrically; the terms are never negative, so only the upper side acts.

    Args:
        p_ref: reference probability, shape (...), without the axis of orderings.
        q: probabilities of g = 1, shape (..., m).
        clip: B in nats, above 0.

    Returns:
        Terms in [0, clip], shape (..., m).
    """
    limit = _at_least(clip, "clip", 0.0, strict=True)
    terms = bernoulli_kl(np.expand_dims(np.asarray(p_ref, dtype=np.float64), -1), _orderings(q, "q"))
    return np.minimum(terms, limit)


def budget(p_ref: ArrayLike, q: ArrayLike, *, clip: float = 6.0) -> Float:
    """The information budget: mean over orderings of `budget_terms`, in nats, shape (...)."""
    return _mean(budget_terms(p_ref, q, clip=clip))


def bits_to_trust(p_star: ArrayLike, q_lo: ArrayLike, *, one_sided: bool = True) -> Float:
    """B2T = KL(Ber(p*) || Ber(q_lo)) in nats: the least budget that reaches the target (Box 1).

    Args:
        p_star: target reliability 1 - h*.
        q_lo: lowest probability over the orderings, broadcast against p_star.
        one_sided: 0 where q_lo >= p* (this project's convention, and Appendix F's last row); False for the paper's
            literal rule, which asks for bits even when the model is surer than the target.
    """
    target, low = _probability(p_star, "p_star"), _probability(q_lo, "q_lo")
    needed = bernoulli_kl(target, low)
    return np.where(low >= target - TOLERANCE, 0.0, needed) if one_sided else needed


def information_sufficiency_ratio(budget: ArrayLike, bits_to_trust: ArrayLike) -> Float:
    """ISR = budget / B2T, and +inf where B2T is 0 (Box 1). Both in nats and >= 0; the ratio has no unit."""
    b, needed = np.broadcast_arrays(_at_least(budget, "budget", 0.0), _at_least(bits_to_trust, "bits_to_trust", 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(needed == 0.0, np.inf, b / needed)


def risk_of_hallucination(budget: ArrayLike, q_bar: ArrayLike) -> Float:
    """RoH = 1 - p_max(budget, q_bar) (Box 1).

    EDFL bounds the achievable p from above, so this is a *lower* bound on the risk, never a guarantee.
    """
    return 1.0 - p_max(budget, q_bar)


def mean_absolute_residual(q: ArrayLike) -> Float:
    """E|q_pi - q_bar| over the orderings (Definition 1); q of shape (..., m), result of shape (...)."""
    q_ = _orderings(q, "q")
    return _mean(np.abs(q_ - q_.mean(axis=-1, keepdims=True)))


def pairwise_difference(q: ArrayLike) -> Float:
    """E_pair = E|q_pi - q_pi'| over independent orderings, i.e. over all m^2 ordered pairs (Section 2.1).

    q of shape (..., m), result of shape (...).
    """
    q_ = np.sort(_orderings(q, "q"), axis=-1)
    m = q_.shape[-1]
    # Sum over pairs of |q_i - q_j| from the order statistics, instead of an m x m table.
    weights: Float = 2.0 * np.arange(m, dtype=np.float64) - m + 1.0
    return np.asarray(np.maximum(2.0 * (q_ @ weights) / (m * m), 0.0), dtype=np.float64)


def js_divergence(q: ArrayLike) -> Float:
    """Generalised Jensen-Shannon divergence E KL(S_pi || S_bar) of the Bernoulli predictions, in nats.

    q of shape (..., m), result of shape (...).
    """
    q_ = _orderings(q, "q")
    return _mean(bernoulli_kl(q_, q_.mean(axis=-1, keepdims=True), eps=0.0))


def js_certificate(q: ArrayLike) -> Float:
    """sqrt(JSD / 2), an assumption-free upper bound on the mean absolute residual (Proposition 2.9)."""
    return np.sqrt(0.5 * js_divergence(q))


def jensen_gap(q: ArrayLike, label: ArrayLike | None = None) -> Float:
    """Mean single-ordering cross-entropy of a label minus the mixture's, >= 0 nats (Section 4.2).

    Args:
        q: probabilities of g = 1, shape (..., m).
        label: the label scored, 0 or 1, shape (...). By default the canonical one: the argmax of the first
            ordering, which is the identity.
    """
    q_ = _orderings(q, "q")
    y = (q_[..., 0] >= 0.5).astype(np.float64) if label is None else np.asarray(label, dtype=np.float64)
    if not np.all((y == 0.0) | (y == 1.0)):
        raise InvalidInputError(f"label must be 0 or 1, got {y!r}")
    of_label = np.where(np.expand_dims(y, -1) == 1.0, q_, 1.0 - q_)
    of_label = np.clip(of_label, EPS, 1.0 - EPS)
    return np.maximum(np.log(_mean(of_label)) - _mean(np.log(of_label)), 0.0)


def partial_sum(n: int, alpha: float) -> float:
    """Sum of t^-alpha for t = 1 .. n-1, exactly; H_{n-1} for alpha = 1 (Theorem 1).

    Exact sums replace the paper's asymptotics, whose sign for alpha = 1 (log n - gamma) is a slip and whose
    form for alpha < 1 lacks a + 1.

    Raises:
        InvalidInputError: if n < 1 or alpha <= 0.
    """
    if n < 1 or not alpha > 0:
        raise InvalidInputError(f"need n >= 1 and alpha > 0, got n={n}, alpha={alpha}")
    return float(np.sum(np.arange(1, n, dtype=np.float64) ** -alpha))


def qmv_bound_total_variation(total_variation: ArrayLike) -> Float:
    """Upper bound on E_pair, and so on E|R|: a quarter of sum_i TV_i of the logit (Theorem 1).

    Args:
        total_variation: sum over the chunks of their coordinate total variations, in logits, >= 0.
    """
    return 0.25 * _at_least(total_variation, "total_variation", 0.0)


def qmv_bound(n: int, c_total: float, alpha: float = 1.0) -> float:
    """Upper bound on E_pair under (alpha, C_tot)-regular decay: C_tot / 4 times the exact partial sum (Theorem 1).

    Args:
        n: number of chunks, >= 1.
        c_total: C_tot in logits, >= 0.
        alpha: decay exponent, > 0.
    """
    return float(qmv_bound_total_variation(c_total)) * partial_sum(n, alpha)


def first_order_bound(n: int, c: float, alpha: float = 1.0) -> float:
    """Upper bound on E_pair under the first-order positional model (Theorem 2): C / 4 times E[sum_{t<=|U-V|} t^-alpha].

    U and V are independent uniform ranks; the expectation is summed exactly over their distance (for alpha = 1 it is
    log n + gamma - 3/2 + o(1); the paper's statement lacks the gamma).

    Args:
        n: number of chunks, >= 1.
        c: regularity constant C of the potential, in logits, >= 0.
        alpha: decay exponent, > 0.
    """
    _at_least(c, "c", 0.0)
    partial_sum(n, alpha)  # checks n and alpha
    distance = np.arange(1, n, dtype=np.float64)
    weight = 2.0 * (n - distance) / (n * n)
    return float(0.25 * c * np.sum(weight * np.cumsum(distance**-alpha)))
