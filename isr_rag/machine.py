"""Memory and cores that this process may use, as a container allows."""

from __future__ import annotations

import math
import os
from pathlib import Path

from isr_rag.errors import MissingDependencyError

_CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes of memory that are free; in a container no more than its limit leaves.

    Raises:
        MissingDependencyError: if psutil is not installed.
    """
    try:
        import psutil
    except ImportError as error:
        raise MissingDependencyError("a local model", "psutil", "local") from error
    free = int(psutil.virtual_memory().available)
    limit, used = (_number(_CGROUP / name) for name in ("memory.max", "memory.current"))
    return free if limit is None or used is None else min(free, max(limit - used, 0))


def usable_cores() -> int:
    """Cores that this process may use: those it is bound to, and no more than a container's share of time."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (_CGROUP / "cpu.max").read_text("ascii").split()
    except (OSError, ValueError):
        return bound
    return bound if quota == "max" else max(1, min(bound, math.ceil(int(quota) / int(period))))


def _number(path: Path) -> int | None:
    """What a control group's file says; None where there is none, or no limit."""
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
