"""Items read from Parquet are those read from JSONL; what is not an item is named with its row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isr_lab.slice.reading import read_items
from isr_lab.slice.sample import load_sample
from isr_rag.errors import InvalidInputError

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow: pip install './lab[ray]'")
pq = pytest.importorskip("pyarrow.parquet")


def write(rows: list[dict[str, Any]], path: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_parquet_holds_the_same_items_as_jsonl(tmp_path: Path) -> None:
    items = load_sample()
    half = len(items) // 2
    columns = write([json.loads(item.model_dump_json()) for item in items[:half]], tmp_path / "a.parquet")
    lines = tmp_path / "b.jsonl"
    lines.write_text("".join(item.model_dump_json() + "\n" for item in items[half:]), "utf-8")
    assert list(read_items(columns, lines)) == items


def test_a_row_that_is_no_item_is_named(tmp_path: Path) -> None:
    rows = [json.loads(item.model_dump_json()) for item in load_sample()[:3]]
    rows[1]["label"] = 7
    with pytest.raises(InvalidInputError, match=r"a\.parquet, row 2 is not an item(.|\n)*label"):
        list(read_items(write(rows, tmp_path / "a.parquet")))
    with pytest.raises(InvalidInputError, match=r"b\.parquet, row 1 is not an item"):
        list(read_items(write([{"id": "a"}], tmp_path / "b.parquet")))


def test_a_file_that_only_says_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("{}", "utf-8")
    with pytest.raises(InvalidInputError, match="is not a Parquet file"):
        list(read_items(tmp_path / "a.parquet"))
