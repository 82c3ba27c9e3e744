"""Worlds in which the truth is known, and how far a simulated share may lie from what is promised.

A world says how likely a case with a score is wrong; scores are uniform on [0, 1]. So the share of wrong among the
cases at or above a threshold is known exactly, and only the labelled items are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

Floats = NDArray[np.float64]
World = Callable[[Floats], Floats]


def useful(score: Floats) -> Floats:
    """P(wrong | score) of a useful scorer: 1% among the surest, 91% among the least sure."""
    return 0.01 + 0.9 * (1.0 - score) ** 2


def flat(rate: float) -> World:
    """Scores that say nothing."""
    return lambda score: np.full(score.shape, rate)


def draw(rng: np.random.Generator, n: int, world: World = useful) -> tuple[Floats, NDArray[np.int64]]:
    """Scores and labels of n cases."""
    scores = rng.random(n)
    return scores, (rng.random(n) >= world(scores)).astype(np.int64)


def risk_at(threshold: float, world: World = useful) -> float:
    """The share of wrong among the cases at or above a threshold."""
    return float(np.mean(world(np.linspace(threshold, 1.0, 4001))))


def at_most(values: Sequence[float] | Floats, promised: float) -> None:
    """Fail if the mean over independent calibrations lies more than 3 standard errors above what is promised."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    assert np.mean(values) <= promised + 3.0 * error, f"{np.mean(values):.4f} (s.e. {error:.4f}) of {promised:.4f}"


def ratio_at_most(part: Sequence[float], whole: Sequence[float], promised: float) -> None:
    """The same for a share pooled over calibrations: sum of `part` by sum of `whole`."""
    some, every = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    share = some.sum() / every.sum()
    error = math.sqrt(float(((some - share * every) ** 2).sum())) / every.sum()
    assert share <= promised + 3.0 * error, f"{share:.4f} (s.e. {error:.4f}) of {promised:.4f}"


def as_seldom_as(failures: int, trials: int, promised: float) -> None:
    """Fail if more trials failed than 999 of 1000 simulations of a procedure that fails exactly so often have."""
    assert failures <= binom.ppf(0.999, trials, promised), f"{failures} of {trials} at {promised}"
