"""A second reader: another model reads the same evidence, and the log-odds of both count."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("venn_abers", reason="fitting needs the 'calibrate' extra")

from isr_rag import Decision, ISRGate
from isr_rag.calibration import (
    BelongsTo,
    CalibrationArtefact,
    CalibrationCorruptError,
    CalibrationError,
    CalibrationMismatchError,
    CalibrationRecord,
    LoopRecord,
    VennAbers,
    fit_artefact,
)
from isr_rag.calibration.combination import closely
from isr_rag.errors import ConfigurationError, InvalidTypeError, ISRError, ScorerError
from isr_rag.predicates import Supported
from isr_rag.prompt import Ordering, Prompt
from isr_rag.references import CalibratedMixture, Lowest, Oracle
from isr_rag.scorers import embedded
from isr_rag.scorers.protocol import Layout, ScoreRequest, Scores
from isr_rag.testing import FixedScorer

CLAIM = "supported-claim/1"
CHUNKS = ["The Seine flows through Paris.", "The Loire flows through Nantes."]


def records(n: int = 1200, *, seed: int = 0, sign: float = 1.0) -> list[CalibrationRecord]:
    """Cases in which each reader errs by itself, so that both together know more; at `sign` -1 the second one lies."""
    rng = np.random.default_rng(seed)
    made: list[CalibrationRecord] = []
    for i in range(n):
        label = int(rng.random() < 0.5)
        x, other = rng.normal(1.2 if label else -1.2, 1.2, 2)
        q, second = (float(1 / (1 + np.exp(-value))) for value in (x, sign * other))
        made.append(CalibrationRecord(f"{seed}-{i}", CLAIM, q, label, chunks=1 + i % 8, second=second))
    return made


def fitted(items: list[CalibrationRecord], second: str | None = "other", **settings: Any) -> CalibrationArtefact:
    defaults: dict[str, Any] = {
        "targets": (),
        "resamples": 5,
        "belongs_to": BelongsTo("fixed", None, None, second=second),
    }
    return fit_artefact(items, created_by="tests", **(defaults | settings)).artefact


@pytest.fixture(scope="module")
def artefact() -> CalibrationArtefact:
    return fitted(records())


def other(q: float) -> FixedScorer:
    return FixedScorer([q], layout="late", identity="other")


def gate(artefact: CalibrationArtefact, q: float, second: float, **settings: Any) -> ISRGate:
    reference = CalibratedMixture(artefact, second=other(second))
    return ISRGate(scorer=FixedScorer([q], layout="late"), reference=reference, **settings)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.13, 0.5, 0.98]))
@example(1e-9, 2e-9, 0.0, 0.5)
@example(0.9999999, 0.99999995, 1.0, 1.0)
def test_the_score_rises_with_both_readers_and_lies_between_them(a: float, b: float, q: float, weight: float) -> None:
    low, high = sorted((a, b))
    assert closely(q, low, weight) <= closely(q, high, weight)
    assert closely(low, q, weight) <= closely(high, q, weight)
    assert min(q, low) <= closely(q, low, weight) <= max(q, low)
    assert closely(q, low, 0.0) == q


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_p_ref_never_falls_when_either_reader_is_surer(a: float, b: float, q: float) -> None:
    low, high = sorted((a, b))
    p_refs = [_p_ref(*pair) for pair in ((q, low), (q, high))], [_p_ref(*pair) for pair in ((low, q), (high, q))]
    assert all(less <= more for less, more in p_refs)


def _p_ref(q: float, second: float) -> float:
    decision = gate(_FITTED, q, second).decide(CHUNKS, claim="The Loire flows through Nantes.")
    assert decision.p_ref is not None
    return decision.p_ref


_FITTED = fitted(records())


def test_two_readers_answer_more_at_the_same_rate(artefact: CalibrationArtefact) -> None:
    part = artefact.predicates[CLAIM]
    assert part.second > 0.0
    one = fitted([replace(record, second=None) for record in records()], None).predicates[CLAIM]
    assert one.second == 0.0
    fresh = records(seed=1)

    def answered(calibration: Any, h_star: float) -> list[int]:
        steps = calibration.rate(calibration.bins[0])
        scores = [calibration.score(r.q_bar, None, None, r.second) for r in fresh]
        return [r.label for r, s in zip(fresh, scores, strict=True) if steps.at(s) >= 1.0 - h_star - 1e-9]

    both, alone = answered(part, 0.05), answered(one, 0.05)
    assert len(both) > 1.3 * len(alone) and 1 - np.mean(both) < 0.07


def test_a_reader_that_says_the_opposite_is_not_asked_rather_than_turned_round() -> None:
    untold = fitted(records(sign=-1.0))
    assert untold.predicates[CLAIM].second == 0.0
    second = other(0.99)
    reference = CalibratedMixture(untold, second=second)
    decision = ISRGate(scorer=FixedScorer([0.9], layout="late"), reference=reference).decide(CHUNKS, claim="a")
    assert second.requests == [] and decision.q_second is None and "second" not in decision.reference


def test_what_the_second_reader_says_decides_and_is_told(artefact: CalibrationArtefact) -> None:
    agreed, doubted = (gate(artefact, 0.95, s, h_star=0.1).decide(CHUNKS, claim="The Loire") for s in (0.97, 0.01))
    assert agreed.answered and not doubted.answered
    assert agreed.q_bar == doubted.q_bar == pytest.approx(0.95)
    assert agreed.q_second == pytest.approx(0.97) and doubted.q_second == pytest.approx(0.01)
    assert "a second reader (0.9700 by other)" in agreed.reference and "second reader" in str(agreed)
    assert "two readers (the second gives it 0.01)" in doubted.explain()
    assert Decision.from_json(agreed.to_json()) == agreed
    old = agreed.to_dict()
    del old["q_second"]
    assert Decision.from_dict(old).q_second is None  # decisions written before there was such a field
    lowest = Lowest(CalibratedMixture(artefact, second=other(0.97)), Oracle(1.0))
    combined = ISRGate(scorer=FixedScorer([0.95], layout="late"), reference=lowest).decide(CHUNKS, claim="a")
    assert combined.q_second == pytest.approx(0.97)


def test_both_read_the_same_cut_of_the_evidence(artefact: CalibrationArtefact) -> None:
    first, second = FixedScorer([0.9], layout="late"), other(0.9)
    cut = replace(artefact, belongs_to=replace(artefact.belongs_to, focus=12))
    long = ["Boats go by. " * 9 + "The Loire flows through Nantes.", "Nothing. " * 40]
    decision = ISRGate(scorer=first, reference=CalibratedMixture(cut, second=second), focus=12).decide(
        long, claim="The Loire flows through Nantes."
    )
    assert decision.focus is not None
    assert second.requests[0].prompt.chunks == first.requests[0].prompt.chunks != tuple(long)


def test_batched_and_awaited_decisions_are_the_same_as_alone(artefact: CalibrationArtefact) -> None:
    two = gate(artefact, 0.95, 0.9)
    items: list[dict[str, Any]] = [
        {"evidence": CHUNKS, "claim": "a"},
        {"evidence": CHUNKS[1:], "claim": "b"},
        {"evidence": [], "claim": "c"},
        {"evidence": CHUNKS, "claim": "d", "reference": Oracle(1.0)},
    ]
    alone = [two.decide_batch([item])[0] for item in items]
    assert [one.q_second is None for one in alone] == [False, False, True, True]
    assert two.decide_batch(items) == alone
    assert asyncio.run(two.adecide_batch(items)) == alone


class Broken:
    """A second reader that cannot read what names the Loire."""

    identity = "other"
    layout: Layout = "late"

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        if any("Loire" in chunk for chunk in requests[0].prompt.chunks):
            raise ScorerError("no")
        return other(0.9).score(requests)


def test_a_second_reader_that_fails_fails_its_item_only(artefact: CalibrationArtefact) -> None:
    reference = CalibratedMixture(artefact, second=Broken())
    items = [{"evidence": CHUNKS, "claim": "a"}, {"evidence": CHUNKS[:1], "claim": "b"}]
    first = FixedScorer([0.95], layout="late")
    failed, read = ISRGate(scorer=first, reference=reference, on_error="abstain").decide_batch(items)
    assert failed.reason.value == "scorer_failed" and not failed.answered
    assert read.q_second == pytest.approx(0.9)
    with pytest.raises(ScorerError):
        ISRGate(scorer=first, reference=reference).decide_batch(items)


@pytest.mark.parametrize(
    ("second", "error", "says"),
    [
        (None, ConfigurationError, "second=..."),
        ("small", InvalidTypeError, "not str"),
        (FixedScorer([0.5], layout="late", identity="third"), CalibrationMismatchError, "'other', not 'third'"),
        (FixedScorer([0.5], layout="full", identity="other"), ConfigurationError, "order"),
    ],
)
def test_another_reader_than_the_calibration_s_is_refused(
    artefact: CalibrationArtefact, second: Any, error: type[ISRError], says: str
) -> None:
    with pytest.raises(error, match=says.replace(".", r"\.")):
        CalibratedMixture(artefact, second=second)


def test_a_calibration_of_one_reader_takes_no_second() -> None:
    one = fitted([replace(record, second=None) for record in records(400)], None)
    for calibration in (one, VennAbers.fit([0.1, 0.9] * 60, [0, 1] * 60)):
        with pytest.raises(ConfigurationError, match="counts no second reader"):
            CalibratedMixture(calibration, second=other(0.5))


def test_what_does_not_fit_together_is_refused() -> None:
    items = records(400)
    with pytest.raises(CalibrationError, match="BelongsTo"):
        fitted(items, None)
    with pytest.raises(CalibrationError, match="1 items lack"):
        fitted([*items[1:], replace(items[0], second=None)])
    with pytest.raises(CalibrationError, match="NaN or outside"):
        fitted([*items[1:], replace(items[0], second=1.5)])
    with pytest.raises(CalibrationError, match="one reader"):
        fitted(items, loops=[LoopRecord("loop", CLAIM, (0.5,), (1,))])
    with pytest.raises(CalibrationError, match="must lie in"):
        replace(_FITTED.predicates[CLAIM], second=-0.5)
    with pytest.raises(CalibrationError, match="second reader"):
        _FITTED.predicates[CLAIM].score(0.9, None)


def test_it_survives_the_file_and_belongs_to_both(artefact: CalibrationArtefact, tmp_path: Path) -> None:
    path = artefact.save(tmp_path / "c.json")
    assert CalibrationArtefact.load(path) == artefact
    assert CalibrationArtefact.load(path).belongs_to.second == "other"
    path.write_text(path.read_text().replace('"other"', '"third"'))
    with pytest.raises(CalibrationCorruptError, match="altered"):
        CalibrationArtefact.load(path)
    one = fitted([replace(record, second=None) for record in records(400)], None)
    assert "second" not in one.save(tmp_path / "one.json").read_text()


# The real models


@pytest.mark.slow
@pytest.mark.model
def test_an_adjudicator_without_a_second_reader_says_so() -> None:
    with pytest.raises(ConfigurationError, match="no calibration with a second reader"):
        ISRGate(adjudicator="small", reference="two-readers")
    with pytest.raises(ConfigurationError, match="leave the scorer out"):
        ISRGate(scorer=other(0.5), reference="two-readers")
    with pytest.raises(InvalidTypeError, match="not a reference"):
        ISRGate(scorer=other(0.5), reference="three-readers")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.model
def test_where_the_second_reader_is_not_set_up_the_error_names_the_command(tmp_path: Path) -> None:
    standard = embedded.model_directory()
    (tmp_path / standard.name).symlink_to(standard)
    program = "from isr_rag import ISRGate; ISRGate(reference='two-readers', h_star=0.2)"
    environment = {**os.environ, "ISR_RAG_CACHE": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "ModelNotFoundError" in run.stderr and "isr-rag setup --adjudicator small" in run.stderr


QUESTIONS: list[dict[str, Any]] = [
    {"evidence": ["The Seine flows through Paris.", "The Loire ends in the Atlantic."], **asked}
    for asked in (
        {"question": "Where does the Loire end?", "answer": "in the Atlantic"},
        {"question": "Where does the Loire end?"},
        {"claim": "The Loire ends in the Atlantic."},
    )
]


@pytest.mark.slow
@pytest.mark.model
def test_the_shipped_two_readers_decide_the_same_alone_batched_awaited_and_pickled() -> None:
    two = ISRGate(reference="two-readers", h_star=0.2)
    reference = two.reference
    assert isinstance(reference, CalibratedMixture) and isinstance(reference.calibration, CalibrationArtefact)
    second = embedded.embedded_scorer(adjudicator="small")
    assert reference.second is second and second.identity in repr(two)
    asked = {name for name, one in reference.calibration.predicates.items() if one.second}
    alone = [two.decide_batch([item])[0] for item in QUESTIONS]
    assert [one.q_second is not None for one in alone] == [one.predicate in asked for one in alone]
    assert [one.scorer for one in alone] == [embedded.embedded_scorer().identity] * 3
    for others in (
        two.decide_batch(QUESTIONS),
        asyncio.run(two.adecide_batch(QUESTIONS)),
        pickle.loads(pickle.dumps(two)).decide_batch(QUESTIONS),
    ):
        assert [one.action for one in others] == [one.action for one in alone]
        for one, again in zip(alone, others, strict=True):
            assert again.q_second == (None if one.q_second is None else pytest.approx(one.q_second, abs=1e-5))
            assert again.p_ref == pytest.approx(one.p_ref, abs=1e-3)


@pytest.mark.slow
@pytest.mark.model
def test_a_real_second_reader_says_what_it_says_as_an_adjudicator_of_its_own() -> None:
    first, second = embedded.embedded_scorer(), embedded.embedded_scorer(adjudicator="small")
    belongs_to = BelongsTo(first.identity, None, None, focus=600, second=second.identity)
    reference = CalibratedMixture(fitted(records(), belongs_to=belongs_to), second=second)
    claim, chunks = QUESTIONS[2]["claim"], QUESTIONS[2]["evidence"]
    both = ISRGate(scorer=first, reference=reference).decide(chunks, claim=claim)
    own = ISRGate(scorer=second, reference=Oracle(1.0)).decide(chunks, predicate=Supported(claim=claim))
    assert both.q_second == pytest.approx(own.q_bar, abs=1e-5) and both.q_second != both.q_bar


def test_a_scorer_that_answers_too_often_is_refused(artefact: CalibrationArtefact) -> None:
    class Twice(Broken):
        def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
            return other(0.9).score([*requests, *requests])

    reference = CalibratedMixture(artefact, second=Twice())
    with pytest.raises(ScorerError, match="2 results for 1"):
        ISRGate(scorer=FixedScorer([0.95], layout="late"), reference=reference).decide(CHUNKS, claim="a")


def test_the_one_reader_of_a_gate_is_not_asked_what_the_second_says(artefact: CalibrationArtefact) -> None:
    def by_prompt(prompt: Prompt, ordering: Ordering) -> float:
        return 0.95

    first, second = FixedScorer(by_prompt, layout="late"), other(0.9)
    ISRGate(scorer=first, reference=CalibratedMixture(artefact, second=second)).decide(CHUNKS, claim="a")
    assert len(first.requests) == len(second.requests) == 1
