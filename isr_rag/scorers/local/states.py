"""Chunks' keys and values, kept: a second question about the same chunks costs its closing only.

Only in the late layout, where a chunk's state depends on the chunk and the instruction alone. Content-addressed: the
key is a hash of the model's identity and the token ids, so nothing stale can be found.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from isr_rag.errors import ConfigurationError, MissingDependencyError
from isr_rag.scorers.local.loading import torch
from isr_rag.scorers.local.packed.pack import Evidence
from isr_rag.scorers.store import PrivateStore

Precision = Literal["float32", "float16", "bfloat16"]


@dataclass(frozen=True, slots=True)
class States:
    """Keys (rotated) and values of a run of tokens, each of shape (layers, key-value heads, tokens, D)."""

    keys: torch.Tensor
    values: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.keys.nbytes + self.values.nbytes


class StateCache:
    """Keeps chunk states in memory and, if a directory is given, on disk; the least recently used go first.

    Args:
        memory: bytes in memory. The small adjudicator takes 46 kB per token in float32, the standard one 25 kB: 256 MiB
            hold some 5,800 or 10,900 tokens.
        directory: where states lie on disk; None for memory alone.
        disk: bytes on disk.
        precision: how states are kept. `float32` leaves every score as it is. `float16` and `bfloat16` take half
            the room; a score from kept float16 states was seen to differ from a fresh one by up to 1.3e-3 in log-odds
            for the small adjudicator, and bfloat16 rounds eight times more coarsely.

    Raises:
        ConfigurationError: for a size below one, or an unknown precision.
        ConfigurationError: if somebody else owns the directory or may write there.
        MissingDependencyError: if cachetools, or for a directory platformdirs, is not installed.
    """

    def __init__(
        self,
        *,
        memory: int = 2**28,
        directory: str | Path | None = None,
        disk: int = 8 * 2**30,
        precision: Precision = "float32",
    ) -> None:
        if memory < 1 or disk < 1:
            raise ConfigurationError(f"memory and disk must be at least 1 byte, got {memory} and {disk}")
        if precision not in ("float32", "float16", "bfloat16"):
            raise ConfigurationError(f"precision must be float32, float16 or bfloat16, got {precision!r}")
        try:
            from cachetools import LRUCache
        except ImportError as error:
            raise MissingDependencyError("StateCache", "cachetools", "local") from error
        self._fresh: Callable[[], LRUCache[str, States]] = lambda: LRUCache(memory, getsizeof=lambda one: one.nbytes)
        self._disk = None if directory is None else PrivateStore(directory, "states", size_limit=disk)
        self.precision: Precision = precision
        self._dtype: torch.dtype = getattr(torch, precision)
        self.forget()

    def forget(self) -> None:
        """Drop what is kept in memory, and with it a lock that a fork may have left locked."""
        self._memory, self._lock = self._fresh(), threading.Lock()

    def __len__(self) -> int:
        """Runs of tokens kept in memory."""
        return len(self._memory)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self._memory.currsize)

    def get(self, identity: str, what: Evidence) -> States | None:
        """The states of a head or chunk, from memory or disk; None if they are not kept."""
        key = _key(identity, self.precision, what)
        with self._lock:
            found = self._memory.get(key)
        if found is None and self._disk is not None and (kept := self._disk.get([key])):
            found = _unpack(kept[key])
            self._remember(key, found)
        return found

    def put(self, identity: str, what: Evidence, states: States) -> None:
        """Keep the states of a head or chunk."""
        key = _key(identity, self.precision, what)
        kept = States(states.keys.to("cpu", self._dtype, copy=True), states.values.to("cpu", self._dtype, copy=True))
        self._remember(key, kept)
        if self._disk is not None:
            self._disk.put({key: _pack(kept)})

    def _remember(self, key: str, states: States) -> None:
        with self._lock:
            if states.nbytes <= self._memory.maxsize:
                self._memory[key] = states


def gather(found: Sequence[States], device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The states of several runs one after the other, for a forward pass."""
    keys = torch.cat([states.keys for states in found], 2).to(device, dtype)
    return keys, torch.cat([states.values for states in found], 2).to(device, dtype)


def _key(identity: str, precision: str, what: Evidence) -> str:
    digest = hashlib.sha256(f"{identity}\0{precision}\0".encode())
    for ids in what:
        digest.update(np.asarray([len(ids), *ids], dtype="<i8").tobytes())
    return digest.hexdigest()


def _pack(states: States) -> bytes:
    from safetensors.torch import save

    return save({"keys": states.keys.contiguous(), "values": states.values.contiguous()})


def _unpack(kept: bytes) -> States:
    from safetensors.torch import load

    tensors = load(kept)
    return States(tensors["keys"], tensors["values"])
