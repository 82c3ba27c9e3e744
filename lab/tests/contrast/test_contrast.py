"""The contrast set keeps what its README promises, and its figures are what they are called."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from typer.testing import CliRunner

from isr_lab.cli import app
from isr_lab.contrast.asking import ContrastRow, ask
from isr_lab.contrast.data import ContrastDocument, DetailKind, load_denials, load_documents
from isr_lab.contrast.figures import figures
from isr_lab.contrast.report import report
from isr_lab.experiments.report import markdown
from isr_rag import ISRGate, Rule
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.core.settings import Case
from isr_rag.errors import ScorerError
from isr_rag.references import Oracle
from isr_rag.scorers.embedded import is_ready
from isr_rag.testing import FixedScorer

MODEL = pytest.mark.skipif(not is_ready(), reason="the embedded model is not set up: isr-rag setup")
_WORD = re.compile(r"[a-z0-9][a-z0-9.,'’-]*[a-z0-9]|[a-z0-9]")


def words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def test_every_kind_has_at_least_twenty_pairs_and_the_readme_counts_them_right() -> None:
    documents = load_documents()
    twins = [twin for document in documents for twin in document.twins]
    assert (len(documents), len(twins)) == (50, 400)
    counts = Counter(twin.kind for twin in twins)
    assert set(counts) == set(get_args(DetailKind)) and min(counts.values()) >= 20
    readme = (Path(__file__).parents[2] / "isr_lab" / "contrast" / "README.md").read_text("utf-8")
    assert {kind: int(n) for kind, n in re.findall(r"^\| `(\w+)` \| (\d+) \|", readme, re.MULTILINE)} == counts
    assert f"holds for {sum(twin.words_kept for twin in twins)} of the 400" in readme
    assert f"`elsewhere`, {sum(bool(twin.elsewhere) for twin in twins)} pairs" in readme


def test_each_document_is_five_short_chunks_eight_pairs_and_four_questions() -> None:
    for document in load_documents():
        assert all(15 <= len(chunk.split()) <= 45 for chunk in document.chunks), document.id
        assert len(document.twins) == 8 and len(document.questions) == 4
        assert [question.chunk is None for question in document.questions].count(True) == 2


def test_nothing_is_there_twice() -> None:
    documents, denials = load_documents(), load_denials()
    twins = [twin for document in documents for twin in document.twins]
    statements = [text for twin in twins for text in (twin.true, twin.false)]
    questions = [question for document in documents for question in document.questions]
    for unique in (
        statements,
        [question.question for question in questions],
        [(denial.evidence, denial.claim) for denial in denials],
        [one.id for part in (documents, twins, questions, denials) for one in part],
    ):
        assert len(set(unique)) == len(unique)


def test_a_third_of_the_false_statements_keep_every_word() -> None:
    kept = 0
    for document in load_documents():
        for twin in document.twins:
            carrying = words(document.chunks[twin.chunk])
            assert twin.words_kept == (words(twin.false) <= carrying or words(twin.false) <= words(twin.true)), twin.id
            kept += twin.words_kept
    assert kept >= 134


def test_wrong_names_come_from_another_chunk_where_they_say_so() -> None:
    named = [(document, twin) for document in load_documents() for twin in document.twins if twin.kind == "entity"]
    for document, twin in named:
        assert twin.elsewhere == (words(twin.false) - words(twin.true) <= words(" ".join(document.chunks))), twin.id
    assert sum(bool(twin.elsewhere) for _, twin in named) * 2 == len(named)


def test_right_answers_stand_in_their_chunk() -> None:
    for document in load_documents():
        for question in document.questions:
            if question.chunk is not None and question.answer is not None:
                assert words(question.answer) <= words(document.chunks[question.chunk]), question.id
                assert question.answer != question.wrong


def test_there_are_two_hundred_denials_and_sixty_controls() -> None:
    counts = Counter((denial.kind, denial.supported) for denial in load_denials())
    assert sum(n for (_, supported), n in counts.items() if not supported) == 200
    assert sum(n for (_, supported), n in counts.items() if supported) == 60
    assert all(counts[kind, supported] for kind in ("denial", "report", "salad") for supported in (True, False))


def row(i: int, label: int, q: float, *, kept: bool = False, **more: Any) -> ContrastRow:
    settings = {"part": "twins", "kind": "number", "setting": "among"} | more
    return ContrastRow(id=str(i), label=label, q=q, words_kept=kept, **settings)


def test_a_pair_counts_when_its_own_true_statement_is_higher_and_a_tie_counts_half() -> None:
    rows = [row(1, 1, 0.2), row(1, 0, 0.1), row(2, 1, 0.8), row(2, 0, 0.9), row(3, 1, 0.5), row(3, 0, 0.5)]
    found = figures(rows)["twins"]["among"]["all"]
    assert found["above"] == pytest.approx(0.5)
    # pairs of any true with any false: 0.2 > 0.1; 0.8 > 0.1, 0.5; 0.5 > 0.1 and ties with 0.5
    assert found["auroc_q"] == pytest.approx(4.5 / 9)
    assert found["mean_q"] == {"true": pytest.approx(0.5), "false": pytest.approx(0.5)}
    assert found["n"] == {"true": 3, "false": 3}
    assert found["answered"] == {} and found["auroc_p_ref"] is None


def test_groups_hold_their_own_rows() -> None:
    rows = [
        row(1, 1, 0.9, kept=True),
        row(1, 0, 0.1, kept=True),
        row(2, 1, 0.3, kind="unit"),
        row(2, 0, 0.6, kind="unit"),
    ]
    rows += [row(1, 1, 0.4, setting="alone"), row(1, 0, 0.7, setting="alone")]
    found = figures(rows)["twins"]
    among = {name: group["above"] for name, group in found["among"].items()}
    assert among == {"all": 0.5, "words kept": 1.0, "a word differs": 0.0, "number": 1.0, "unit": 0.0}
    assert found["alone"]["all"]["above"] == 0.0


def test_answers_are_counted_by_label_and_h_star() -> None:
    def at(label: int, p_ref: float, *answered: bool) -> ContrastRow:
        return row(1, label, 0.5, p_ref=p_ref, answered=dict(zip((0.05, 0.2), answered, strict=True)))

    found = figures([at(1, 0.9, True, True), at(0, 0.8, False, True)])["twins"]["among"]["number"]
    assert found["answered"] == {"0.05": {"true": 1, "false": 0}, "0.2": {"true": 1, "false": 1}}
    assert found["auroc_p_ref"] == 1.0


def test_drafts_are_told_apart_by_what_makes_them_wrong() -> None:
    def draft(i: int, label: int, q: float, kind: str) -> ContrastRow:
        return row(i, label, q, part="drafts", kind=kind)

    rows = [draft(1, 1, 0.6, "answerable"), draft(1, 0, 0.9, "answerable"), draft(2, 0, 0.1, "look-alike")]
    found = figures(rows)["drafts"]
    assert {name: group["auroc_q"] for name, group in found.items()} == {
        "all": 0.5,
        "answerable": 0.0,
        "look-alike": 1.0,
    }
    assert found["look-alike"]["n"] == {"true": 1, "false": 1}


class Reader:
    """Says yes where every word of a claim is in one chunk; every call is counted."""

    identity = "reader"
    layout: Layout = "late"

    def __init__(self) -> None:
        self.calls: list[Sequence[ScoreRequest]] = []

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        self.calls.append(requests)
        yes = [0.9 if self._holds(request.prompt) else 0.1 for request in requests]
        return [Scores(np.log([[q, 1 - q]]), 1) for q in yes]

    def _holds(self, prompt: Prompt) -> bool:
        claim = words(prompt.suffix.split("\n")[0].partition(":")[2])
        return any(claim <= words(chunk) for chunk in prompt.chunks)


def test_everything_about_a_document_is_asked_at_once_and_labels_follow_the_texts() -> None:
    documents, denials = load_documents()[:3], load_denials()[:25]
    scorer, told = Reader(), list[int]()
    rows = ask(ISRGate(scorer=scorer, reference=Oracle(1.0)), documents, denials, progress=told.append)
    assert [len(call) for call in scorer.calls] == [8 * 4 + 4 + 4 + 2] * 3 + [20, 5]
    assert told == [1, 2, 3, 23, 28]
    assert all(row.p_ref is None and row.answered == {} for row in rows)
    by_part = Counter((row.part, row.setting, row.label) for row in rows)
    assert by_part == {
        ("twins", "alone", 1): 24,
        ("twins", "alone", 0): 24,
        ("twins", "among", 1): 24,
        ("twins", "among", 0): 24,
        ("sufficiency", "among", 1): 6,
        ("sufficiency", "among", 0): 6,
        ("drafts", "among", 1): 6,
        ("drafts", "among", 0): 12,
        ("denials", "alone", 0): 25,
    }
    twins = {twin.id: (document, twin) for document in documents for twin in document.twins}
    for one in (row for row in rows if row.part == "twins"):
        document, twin = twins[one.id]
        claim = words(twin.true if one.label else twin.false)
        shown = [document.chunks[twin.chunk]] if one.setting == "alone" else document.chunks
        assert (one.q > 0.5) == any(claim <= words(chunk) for chunk in shown)


def test_each_h_star_is_decided_by_the_gate_itself() -> None:
    gate = ISRGate(scorer=FixedScorer([0.97], layout="late"), reference=Oracle(0.92), rule=Rule(exact=False))
    rows = ask(gate, load_documents()[:1], h_stars=(0.05, 0.1))
    assert {(row.p_ref, tuple(row.answered.items())) for row in rows} == {(0.92, ((0.05, False), (0.1, True)))}
    found = figures(rows)
    assert found["twins"]["among"]["all"]["answered"] == {
        "0.05": {"true": 0, "false": 0},
        "0.1": {"true": 8, "false": 8},
    }
    told = markdown(report(found, scorer="s", reference="r"))
    assert "at h* = 0.1 8 of 8 true and 8 of 8 false answered" in told.replace("\\", "")
    assert "Denials, reports" not in told


def test_cases_that_the_reference_does_not_speak_of_still_have_a_q() -> None:
    def refuses(case: Case) -> float:
        raise ValueError("outside")

    gate = ISRGate(scorer=FixedScorer([0.97], layout="late"), reference=Oracle(refuses), on_error="abstain")
    rows = ask(gate, load_documents()[:1], h_stars=(0.05,))
    assert {(round(row.q, 2), row.p_ref, row.answered[0.05]) for row in rows} == {(0.97, None, False)}
    assert figures(rows)["twins"]["among"]["all"]["auroc_p_ref"] is None


def test_a_failing_scorer_is_not_taken_for_a_careful_one() -> None:
    def fails(prompt: Prompt, ordering: Ordering) -> float:
        raise OSError("gone")

    gate = ISRGate(scorer=FixedScorer(fails), reference=Oracle(1.0), on_error="abstain")
    with pytest.raises(ScorerError, match="was not scored"):
        ask(gate, load_documents()[:1])


def test_a_document_with_four_chunks_is_refused() -> None:
    plain = load_documents()[0].model_dump()
    with pytest.raises(ValueError, match="chunks"):
        ContrastDocument.model_validate({**plain, "chunks": plain["chunks"][:4]})


@pytest.mark.parametrize("option", ["--model", "--cross-encoder"])
def test_the_command_ranks_a_model_that_has_no_calibration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    for kind in ("transformers.TransformersScorer", "pairs.CrossEncoder"):
        monkeypatch.setattr(f"isr_rag.scorers.{kind}", lambda name, **loading: Reader())
    done = CliRunner().invoke(app, ["contrast", option, "m", "--limit", "2", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "contrast.json").read_text("utf-8"))
    assert found["reference"] is None and found["documents"] == 2
    assert found["twins"]["among"]["all"]["answered"] == {}
    assert (tmp_path / "contrast.md").read_text("utf-8").strip() in done.output
    assert len((tmp_path / "rows.jsonl").read_text("utf-8").splitlines()) == 2 * (32 + 10) + 2


@pytest.mark.model
@MODEL
def test_the_embedded_model_decides_with_its_calibration_and_scores_once(tmp_path: Path) -> None:
    arguments = ["contrast", "--limit", "1", "--h-star", "0.05", "--h-star", "0.4", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "contrast.json").read_text("utf-8"))
    assert set(found["twins"]["among"]["all"]["answered"]) == {"0.05", "0.4"}
    assert 0.0 < found["twins"]["alone"]["all"]["mean_q"]["true"] < 1.0
    assert found["twins"]["alone"]["all"]["auroc_p_ref"] is not None
