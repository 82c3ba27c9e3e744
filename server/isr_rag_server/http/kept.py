"""Cache of indexed chunks by content hash, so that later requests can name them."""

from __future__ import annotations

import hashlib

from cachetools import LRUCache

from isr_rag._util.text import well_formed
from isr_rag.core.evidence import Chunk

_OVERHEAD = 200
"""Bytes of a kept chunk beside its text."""


class KeptChunks:
    """Remembers chunks up to a number of bytes; those not asked for the longest go first."""

    def __init__(self, most: int) -> None:
        self._chunks: LRUCache[str, Chunk] = LRUCache(most, getsizeof=_size)

    def keep(self, chunk: Chunk) -> str:
        """Remember a chunk; returns the hash to ask for it by."""
        key = hash_of(chunk)
        if _size(chunk) <= self._chunks.maxsize:
            self._chunks[key] = chunk
        return key

    def get(self, sha256: str) -> Chunk | None:
        """The chunk of a hash; None if it is not kept (any more)."""
        found: Chunk | None = self._chunks.get(sha256)
        return found

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return int(self._chunks.currsize)


def hash_of(chunk: Chunk) -> str:
    """SHA-256 of a chunk: of its title (nothing for none), a null byte and its text, in UTF-8."""
    content = f"{chunk.title or ''}\0{chunk.text}"
    return hashlib.sha256(well_formed(content).encode()).hexdigest()


def _size(chunk: Chunk) -> int:
    return 4 * (len(chunk.text) + len(chunk.title or "")) + _OVERHEAD
