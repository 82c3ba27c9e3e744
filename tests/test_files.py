"""Files are written whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from isr_rag._util.files import sha256_of, write_atomically, write_json


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_atomically(path, "old\n")

    def parts() -> Iterator[str]:
        yield "new"
        raise RuntimeError("the source broke off")

    with pytest.raises(RuntimeError):
        write_atomically(path, parts())
    assert path.read_text("utf-8") == "old\n" and list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_a_file_is_as_private_as_its_user_wants_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomically(tmp_path / "new", "a")
        (tmp_path / "old").touch(0o644)
        write_atomically(tmp_path / "old", "a")
    finally:
        os.umask(before)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("new", "old")} == {0o600}


def test_text_parts_and_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in ("é\r\n", ["é", "\r\n"], "é\r\n".encode()):
        write_atomically(path, content)
        assert path.read_bytes() == "é\r\n".encode()
    assert sha256_of(path) == hashlib.sha256("é\r\n".encode()).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o644


def test_numbers_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_json(tmp_path / "file.json", {"a": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_name_as_long_as_the_system_allows_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / f"{'漢' * 83}.json"  # 254 bytes
    write_json(path, {})
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="name another output"):
        write_atomically(pipe, "new")
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]
