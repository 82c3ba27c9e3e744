"""Memory and threads of a forward pass."""

from __future__ import annotations

import contextlib
import ctypes
import os

from isr_rag import machine
from isr_rag.machine import usable_cores
from isr_rag.scorers.local.loading import torch


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device; on a CPU no more than a container's limit leaves.

    Raises:
        MissingDependencyError: if psutil is not installed.
    """
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else machine.free_memory()


def use_no_more_threads_than_cores() -> None:
    """Lower torch's threads to the usable cores; more of them wait for one another. What the user set stays."""
    if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > usable_cores():
        torch.set_num_threads(usable_cores())


def give_back_freed_memory() -> None:
    """Hand memory that was freed back to the system, where the C library keeps it (glibc does).

    Laying out a model's weights one after the other leaves holes between those that stay, up to a third of them.
    """
    with contextlib.suppress(OSError, AttributeError):  # another system, another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
