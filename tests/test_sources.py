"""Evidence from files, directories, JSONL and standard input."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from isr_rag import Chunk
from isr_rag.errors import InvalidInputError
from isr_rag.sources import chunk_text, read_evidence


def test_running_text_is_cut_at_paragraphs_and_titled_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "rivers.md"
    path.write_text("one two\nthree\n\n\n  four\n\nfive", "utf-8")
    assert read_evidence([str(path)]) == (Chunk("one two three four five", "rivers"),)
    assert [c.text for c in chunk_text(path.read_text("utf-8"), words=3)] == ["one two three", "four five"]


def test_jsonl_keeps_titles_and_unicode_separators(tmp_path: Path) -> None:
    path = tmp_path / "chunks.jsonl"
    path.write_text('{"text": "a\u2028b", "title": "t"}\n"plain"\n\n', "utf-8")
    assert read_evidence([str(path)]) == (Chunk("a\u2028b", "t"), Chunk("plain"))


def test_a_directory_is_read_in_order_of_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "ignored.bin"):
        (tmp_path / name).write_text(name, "utf-8")
    assert [chunk.text for chunk in read_evidence([str(tmp_path)])] == ["a.txt", "b.txt"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"text": "from a pipe"}\n'))
    assert read_evidence(["-"]) == (Chunk("from a pipe"),)


@pytest.mark.parametrize("content", ['{"text": ""}', '{"body": "x"}', '{"text": 3}', "{"])
def test_a_bad_line_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "chunks.jsonl"
    path.write_text(f'"good"\n{content}\n', "utf-8")
    with pytest.raises(InvalidInputError, match="line 2"):
        read_evidence([str(path)])


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"nowhere\.txt"):
        read_evidence([str(tmp_path / "nowhere.txt")])
    with pytest.raises(InvalidInputError, match=r"no \.txt"):
        read_evidence([str(tmp_path)])
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="UTF-8"):
        read_evidence([str(tmp_path)])
