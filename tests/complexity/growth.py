"""How much more a step does, takes and keeps when its input is twice as long."""

from __future__ import annotations

import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

LONG = os.environ.get("ISR_RAG_CHAOS") == "long"

RATIO = 2.5
"""Of calls and of memory, at twice the length."""

SECONDS_RATIO = 3.2
"""Of processor time, which is noisy: twice the length takes twice as long, or four times if the time is quadratic."""

FROM = 0.3, 100_000, 2**20
"""Seconds, calls and bytes below which start-up and noise say more than the length does."""


def some(patterns: Sequence[Any], each: int) -> Sequence[Any]:
    """All patterns with `ISR_RAG_CHAOS=long`, otherwise one of each `each`."""
    return patterns if LONG else patterns[::each]


def calls(step: Callable[[], object]) -> int:
    """Functions that a step calls in this thread, those written in C included."""
    count = 0

    def seen(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        step()
    finally:
        sys.setprofile(before)
    return count


def seconds(step: Callable[[], object]) -> float:
    """Processor time of this process: other work on the machine does not count."""
    started = time.process_time()
    step()
    return time.process_time() - started


def peak(step: Callable[[], object]) -> int:
    """Most bytes that Python held at a time beyond those before."""
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def faults(step: Callable[[str], object], text: Callable[[int], str], size: int, *, most: float) -> list[str]:
    """What grows faster than the length between `size` and twice as much, or takes more than `most` seconds there."""
    short, long = text(size), text(2 * size)
    found: list[str] = []

    def grows(what: str, measure: Callable[[Callable[[], object]], float], least: float, ratio: float) -> None:
        for _ in range(3):  # a collection of garbage, or a first import, may have fallen into one of them
            once, twice = measure(lambda: step(short)), measure(lambda: step(long))
            if twice <= least or twice <= ratio * once:
                return
        found.append(f"{what}: {once:.4g}, then {twice:.4g}")

    took = seconds(lambda: step(long))
    if took > most and (took := seconds(lambda: step(long))) > most:
        return [f"{took:.1f} s"]  # what takes so long is not measured again
    if LONG:  # on a busy machine even processor time is too noisy for a ratio
        grows("seconds", seconds, FROM[0], SECONDS_RATIO)
    grows("calls", calls, FROM[1], RATIO)
    grows("bytes", peak, FROM[2], RATIO)
    return found
