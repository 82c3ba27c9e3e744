"""Evidence from files, directories, JSONL and standard input."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from isr_rag import Chunk
from isr_rag.errors import InvalidInputError, ISRError
from isr_rag.io import sources
from isr_rag.io.sources import chunk_text, read_evidence


def piped(content: bytes, errors: str = "surrogateescape") -> io.TextIOWrapper:
    """Standard input as the locale C makes it."""
    return io.TextIOWrapper(io.BytesIO(content), "utf-8", errors)


def test_running_text_is_cut_at_paragraphs_and_titled_by_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "rivers.md"
    path.write_text("one two\nthree\n\n\n  four\n\nfive", "utf-8")
    assert read_evidence([str(path)]) == (Chunk("one two three four five", "rivers"),)
    monkeypatch.setattr(sources, "CHUNK_WORDS", 3)
    assert [c.text for c in chunk_text(path.read_text("utf-8"))] == ["one two three", "four five"]


@pytest.mark.parametrize("heading", ["## What is the warranty?", "3. Warranty", "The following are covered:", "Notes"])
def test_a_heading_goes_with_what_it_stands_over(heading: str) -> None:
    before, after = "Before it. " * 50, "After it. " * 20
    chunks = [chunk.text for chunk in chunk_text(f"# Title\r\n\r\n{before}\n\n{heading}\n\n{after}")]
    assert chunks == [f"# Title {before.strip()}", f"{heading} {after.strip()}"]
    assert [chunk.text for chunk in chunk_text(f"{heading}\n\n{before * 2}")] == [f"{heading} {(before * 2).strip()}"]


def test_a_chunk_ends_where_all_paragraphs_look_like_headings_too() -> None:
    chunks = [len(chunk.text.split()) for chunk in chunk_text("Nothing but a title\n\n" * 100)]
    assert max(chunks) <= sources.CHUNK_WORDS and sum(chunks) == 400
    first = next(chunk_text("\n\n".join(["Done. " * 117, "- item", "Last. " * 9])))
    assert first.text.endswith("- item")


@pytest.mark.parametrize(
    "row", ["[12/07/2025, 08:14] Anna: number {} says no", "GB-{},Garden hose,{} m,24.90", "{} is it."]
)
def test_a_long_table_or_chat_is_cut_between_its_lines(row: str) -> None:
    rows = [row.format(i, i) for i in range(300)]
    chunks = [chunk.text for chunk in chunk_text("\n".join(rows))]
    assert len(chunks) > 2 and " ".join(chunks).split() == " ".join(rows).split()
    assert {chunk[: len(row.split("{}")[0])] for chunk in chunks} == {row.split("{}")[0]}


def test_long_prose_is_cut_between_sentences_wherever_its_lines_end() -> None:
    text = "The river rises in the hills and flows\nthrough the old town before it turns. " * 60
    assert all(chunk.text.endswith("turns.") for chunk in chunk_text(text))


def test_jsonl_keeps_titles_and_unicode_separators(tmp_path: Path) -> None:
    path = tmp_path / "chunks.jsonl"
    path.write_text('{"text": "a\u2028b", "title": "t"}\n"plain"\n\n', "utf-8")
    assert read_evidence([str(path)]) == (Chunk("a\u2028b", "t"), Chunk("plain"))


def test_a_directory_is_read_in_order_of_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "ignored.bin"):
        (tmp_path / name).write_text(name, "utf-8")
    assert [chunk.text for chunk in read_evidence([str(tmp_path)])] == ["a.txt", "b.txt"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", piped(b'{"text": "from a pipe"}\n'))
    assert read_evidence(["-"]) == (Chunk("from a pipe"),)


def test_standard_input_is_utf_8_whatever_the_locale_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", piped("The caf\u00e9 is in Paris.".encode("cp1252")))
    with pytest.raises(InvalidInputError, match="standard input is not UTF-8 text"):
        read_evidence(["-"])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("caf\u00e9".encode()), "latin-1"))
    assert read_evidence(["-"]) == (Chunk("caf\u00e9"),)


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_file_that_becomes_a_link_while_a_folder_is_read_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (folder := tmp_path / "folder").mkdir()
    (tmp_path / "secret.txt").write_text("secret", "utf-8")
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(name, "utf-8")
    listed = sources._files_in

    def swapped(*given: Any) -> list[Path]:
        files = listed(*given)
        (folder / "b.txt").unlink()
        (folder / "b.txt").symlink_to(tmp_path / "secret.txt")
        return files

    monkeypatch.setattr(sources, "_files_in", swapped)
    notes: list[str] = []
    assert read_evidence([str(folder)], note=notes.append, skip=True) == (Chunk("a.txt", "a"),)
    assert "linked from elsewhere" in notes[0]


@pytest.mark.parametrize("content", ['{"text": ""}', '{"body": "x"}', '{"text": 3}', "{"])
def test_a_bad_line_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "chunks.jsonl"
    path.write_text(f'"good"\n{content}\n', "utf-8")
    with pytest.raises(InvalidInputError, match="line 2"):
        read_evidence([str(path)])


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"nowhere\.txt"):
        read_evidence([str(tmp_path / "nowhere.txt")])
    with pytest.raises(InvalidInputError, match=r"no file to read: \.txt"):
        read_evidence([str(tmp_path)])
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="UTF-8"):
        read_evidence([str(tmp_path)])


def test_json_that_is_no_list_of_chunks_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text in ('{\n  "port": 8443\n}', "{\n  // a comment\n}", '{"port": 8443}'):
        path.write_text(text, "utf-8")
        with pytest.raises(InvalidInputError, match=r"config\.json, line 1: .*list of chunks.*\.txt"):
            read_evidence([str(path)])


def test_a_json_list_is_a_list_of_chunks_and_a_mark_at_the_start_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "chunks.json"
    path.write_text('\ufeff["plain", {"text": "a", "title": "t"}]', "utf-8")
    assert read_evidence([str(path)]) == (Chunk("plain"), Chunk("a", "t"))
    prose = tmp_path / "note.txt"
    prose.write_text("\ufeff[1] The first footnote.", "utf-8")
    assert read_evidence([str(prose)]) == (Chunk("[1] The first footnote.", "note"),)


@pytest.mark.parametrize("text", ['["a", {"text": "b"}]', '\ufeff"a"\n"b"\n', "a\n\nb"])
def test_standard_input_says_by_its_first_character_what_it_is(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", piped(text.encode()))
    assert " ".join(chunk.text for chunk in read_evidence(["-"])) == "a b"


def test_standard_input_may_begin_with_what_somebody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", piped(b'"Call me Ishmael," he said.'))
    assert read_evidence(["-"]) == (Chunk('"Call me Ishmael," he said.'),)


PAGE = """<!doctype html><html><head><title>Rivers of France</title><script>var menu = 1;</script></head><body>
<nav><a href="/">Home</a> <a href="/imprint">Imprint of this site</a></nav><article><h1>Rivers</h1>
<p>The Seine is a river in northern France. It rises in Burgundy, flows through Paris and Rouen, and ends in the
English Channel at Le Havre after seven hundred and seventy-seven kilometres.</p>
<p>The Loire is the longest river in France. It ends in the Atlantic at Saint-Nazaire.</p></article>
<footer>All rights reserved by the authors of this page</footer></body></html>"""


def test_of_a_page_the_main_text_is_read_under_its_title(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGE, "utf-8")
    chunks = read_evidence([str(path)])
    text = " ".join(chunk.text for chunk in chunks)
    assert "flows through Paris" in text and "Saint-Nazaire" in text
    assert "menu" not in text and "Imprint" not in text
    assert {chunk.title for chunk in chunks} <= {"Rivers of France", "Rivers"}


@pytest.mark.parametrize("inside", ["{}", "<div>{}</div>", "<main>{}</main>"])
def test_the_headings_of_a_page_are_read_wherever_they_stand(inside: str, tmp_path: Path) -> None:
    told = {
        "Can opened software be returned?": "No, opened software cannot be returned, whatever the reason may be.",
        "Do you ship to Norway?": "Yes, parcels to Norway arrive within seven days of the order.",
        "Who pays the postage?": "The customer does; it is free for orders over 100 euros.",
    }
    text = "".join(f"<h2>{asked}</h2><p>{said}</p>" for asked, said in told.items())
    menu, foot = '<nav><a href="/">Home</a></nav>', '<footer><p>Imprint of <a href="/i">this site</a></p></footer>'
    path = tmp_path / "page.html"
    path.write_text(f"<html><body>{menu}{inside.format(f'<h1>Returns</h1>{text}')}{foot}</body></html>", "utf-8")
    read = " ".join(chunk.text for chunk in read_evidence([str(path)]))
    assert all(f"{asked} {said}" in " ".join(read.split()) for asked, said in told.items())
    assert "Home" not in read and "Imprint" not in read


def test_a_long_title_of_a_page_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(f"<html><head><title>{'Long ' * 2000}</title></head><body><p>The Seine flows.</p></body>", "utf-8")
    (chunk,) = read_evidence([str(path)])
    assert chunk.title is not None and chunk.title.startswith("Long ") and len(chunk.title) <= 300


def test_halves_of_surrogate_pairs_in_files_and_their_names_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('["a \\ud800 b", {"text": "c", "title": "\\udc00"}]', "utf-8")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("d", "utf-8")
    assert read_evidence([str(tmp_path)]) == (
        Chunk("a \ufffd b"),
        Chunk("c", "\ufffd"),
        Chunk("d", "caf\ufffd"),
    )


def pdf_of(*pages: str) -> bytes:
    """A PDF file with a line of text on each page, written by hand."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /Differences [30 /fi /ffi] >> >>",
    ]
    for i, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
    return f"{body}{end}<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n".encode("latin-1")


