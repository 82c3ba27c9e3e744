"""Evidence from files: text, Markdown, JSONL, a directory of them, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from isr_rag import strict_json
from isr_rag.errors import InvalidInputError
from isr_rag.evidence import Chunk, as_chunks, one_line

CHUNK_WORDS = 120
"""Words of a chunk that is cut out of running text."""

_TEXT_SUFFIXES = (".txt", ".md", ".rst")


def read_evidence(places: Sequence[str]) -> tuple[Chunk, ...]:
    """Chunks from files, directories or `-` (standard input), in the order given.

    JSONL has a chunk a line (a string, or `{"text", "title"}`); running text is cut into chunks of whole
    paragraphs of about `CHUNK_WORDS` words, with the file's name as title.

    Raises:
        InvalidInputError: if a place does not exist, or a line is not a chunk.
    """
    return tuple(chunk for place in places for chunk in _read(place))


def _read(place: str) -> Iterator[Chunk]:
    if place == "-":
        yield from _parse(sys.stdin.read(), "standard input", None)
        return
    path = Path(place)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in (*_TEXT_SUFFIXES, ".jsonl"))
        if not files:
            raise InvalidInputError(f"no {', '.join(_TEXT_SUFFIXES)} or .jsonl file in {path}")
    elif path.is_file():
        files = [path]
    else:
        raise InvalidInputError(f"there is no file or directory {place}")
    for file in files:
        try:
            text = file.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{file} is no UTF-8 text: {error}") from error
        yield from _parse(text, str(file), None if file.suffix == ".jsonl" else file.stem)


def _parse(text: str, name: str, title: str | None) -> Iterator[Chunk]:
    if title is None and text.lstrip().startswith(("{", '"')):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    yield as_chunks([strict_json.loads(line)])[0]
                except (ValueError, TypeError) as error:
                    raise InvalidInputError(f"{name}, line {number}: {error}") from error
    else:
        yield from chunk_text(text, title)


def chunk_text(text: str, title: str | None = None, *, words: int = CHUNK_WORDS) -> Iterator[Chunk]:
    """Cut running text into chunks of whole paragraphs.

    Args:
        text: paragraphs, divided by empty lines.
        title: title of every chunk.
        words: a chunk is closed when the next paragraph would take it beyond this.
    """
    gathered: list[str] = []
    size = 0
    for paragraph in text.split("\n\n"):
        folded = one_line(paragraph)
        if not folded:
            continue
        more = len(folded.split())
        if gathered and size + more > words:
            yield Chunk(" ".join(gathered), title)
            gathered, size = [], 0
        gathered.append(folded)
        size += more
    if gathered:
        yield Chunk(" ".join(gathered), title)
