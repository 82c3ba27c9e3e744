"""Memory and cores that this process may use, within a container's limits."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from isr_rag.errors import needed_for

if TYPE_CHECKING:
    import torch

_CGROUP = Path("/sys/fs/cgroup")


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device; on a CPU no more than a container's limit leaves."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    with needed_for("a local model", "local"):
        import psutil
    free = int(psutil.virtual_memory().available)
    try:
        limit, used = ((_CGROUP / name).read_text("ascii") for name in ("memory.max", "memory.current"))
        return min(free, max(int(limit) - int(used), 0))
    except (OSError, ValueError):  # no control group, or "max": no limit
        return free


def usable_cores() -> int:
    """Cores that this process may use: those it is bound to, and no more than a container's share of time."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (_CGROUP / "cpu.max").read_text("ascii").split()
        return max(1, min(bound, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no control group, or "max": no limit
        return bound


def use_no_more_threads_than_cores() -> None:
    """Lower torch's threads to the usable cores, unless `OMP_NUM_THREADS` is set."""
    import torch

    if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > usable_cores():
        torch.set_num_threads(usable_cores())


def give_back_freed_memory() -> None:
    """Hand freed memory back to the system, where the C library keeps it (glibc does).

    Laying out a model's weights one after the other leaves holes between those that stay, up to a third of them.
    """
    with contextlib.suppress(OSError, AttributeError):  # another system, another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