def test_letters_that_a_font_of_a_pdf_joins_are_set_apart(tmp_path: Path) -> None:
    (tmp_path / "lease.pdf").write_bytes(pdf_of("The o\\037ce is on the \\036rst floor."))  # octal: ffi, fi
    assert read_evidence([str(tmp_path / "lease.pdf")])[0].text == "The office is on the first floor."


def test_words_over_the_end_of_a_line_are_joined(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(
        pdf_of("Over-) Tj 0 -14 Td (time is paid, also to self-) Tj 0 -14 Td (employed staff.")
    )
    (tmp_path / "b.txt").write_text(
        "The wood-\nen bridge has two-\nor three-ton loads; 10-\n20 carts cross it.", "utf-8"
    )
    assert [chunk.text for chunk in read_evidence([str(tmp_path)])] == [
        "Overtime is paid, also to self- employed staff.",
        "The wooden bridge has two- or three-ton loads; 10- 20 carts cross it.",
    ]


def test_of_a_pdf_every_page_is_read(tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    path.write_bytes(pdf_of("The Seine flows through Paris.", "The Loire ends at Saint-Nazaire."))
    assert read_evidence([str(path)]) == (
        Chunk("The Seine flows through Paris. The Loire ends at Saint-Nazaire.", "report"),
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("scan.pdf", pdf_of("", ""), "text recognition"),
        ("cut.pdf", pdf_of("text")[:60], "cannot be read"),
        ("fake.pdf", b"plain text", "not a PDF"),
        ("page.html", b"<html><body><script>1</script></body></html>", "no text"),
        ("empty.txt", b" \n", "is empty"),
        ("mark.txt", b"\xef\xbb\xbf", "is empty"),
        ("old.doc", b"\xd0\xcf\x11\xe0", "not UTF-8 text"),
        ("nulls.txt", b"a\x00b", "null bytes"),
        ("list.json", b"[1]", r"evidence\[0\]"),
        ("chunks.json", b"{", "line 1"),
    ],
)
def test_what_holds_no_text_is_refused_with_its_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ISRError, match=message):
        read_evidence([str(tmp_path / name)])


