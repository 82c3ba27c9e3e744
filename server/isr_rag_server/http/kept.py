"""Cache of indexed chunks by content hash, so that later requests can name them."""

from __future__ import annotations

import hashlib

from cachetools import LRUCache

from isr_rag._util.text import well_formed
from isr_rag.core.evidence import Chunk

_OVERHEAD = 450
"""Bytes of a kept chunk beside its text: of the objects that hold it, its hash and its place."""


class KeptChunks:
    """Remembers chunks up to a number of bytes; those not asked for the longest go first."""

    def __init__(self, most: int) -> None:
        self._chunks: LRUCache[str, tuple[Chunk, int]] = LRUCache(most, getsizeof=lambda kept: _size(kept[0]))

    def keep(self, sha256: str, chunk: Chunk) -> None:
        """Remember a chunk under its hash (`hash_of`)."""
        if _size(chunk) <= self._chunks.maxsize:
            self._chunks[sha256] = chunk, bytes_of(chunk)

    def get(self, sha256: str) -> tuple[Chunk, int] | None:
        """The chunk of a hash, and its bytes; None if it is not kept (any more)."""
        found: tuple[Chunk, int] | None = self._chunks.get(sha256)
        return found

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return int(self._chunks.currsize)


def hash_of(chunk: Chunk) -> str:
    """SHA-256 of a chunk: of its title (nothing for none), a null byte and its text, in UTF-8."""
    content = f"{chunk.title or ''}\0{chunk.text}"
    return hashlib.sha256(well_formed(content).encode()).hexdigest()


def bytes_of(chunk: Chunk) -> int:
    """Bytes of a chunk's texts in UTF-8."""
    texts = (chunk.text, chunk.title or "")
    return sum(len(text) if text.isascii() else len(text.encode(errors="replace")) for text in texts)


def _size(chunk: Chunk) -> int:
    return 4 * (len(chunk.text) + len(chunk.title or "")) + _OVERHEAD
