"""Bytes in a `diskcache.Cache`, and nothing but bytes: a pickle that lies in the file is never loaded."""

from __future__ import annotations

import sqlite3
from typing import Any

from diskcache import Disk
from diskcache.core import MODE_RAW


class RawDisk(Disk):  # type: ignore[misc]  # diskcache has no types
    """Stores values as they are; what is not raw bytes reads as empty."""

    def store(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, value: bytes, *_: Any, **__: Any
    ) -> tuple[int, int, None, memoryview]:
        """Size, mode, file name and content for the database."""
        return len(value), MODE_RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: int, filename: str | None, value: object, read: bool) -> bytes:
        """The bytes that were stored."""
        return value if mode == MODE_RAW and isinstance(value, bytes) else b""
