"""How much memory a forward pass may take."""

from __future__ import annotations

from pathlib import Path

from isr_rag.errors import MissingDependencyError
from isr_rag.scorers.loading import torch


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device; in a container no more than its limit leaves.

    Raises:
        MissingDependencyError: if psutil is not installed.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        import psutil
    except ImportError as error:
        raise MissingDependencyError("a local model", "psutil", "local") from error
    free = int(psutil.virtual_memory().available)
    limit, used = (_number(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    return free if limit is None or used is None else min(free, max(limit - used, 0))


def _number(path: Path) -> int | None:
    """What a control group's file says; None where there is none, or no limit."""
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
