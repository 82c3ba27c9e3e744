"""HTML and PDF are parsed in a process of their own, within limits, and a bad document is a typed error."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from isr_rag.errors import InvalidInputError
from isr_rag.io import documents
from isr_rag.io.documents import DocumentReader
from isr_rag.io.sources import chunk_text, chunks_of_document, read_evidence

PAGE = b"<html><head><title>Rivers</title></head><body><article><p>The Seine flows through Paris.</p></article></body>"
SLOW_PAGE = (
    "<html><head><script type='application/ld+json'>"
    + '{"author": {"@type": "Person", "name": "'
    + '\\"' * 200_000
    + "</script></head><body><p>text</p></body>"
).encode()
"""trafilatura reads this in time that grows with the square of its length."""


def pdf(pages: int, content: bytes, stream: str = "/FlateDecode") -> bytes:
    """A PDF file whose pages all show the same, compressed."""
    packed = zlib.compress(content, 9)
    kids = " ".join(f"{5 + i} 0 R" for i in range(pages))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {pages} /Kids [{kids}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Length %d /Filter %s >>\nstream\n%s\nendstream" % (len(packed), stream.encode(), packed),
    ]
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /Font << /F 3 0 R >> >> >>"
    out, places = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, one in enumerate([*objects, *[page] * pages], start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(out + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(places) + 1, start))


SLOW_PDF = pdf(12, b"BT /F 9 Tf " + b"1 0 0 1 5 5 Tm (some words here) Tj " * 20_000 + b"ET")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "raw"), [("a.html", SLOW_PAGE), ("a.pdf", SLOW_PDF)])
def test_a_document_that_takes_too_long_is_given_up_at_the_deadline(name: str, raw: bytes) -> None:
    begun = time.monotonic()
    with pytest.raises(InvalidInputError, match="longer than"):
        list(chunks_of_document(raw, name, deadline=begun + 3.0))
    assert 3.0 <= time.monotonic() - begun < 5.0


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_a_document_that_needs_too_much_memory_is_given_up() -> None:
    with pytest.raises(InvalidInputError, match="MB"):
        list(chunks_of_document(pdf(1, b"BT /F 9 Tf (" + b"a" * (60 * 2**20) + b") Tj ET"), "a.pdf"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only there a process can say how much it takes")
def test_what_the_libraries_take_is_not_counted_and_a_document_has_the_rest() -> None:
    with DocumentReader(memory=32 * 2**20) as reader:
        assert reader.read("PDF", pdf(1, b"BT /F 9 Tf (Some words.) Tj ET"))[0] == ["Some words."]
        assert reader.read("HTML", PAGE)[1] == "Rivers"
        with pytest.raises(InvalidInputError, match="more than 32 MB"):
            reader.read("HTML", PAGE.replace(b"<p>", b"<p>a</p>" * 300_000 + b"<p>"))
        assert reader.read("HTML", PAGE)[1] == "Rivers"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (pdf(documents.PAGES + 1, b"BT /F 9 Tf (x) Tj ET"), "pages"),
        (pdf(1, b"BT /F 9 Tf (x) Tj ET", "/UnknownDecode"), "NotImplementedError"),
        (pdf(1, b"BT /F 9 Tf (x) Tj ET", "/Crypt"), "cannot be read|needs more|no text"),
        (pdf(1, b"BT /F 9 Tf (x) Tj ET").replace(b"/Count 1 /Kids [5 0 R]", b"/Count 1 /Kids [2 0 R]"), "."),
    ],
)
def test_whatever_a_parser_raises_is_a_typed_error(raw: bytes, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        list(chunks_of_document(raw, "a.pdf"))


@pytest.mark.slow
def test_one_process_reads_many_documents_and_a_new_one_goes_on_after_it_was_killed() -> None:
    with DocumentReader() as reader:
        assert reader.read("HTML", PAGE) == (["The Seine flows through Paris."], "Rivers")
        first = reader._process
        reader.read("HTML", PAGE)
        assert reader._process is first
        with pytest.raises(InvalidInputError, match=r"longer than 0\.5 s"):
            reader.read("PDF", SLOW_PDF, 0.5)
        assert first is not None and first.poll() is not None
        assert reader.read("HTML", PAGE)[1] == "Rivers"
        last = reader._process
    assert last is not None and last.poll() is not None


@pytest.mark.slow
def test_a_reader_that_was_ended_before_its_process_began_reads_nothing() -> None:
    with DocumentReader() as reader:
        reader.kill()
        with pytest.raises(InvalidInputError, match="crashed"):
            reader.read("HTML", PAGE)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_limits_of_whoever_starts_the_process_are_kept() -> None:
    """A shell may allow less processor time, or memory, than a document."""
    program = (
        "import resource, sys; from isr_rag.io.documents import DocumentReader\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (40, 40))\n"
        f"with DocumentReader() as reader: assert reader.read('HTML', {PAGE!r})[1] == 'Rivers'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_process_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISR_RAG_API_KEY", "secret")
    with DocumentReader() as reader:
        reader.read("HTML", PAGE)
        assert reader._process is not None
        assert b"secret" not in Path(f"/proc/{reader._process.pid}/environ").read_bytes()


def test_a_document_of_too_much_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "CHARACTERS", 100)
    with pytest.raises(InvalidInputError, match=r"a\.txt has more than 100 characters"):
        list(chunks_of_document(b"a " * 60, "a.txt"))


def test_text_without_empty_lines_is_cut_between_sentences() -> None:
    text = "The Seine flows through Paris. " * 10_000
    chunks = list(chunk_text(text, "t"))
    assert max(len(chunk.text.split()) for chunk in chunks) <= 120
    assert " ".join(chunk.text for chunk in chunks) == text.strip()
    assert max(len(chunk.text.split()) for chunk in chunk_text("Seine " * 300_000)) <= 120
    assert max(len(chunk.text) for chunk in chunk_text("漢" * 10_000)) <= 250
    assert len(list(chunk_text("one paragraph stays whole " * 100))) == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("hunter2", "utf-8")
    inside = tmp_path / "folder"
    inside.mkdir()
    (inside / "good.txt").write_text("The Seine flows through Paris.", "utf-8")
    return inside


def test_what_a_folder_links_to_outside_is_not_read(folder: Path) -> None:
    (folder / "link.txt").symlink_to("../outside/secret.txt")
    (folder / "linked").symlink_to("../outside")
    (folder / "inner.txt").symlink_to("good.txt")
    (folder / "loop.txt").symlink_to("loop.txt")
    notes: list[str] = []
    texts = [chunk.text for chunk in read_evidence([str(folder)], note=notes.append)]
    assert texts == ["The Seine flows through Paris."] * 2
    assert "linked from elsewhere" in notes[0]
    assert [chunk.text for chunk in read_evidence([str(folder / "link.txt")])] == ["hunter2"]  # named itself


@pytest.mark.parametrize(
    ("name", "raw"), [("bad.txt", b"\xff\xfe\x00x"), ("bad.pdf", b"%PDF-1.4 garbage"), ("bad.json", b"{")]
)
def test_a_bad_document_of_a_folder_is_skipped_and_reported_if_asked(folder: Path, name: str, raw: bytes) -> None:
    (folder / name).write_bytes(raw)
    with pytest.raises(InvalidInputError, match=name):
        read_evidence([str(folder)])
    notes: list[str] = []
    assert len(read_evidence([str(folder)], note=notes.append, skip=True)) == 1
    assert any(name in note for note in notes)
    (folder / "good.txt").unlink()
    with pytest.raises(InvalidInputError, match="no file that can be read"):
        read_evidence([str(folder)], skip=True)


def test_a_huge_file_is_not_read_into_memory(folder: Path) -> None:
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(2**40)
    notes: list[str] = []
    assert len(read_evidence([str(folder)], note=notes.append, skip=True)) == 1
    assert any("has more than" in note and "cut it into parts" in note for note in notes)
