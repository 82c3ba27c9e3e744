"""Rows of the original files, and what a reader makes of them before assembly."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isr_lab.slice.schema import Kind, SliceChunk
from isr_rag.errors import InvalidInputError

Row = Mapping[str, Any]


class RowError(InvalidInputError):
    """One row cannot be used; the message says why. The row is reported and left out."""


class MixError(InvalidInputError):
    """The raw folder cannot be read as it is: files are missing, or hold another schema."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was left out: the file, its line (1-based) or record number, and the reason."""

    file: str
    line: int
    problem: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible item, before splitting, balancing and capping.

    Attributes:
        source: name of the set.
        keys: documents, claims or questions it shares with others; items that share one stay in one split.
        unit: twins carry the same unit and are kept or left out together.
        label: 1 when the evidence supports (or suffices), else 0.
        kind: as in the item schema.
        chunks: the evidence.
        file: path of the file below the raw folder.
        record: line number or identifier within the file.
        construction: how the item was made from the record.
    """

    source: str
    keys: tuple[str, ...]
    unit: str
    label: int
    kind: Kind
    chunks: tuple[SliceChunk, ...]
    file: str
    record: str
    construction: str
    claim: str | None = None
    question: str | None = None
    answer: str | None = None

    @property
    def task(self) -> str:
        """`claim`, `draft` or `sufficiency`."""
        if self.claim is not None:
            return "claim"
        return "draft" if self.answer is not None else "sufficiency"


@dataclass(slots=True)
class RowLog:
    """Counts of rows read, and every row left out, by file."""

    bad: list[BadRow] = field(default_factory=list[BadRow])
    read: dict[str, int] = field(default_factory=dict[str, int])

    def check(self, file: str) -> None:
        """Raise when most of a file's rows were bad: it then holds another schema.

        Raises:
            MixError: naming the file and its first bad row.
        """
        bad = [row for row in self.bad if row.file == file]
        if bad and 2 * len(bad) > self.read.get(file, 0):
            raise MixError(
                f"{file}: {len(bad)} of {self.read.get(file, 0)} rows cannot be read, the first at line "
                f"{bad[0].line}: {bad[0].problem}. This is not the expected schema"
            )


def text_of(row: Row, name: str) -> str:
    """A field that must be a string with something in it.

    Raises:
        RowError: if the field is missing, no string or blank.
    """
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RowError(f"field {name!r} must be a non-empty string, found {value!r}")
    return value


def list_of(row: Row, name: str) -> list[Any]:
    """A field that must be a list.

    Raises:
        RowError: if it is anything else.
    """
    value = row.get(name)
    if not isinstance(value, list):
        raise RowError(f"field {name!r} must be a list, found {type(value).__name__}")
    return value  # pyright: ignore[reportUnknownVariableType]


def mapping_of(value: object, what: str) -> Row:
    """A value that must be a JSON object.

    Raises:
        RowError: if it is anything else.
    """
    if not isinstance(value, dict):
        raise RowError(f"{what} must be an object, found {type(value).__name__}")
    return value  # pyright: ignore[reportUnknownVariableType]


def one_of(row: Row, name: str, allowed: Iterable[str]) -> str:
    """A field whose value must be one of those allowed.

    Raises:
        RowError: if it is not.
    """
    value = text_of(row, name)
    known = sorted(allowed)
    if value not in known:
        raise RowError(f"field {name!r} is {value!r}; known values are {known}")
    return value


def read_text(path: Path) -> str:
    """The text of a file, gzipped or not, in UTF-8 with its line ends as they are.

    Raises:
        MixError: if the file is missing, damaged or no UTF-8.
    """
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except FileNotFoundError as error:
        raise MixError(f"{path} is missing: put the file there, or leave its whole folder out") from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise MixError(f"{path} cannot be read ({error}): fetch it again") from error


def _json_lines(text: str) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError as error:
                yield number, RowError(f"no JSON: {error}")


def _json_array(text: str, file: str) -> Iterator[tuple[int, object]]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise MixError(f"{file} is not JSON ({error}): fetch it again") from error
    if not isinstance(value, list):
        raise MixError(f"{file} must hold a JSON array, found {type(value).__name__}")
    yield from enumerate(value, start=1)  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]


def _table(text: str, delimiter: str) -> Iterator[tuple[int, object]]:
    stream = io.StringIO(text, newline="")
    if delimiter == "\t":
        reader = csv.DictReader(stream, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.DictReader(stream, delimiter=delimiter)
    for row in reader:
        fields: dict[Any, Any] = dict(row)
        if None in fields or None in fields.values():
            yield reader.line_num, RowError("the number of columns differs from the header's")
        else:
            yield reader.line_num, fields


def read_rows(
    raw: Path, file: str, log: RowLog, convert: Callable[[Row, str], Iterable[Candidate]]
) -> Iterator[Candidate]:
    """Convert every row of a file; a bad row is logged with its line and left out.

    The format follows from the name: `.jsonl`, `.json` (an array), `.csv` or `.tsv`, gzipped or not.

    Raises:
        MixError: if the file is missing, damaged, or mostly of another schema.
    """
    text = read_text(raw / file)
    stem = file.removesuffix(".gz")
    if stem.endswith(".jsonl"):
        rows = _json_lines(text)
    elif stem.endswith(".json"):
        rows = _json_array(text, file)
    else:
        rows = _table(text, "\t" if stem.endswith(".tsv") else ",")
    log.read[file] = 0
    for line, row in rows:
        log.read[file] += 1
        try:
            if isinstance(row, RowError):
                raise row
            yield from convert(mapping_of(row, "a row"), str(line))
        except RowError as error:
            log.bad.append(BadRow(file, line, str(error)))
    log.check(file)


def read_files(
    raw: Path, files: Iterable[str], log: RowLog, convert: Callable[[str, Row, str], Iterable[Candidate]]
) -> Iterator[Candidate]:
    """`read_rows` over several files; `convert` is also told the file."""
    for file in files:
        yield from read_rows(raw, file, log, functools.partial(convert, file))
