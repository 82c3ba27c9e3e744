"""Shipping turns a run into an adapter that gates find: with calibration, figures and card, resumable."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydantic")
pytest.importorskip("scipy")
pytest.importorskip("torch")

from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_lab.training import shipping
from isr_lab.training.shipping import Held, Scored, chosen, distractor_drift, ship
from isr_lab.training.trust import gate_figures
from isr_rag.calibration import CalibrationArtefact, CalibrationError
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.scorers.embedded import FOCUS_WORDS
from isr_rag.scorers.local.adapter import CONFIG, WEIGHTS, read_adapter

pytestmark = pytest.mark.slow


class Reader:
    """Sees gold, with noise of its own, and is a little less sure among many chunks."""

    identity = "reader"
    layout: Layout = "late"

    def __init__(self, noise: float = 0.08) -> None:
        self.asked, self.noise = 0, noise

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        self.asked += len(requests)
        return [Scores(np.log([[q, 1 - q]]), 1) for q in map(self._q, requests)]

    def _q(self, request: ScoreRequest) -> float:
        noise = hashlib.sha256(request.prompt.suffix.encode()).digest()[0] / 256 - 0.5
        sure = 0.45 if any("gold" in chunk for chunk in request.prompt.chunks) else -0.25
        return 0.5 + sure + self.noise * noise - 0.001 * len(request.prompt.chunks)


def item(i: int, split: str) -> SliceItem:
    label = i % 2
    chunks = [SliceChunk(text=f"text {split} {i} {k}") for k in range(5)]
    if label:
        chunks.insert(2, SliceChunk(text=f"gold {i}", is_support=True))
    return SliceItem.model_validate(
        {
            "id": f"{split}{i}",
            "source": "fever",
            "split": split,
            "group": f"{split}{i // 2}",
            "claim": f"claim {split} {i}",
            "label": label,
            "kind": "supported" if label else "refuted",
            "chunks": tuple(chunks),
            "provenance": {"dataset": "Some set", "file": "f", "record": "r", "license": "CC0"},
        }
    )


def write_items(path: Path, split: str, count: int) -> Path:
    path.write_text("".join(item(i, split).model_dump_json() + "\n" for i in range(count)), "utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder around the adapter that is bundled."""
    folder = tmp_path / "run"
    (folder / "adapter").mkdir(parents=True)
    for name in (WEIGHTS, CONFIG):
        (folder / "adapter" / name).write_bytes((STANDARD.directory / name).read_bytes())
    (folder / "settings.json").write_text(json.dumps({"layout": "late", "train": ["/somewhere/train.jsonl"]}), "utf-8")
    progress = {"elapsed": 60.0, "steps": 10, "labels": 100, "tokens": 1000, "data": "abc"}
    lines = [
        {"kind": "train", **progress, "loss": 0.5},
        {"kind": "validation", **progress, "figures": {"all": {"auroc": 0.9, "accuracy": 0.8, "ece": 0.1}}},
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return folder


@pytest.mark.model
def test_a_run_becomes_an_adapter_with_calibration_and_card(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader()
    monkeypatch.setattr(shipping, "embedded_scorer", lambda folder: reader)
    held = Held((write_items(tmp_path / "val.jsonl", "val", 240),), (write_items(tmp_path / "test.jsonl", "test", 80),))
    out, work = tmp_path / "out", tmp_path / "work"
    trained = write_items(tmp_path / "train.jsonl", "train", 40)
    card = ship(run, held, work, trained_on=(trained,), out=out)

    assert read_adapter(out).layout == "late"
    artefact = CalibrationArtefact.load(out / "calibration.json")
    assert artefact.fingerprint.scorer == "reader"
    assert artefact.fingerprint.max_words == FOCUS_WORDS
    text = card.read_text("utf-8")
    cells = re.sub(" +", " ", text)
    assert "| Some set | CC0 |" in cells
    assert "| claim | selective | 0.05 | " in cells
    assert "/somewhere" not in text
    assert (out / "curve.png").stat().st_size > 1000
    figures = json.loads((work / "figures.json").read_text("utf-8"))
    assert figures["results"]["Test split of the Factuality Slice"]["claim"]["auroc"] == 1.0
    assert figures["gate"]["Test split of the Factuality Slice"]["claim"]["selective"]["0.05"]["wrong"] == 0
    assert figures["gate"]["Test split of the Factuality Slice"]["claim"]["selective"]["0.05"]["coverage"] > 0.8
    assert figures["drift"]["mean"] == pytest.approx(-0.017, abs=1e-3)

    with pytest.raises(CalibrationError, match="calibration ids also occur in the training data"):
        ship(run, held, work, trained_on=held.validation, out=tmp_path / "leaking")

    asked = reader.asked
    ship(run, held, work, out=out)
    assert reader.asked == asked  # everything was kept


def test_whole_groups_are_drawn_and_caps_hold() -> None:
    items = [item(i, "val") for i in range(100)]
    drawn = chosen(items, each=30)
    assert 30 <= len(drawn) <= 31
    assert chosen(reversed(items), each=30) == drawn
    assert len(chosen(items, most=7)) == 7
    positions = [one.group for one in drawn]
    assert all(positions[i] == positions[i - 1] or positions[i] not in positions[:i] for i in range(1, len(positions)))


def test_risk_and_coverage_are_counted_against_labels(tmp_path: Path) -> None:
    items = [item(i, "test") for i in range(200)]
    quiet = Reader(noise=0.0)
    artefact = shipping.calibrate(shipping.scored_by(quiet, items, tmp_path / "scores.jsonl"), "reader", tmp_path)
    called_unsupported = [one.model_copy(update={"label": 0}) if i % 20 == 5 else one for i, one in enumerate(items)]
    test = shipping.scored_by(quiet, called_unsupported, tmp_path / "again.jsonl")
    found = gate_figures(Scored(test.items, test.scores).records(), artefact)["claim"]["selective"]["0.05"]
    assert (found["answered"], found["wrong"], found["coverage"]) == (100, 10, 1.0)
    assert found["risk"] == 0.1
    assert 0.05 < found["low"] < 0.1 < found["high"] < 0.2


def test_drift_compares_the_same_items_among_few_and_many(tmp_path: Path) -> None:
    drift = distractor_drift(Reader(), [item(i, "test") for i in range(20)], tmp_path, most=6)
    assert drift == {
        "items": 6.0,
        "mean": pytest.approx(-0.017, abs=1e-6),
        "mean_absolute": pytest.approx(0.017, abs=1e-6),
    }
