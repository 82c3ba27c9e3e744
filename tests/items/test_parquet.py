"""Parquet in and out holds the same items and the same decisions as JSONL."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from isr_rag import Decision, ISRGate
from isr_rag.errors import InvalidInputError
from isr_rag.items import check_file
from isr_rag.items.lines import BATCH
from isr_rag.items.reading import open_items
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow: pip install '.[ray]'")
pq = pytest.importorskip("pyarrow.parquet")

ITEMS: list[dict[str, Any]] = [
    {"id": f"i{i}", "claim": f"claim {i}", "evidence": [{"text": "a", "title": "t"}, {"text": "b", "title": None}]}
    for i in range(2 * BATCH + 5)
]


@pytest.fixture
def gate() -> ISRGate:
    return ISRGate(scorer=FixedScorer([0.97, 0.9]), reference=Oracle(1.0))


def decisions(path: Path) -> dict[str, Decision]:
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
        for row in rows:
            row["isr"] = "inf" if row["isr"] == math.inf else row["isr"]
        return {row.pop("id"): Decision.from_dict(row) for row in rows}
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {record["id"]: Decision.from_dict(record["decision"]) for record in records}


def test_parquet_and_jsonl_give_the_same_decisions_in_the_same_order(gate: ISRGate, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ITEMS), tmp_path / "in.parquet", row_group_size=7)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS), "utf-8")
    found = []
    for source, target in [("in.parquet", "a.jsonl"), ("in.parquet", "b.parquet"), ("in.jsonl", "c.parquet")]:
        assert check_file(gate, tmp_path / source, tmp_path / target).decided == len(ITEMS)
        found.append(decisions(tmp_path / target))
    assert list(found[0]) == [item["id"] for item in ITEMS]
    assert found[0] == found[1] == found[2]


def test_an_infinite_isr_and_a_missing_number_survive(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        '{"id": 1, "claim": "c", "evidence": ["a"]}\n{"id": "2", "claim": "c", "evidence": []}\n', "utf-8"
    )
    gate = ISRGate(scorer=FixedScorer([0.99]), reference=Oracle(1.0))
    check_file(gate, tmp_path / "in.jsonl", tmp_path / "out.parquet")
    found = decisions(tmp_path / "out.parquet")
    assert found["1"].isr == math.inf
    assert found["2"].isr is None
    assert found["1"] == gate.decide(["a"], claim="c")


def test_rows_that_cannot_be_decided_are_reported_with_their_number(gate: ISRGate, tmp_path: Path) -> None:
    rows = [{**ITEMS[0]}, {"id": "x", "claim": None, "evidence": ["a"]}, {"id": None, "claim": "c", "evidence": ["a"]}]
    rows[0]["evidence"] = ["a"]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    summary = check_file(gate, tmp_path / "in.parquet", tmp_path / "out.jsonl")
    assert (summary.decided, summary.bad) == (1, 2)
    errors = [json.loads(line) for line in (tmp_path / "out.jsonl.errors.jsonl").read_text("utf-8").splitlines()]
    assert [(error["line"], error["id"]) for error in errors] == [(2, "x"), (3, None)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"id": ["a"], "claim": ["c"]}, "evidence"),
        ({"id": ["a"], "evidence": [["e"]], "clam": ["c"]}, "clam"),
        ({"id": [1.5], "evidence": [["e"]]}, "double"),
    ],
)
def test_columns_that_are_not_those_of_items_are_refused(tmp_path: Path, table: dict[str, Any], message: str) -> None:
    pq.write_table(pa.table(table), tmp_path / "in.parquet")
    with pytest.raises(InvalidInputError, match=message):
        open_items(tmp_path / "in.parquet")


def test_a_file_that_only_says_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.parquet").write_text("{}", "utf-8")
    with pytest.raises(InvalidInputError, match="not a Parquet file"):
        open_items(tmp_path / "in.parquet")
