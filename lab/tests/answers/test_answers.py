"""Labelled answers: read as published, scored resumably, fitted and measured as they come."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isr_lab.answers import figures
from isr_lab.answers.figures import highest_unsupported
from isr_lab.answers.fitting import fit, fit_verdicts
from isr_lab.answers.readers import SOURCES, Labelled, LabelledAnswer, citation_integrity, factcheck_gpt, ragtruth
from isr_lab.answers.report import measure, report
from isr_lab.answers.scoring import ScoredAnswer, ScoredStatement, drawn, read, score
from isr_rag import ISRGate
from isr_rag.audit import AuditCalibration, Budget
from isr_rag.core.evidence import Chunk
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

RESPONSES = [
    {
        "id": "11",
        "source_id": "1",
        "model": "gpt-4-0613",
        "temperature": 0.7,
        "labels": [
            {
                "start": 32,
                "end": 47,
                "text": "It is 900 km lo",
                "meta": "conflict",
                "label_type": "Evident Conflict",
                "implicit_true": False,
                "due_to_null": False,
            }
        ],
        "split": "test",
        "quality": "good",
        "response": "The Seine flows through Paris.  It is 900 km long.",
    },
    {"id": "12", "source_id": "2", "model": "x", "labels": [], "split": "test", "response": "A summary."},
    {"id": "13", "source_id": "3", "model": "x", "labels": [], "split": "test", "response": "It opens at 9."},
    {"id": "14", "source_id": "3", "model": "x", "labels": [], "split": "train", "response": "It opens at 9."},
]
SOURCE_INFO = [
    {
        "source_id": "1",
        "task_type": "QA",
        "source": "MARCO",
        "source_info": {
            "question": "where does the seine flow",
            "passages": "passage 1:The Seine flows through Paris.\n\npassage 2:It is 777 km long.\n\n",
        },
        "prompt": "...",
    },
    {
        "source_id": "2",
        "task_type": "Summary",
        "source": "CNN/DM",
        "source_info": "An article. It goes on.",
        "prompt": "",
    },
    {
        "source_id": "3",
        "task_type": "Data2txt",
        "source": "Yelp",
        "source_info": {"name": "Cafe", "hours": {"Monday": "9-17"}, "review_info": [{"review_text": "Good coffee."}]},
        "prompt": "",
    },
]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    for name, rows in (("response.jsonl", RESPONSES), ("source_info.jsonl", SOURCE_INFO)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return tmp_path


def test_ragtruth_is_read_as_it_is_published(published: Path) -> None:
    question, summary, data = ragtruth(published)
    assert question.question == "where does the seine flow"
    assert [chunk.text for chunk in question.evidence] == ["The Seine flows through Paris.", "It is 777 km long."]
    assert not question.holds and summary.holds and data.holds
    assert question.label_of(0, 30) == "supported" and question.label_of(32, 50) == "refuted"
    assert question.about == {"task": "QA", "model": "gpt-4-0613"}
    assert [chunk.text for chunk in data.evidence] == ['name: "Cafe"\nhours: {"Monday": "9-17"}', "Good coffee."]


def test_ragtruth_without_its_files_is_refused(published: Path) -> None:
    (published / "source_info.jsonl").write_text(json.dumps(SOURCE_INFO[0]) + "\n", "utf-8")
    with pytest.raises(InvalidInputError, match="names the source 2"):
        list(ragtruth(published))
    (published / "response.jsonl").unlink()
    with pytest.raises(InvalidInputError, match=r"response\.jsonl"):
        list(ragtruth(published))


def packed(path: Path, rows: list[dict[str, Any]]) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_passages_keep_their_gold_when_they_are_shuffled(tmp_path: Path) -> None:
    row = {"id": 5, "claim": "A b<|cit|> .", "doc_id": 1, "passages": list("abcde"), "gold": [0], "label": "SUPPORT"}
    [found] = citation_integrity(packed(tmp_path / "a.jsonl.gz", [row]))
    gold = found.gold_of(0, len(found.answer))
    assert found.answer == "A b." and gold is not None and [found.evidence[i].text for i in gold] == ["a"]


def test_the_stances_of_a_claim_make_its_label(tmp_path: Path) -> None:
    stances = ["irrelevant", "completely-support", "refute", "partially-support"]
    rows = [{"claim": "one", "evidence": f"e{i}", "stance": stance} for i, stance in enumerate(stances[:2])]
    rows += [
        {"claim": "two", "evidence": "x", "stance": "refute"},
        {"claim": "three", "evidence": "y", "stance": stances[3]},
    ]
    found = list(factcheck_gpt(packed(tmp_path / "a.jsonl.gz", rows)))
    assert [(one.labels[0].label, one.labels[0].gold) for one in found] == [
        ("supported", (1,)),
        ("refuted", (0,)),
        ("not_enough", None),
    ]


def test_every_source_is_for_one_thing() -> None:
    assert len({source.name for source in SOURCES}) == len(SOURCES)
    assert {source.use for source in SOURCES} == {"test", "cut", "verdicts"}


def gate() -> ISRGate:
    def q(prompt: Any, ordering: Any) -> float:
        return 0.1 if "contradict" in prompt.suffix else (0.9 if "good" in prompt.suffix else 0.2)

    return ISRGate(scorer=FixedScorer(q, layout="late"), reference=Oracle(0.9))


def labelled(i: int) -> LabelledAnswer:
    text = "This is a good one. That is a bad one."
    labels = (Labelled(0, 19, "supported", (0,)), Labelled(20, len(text), "unsupported"))
    return LabelledAnswer(f"{i}", f"{i}", text, (Chunk("a"), Chunk("b")), labels)


def test_a_stopped_scoring_goes_on_where_it_was(tmp_path: Path) -> None:
    path, own = tmp_path / "rows.jsonl", gate()
    score(own, "toy", "test", [labelled(i) for i in range(3)], path, citations=True)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"half": ')
    score(own, "toy", "test", [labelled(i) for i in range(5)], path, citations=True)
    found = read(path)
    assert [one.id for one in found] == ["0", "1", "2", "3", "4"]
    first, second = found[0].statements
    assert (first.label, first.gold, first.cited) == ("supported", (0,), (0,))
    assert (second.label, second.q, second.r) == ("unsupported", pytest.approx(0.2), pytest.approx(0.1))


def test_labels_of_claims_are_drawn_evenly() -> None:
    kinds = ["supported"] * 50 + ["refuted"] * 10 + ["not_enough"] * 20
    pool = [LabelledAnswer(f"{i}", "g", "x", (), (Labelled(0, 1, kind),)) for i, kind in enumerate(kinds)]  # type: ignore[arg-type]
    found = [one.labels[0].label for one in drawn(pool, 30)]
    assert {kind: found.count(kind) for kind in set(kinds)} == {"supported": 10, "refuted": 10, "not_enough": 10}


def scored(source: str, use: Any, i: int, statements: list[tuple[str, float, float]]) -> ScoredAnswer:
    parts = tuple(ScoredStatement(label, "statement", True, q, r, None, q, None, ()) for label, q, r in statements)  # type: ignore[arg-type]
    return ScoredAnswer(source, use, f"{i}", f"{i}", all(s[0] == "supported" for s in statements), parts, "s", 600, {})


def world(n: int = 60) -> list[ScoredAnswer]:
    rng = np.random.default_rng(0)
    q_of = {"supported": (8, 2), "refuted": (2, 8), "not_enough": (2, 8), "unsupported": (2, 6)}
    r_of = {"supported": (1, 9), "refuted": (8, 2), "not_enough": (3, 7), "unsupported": (3, 7)}

    def one(label: str) -> tuple[str, float, float]:
        return label, float(rng.beta(*q_of[label])), float(rng.beta(*r_of[label]))

    names = ("supported", "refuted", "not_enough")
    found = [scored("v", "verdicts", i, [one(names[i % 3])]) for i in range(3 * n)]
    for source, use in (("c", "cut"), ("t", "test")):
        found += [
            scored(source, use, i, [one("supported" if rng.random() < 0.8 else "unsupported") for _ in range(4)])
            for i in range(2 * n)
        ]
    return found


def test_what_is_fitted_tells_three_verdicts_apart_and_keeps_its_promise() -> None:
    answers = world()
    calibration = fit(answers)
    assert calibration.probabilities(0.95, 0.05).supported > 0.8
    assert calibration.probabilities(0.05, 0.95).refuted > 0.6
    assert calibration.probabilities(0.05, 0.1).not_enough > 0.5
    assert len(calibration.budget.scores) == 120
    found = measure(answers, calibration)
    [risk] = [one for one in found["t"]["released"] if one["h_star"] == 0.2]
    assert risk["decided_by"] == "cut" and risk["risk"]["lower"] <= 0.2 and 0.1 < risk["true_kept"] < 1.0
    assert found["t"]["within"]["mean_risk"] <= 0.22
    assert found["t"]["statements"]["auroc"] > 0.9 and found["v"]["three_way"]["accuracy"] > 0.7
    told = report(found, calibration)
    assert "| t " in told and "## What may go out" in told


def test_detection_counts_what_is_not_supported() -> None:
    plain = AuditCalibration("s", 600, (0.0, 1.0), (-50.0, 0.0, 0.0), Budget())
    answers = [scored("t", "test", 0, [("supported", 0.9, 0.1), ("unsupported", 0.8, 0.1), ("unsupported", 0.2, 0.1)])]
    found = figures.of_statements(answers, plain)
    assert found is not None and (found.n, found.precision, found.recall) == (3, 1.0, 0.5)
    assert found.f1 == pytest.approx(2 / 3) and found.best_f1 == 1.0 and found.average_precision == 1.0
    assert found.auroc == 1.0


def test_a_fit_is_monotone_even_where_the_labels_are_not() -> None:
    rng = np.random.default_rng(0)
    q, r = rng.random(300), rng.random(300)
    wrong = [("not_enough" if a > 0.5 else "supported") if b < 0.6 else "refuted" for a, b in zip(q, r, strict=True)]
    supported, refuted = fit_verdicts(q.tolist(), r.tolist(), wrong)
    AuditCalibration("s", None, supported, refuted, Budget())
    assert supported[1] > 0.0
    with pytest.raises(ConfigurationError, match="refuted"):
        fit_verdicts([0.1, 0.9], [0.5, 0.5], ["supported", "not_enough"])


def test_the_three_verdicts_are_found_where_the_model_tells_them_apart() -> None:
    rng = np.random.default_rng(1)
    labels = [("supported", "refuted", "not_enough")[i % 3] for i in range(300)]
    centre = {"supported": (2.0, -3.0), "refuted": (0.0, 2.0), "not_enough": (-3.0, 1.0)}
    x, y = (np.array([centre[one][k] for one in labels]) + rng.normal(size=300) for k in (0, 1))
    q, r = (1.0 / (1.0 + np.exp(-z)) for z in (x, y))
    found = AuditCalibration("s", None, *fit_verdicts(q.tolist(), r.tolist(), labels), Budget())
    said = [found.probabilities(a, b).verdict.value for a, b in zip(q, r, strict=True)]
    right = {one: np.mean([b == one for a, b in zip(labels, said, strict=True) if a == one]) for one in centre}
    assert min(right.values()) > 0.8, right
    assert found.refuted[1] > 0.0, "evidence about the same things raises P(refuted) against not enough"


def test_what_cannot_go_out_does_not_raise_the_cut() -> None:
    assert highest_unsupported([0.9, 0.7, 0.4], [True, False, False]) == 0.7
    assert highest_unsupported([0.9, 0.4], [True, False]) == 0.0
