"""Which reader a file of items needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from isr_rag.errors import InvalidInputError
from isr_rag.items.lines import JsonlItems, Reader


def open_items(source: Path, ignored: Sequence[str] = ()) -> Reader:
    """A reader of `.parquet`, or else of JSONL.

    Args:
        source: the file.
        ignored: fields or columns that are passed over.

    Raises:
        InvalidInputError: if there is no such file, or its columns are not those of items.
        MissingDependencyError: if Parquet is to be read and pyarrow is not installed.
    """
    if not source.is_file():
        raise InvalidInputError(f"there is no file {source}")
    if source.suffix == ".parquet":
        from isr_rag.items.parquet import ParquetItems

        return ParquetItems(source, ignored)
    return JsonlItems(source, ignored)
