"""Support stays in view, and figures are told by task and source."""

from __future__ import annotations

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("scipy")

from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_lab.training.evaluate import ScoredItem, first_chunks, summary


def test_support_survives_the_cut() -> None:
    chunks = [SliceChunk(text=f"text {k}") for k in range(9)] + [SliceChunk(text="gold", is_support=True)]
    item = SliceItem.model_validate(
        {
            "id": "1",
            "source": "fever",
            "split": "test",
            "group": "1",
            "claim": "c",
            "label": 1,
            "kind": "supported",
            "chunks": tuple(chunks),
            "provenance": {"dataset": "d", "file": "f", "record": "r", "license": "l"},
        }
    )
    assert [chunk.text for chunk in first_chunks(item, 3)] == ["text 0", "text 1", "gold"]
    assert len(first_chunks(item, None)) == 10


def scored(i: int, source: str, label: int) -> ScoredItem:
    kind = "supported" if label else "refuted"
    q = 0.9 if label else 0.2
    return ScoredItem(f"{source}{i}", "claim", source, kind, False, "supported-claim/1", 3, label, q)


def test_the_summary_knows_the_parts() -> None:
    found = summary([scored(i, "fever", i % 2) for i in range(10)] + [scored(i, "hard", 0) for i in range(3)])
    assert found["all"]["n"] == 13
    assert found["claim/fever"]["auroc"] == 1.0
    assert "auroc" not in found["claim/hard"]
    assert found["claim/hard"]["ece"] == pytest.approx(0.2)
