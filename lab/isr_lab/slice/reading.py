"""Reading items from files: JSONL as the builder writes them, or Parquet with the same fields as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from isr_lab.slice.schema import SliceItem
from isr_rag.errors import InvalidInputError, MissingDependencyError


def read_items(*paths: Path) -> Iterator[SliceItem]:
    """The items of files, one after the other: Parquet if the name ends in `.parquet`, else JSONL.

    In Parquet a row is an item; `chunks` and `support_spans` are lists of structs, `provenance` is a struct, and
    null stands for a field that is not there.

    Raises:
        InvalidInputError: if there is no such file, or at the first line or row that is not an item, with its number
            and what is wrong with it.
        MissingDependencyError: for Parquet without pyarrow.
    """
    for path in paths:
        if not path.is_file():
            raise InvalidInputError(f"there is no file {path}: make items with isr-lab slice build")
        if path.suffix == ".parquet":
            yield from _parquet(path)
        else:
            with path.open(encoding="utf-8", newline="\n") as lines:
                yield from parse_lines(lines, str(path))


def parse_lines(lines: Iterable[str], name: str) -> Iterator[SliceItem]:
    """The items of lines of JSON; blank lines are passed over.

    Args:
        lines: a JSON object each.
        name: what to call their source in an error.

    Raises:
        InvalidInputError: at the first line that is not an item.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield SliceItem.model_validate_json(line)
            except ValidationError as error:
                raise InvalidInputError(f"{name}, line {number} is not an item of the slice: {error}") from error


def _parquet(path: Path) -> Iterator[SliceItem]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingDependencyError("Parquet", "pyarrow", "ray", "isr-lab") from error
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{path} is not a Parquet file: {error}") from error
    rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
    for number, row in enumerate(rows, start=1):
        try:
            yield SliceItem.model_validate(_present(row))
        except ValidationError as error:
            raise InvalidInputError(f"{path}, row {number} is not an item of the slice: {error}") from error


def _present(value: Any) -> Any:
    """Without nulls: a column exists for every row, the field that it stands for need not."""
    if isinstance(value, dict):
        return {name: _present(part) for name, part in value.items() if part is not None}
    return [_present(part) for part in value] if isinstance(value, list) else value
