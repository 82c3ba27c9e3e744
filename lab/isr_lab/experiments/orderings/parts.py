"""What the questions of the study of orderings share: figures with intervals, and items drawn evenly."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from numpy.typing import ArrayLike

from isr_lab.metrics import (
    Interval,
    MetricError,
    Statistic,
    bootstrap_interval,
    wilson_interval,
)
from isr_lab.slice.schema import SliceItem

Sizes = tuple[tuple[int, int], ...]
"""Pairs of a number of chunks and how many items with that many are wanted."""

FEWEST = 3
"""Fewer independent items than this give a figure without an interval."""

_DUST = 1e-12  # what is smaller is rounding


@dataclass(frozen=True, slots=True)
class Figured:
    """A figure with its interval; None where it is undefined, or where there are too few items for an interval."""

    value: float | None
    lower: float | None = None
    upper: float | None = None

    @classmethod
    def of(cls, interval: Interval) -> Figured:
        """The same as plain floats, what is rounding set to zero."""
        ends = (interval.estimate, interval.lower, interval.upper)
        return cls(*(0.0 if abs(end) < _DUST else float(end) for end in ends))

    @property
    def plain(self) -> dict[str, float | None]:
        """For JSON."""
        return {"value": self.value, "lower": self.lower, "upper": self.upper}

    @property
    def apart_from_zero(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.lower is not None and self.upper is not None and not self.lower <= 0.0 <= self.upper

    @property
    def errors(self) -> tuple[float, float]:
        """Lengths of the error bars below and above."""
        if self.value is None or self.lower is None or self.upper is None:
            return 0.0, 0.0
        return max(0.0, self.value - self.lower), max(0.0, self.upper - self.value)

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        if self.lower is None or self.upper is None:
            return f"{self.value:.3g} (no interval)"
        return f"{self.value:.3g} [{self.lower:.3g}, {self.upper:.3g}]"


def bootstrapped(
    statistic: Statistic,
    *arrays: ArrayLike,
    groups: Sequence[object],
    resamples: int,
    confidence: float = 0.95,
) -> Figured:
    """A statistic with its bootstrap interval over groups of items; undefined ones are None."""
    try:
        if len(set(groups)) >= FEWEST:
            return Figured.of(
                bootstrap_interval(statistic, *arrays, groups=groups, resamples=resamples, confidence=confidence)
            )
        return Figured(float(statistic(*arrays)))
    except MetricError:
        try:
            return Figured(float(statistic(*arrays)))  # undefined on too many resamples, not on the items themselves
        except MetricError:
            return Figured(None)


def share(successes: int, n: int) -> Figured:
    """A share with its Wilson interval."""
    return Figured.of(wilson_interval(successes, n)) if n else Figured(None)


def choose(items: Sequence[SliceItem], sizes: Sizes, seed: int, limit: int | None = None) -> list[SliceItem]:
    """Items by number of chunks, spread over labels and tasks; the same for the same seed in any order.

    Args:
        items: the slice.
        sizes: how many items of each number of chunks; where the slice has fewer, all of them.
        seed: of the draw.
        limit: at most so many in all, evenly over the numbers of chunks; None: as many as `sizes` says.
    """
    columns = [_spread([item for item in items if len(item.chunks) == n], seed)[:count] for n, count in sizes]
    chosen = [item for row in zip_longest(*columns) for item in row if item is not None][:limit]
    return sorted(chosen, key=lambda item: len(item.chunks))


def _spread(items: Sequence[SliceItem], seed: int) -> list[SliceItem]:
    cells: dict[tuple[str, int], list[SliceItem]] = {}
    for item in sorted(items, key=lambda item: hashlib.sha256(f"{seed}:{item.id}".encode()).digest()):
        cells.setdefault((item.task, 1 - item.label), []).append(item)
    return [item for row in zip_longest(*(cells[key] for key in sorted(cells))) for item in row if item is not None]


def percent(value: float | None) -> str:
    """A share in words."""
    if value is None:
        return "undefined"
    return "under 0.001%" if 0.0 < value < 1e-5 else f"{100.0 * value:.3g}%"


def percent_interval(figured: Figured) -> str:
    """A share with its interval in words."""
    if figured.lower is None or figured.upper is None:
        return percent(figured.value)
    return f"{percent(figured.value)} [{percent(figured.lower)}, {percent(figured.upper)}]"
