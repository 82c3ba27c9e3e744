"""Parquet in and out: one row per item in, one row per decision out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from isr_rag.decision import Decision
from isr_rag.errors import InvalidInputError, MissingDependencyError
from isr_rag.files import sha256_of
from isr_rag.items.lines import BATCH, FIELDS, Extent, Index, ItemLine, as_line

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingDependencyError("Parquet", "pyarrow", "ray") from error

_ROWS = 1024
"""Decisions of one row group."""


class ParquetItems:
    """Items of a Parquet file, one per row.

    The columns are `id` (integer or string), `evidence` (a list of strings, or of structs with `text` and
    `title`), and any of `question`, `answer` and `claim`; null stands for a field that is not there.

    Args:
        path: the file.
        ignored: columns that are passed over.

    Raises:
        InvalidInputError: if the file is not Parquet, or its columns are others.
    """

    def __init__(self, path: Path, ignored: Sequence[str] = ()) -> None:
        self._path = path
        try:
            self._file = pq.ParquetFile(path)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(f"{path} is not a Parquet file: {error}") from error
        schema = self._file.schema_arrow
        unknown = sorted(set(schema.names) - {"id", *FIELDS, *ignored})
        if unknown or not {"id", "evidence"} <= set(schema.names):
            raise InvalidInputError(
                f"{path} has the columns {schema.names}; needed are id and evidence, "
                "and any of question, answer and claim, and no others"
            )
        kind = schema.field("id").type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InvalidInputError(f"{path} has ids of type {kind}: integers or strings are needed")
        ends = [0]
        for group in range(self._file.num_row_groups):
            ends.append(ends[-1] + self._file.metadata.row_group(group).num_rows)
        self._ends = ends
        self._columns = [name for name in schema.names if name not in ignored]
        self._held: tuple[int, pa.Table] | None = None

    def index(self) -> Index:
        """Hash and batches."""
        rows = self._ends[-1]
        starts = range(0, rows, BATCH)
        return Index(sha256_of(self._path), rows, [*starts, rows], [start + 1 for start in starts])

    def read(self, extent: Extent) -> list[ItemLine]:
        """The rows of one batch."""
        plain: list[dict[str, Any]] = []
        for group in range(self._file.num_row_groups):
            first, end = self._ends[group], self._ends[group + 1]
            start, stop = max(extent.start, first), min(extent.stop, end)
            if start < stop:
                plain += self._group(group).slice(start - first, stop - start).to_pylist()
        present = ({name: value for name, value in row.items() if value is not None} for row in plain)
        return [as_line(number, row) for number, row in enumerate(present, start=extent.line)]

    def _group(self, group: int) -> pa.Table:
        if self._held is None or self._held[0] != group:
            self._held = (group, self._file.read_row_group(group, self._columns))
        return self._held[1]


class ParquetDecisions:
    """Writes decisions as rows: `id` as text (what is not text already, as JSON) and the fields of the decision."""

    def __init__(self, path: Path) -> None:
        fields = {"id": str, "schema_version": int, **get_type_hints(Decision)}
        self._schema = pa.schema([(name, _column(hint)) for name, hint in fields.items()])
        self._writer = pq.ParquetWriter(path, self._schema)
        self._rows: list[dict[str, Any]] = []

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Add records of `id` and `decision`."""
        self._rows += [_row(record) for record in records]
        if len(self._rows) >= _ROWS:
            self._flush()

    def close(self) -> None:
        """Write what is left and close the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


def _column(hint: Any) -> pa.DataType:
    """The column type for the values of one field of a decision."""
    if isinstance(hint, UnionType):  # every field that is a union is a type or None
        hint = next(part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is tuple:
        return pa.list_(_column(get_args(hint)[0]))
    if is_dataclass(hint):
        return pa.struct([(name, _column(part)) for name, part in get_type_hints(hint).items()])
    plain = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    return plain[hint] if hint in plain else pa.string()


def _row(record: dict[str, Any]) -> dict[str, Any]:
    identifier, decision = record["id"], dict(record["decision"])
    if decision["isr"] == "inf":
        decision["isr"] = math.inf
    text = identifier if isinstance(identifier, str) else json.dumps(identifier, ensure_ascii=False)
    return {"id": text, **decision}
