"""Finding and reading raw files: plain or gzipped, JSON, JSON lines, TSV and CSV, with every bad line accounted for."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from isr_lab.slice.records import SourceReport
from isr_rag._util.files import sha256_of
from isr_rag.errors import InvalidInputError

Row = Mapping[str, object]


class SourceSchemaError(InvalidInputError):
    """A raw file does not have the columns or fields that its name promises."""


class MissingSourceError(InvalidInputError):
    """No usable file of a source lies in the raw folder."""


def find(raw: Path, *names: str) -> Path | None:
    """The first of these relative paths that exists, as it is or with `.gz` appended."""
    for name in names:
        for candidate in (raw / name, raw / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    return None


def opened(path: Path, report: SourceReport) -> None:
    """Note a raw file and its sha256, under its folder's name and its own."""
    report.files[f"{path.parent.name}/{path.name}"] = sha256_of(path)


def read_text(path: Path, report: SourceReport) -> str:
    """A whole file as text; what can be had of a truncated gzip file, with the truncation reported."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = _gunzip(data, path, report)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        report.refuse(path.name, line, f"not UTF-8 ({error.reason}): replaced by U+FFFD")
        return data.decode("utf-8", errors="replace")


def _gunzip(data: bytes, path: Path, report: SourceReport) -> bytes:
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        decoder = zlib.decompressobj(wbits=31)
        head = b""
        try:
            head = decoder.decompress(data)
        except zlib.error:
            head += decoder.flush()
        report.refuse(path.name, "end", f"truncated or damaged gzip ({error}): {len(head)} bytes could be read")
        return head


def read_jsonl(path: Path, report: SourceReport, required: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Line number (from 1) and object of every good line; bad ones go to the report.

    Lines end at a line feed only: Unicode separators inside texts are text.

    Raises:
        SourceSchemaError: if none of the lines has the required fields.
    """
    opened(path, report)
    bad_before, good = len(report.bad), 0
    for number, line in enumerate(read_text(path, report).split("\n"), start=1):
        if not line.strip():
            continue
        report.read += 1
        try:
            row: object = json.loads(line)
        except json.JSONDecodeError as error:
            report.refuse(path.name, number, f"no JSON: {error.msg} at column {error.colno}")
            continue
        checked = _checked(row, path, number, report, required)
        if checked is not None:
            good += 1
            yield number, checked
    _some_good(path, good, report, bad_before)


def read_json_array(path: Path, report: SourceReport, required: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Position (from 0) and object of every good element of a JSON array.

    Raises:
        SourceSchemaError: if the file is not a JSON array of objects with the required fields.
    """
    opened(path, report)
    try:
        rows: object = json.loads(read_text(path, report))
    except json.JSONDecodeError as error:
        raise SourceSchemaError(
            f"{path} is not JSON ({error}); it may be truncated: delete it and fetch it again"
        ) from error
    if not isinstance(rows, list):
        raise SourceSchemaError(f"{path} holds a {type(rows).__name__} where an array of objects was expected")
    bad_before, good = len(report.bad), 0
    for position, row in enumerate(cast("list[object]", rows)):
        report.read += 1
        checked = _checked(row, path, position, report, required)
        if checked is not None:
            good += 1
            yield position, checked
    _some_good(path, good, report, bad_before)


def read_table(path: Path, report: SourceReport, required: Sequence[str], delimiter: str) -> Iterator[tuple[int, Row]]:
    """Row number (from 1, the header not counted) and cells of a TSV or CSV file.

    Raises:
        SourceSchemaError: if the header lacks a required column.
    """
    opened(path, report)
    table = csv.DictReader(io.StringIO(read_text(path, report), newline=""), delimiter=delimiter)
    header = table.fieldnames or []
    absent = [name for name in required if name not in header]
    if absent:
        raise SourceSchemaError(f"{path} lacks the columns {absent}; it has {list(header)}")
    for number, row in enumerate(table, start=1):
        report.read += 1
        if None in row or None in row.values():
            report.refuse(path.name, number, f"has another number of cells than the header's {len(header)}")
            continue
        yield number, cast("Row", row)


def read_zip_jsonl(path: Path, report: SourceReport, required: Sequence[str]) -> Iterator[tuple[str, int, Row]]:
    """Member name, line number and object of every good line of the `.jsonl` members of a zip archive."""
    opened(path, report)
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise SourceSchemaError(f"{path} is not a whole zip archive ({error}); fetch it again") from error
    with archive:
        for name in sorted(name for name in archive.namelist() if name.endswith(".jsonl")):
            with archive.open(name) as stream:
                for number, line in enumerate(stream, start=1):
                    try:
                        row: object = json.loads(line)
                    except ValueError as error:
                        report.refuse(f"{path.name}/{name}", number, f"no JSON: {error}")
                        continue
                    checked = _checked(row, path, number, report, required)
                    if checked is not None:
                        yield name, number, checked


def _checked(row: object, path: Path, where: int, report: SourceReport, required: Sequence[str]) -> Row | None:
    if not isinstance(row, dict):
        report.refuse(path.name, where, f"is a {type(row).__name__}, not an object")
        return None
    fields = cast("dict[str, object]", row)
    absent = [name for name in required if fields.get(name) is None]
    if absent:
        report.refuse(path.name, where, f"lacks the fields {absent}; it has {sorted(fields)[:12]}")
        return None
    return fields


def _some_good(path: Path, good: int, report: SourceReport, bad_before: int) -> None:
    if not good:
        bad = report.bad[bad_before:]
        why = f"; the first problem: record {bad[0].record} {bad[0].reason}" if bad else "; it is empty"
        raise SourceSchemaError(f"{path} has not one usable record{why}")


def text_of(row: Row, name: str) -> str:
    """A field that must be a non-empty string.

    Raises:
        ValueError: if it is not; readers turn that into a refused record.
    """
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name!r} is {value!r}, not a text")
    return value


def texts_of(row: Row, name: str) -> list[str]:
    """A field that must be a list of strings, or one string; empty strings are left out.

    Raises:
        ValueError: if it is not.
    """
    value = row.get(name)
    if isinstance(value, str):
        return [value] if value.strip() else []
    if not isinstance(value, list) or not all(isinstance(part, str) for part in cast("list[object]", value)):
        raise ValueError(f"{name!r} is not a list of texts")
    return [part for part in cast("list[str]", value) if part.strip()]


def rows_of(value: object, name: str) -> list[Row]:
    """A value that must be a list of objects.

    Raises:
        ValueError: if it is not.
    """
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in cast("list[object]", value)):
        raise ValueError(f"{name!r} is not a list of objects")
    return cast("list[Row]", value)
