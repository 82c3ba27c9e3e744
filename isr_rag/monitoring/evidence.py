"""What may be concluded while decisions still come in: intervals and tests that hold whenever one looks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BINS = 4096
_JUMP = 0.01
"""How readily the martingale changes its bet."""


def anytime_interval(wrong: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """An interval for a rate that holds at all times together, however often one looks and whenever one stops.

    The confidence sequence of the prior-posterior ratio (Waudby-Smith and Ramdas, 2020) with the prior Beta(1/2, 1/2):
    those rates p for which prior(p) / posterior(p) < 1 / (1 - confidence). By Ville's inequality it holds the rate at
    every count with this probability, for independent draws.

    Args:
        wrong: how often it happened.
        count: of how many.
        confidence: in (0, 1).
    """
    if count == 0:
        return 0.0, 1.0
    right = count - wrong
    limit = -math.log1p(-confidence)
    evidence = math.lgamma(wrong + 0.5) + math.lgamma(right + 0.5) - math.lgamma(count + 1.0) - math.log(math.pi)

    def excluded(p: float) -> bool:
        """Whether the mixture is that much likelier than p."""
        likelihood = (wrong * math.log(p) if wrong else 0.0) + (right * math.log1p(-p) if right else 0.0)
        return evidence - likelihood >= limit

    mean = wrong / count
    inside = min(max(mean, 1e-12), 1.0 - 1e-12)
    low = 0.0 if not wrong else _edge(excluded, 1e-12, inside)
    high = 1.0 if not right else _edge(excluded, 1.0 - 1e-12, inside)
    return low, high


def _edge(excluded: Callable[[float], bool], outside: float, inside: float) -> float:
    """Where a rate stops being excluded, between one that is and one that is not."""
    if not excluded(outside):
        return outside
    for _ in range(60):
        middle = (outside + inside) / 2.0
        outside, inside = (middle, inside) if excluded(middle) else (outside, middle)
    return outside


def shift_evidence(scores: Sequence[float], seed: int = 0) -> Floats:
    """How strongly a sequence speaks against coming in no particular order: a conformal test martingale.

    The Simple Jumper (Vovk et al., 2021) bets on the rank of each score among those before it. While the scores are
    exchangeable it exceeds c at any time with probability at most 1 / c, however often one looks.

    Args:
        scores: in [0, 1], in their order.
        seed: of the draws that break ties.

    Returns:
        log10 of the martingale after each score, shape (n,).
    """
    draws = np.random.default_rng(seed).random(len(scores))
    seen = np.zeros(_BINS, dtype=np.int64)
    bets = np.array([-1.0, 0.0, 1.0])
    capital = np.full(3, 1.0 / 3.0)
    log_total, found = 0.0, np.empty(len(scores))
    for n, score in enumerate(scores):
        place = min(int(score * _BINS), _BINS - 1)
        seen[place] += 1
        rank = (seen[:place].sum() + draws[n] * seen[place]) / (n + 1)
        capital = (1.0 - _JUMP) * capital + _JUMP / 3.0
        capital *= 1.0 + bets * (rank - 0.5)
        total = capital.sum()
        log_total += math.log10(total)
        capital /= total
        found[n] = log_total
    return found
