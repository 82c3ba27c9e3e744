"""Read JSONL files of items.

Items are scored in batches of `BATCH` lines, and which items share a batch can change the last bits of a probability.
The batches of a file are therefore always the same, whether it is decided in one run, in several, or by many workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from isr_rag._util import strict_json
from isr_rag._util.files import sha256_of
from isr_rag._util.text import printable
from isr_rag.errors import InvalidInputError

BATCH = 16  # lines that are decided together, and that are decided again if a run stops in the middle of them

FIELDS = ("question", "answer", "claim", "evidence")
LABELLED = ("label", "group", "source", "kind")  # further fields of labelled items
RawLine = tuple[int, str]  # number of a line, from 1, and its text


@dataclass(frozen=True, slots=True)
class ItemLine:
    """Number, id and item of a line (the arguments of `isr_rag.ISRGate.decide`), or why it cannot be decided."""

    number: int
    id: Any
    item: dict[str, Any]
    error: str | None = None


class Items:
    """A file of items, read once when it is opened to hash it and to count its lines (bad ones too, empty ones not).

    `more` are further fields that items may have. InvalidInputError if there is no such file, or it is Parquet.
    """

    def __init__(self, path: Path, more: Sequence[str] = ()) -> None:
        if not path.is_file():
            raise InvalidInputError(f"there is no file {path}")
        if path.suffix == ".parquet":
            raise InvalidInputError(f"{path} is Parquet: write its rows to a JSONL file first, one item per line")
        self.path, self._more, self._stamp = path, more, _stamp(path)
        self.sha256 = sha256_of(path)
        self.count = sum(1 for _ in self._raw())

    @property
    def changed(self) -> bool:
        """Whether the file was written since it was opened."""
        return _stamp(self.path) != self._stamp

    def size(self, batch: int) -> int:
        """Number of items in a batch."""
        return min(BATCH, self.count - batch * BATCH)

    def batches(self) -> Iterator[tuple[int, list[RawLine]]]:
        """The batches of the file in order, numbered from 0; `parse` reads their lines."""
        lines = self._raw()
        return enumerate(iter(lambda: list(islice(lines, BATCH)), []))

    def __iter__(self) -> Iterator[ItemLine]:
        return (parse(number, text, self._more) for number, text in self._raw())

    def _raw(self) -> Iterator[RawLine]:
        # Only "\n" ends a line: texts may hold Unicode separators. Bytes that are not UTF-8 are reported by `parse`.
        with self.path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            yield from ((number, text) for number, text in enumerate(file, start=1) if text.strip())


def parse(number: int, text: str, more: Sequence[str] = ()) -> ItemLine:
    """The item of a line, which may have `more` fields than `FIELDS`, or what is wrong with it."""
    try:
        text.encode("utf-8")
        item = strict_json.loads(text.removeprefix("\ufeff") if number == 1 else text)
    except UnicodeEncodeError:
        return ItemLine(number, None, {}, "not UTF-8")
    except ValueError as error:
        return ItemLine(number, None, {}, f"not JSON: {printable(str(error))}")
    if not isinstance(item, dict):
        return ItemLine(number, None, {}, f"a JSON object is needed, not {type(item).__name__}")
    identifier = item.pop("id", None)
    wrong = None
    if isinstance(identifier, bool) or not isinstance(identifier, (int, str)):
        wrong = "no id" if identifier is None else f"an id is a string or an integer, not {type(identifier).__name__}"
        identifier = None
    elif isinstance(identifier, str) and identifier != (shown := printable(identifier, None)):
        identifier, wrong = None, f"the id {shown!r:.80} holds control characters or half a surrogate pair"
    elif unknown := sorted(set(item) - {*FIELDS, *more}):
        wrong = f"unknown fields {printable(str(unknown))}; a line has id, {', '.join([*FIELDS, *more])}"
    elif "evidence" not in item:
        wrong = "no evidence: a list of chunks is needed, which may be empty"
    return ItemLine(number, identifier, item, wrong)


def read_labelled(path: Path) -> list[dict[str, Any]]:
    """Labelled items: `{"id", "label", "question"?, "answer"?, "claim"?, "evidence", "group"?, "source"?, "kind"?}`.

    InvalidInputError if the file is missing, or for the first bad line, with its number.
    """
    items: list[dict[str, Any]] = []
    for line in Items(path, LABELLED):
        if error := line.error or ("" if "label" in line.item else "no label"):
            raise InvalidInputError(f"{path}, line {line.number}: {error}")
        items.append({"id": line.id, **line.item})
    return items


def bundled_items() -> list[dict[str, Any]]:
    """The labelled items that come with the package: claims, drafts and questions about twelve documents.

    The documents were written for this project; the evidence is what BM25 finds in all twelve. See their `kind` for
    what is wrong with a false one: a near-miss, a wrong detail, a false premise, or what the evidence does not say.
    Items are as `read_labelled` gives them; `source` is the document, `group` the passage that an item is about.
    """
    data = resources.files("isr_rag.calibration").joinpath("data")
    files = [data.joinpath(name).read_text("utf-8").split("\n") for name in ("chunks.jsonl", "items.jsonl")]
    chunks, items = ([json.loads(line) for line in lines if line] for lines in files)
    texts = {chunk["id"]: {"text": chunk["text"], "title": chunk["title"]} for chunk in chunks}
    return [item | {"evidence": [texts[name] for name in item["evidence"]]} for item in items]


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
