"""Dispersion over orderings and its bounds (Section 2.2, Definition 1, Theorems 1 and 2), for the experiments.

The quantities that a gate needs are in `isr_rag.core.bounds`; the conventions here are the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isr_rag.core.bounds import EPS, Float, checked_at_least, checked_orderings
from isr_rag.errors import InvalidInputError


def mean_absolute_residual(q: ArrayLike) -> Float:
    """E|q_pi - q_bar| over the orderings (Definition 1); q of shape (..., m), result of shape (...)."""
    q_ = checked_orderings(q, "q")
    return np.asarray(np.abs(q_ - q_.mean(axis=-1, keepdims=True)).mean(axis=-1), dtype=np.float64)


def pairwise_difference(q: ArrayLike) -> Float:
    """E_pair = E|q_pi - q_pi'| over independent orderings, i.e. over all m^2 ordered pairs (Section 2.1).

    q of shape (..., m), result of shape (...).
    """
    q_ = np.sort(checked_orderings(q, "q"), axis=-1)
    m = q_.shape[-1]
    # Sum over pairs of |q_i - q_j| from the order statistics, instead of an m x m table.
    weights: Float = 2.0 * np.arange(m, dtype=np.float64) - m + 1.0
    return np.asarray(np.maximum(2.0 * (q_ @ weights) / (m * m), 0.0), dtype=np.float64)


def jensen_gap(q: ArrayLike, label: ArrayLike | None = None) -> Float:
    """Mean single-ordering cross-entropy of a label minus the mixture's, >= 0 nats (Section 4.2).

    Args:
        q: probabilities of g = 1, shape (..., m).
        label: the label scored, 0 or 1, shape (...). By default the canonical one: the argmax of the first
            ordering, which is the identity.
    """
    q_ = checked_orderings(q, "q")
    y = (q_[..., 0] >= 0.5).astype(np.float64) if label is None else np.asarray(label, dtype=np.float64)
    if not np.all((y == 0.0) | (y == 1.0)):
        raise InvalidInputError(f"label must be 0 or 1, got {y!r}")
    of_label = np.where(np.expand_dims(y, -1) == 1.0, q_, 1.0 - q_)
    of_label = np.clip(of_label, EPS, 1.0 - EPS)
    gap: Float = np.maximum(np.log(of_label.mean(axis=-1)) - np.log(of_label).mean(axis=-1), 0.0)
    return gap


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
    return 0.25 * checked_at_least(total_variation, "total_variation", 0.0)


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
    checked_at_least(c, "c", 0.0)
    partial_sum(n, alpha)  # checks n and alpha
    distance = np.arange(1, n, dtype=np.float64)
    weight = 2.0 * (n - distance) / (n * n)
    return float(0.25 * c * np.sum(weight * np.cumsum(distance**-alpha)))
