"""Keep the finished batches of a run on disk, so that a run that was stopped can be resumed."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isr_rag._util.text import well_formed
from isr_rag.errors import OutputError

Record = dict[str, Any]
"""`{"line", "id", "decision"}` (or `"audit"`), or `{"line", "id", "error"}` for a bad line."""

_TABLES = """
CREATE TABLE IF NOT EXISTS run (settings TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY, records TEXT NOT NULL);
"""


class Journal:
    """The finished batches of one run: an SQLite file that one process at a time can open; a context manager.

    On exit the file stays if it holds batches, unless `finish` was called. `done` has their numbers. Batches of a run
    with other `settings` (what the records depend on) are not continued, and `force` deletes them.

    OutputError if another process has the file open, or it belongs to a run with other settings.
    """

    def __init__(self, path: Path, settings: str, *, force: bool = False) -> None:
        self._path = path
        path.open("ab").close()  # if it cannot be written, the system's error says why
        # Autocommit, and the lock of the first transaction is kept until the file is closed.
        self._db = sqlite3.connect(path, timeout=0.0, isolation_level=None)
        try:
            with self._told():
                self._begin(settings, force)
                self.done: set[int] = {number for (number,) in self._db.execute("SELECT number FROM batches")}
        except BaseException:
            self._db.close()
            raise

    def _begin(self, settings: str, force: bool) -> None:
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.executescript(f"BEGIN EXCLUSIVE; {_TABLES} COMMIT;")
        if self._db.execute("SELECT settings FROM run").fetchall() == [(settings,)]:
            return
        if not force and self._db.execute("SELECT number FROM batches LIMIT 1").fetchone():
            raise OutputError(
                f"{self._path} holds what a run with another input, other settings or another version decided: go on "
                "with those, give another output, or drop it with --force (force=True)"
            )
        self._db.executescript("BEGIN; DELETE FROM batches; DELETE FROM run;")
        self._db.execute("INSERT INTO run VALUES (?)", (settings,))
        self._db.execute("COMMIT")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
        if not self.done:
            for path in (self._path, Path(f"{self._path}-journal")):
                path.unlink(missing_ok=True)

    def keep(self, batch: int, records: Sequence[Record]) -> None:
        """Add a batch, unless it is there already."""
        text = well_formed(json.dumps(records, ensure_ascii=False, allow_nan=False))
        with self._told():
            self._db.execute("INSERT OR IGNORE INTO batches VALUES (?, ?)", (batch, text))
        self.done.add(batch)

    def records(self) -> Iterator[Record]:
        """All records, in the order of the batches."""
        with self._told():
            for (text,) in self._db.execute("SELECT records FROM batches ORDER BY number"):
                yield from self._read(text)

    def _read(self, text: str) -> list[Record]:
        try:
            records: list[Record] = json.loads(text)
            if all([isinstance(record, dict) for record in records]):
                return records
        except (ValueError, TypeError, RecursionError):
            pass  # also what is no text, or no list
        raise OutputError(f"{self._path} is damaged: give another output, or drop it with --force (force=True)")

    def finish(self) -> None:
        """Delete everything: the output is complete."""
        with self._told():
            self._db.execute("DELETE FROM batches")
        self.done.clear()

    @contextmanager
    def _told(self) -> Generator[None]:
        """Raise errors of SQLite as those of this package and of the system."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the second of what SQLite says of a damaged file
            code = getattr(error, "sqlite_errorcode", None)  # not there for text that is not UTF-8
            if code == sqlite3.SQLITE_BUSY:
                said = f"another process is writing {self._path}: wait until it is done, or give another output"
                raise OutputError(said) from error
            if code == sqlite3.SQLITE_NOTADB or isinstance(error, UnicodeDecodeError):
                said = f"{self._path} is no journal of this version, or damaged: delete it, or give another output"
                raise OutputError(said) from error
            number = errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EIO
            said = f"{os.strerror(number)} ({error}); what was decided before is kept"
            raise OSError(number, said, str(self._path)) from error
