"""The most memory that tensors take at one time, on any device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of every tensor that an operation returns, while it is alive.

    Args:
        known: tensors that do not count.

    Attributes:
        peak: the most bytes so far.
    """

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.peak = 0
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for one in tree_leaves(out):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in self._known:
                storage = StorageWeakRef(one.untyped_storage())
                self._alive[storage.cdata] = storage, one.untyped_storage().nbytes()
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return out