def test_what_is_out_of_reach_in_a_directory_is_skipped_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("The Seine.", "utf-8")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "b.txt").write_text("The Loire.", "utf-8")
    for name in ("c.txt", ".d.txt"):
        (tmp_path / name).symlink_to("nowhere.txt")
    stat, access = os.stat, os.access

    def refused(path: Any, *args: Any, **more: Any) -> os.stat_result:  # a folder that may be listed and not entered
        if Path(path).name == "b.txt":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **more)

    monkeypatch.setattr(os, "stat", refused)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "b.txt" and access(path, mode))
    told: list[str] = []
    assert [chunk.text for chunk in read_evidence([str(tmp_path)], note=told.append)] == ["The Seine."]
    assert len(told) == 1 and "skipped 2 out of reach" in told[0]


def test_a_directory_says_what_it_skipped(tmp_path: Path) -> None:
    (tmp_path / "deep" / ".git").mkdir(parents=True)
    (tmp_path / "deep" / ".git" / "config.txt").write_text("hidden", "utf-8")
    for name in ("a.txt", "deep/b.MD", "table.csv", "other.csv", "picture.png", "README"):
        (tmp_path / name).write_text(name, "utf-8")
    (tmp_path / "empty.txt").touch()
    notes: list[str] = []
    assert [chunk.text for chunk in read_evidence([str(tmp_path)], note=notes.append)] == ["a.txt", "deep/b.MD"]
    assert notes == [f"{tmp_path}: 2 files read, skipped 2 .csv, 1 .png, 1 empty, 1 without suffix"]
