"""Write files atomically, and hash them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write a file, and its folder, so that a reader sees the old content or the new, never a part of it.

    Text, in one piece or several, is written as UTF-8 with its line ends as they are. After an error nothing is left.
    """
    check_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:50]}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                file.writelines(part.encode() for part in ([content] if isinstance(content, str) else content))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_output(path: Path) -> None:
    """OSError for what is there and is no file, such as a device or a pipe, which a file must not take the place of."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, "it is no file: name another output", str(path))


def write_json(path: Path, content: object, *, indent: int = 1) -> None:
    """Write JSON atomically, with the keys in the order given; ValueError for NaN or infinity."""
    write_atomically(path, json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
