"""Shipping turns trained weights into what gates find: scored, calibrated, described; a stopped call goes on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isr_lab.documents import report, shipping
from isr_lab.documents.records import read_lines
from isr_rag import ISRGate
from isr_rag.calibration import CalibrationArtefact, Fingerprint, FitSettings, TrainingHashes, fit_artefact
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.errors import CalibrationError, ConfigurationError
from isr_rag.references import CalibratedMixture, Oracle
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.scorers.local.adapter import CONFIG, WEIGHTS

pytestmark = pytest.mark.slow
NOTHING = TrainingHashes.of([])


class Reader:
    """Sees gold, with noise of its own."""

    identity = "reader"
    layout: Layout = "late"

    def __init__(self) -> None:
        self.asked = 0

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        self.asked += len(requests)
        return [Scores(np.log([[q, 1 - q]] * len(r.orderings)), 1) for r in requests for q in [self._q(r)]]

    def _q(self, request: ScoreRequest) -> float:
        noise = hashlib.sha256(request.prompt.suffix.encode()).digest()[0] / 256 - 0.5
        return 0.5 + (0.42 if any("gold" in chunk for chunk in request.prompt.chunks) else -0.42) + 0.1 * noise


def item(i: int, task: str, name: str) -> dict[str, Any]:
    label = i % 2
    asked: dict[str, dict[str, str]] = {
        "claim": {"claim": f"claim {name} {i}"},
        "draft": {"question": f"question {name} {i}", "answer": "so"},
        "question": {"question": f"question {name} {i}"},
    }
    chunks = [{"text": f"text {task} {name} {i} {k}"} for k in range(3)] + [{"text": "gold"}] * label
    kind = ("stated/easy" if name == "checklist" else f"{task}/true") if label else f"{task}/wrong"
    own = {
        "id": f"{task} {name} {i}",
        "label": label,
        "group": f"{task} {name} {i // 2}",
        "source": f"book {i // 2 % 4}",
    }
    return own | {"kind": kind, "evidence": chunks} | asked[task]


def items(name: str, count: int) -> list[dict[str, Any]]:
    if name == "loops":  # the second round is that of the first, and one more chunk
        ones = items("loop", count)
        more = [{"text": "more"}]
        return [
            one | {"id": f"{one['id']}@{n}", "evidence": one["evidence"] + more * n} for one in ones for n in (0, 1)
        ]
    return [item(i, task, name) for task in ("claim", "draft", "question") for i in range(count)]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    found = Reader()
    gate = ISRGate(scorer=found, reference=Oracle(1.0))
    monkeypatch.setattr(shipping, "gate_of", lambda adapter, name: gate)
    return found


def scored(work: Path) -> dict[str, shipping.Scored]:
    gate = shipping.gate_of(work, "calibration")
    found: dict[str, shipping.Scored] = {}
    for name in ("calibration", "adversarial", "row", "checklist", "test", "loops"):
        own = items(name, 8 if name in ("checklist", "test") else 160)
        for part in ((1, 2), (2, 2)):
            *_, done = shipping.score(gate, own, work, name, part)
            assert 0 < done < len(own)
        found[name] = shipping.joined(own, shipping.kept(work, name))
    return found


def test_scores_become_calibrations_and_a_report(reader: Reader, tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    found = scored(work)
    asked = reader.asked
    assert scored(work) == found and reader.asked == asked  # everything was kept
    (work / "adapter").mkdir()
    (work / "adapter" / WEIGHTS).write_bytes(b"weights")
    fitted = shipping.ship(work / "adapter", found, out, NOTHING)
    assert set(fitted) == {"calibration", "adversarial", "permuted"}
    artefact = CalibrationArtefact.load(out / "calibration.json")
    assert artefact.fingerprint.scorer == "reader"
    assert (out / WEIGHTS).read_bytes() == b"weights"
    (loop,) = artefact.predicates["supported-claim/1"].loops
    assert (loop.rounds, loop.cases) == (2, 160) and CalibratedMixture(artefact).ceiling("supported-claim/1", rounds=2)

    text = report.report(found, fitted)
    cells = re.sub(" +", " ", text)
    told = re.search(r"\| claim \| 0\.1 \| (\d+) of 160 \| (\d+) \(", cells)
    assert told is not None and int(told[1]) >= 80 and int(told[2]) <= 0.15 * int(told[1])
    told = re.search(r"\| claim \| 0\.1 \| 160 \| 80 \| (\d+), (\d+) \| (\d+), (\d+) \|", cells)
    assert told is not None and int(told[1]) >= int(told[3]), cells
    assert re.search(r"\| draft \| draft/wrong \| 80 \| 1\.000 \|", cells)
    assert "| stated | 12 | 1.00 |" in cells and "| the easiest | 12 | 1.00 |" in cells
    assert re.search(r"\| claim \| true \| 4 \| 0 \| 4 \| 4 \|", cells)
    answered = r"\| question alone \| 0\.2 \| \d of 8 \| \d .*\| book 3 \| 6 \| \d \| \d, \d \|"
    assert re.search(answered, cells, re.DOTALL)

    shipping.write_scores(found, tmp_path / "scores.jsonl.gz")
    lines = list(read_lines(tmp_path / "scores.jsonl.gz"))
    assert len(lines) == 3 * (160 * 5 + 8 + 8)
    assert not any("gold" in json.dumps(line) or "text" in line for line in lines)


def test_what_was_trained_on_is_refused(reader: Reader, tmp_path: Path) -> None:
    found = scored(tmp_path / "work")
    (tmp_path / "adapter").mkdir()
    with pytest.raises(CalibrationError, match="also occur in the training data"):
        shipping.ship(tmp_path / "adapter", found, tmp_path / "out", TrainingHashes.of(["claim calibration 7"]))
    assert not (tmp_path / "out").exists()


def test_an_item_without_a_score_is_named(reader: Reader, tmp_path: Path) -> None:
    own = items("row", 2)
    (tmp_path / "work").mkdir()
    list(shipping.score(shipping.gate_of(tmp_path, "row"), own[:-1], tmp_path / "work", "row"))
    with pytest.raises(ConfigurationError, match="1 items were not scored, among them question row 1"):
        shipping.joined(own, shipping.kept(tmp_path / "work", "row"))


def test_each_source_is_judged_by_a_calibration_with_the_others(reader: Reader, tmp_path: Path) -> None:
    found = scored(tmp_path)["calibration"].records
    mixed = [replace(one, label=1 - one.label) if one.source == "book 2" else one for one in found]
    belongs = Fingerprint("reader", orderings=None, m=None, max_words=600)
    artefact = fit_artefact(mixed, fingerprint=belongs, created_by="", settings=FitSettings(targets=()))
    sure = np.array([one.source == "book 2" and one.label == 0 for one in mixed])
    assert report.p_refs(mixed, artefact)[sure].max() < 0.9 < report.left_out(mixed, artefact)[sure].min()


@pytest.mark.model
def test_the_mean_of_an_adapter_with_itself_is_that_adapter(tmp_path: Path) -> None:
    shipping.mean_weights([STANDARD.directory] * 2, tmp_path / "mean")
    assert (tmp_path / "mean" / WEIGHTS).read_bytes() == (STANDARD.directory / WEIGHTS).read_bytes()
    described = json.loads((tmp_path / "mean" / "isr_rag.json").read_text("utf-8"))
    assert described == json.loads((STANDARD.directory / "isr_rag.json").read_text("utf-8"))
    assert (tmp_path / "mean" / CONFIG).exists()

    (tmp_path / "mean" / WEIGHTS).write_bytes(b"another")
    with pytest.raises(ConfigurationError, match="scores of another adapter"):
        shipping.mean_weights([STANDARD.directory], tmp_path / "mean")


def test_items_are_those_that_were_scored_before(tmp_path: Path) -> None:
    written = {"id": "a", "source": "s", "group": "g", "label": 1, "kind": "k", "claim": "c", "chunks": [{"text": "t"}]}
    files = {"calibration": ["x", "y"], "checklist": ["p", "q"], "loops": ["l@0", "l@1"], "test": ["t"]}
    for name, ids in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"id": one}) + "\n" for one in ids), "utf-8")
    (tmp_path / "calib_claim.jsonl").write_text("".join(json.dumps(written | {"id": i}) + "\n" for i in "ab"), "utf-8")
    before = [("calibration", "x"), ("checklist", "q"), ("row", "y")]
    chosen = [{"set": name, "id": one} for name, one in before]
    found = shipping.items_by_set(tmp_path, tmp_path, chosen, TrainingHashes.of(["a"]))
    assert [[one["id"] for one in found[name]] for name in ("calibration", "test")] == [["x", "y"], ["t"]]
    assert [[one["id"] for one in found[name]] for name in ("checklist", "adversarial", "row")] == [
        ["q"],
        ["s/b"],  # a was trained on
        ["y"],
    ]
    (plain,) = found["adversarial"]
    assert plain["evidence"] == [{"text": "t", "title": None}] and plain["group"] == "s/g" and plain["claim"] == "c"

    with pytest.raises(ConfigurationError, match=r"1 items of row are not in .*, as z"):
        shipping.items_by_set(tmp_path, tmp_path, [*chosen, {"set": "row", "id": "z"}], NOTHING)
