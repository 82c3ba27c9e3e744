"""A line per decision, for `isr-rag report`: numbers and settings, none of the texts."""

from __future__ import annotations

import datetime
import json
import logging
import os
import stat
from dataclasses import replace
from pathlib import Path

from isr_rag.core.decision import Decision

_logger = logging.getLogger("isr_rag_server.http")


class DecisionLog:
    """Appends `{"id", "time", "decision"}` to a JSONL file, whole lines or none.

    A disk that is full, or a pipe that nobody empties, costs lines of the log, and no answer and no time: what could
    not be written is counted.

    Args:
        path: the file; made where it is missing, and readable to its owner only. It is made anew where it was moved
            or deleted while the log is open, as programs do that rotate logs.

    Raises:
        OSError: if it cannot be opened, or is a pipe that nobody reads from.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._opened()
        self._pipe = not stat.S_ISREG(os.fstat(self._file).st_mode)
        if not self._pipe and not _ends_whole(path):
            os.write(self._file, b"\n")  # a crash left a part of a line, which would take the next one with it
        self._rest = b""  # of a line that a pipe took a part of
        self._failing = False

    def write(self, identifier: str | int, decision: Decision) -> bool:
        """Append a line; returns whether that could be done."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        without_texts = replace(decision, nearest=None, detail="", question="")
        plain = {"id": identifier, "time": now, "decision": without_texts.to_dict()}
        line = (json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n").encode()
        try:
            self._write(line)
        except OSError as error:
            if not self._failing:  # once, not for each decision
                _logger.error("decisions are not logged: %s: %s", self._path, error.strerror or error)
            self._failing = True
            return False
        if self._failing:
            _logger.warning("decisions are logged again: %s", self._path)
        self._failing = False
        return True

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o600)

    def _moved(self) -> bool:
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return True

    def _write(self, line: bytes) -> None:
        if not self._pipe and self._moved():
            old, self._file = self._file, self._opened()
            os.close(old)
        if self._rest:
            self._rest = self._rest[os.write(self._file, self._rest) :]
            if self._rest:
                raise OSError("no room for a whole line")
        written = os.write(self._file, line)
        if written < len(line):
            if self._pipe:
                self._rest = line[written:]
                return
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError("no room for a whole line")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        return file.seek(0, os.SEEK_END) == 0 or file.seek(-1, os.SEEK_END) < 0 or file.read(1) == b"\n"
