"""Read evidence from text, Markdown, HTML, PDF, JSON and JSONL files, directories, or standard input."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from isr_rag._util import strict_json
from isr_rag._util.text import well_formed
from isr_rag.core.evidence import Chunk, as_chunks, one_line, split_sentences, words
from isr_rag.errors import InvalidInputError
from isr_rag.io.documents import BROKEN, SECONDS, DocumentReader, check_size

CHUNK_WORDS = 120
"""Most words of a chunk that is cut out of running text, unless one paragraph has more."""

_PARAGRAPH = re.compile(r"(?s).+?(?:\r?\n[ \t]*\r?\n|\Z)")
_LONGEST_WORD = 20  # characters a word on average, above which a text has no spaces between its words
_LONGEST_PARAGRAPH = 600  # words of the longest paragraph that stays whole
_HEADING = re.compile(r"#{1,6} .+|(?=\W*[A-Z\d])(?![-|•>] )(?:\S+[ \t]+){0,11}\S*[^\s.!;,|)]")
_LARGEST = 64 * 2**20  # bytes of the largest file that is read
_HTML_SUFFIXES = (".html", ".htm", ".xhtml")
_SUFFIXES = (".txt", ".md", ".rst", *_HTML_SUFFIXES, ".pdf", ".json", ".jsonl")


def read_evidence(
    places: Sequence[str], *, note: Callable[[str], None] = lambda line: None, skip: bool = False
) -> tuple[Chunk, ...]:
    """Read chunks from files, directories or `-` (standard input), in the order given.

    A JSONL file has one chunk per line (a string, or `{"text", "title"}`), a JSON file a list of them. Running text
    is cut into chunks of whole paragraphs of about `CHUNK_WORDS` words, with the file's name as title. Of HTML the main
    text is read, under the page's title; of PDF the text of every page. A file of any other kind is read as text if it
    is named itself, and skipped in a directory, as hidden files are, and links that lead out of it. HTML and PDF are
    parsed in a process of their own, with limits of time, memory, pages and characters.

    Args:
        places: what to read.
        note: called with a message about what a directory skipped.
        skip: also skip, with a note, what cannot be read in a directory, unless nothing can.

    Raises:
        InvalidInputError: if a place does not exist, cannot be read or holds no text, or a line is not a chunk.
        MissingDependencyError: for HTML or PDF without the extra "documents".
    """
    with DocumentReader() as reader:
        return tuple(chunk for place in places for chunk in _read(place, note, skip, reader))


def _read(place: str, note: Callable[[str], None], skip: bool, reader: DocumentReader) -> Iterator[Chunk]:
    if place == "-":
        yield from _read_stdin()
        return
    path = Path(place)
    try:
        if not path.exists():
            raise InvalidInputError(f"there is no file or directory {place}")
        if not path.is_dir():
            yield from _file(path, reader)
            return
        found, wrong = 0, ""
        for file in _files_in(path, note):
            try:
                chunks = _file(file, reader, path.resolve())
            except (InvalidInputError, OSError) as error:
                if not skip:
                    raise
                note(wrong := f"skipped: {error}")
                continue
            found += 1
            yield from chunks
        if not found:
            raise InvalidInputError(f"{place} has no file that can be read; the last was {wrong}")
    except OSError as error:
        raise InvalidInputError(f"{place} cannot be read: {error.strerror or error}") from error


def _file(file: Path, reader: DocumentReader, inside: Path | None = None) -> list[Chunk]:
    with file.open("rb") as opened:
        real = file.resolve()  # again: the file may have become a link since it was found
        if inside and not (real.is_relative_to(inside) and os.path.samestat(os.fstat(opened.fileno()), real.lstat())):
            raise InvalidInputError(f"{file} is linked from elsewhere")
        if len(raw := opened.read(_LARGEST + 1)) > _LARGEST:
            raise InvalidInputError(f"{file} has more than {_LARGEST:,} bytes: cut it into parts")
    return list(_chunks(raw, file, reader, time.monotonic() + SECONDS))


def read_text(path: Path) -> str:
    """The text of a file, or for `-` of standard input; InvalidInputError if it is not UTF-8."""
    try:  # not from `sys.stdin` itself, which replaces bytes or reads another encoding, as the locale says
        return (sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        name = "standard input" if str(path) == "-" else path
        raise InvalidInputError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _read_stdin() -> Iterator[Chunk]:
    name = "standard input"
    text = _checked(read_text(Path("-")), name)
    line = text.lstrip().split("\n", 1)[0].rstrip()
    chunks = _json_list(text, name) if line[0] == "[" else None
    if chunks is None:
        lines = line[0] == "{" or line[0] == line[-1] == '"'  # else a text that begins with what somebody says
        chunks = _json_lines(text, name) if lines else chunk_text(text)
    yield from chunks


def _files_in(path: Path, note: Callable[[str], None]) -> list[Path]:
    """The files of a directory that can be read as evidence."""
    wanted: list[Path] = []
    skipped: Counter[str] = Counter()
    inside = path.resolve()
    shown = (one for one in sorted(path.rglob("*")) if not any(p.startswith(".") for p in one.relative_to(path).parts))
    for file in shown:
        if not os.access(file, os.F_OK):  # `is_file` raises where a folder may be listed and not entered
            skipped["out of reach"] += 1
        elif file.is_file():
            suffix = file.suffix.lower()
            if not file.resolve().is_relative_to(inside):
                skipped["linked from elsewhere"] += 1
            elif suffix in _SUFFIXES and file.stat().st_size:
                wanted.append(file)
            else:
                skipped["empty" if suffix in _SUFFIXES else suffix or "without suffix"] += 1
    if not wanted:
        raise InvalidInputError(f"{path} has no file to read: {', '.join(_SUFFIXES)}")
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items()))
        note(f"{path}: {len(wanted)} files read, skipped {kinds}")
    return wanted


def chunks_of_document(
    raw: bytes, name: str, *, deadline: float | None = None, reader: DocumentReader | None = None
) -> Iterator[Chunk]:
    """The chunks of a file's content, cut as `read_evidence` does and with its errors; nothing is read from a disk.

    The suffix of `name` tells the format, its stem is a title, and error messages contain it. A process that parses
    HTML or PDF is killed at `deadline`, in seconds of `time.monotonic`; None for a minute from now.
    """
    with reader or DocumentReader() as reader:
        yield from _chunks(raw, Path(name), reader, time.monotonic() + SECONDS if deadline is None else deadline)


def _chunks(raw: bytes, path: Path, reader: DocumentReader, deadline: float) -> Iterator[Chunk]:
    suffix = path.suffix.lower()
    if not raw.strip():
        raise InvalidInputError(f"{path} is empty")
    if raw.startswith(b"%PDF-"):
        yield from _document("PDF", raw, path, reader, deadline)
        return
    if suffix == ".pdf":
        raise InvalidInputError(f"{path} is not a PDF file")
    try:
        text = _checked(raw.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} is not UTF-8 text, nor a PDF: convert it first ({error.reason} at byte {error.start})"
        ) from error
    if suffix in _HTML_SUFFIXES:
        yield from _document("HTML", text.encode(), path, reader, deadline)
    elif suffix in (".json", ".jsonl"):
        chunks = _json_list(text, str(path)) if suffix == ".json" else None
        yield from _json_lines(text, str(path)) if chunks is None else chunks
    else:
        yield from chunk_text(text, well_formed(path.stem))


def _checked(text: str, name: str) -> str:
    """The text, unless it is empty or binary."""
    if "\0" in text:
        raise InvalidInputError(f"{name} is not text: it holds null bytes")
    check_size(len(text), name)
    if not one_line(text):
        raise InvalidInputError(f"{name} is empty")
    return text


def _json_list(text: str, name: str) -> Iterable[Chunk] | None:
    """The chunks of a JSON list; None where the text is not one."""
    try:
        plain = strict_json.loads(text)
    except ValueError:
        return None
    if plain == []:
        raise InvalidInputError(f"{name} is an empty list: it holds no chunks")
    try:
        return as_chunks(plain) if isinstance(plain, list) else None
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"{name}: {error}") from error


def _json_lines(text: str, name: str) -> Iterator[Chunk]:
    for number, line in enumerate(re.finditer(r"[^\n]*\n?", text), start=1):  # a list of all takes much memory
        if line[0].strip():
            try:
                yield as_chunks([strict_json.loads(line[0])])[0]
            except (ValueError, TypeError) as error:
                wanted = "JSON evidence is a list of chunks, or one on each line; rename other JSON to .txt"
                raise InvalidInputError(f"{name}, line {number}: {error} ({wanted})") from error


def _document(kind: str, raw: bytes, path: Path, reader: DocumentReader, deadline: float) -> Iterator[Chunk]:
    """The main text of a page, or the sentences of a PDF, which does not mark paragraphs."""
    try:
        texts, title = reader.read(kind, raw, max(deadline - time.monotonic(), 0.0))
    except InvalidInputError as error:
        raise InvalidInputError(f"the {kind} {path}: {error}") from error
    if not any(map(one_line, texts)):
        why = "pages that are pictures need text recognition first" if kind == "PDF" else "it may be made by scripts"
        raise InvalidInputError(f"the {kind} {path} holds no text: {why}")
    yield from chunk_text("\n\n".join(texts), title or well_formed(path.stem))


def chunk_text(text: str, title: str | None = None) -> Iterator[Chunk]:
    """Cut running text into chunks of whole paragraphs, which empty lines divide; each gets the title.

    A chunk ends where the next paragraph would take it beyond `CHUNK_WORDS` words, and before headings that would end
    it. A paragraph of over 600 words is cut by its lines if most begin one anew, as in tables and chats, else by
    sentences.
    """
    gathered: list[str] = []
    size = headings = 0  # words, and headings at the end
    for paragraph in filter(one_line, (BROKEN.sub("", found[0]) for found in _PARAGRAPH.finditer(text))):
        long = words(paragraph) > _LONGEST_PARAGRAPH
        for part in _pieces(paragraph) if long else (one_line(paragraph),):
            spaced = len(part.split())
            more = words(part) if long or len(part) > _LONGEST_WORD * spaced else spaced
            if gathered and size + more > CHUNK_WORDS:
                last = len(gathered) - min(headings, 3)  # or a list of nothing but titles would never end
                if last:
                    yield Chunk(" ".join(gathered[:last]), title)
                gathered = gathered[last:]
                size = sum(map(words, gathered))
            gathered.append(part)
            size += more
            headings = headings + 1 if len(paragraph) < 200 and _HEADING.fullmatch(paragraph.strip()) else 0
    if gathered:
        yield Chunk(" ".join(gathered), title)


def _pieces(paragraph: str) -> Iterator[str]:
    lines = list(filter(None, map(one_line, paragraph.splitlines())))
    apart = len(lines) > 1 and 2 * sum(line[0].islower() for line in lines) < len(lines)
    for line in lines if apart else (one_line(paragraph),):
        yield from split_sentences(line) if words(line) > CHUNK_WORDS else (line,)
