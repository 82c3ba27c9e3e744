"""Chunks' keys and values, kept: a second question about the same chunks costs its closing only.

Only in the late layout, where a chunk's state depends on the chunk and the instruction alone. The key is the model's
identity and the token ids, so nothing stale can be found.
"""

from __future__ import annotations

import threading

from isr_rag.scorers.local.packed.attention import KeysValues
from isr_rag.scorers.local.packed.pack import Evidence


class StateCache:
    """Keeps chunk states in `memory` bytes; the least recently used go first. The judge takes 25 kB per token.

    States are keys (rotated) and values of a run of tokens, each of shape (layers, key-value heads, tokens, D).
    """

    def __init__(self, *, memory: int = 2**28) -> None:
        self._limit = memory
        self.forget()

    def forget(self) -> None:
        """Drop what is kept, and with it a lock that a fork may have left locked."""
        from cachetools import LRUCache

        self._kept: LRUCache[tuple[str, Evidence], KeysValues] = LRUCache(self._limit, getsizeof=_nbytes)
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return int(self._kept.currsize)

    def get(self, identity: str, what: Evidence) -> KeysValues | None:
        """The states of a head or chunk; None if they are not kept."""
        with self._lock:
            return self._kept.get((identity, what))

    def put(self, identity: str, what: Evidence, states: KeysValues) -> None:
        """Keep the states of a head or chunk, unless they exceed the memory."""
        keys, values = states
        kept = keys.to("cpu", copy=True), values.to("cpu", copy=True)
        with self._lock:
            if _nbytes(kept) <= self._limit:
                self._kept[identity, what] = kept


def _nbytes(states: KeysValues) -> int:
    return sum(part.nbytes for part in states)
