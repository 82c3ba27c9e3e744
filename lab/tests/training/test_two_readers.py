"""A second reader's calibration: fitted from two files of scores, without what either was trained on, and measured."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("scipy")

from isr_lab.training.two_readers import both_read, fit_two_readers, gains, gains_table, untrained
from isr_rag.calibration import CalibrationArtefact, TrainingHashes
from isr_rag.defaults import TWO_READERS


def write(tmp_path: Path, count: int = 600) -> tuple[Path, Path, Path]:
    """Items of four sources with the scores of two readers that err independently."""
    rng, files = random.Random(0), [tmp_path / name for name in ("items.jsonl", "first.jsonl", "second.jsonl")]
    lines: list[list[str]] = [[], [], []]
    for i in range(count):
        label, source = i % 2, f"source {i % 8 // 2}"
        item = {
            "id": f"i{i}",
            "source": source,
            "split": "val",
            "group": f"g{i // 2}",
            "claim": f"claim number {i}",
            "label": label,
            "kind": "supported" if label else "refuted",
            "chunks": [{"text": f"evidence number {i}", "is_support": bool(label)}],
            "provenance": {"dataset": "Some set", "file": "f", "record": "r", "license": "CC0"},
        }
        score = {name: item[name] for name in ("id", "source", "kind", "label")}
        score |= {"task": "claim", "multi_hop": False, "template": "supported-claim/1", "n": 1}
        lines[0].append(json.dumps(item))
        for place in (1, 2):
            q = 1 / (1 + math.exp(-rng.gauss(1.0 if label else -1.0, 1.2)))
            lines[place].append(json.dumps(score | {"q": q, "alone": q}))
    for file, own in zip(files, lines, strict=True):
        file.write_text("\n".join(own) + "\n", "utf-8")
    return files[0], files[1], files[2]


@pytest.mark.slow
def test_the_second_reader_counts_and_gains(tmp_path: Path) -> None:
    items, first, second = write(tmp_path)
    fitted, records = fit_two_readers(both_read([items], [first], [second]), out=tmp_path / "out")
    artefact = CalibrationArtefact.load(tmp_path / "out" / TWO_READERS)
    assert artefact == fitted.artefact and len(records) == 600
    assert artefact.predicates["supported-claim/1"].second == pytest.approx(0.5, abs=0.1)
    assert "Qwen2.5" in artefact.belongs_to.scorer and "SmolLM2" in str(artefact.belongs_to.second)
    (gain,) = gains(records)
    assert gain.more[1] > 0.0 and gain.auroc[2] > max(gain.auroc[:2])  # two readers that err independently
    assert gain.answered[0.2][1][0] > gain.answered[0.2][0][0]
    assert "| claim" in gains_table([gain])


def test_only_what_both_read_and_neither_was_trained_on_counts(tmp_path: Path) -> None:
    items, first, second = write(tmp_path, 20)
    second.write_text("\n".join(second.read_text("utf-8").splitlines()[5:]) + "\n", "utf-8")
    records = both_read([items], [first], [second])
    assert [record.id for record in records] == [f"i{i}" for i in range(5, 20)]
    assert all(record.second is not None and record.second != record.q_bar for record in records)
    trained = TrainingHashes.of(["i7", records[4].text or ""])
    assert [r.id for r in records if r not in untrained(records, trained)] == ["i7", "i9"]
