"""Evaluation writes what it scored, resumes, and keeps support in view."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydantic")
pytest.importorskip("scipy")

from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_lab.training.evaluate import between, evaluate, first_chunks, read_scored, summary
from isr_rag.core.scorer import Layout, ScoreRequest, Scores

pytestmark = pytest.mark.slow


class Knowing:
    """Says yes when the evidence holds the word gold."""

    identity = "knowing"
    layout: Layout = "late"

    def __init__(self) -> None:
        self.asked = 0

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        self.asked += len(requests)
        assert not any("Claim" in request.prompt.prefix for request in requests)
        yes = [0.9 if any("gold" in chunk for chunk in r.prompt.chunks) else 0.2 for r in requests]
        return [Scores(np.log([[q, 1 - q]]), 1) for q in yes]


def item(i: int, label: int, *, marked: bool = True, source: str = "fever") -> SliceItem:
    chunks = [SliceChunk(text=f"text {i} {k}") for k in range(9)]
    if label:
        chunks.append(SliceChunk(text=f"gold {i}", is_support=marked))
    return SliceItem.model_validate(
        {
            "id": f"{source}{i}",
            "source": source,
            "split": "test",
            "group": str(i),
            "claim": "c",
            "label": label,
            "kind": "supported" if label else "refuted",
            "chunks": tuple(chunks),
            "provenance": {"dataset": "d", "file": "f", "record": "r", "license": "l"},
        }
    )


def test_support_survives_the_cut_and_unmarked_items_stay_whole(tmp_path: Path) -> None:
    items = [item(i, i % 2) for i in range(8)] + [item(i, i % 2, marked=False, source="bare") for i in range(4)]
    scored = evaluate(Knowing(), items, tmp_path / "scores.jsonl")
    assert [one.q > 0.5 for one in scored] == [bool(one.label) for one in items]
    assert all(3 <= one.n <= 6 for one in scored[:8])
    assert all(one.n >= 9 for one in scored[8:])
    assert len({between(3, 6)(one) for one in (item(i, 0) for i in range(40))}) == 4
    assert first_chunks(items[1], 3)[-1].is_support


def test_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    items = [item(i, i % 2) for i in range(10)]
    out = tmp_path / "scores.jsonl"
    evaluate(Knowing(), items[:6], out, batch=4)
    scorer = Knowing()
    scored = evaluate(scorer, items, out, batch=4)
    assert scorer.asked == 4
    assert [one.id for one in scored] == [one.id for one in items]
    assert list(read_scored(out)) == scored
    assert json.loads(out.read_text().split("\n")[0])["template"] == "supported-claim/1"


def test_the_summary_knows_the_parts(tmp_path: Path) -> None:
    items = [item(i, i % 2) for i in range(10)] + [item(i, 0, source="hard") for i in range(3)]
    found = summary(evaluate(Knowing(), items, tmp_path / "scores.jsonl"))
    assert found["all"]["n"] == 13
    assert found["claim/fever"]["auroc"] == 1.0
    assert "auroc" not in found["claim/hard"]
    assert found["claim/hard"]["ece"] == pytest.approx(0.2)
