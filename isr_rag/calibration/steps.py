"""Step functions of a score: what a fitted calibration is applied as."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from isr_rag.calibration.errors import CalibrationError
from isr_rag.core.bounds import TOLERANCE


@dataclass(frozen=True, slots=True)
class Steps:
    """A step function of the score that never falls. At a break the higher value holds.

    Attributes:
        breaks: scores at which it rises, strictly ascending, shape (k,).
        values: its values in [0, 1], strictly ascending, shape (k + 1,).

    Raises:
        CalibrationError: if the shapes or the order do not fit.
    """

    breaks: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for part in (self.breaks, self.values) for a, b in pairwise(part))
        inside = all(0.0 <= x <= 1.0 for x in (*self.breaks, *self.values))
        if len(self.values) != len(self.breaks) + 1 or not rising or not inside:
            raise CalibrationError("a step function needs strictly rising breaks and values in [0, 1]")

    @classmethod
    def highest_so_far(cls, scores: ArrayLike, values: ArrayLike) -> Steps:
        """From values at ascending scores, each raised to the highest before it; the first also holds below."""
        rising = np.maximum.accumulate(np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0))
        breaks: list[float] = []
        kept = [float(rising[0])]
        for score, value in zip(np.asarray(scores)[1:].tolist(), rising[1:].tolist(), strict=True):
            if value > kept[-1] + 1e-12:
                breaks.append(float(score))
                kept.append(value)
        return cls(tuple(breaks), tuple(kept))

    def at(self, score: float) -> float:
        """The value at a score.

        Raises:
            CalibrationError: if the score is NaN or outside [0, 1].
        """
        if not 0.0 <= score <= 1.0:  # also False for NaN
            raise CalibrationError(f"a score must be a probability in [0, 1], not {score}")
        return self.values[bisect_right(self.breaks, score)]

    def threshold(self, target: float) -> float | None:
        """The lowest score with at least this value (up to rounding); None if there is none."""
        if self.values[0] >= target - TOLERANCE:
            return 0.0
        rises = zip(self.breaks, self.values[1:], strict=True)
        return next((score for score, value in rises if value >= target - TOLERANCE), None)

    @property
    def ceiling(self) -> float:
        """The highest value."""
        return self.values[-1]
