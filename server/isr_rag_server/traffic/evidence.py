"""Anytime-valid evidence: an interval that stays valid however often you check it."""

from __future__ import annotations

import math
from collections.abc import Callable


def anytime_interval(wrong: int, count: int) -> tuple[float, float]:
    """A 95% interval for a rate that holds at all times together, however often you check and whenever you stop.

    The confidence sequence of the prior-posterior ratio (Waudby-Smith and Ramdas, 2020) with the prior Beta(1/2, 1/2):
    those rates p for which prior(p) / posterior(p) < 1 / 0.05. By Ville's inequality it holds the rate at
    every count with this probability, for independent draws.

    Args:
        wrong: how often it happened.
        count: of how many.
    """
    if count == 0:
        return 0.0, 1.0
    right = count - wrong
    limit = -math.log1p(-0.95)
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
