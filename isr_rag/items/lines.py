"""Files of items, read in batches: where each batch begins, and what its lines say.

A batch is always the same `BATCH` lines of the file. Items of one batch are scored together, and what is scored
together moves the last bits of a probability: with fixed batches a file gets the same bits whether it is decided in
one go, in several, or by many workers in any order.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from isr_rag import strict_json
from isr_rag.printable import printable

BATCH = 16
"""Lines decided together, and the least that is done again after a stop."""

FIELDS = ("question", "answer", "claim", "evidence")
LABELLED = ("label", "group", "source", "split")
"""What files of labelled items have besides."""


@dataclass(frozen=True, slots=True)
class ItemLine:
    """One line of the input: an item to decide, or what is wrong with it.

    Attributes:
        number: of the line (or row) in the file, from 1.
        id: the item's id, a string or an integer; None where it could not be read.
        item: the arguments of `isr_rag.ISRGate.decide`.
        error: why the line cannot be decided; None for an item.
    """

    number: int
    id: Any
    item: dict[str, Any]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a batch is in its file.

    Attributes:
        batch: number of the batch, from 0.
        start: first byte of JSONL, first row of Parquet.
        stop: the byte or row after the last.
        line: number of the first line, from 1.
    """

    batch: int
    start: int
    stop: int
    line: int


@dataclass(frozen=True, slots=True)
class Index:
    """All batches of a file.

    Attributes:
        sha256: of the file.
        items: lines that hold something.
        starts: for each batch its first byte or row, and the end of the last batch; one more than batches.
        lines: for each batch the number of its first line.
    """

    sha256: str
    items: int
    starts: Sequence[int]
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)

    def extent(self, batch: int) -> Extent:
        """Where a batch begins."""
        return Extent(batch, self.starts[batch], self.starts[batch + 1], self.lines[batch])

    def size(self, batch: int) -> int:
        """Number of items in a batch."""
        return min(BATCH, self.items - batch * BATCH)


class Reader(Protocol):
    """A file of items."""

    def index(self) -> Index:
        """Read the file once, to know its hash and where its batches begin."""
        ...

    def read(self, extent: Extent) -> list[ItemLine]:
        """The lines of one batch."""
        ...


class JsonlItems:
    """Items of a JSONL file, one object per line; empty lines count as lines and hold no item.

    Args:
        path: the file.
        ignored: fields that are passed over; all others that are not of an item make a line bad.
    """

    def __init__(self, path: Path, ignored: Sequence[str] = ()) -> None:
        self._path, self._ignored = path, ignored

    def index(self) -> Index:
        """Hash and batches, in one pass."""
        hashed, items, end = hashlib.sha256(), 0, 0
        starts, lines = array("q"), array("q")
        with self._path.open("rb") as file:  # only "\n" ends a line: texts may hold Unicode separators
            for number, raw in enumerate(file, start=1):
                hashed.update(raw)
                if _text(raw).strip():
                    if items % BATCH == 0:
                        starts.append(end)
                        lines.append(number)
                    items += 1
                end += len(raw)
        starts.append(end)
        return Index(hashed.hexdigest(), items, starts, lines)

    def read(self, extent: Extent) -> list[ItemLine]:
        """The lines of one batch."""
        with self._path.open("rb") as file:
            file.seek(extent.start)
            raw = file.read(extent.stop - extent.start)
        numbered = enumerate(raw.split(b"\n"), start=extent.line)
        texts = ((n, _text(r)) for n, r in numbered)
        return [_parse(number, text, self._ignored) for number, text in texts if text.strip()]


def as_line(number: int, plain: dict[str, Any]) -> ItemLine:
    """An item, or what its fields lack."""
    identifier = plain.pop("id", None)
    unknown = sorted(set(plain) - set(FIELDS))
    if isinstance(identifier, bool) or not isinstance(identifier, (int, str)):
        wrong = "no id" if identifier is None else f"an id is a string or an integer, not {type(identifier).__name__}"
        identifier = None
    elif identifier != (cleaned := printable(identifier, None) if isinstance(identifier, str) else identifier):
        identifier, wrong = None, f"the id {cleaned!r:.80} holds control characters or half a surrogate pair"
    elif unknown:
        wrong = f"unknown fields {printable(str(unknown))}; a line has id, {', '.join(FIELDS)}"
    elif "evidence" not in plain:
        wrong = "no evidence: a list of chunks is needed, which may be empty"
    else:
        wrong = None
    return ItemLine(number, identifier, plain, wrong)


def _parse(number: int, text: str, ignored: Sequence[str]) -> ItemLine:
    try:
        text.encode("utf-8")
        plain = strict_json.loads(text.removeprefix("\ufeff") if number == 1 else text)
    except UnicodeEncodeError:
        return ItemLine(number, None, {}, "not UTF-8")
    except ValueError as error:
        return ItemLine(number, None, {}, f"not JSON: {printable(str(error))}")
    if not isinstance(plain, dict):
        return ItemLine(number, None, {}, f"a JSON object is needed, not {type(plain).__name__}")
    fields = cast(dict[str, Any], plain)
    return as_line(number, {name: value for name, value in fields.items() if name not in ignored})


def _text(raw: bytes) -> str:
    # Bytes that are not UTF-8 are kept, to be reported.
    return raw.decode("utf-8", errors="surrogateescape")
