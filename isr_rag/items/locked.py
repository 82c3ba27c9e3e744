"""A file that one process writes at a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

from isr_rag.errors import OutputError


def open_locked(path: Path) -> BinaryIO:
    """Open a file for reading and writing, made when missing, and keep every other process from doing the same.

    The lock ends when the file is closed or the process dies.

    Raises:
        OutputError: if another process holds it.
        OSError: if it cannot be written.
    """
    while True:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            _lock(file.fileno())
            try:
                same = os.path.samestat(os.fstat(file.fileno()), path.stat())
            except FileNotFoundError:
                same = False
        except BlockingIOError as error:
            file.close()
            raise OutputError(
                f"another process is writing {path}: wait until it is done, or give another output"
            ) from error
        except BaseException:
            file.close()
            raise
        if same:
            return file
        file.close()  # whoever held it finished, and removed it, between our opening and locking it


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, 2**40, os.SEEK_SET)  # beyond the contents: a lock on Windows also keeps readers out
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError from error
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sync_directory(directory: Path) -> None:
    """Make what was renamed or removed in a directory outlast a power cut, where the system can say so."""
    if sys.platform == "win32":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # not every file system has it
        pass
    finally:
        os.close(descriptor)
