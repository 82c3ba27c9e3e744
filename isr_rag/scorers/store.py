"""Bytes by key on disk, for one user: nothing in it is ever executed, believed without a seal, or able to do harm.

A store is an SQLite file in a directory that only its user can write. Each entry carries a seal, made with a secret
that lies with the user's own state and not in the store: what somebody else wrote, changed or copied there is not
found. A damaged file is made anew. A store that cannot be read or written finds and keeps nothing, and says so once.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
import stat
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from isr_rag.errors import ConfigurationError, MissingDependencyError

T = TypeVar("T")

_TABLE = "CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, seal BLOB NOT NULL)"
_SEALED = 16
"""Bytes of a seal."""
_PATIENCE = 5.0
"""Seconds to wait while another process writes."""


class PrivateStore:
    """Keeps bytes by key; threads and processes of one user may share a directory.

    Args:
        directory: where the file lies; made when missing, for this user alone.
        name: of the file.
        size_limit: bytes above which the entries stored first go.

    Raises:
        ConfigurationError: if somebody else owns the directory or may write there.
        MissingDependencyError: if platformdirs is not installed.
    """

    def __init__(self, directory: str | Path, name: str, *, size_limit: int) -> None:
        self._directory, self._path, self._limit = Path(directory), Path(directory) / f"{name}.sqlite3", size_limit
        self._secret = _secret()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._inherited: list[sqlite3.Connection] = []  # kept open: closing one in a fork would spoil the parent's
        self._warned = False
        _stores.add(self)
        self._safely(self._make_directory, None)
        _check_private(self._directory)

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The entries that are there, and are as this user stored them."""

        def read() -> dict[str, bytes]:
            found: dict[str, bytes] = {}
            for key in dict.fromkeys(keys):
                row = self._connected().execute("SELECT value, seal FROM entries WHERE key = ?", (key,)).fetchone()
                if row is not None and all(isinstance(part, bytes) for part in row):
                    value, seal = row
                    if hmac.compare_digest(seal, self._seal(key, value)):
                        found[key] = value
            return found

        return self._safely(read, {})

    def put(self, entries: Mapping[str, bytes]) -> None:
        """Store entries, all or none; without room or permission none, and nothing is raised."""
        if not entries:
            return

        def write() -> None:
            connection = self._connected()
            with connection:  # one transaction
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(
                    "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)",
                    [(key, value, self._seal(key, value)) for key, value in entries.items()],
                )
            self._make_room(connection)

        self._safely(write, None)

    def begin_after_fork(self) -> None:
        """Leave the parent its lock and connection."""
        self._lock = threading.Lock()
        if self._connection is not None:
            self._inherited.append(self._connection)
            self._connection = None

    def _seal(self, key: str, value: bytes) -> bytes:
        return hashlib.blake2b(key.encode() + b"\0" + value, key=self._secret, digest_size=_SEALED).digest()

    def _safely(self, work: Callable[[], T], otherwise: T) -> T:
        """Work with the file; a damaged one is made anew, and without one that works the caller goes on."""
        with self._lock:
            try:
                try:
                    return work()
                except sqlite3.OperationalError:
                    raise
                except sqlite3.DatabaseError:  # no database, or a damaged one
                    self._remove()
                    return work()
            except (sqlite3.Error, OSError) as error:
                if not self._warned:
                    self._warned = True
                    warnings.warn(
                        f"the cache in {self._directory} does not work and is done without: {error}",
                        RuntimeWarning,
                        stacklevel=4,
                    )
                return otherwise

    def _make_directory(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        os.close(os.open(self._path, flags, 0o600))
        connection = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        connection.text_factory = bytes  # what was forged as text need not be UTF-8
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            # Not WAL: its shared memory is a mapped file, and a process dies where that is cut short or finds no room.
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = OFF")  # what a power cut damages is made anew
            connection.execute("BEGIN IMMEDIATE")
            found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
            if not found:
                connection.execute(_TABLE)
            connection.execute("COMMIT")
            if found not in ([], [(_TABLE.encode(),)]):
                raise sqlite3.DatabaseError("this is another kind of database")
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_room(self, connection: sqlite3.Connection) -> None:
        def pragma(name: str) -> int:
            return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

        while (pragma("page_count") - pragma("freelist_count")) * pragma("page_size") > self._limit:
            oldest = "SELECT rowid FROM entries ORDER BY rowid LIMIT (SELECT 1 + count(*) / 8 FROM entries)"
            if connection.execute(f"DELETE FROM entries WHERE rowid IN ({oldest})").rowcount <= 0:
                return

    def _remove(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for suffix in ("", "-journal"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)


_stores: weakref.WeakSet[PrivateStore] = weakref.WeakSet()


def _begin_all() -> None:
    for store in list(_stores):
        store.begin_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all)


def _check_private(directory: Path) -> None:
    if sys.platform == "win32" or not directory.is_dir():
        return
    found = directory.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise ConfigurationError(
            f"{directory} belongs to somebody else, or others may write there: a cache needs a directory of its user "
            f"alone (chmod 700 {directory}, or another directory)"
        )


@lru_cache(maxsize=1)
def _secret() -> bytes:
    """What this user's entries are sealed with; without a place to keep it, for this process alone."""
    try:
        import platformdirs
    except ImportError as error:
        raise MissingDependencyError("a cache on disk", "platformdirs", "cache") from error
    fresh = secrets.token_bytes(32)
    try:
        folder = platformdirs.user_state_path("isr-rag")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(folder)
        path = folder / "cache.key"
        own = folder / f"cache.key.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(fresh)
            if not path.exists():
                os.link(own, path)  # whole, and by one process only
        except FileExistsError:
            pass
        finally:
            own.unlink(missing_ok=True)
        kept = path.read_bytes()
        return kept if len(kept) == len(fresh) else fresh
    except (OSError, RuntimeError, ConfigurationError):  # no home, or one that cannot be written
        return fresh
