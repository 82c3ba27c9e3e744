"""Writing files whole or not at all, and naming them by their content."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write a file of which a reader sees the old content or the new, never a part.

    Args:
        path: the file; its folder is made where it is missing.
        content: text, which is written as UTF-8 with its own line ends, in one piece or several; or bytes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                file.writelines(part.encode() for part in ([content] if isinstance(content, str) else content))
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, content: object, *, indent: int = 1) -> None:
    """Write JSON as `write_atomically` does, keys in the order given.

    Raises:
        ValueError: for a number that JSON cannot hold; nothing is written then.
    """
    write_atomically(path, json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes.

    Raises:
        OSError: if the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
