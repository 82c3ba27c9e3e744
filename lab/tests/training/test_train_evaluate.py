"""Figures are told by task and source."""

from __future__ import annotations

import pytest

from isr_lab.slice.schema import SliceItem
from isr_lab.training.evaluate import summary


def scored(i: int, source: str, label: int) -> tuple[SliceItem, float]:
    item = SliceItem.model_validate(
        {
            "id": f"{source}{i}",
            "source": source,
            "split": "test",
            "group": "1",
            "claim": "c",
            "label": label,
            "kind": "supported" if label else "refuted",
            "chunks": [{"text": "text"}],
            "provenance": {"dataset": "d", "file": "f", "record": "r", "license": "l"},
        }
    )
    return item, 0.9 if label else 0.2


def test_the_summary_knows_the_parts() -> None:
    found = summary([scored(i, "fever", i % 2) for i in range(10)] + [scored(i, "hard", 0) for i in range(3)])
    assert found["all"]["n"] == 13
    assert found["claim/fever"]["auroc"] == 1.0
    assert "auroc" not in found["claim/hard"]
    assert found["claim/hard"]["ece"] == pytest.approx(0.2)
