"""An audit with the real default adjudicator: what it finds, and that it reads the evidence once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isr_rag import ISRGate
from isr_rag.audit import AnswerAudit, Verdict

pytestmark = pytest.mark.model

EVIDENCE = [
    "Marie Curie was born in Warsaw in 1867. She won the Nobel Prize in Physics in 1903 and the Nobel Prize in "
    "Chemistry in 1911.",
    "Pierre Curie was born in Paris in 1859. He studied magnetism and crystals before he worked on radioactivity.",
]
ANSWER = "Marie Curie was born in Warsaw [1]. She was born in Vienna [2]. I hope this helps!"


@pytest.fixture(scope="module")
def found() -> AnswerAudit:
    return ISRGate().audit(answer=ANSWER, question="Who was Marie Curie?", evidence=EVIDENCE)


def test_a_true_statement_is_told_from_its_near_miss(found: AnswerAudit) -> None:
    true, false, greeting = found.statements
    assert true.verdict is Verdict.SUPPORTED
    assert false.verdict is not Verdict.SUPPORTED and false.claim == "Marie Curie was born in Vienna."
    assert not greeting.judged
    assert true.probabilities is not None and false.probabilities is not None
    assert true.probabilities.supported > false.probabilities.supported + 0.3


def test_it_cites_the_sentence_and_checks_the_markers(found: AnswerAudit) -> None:
    true, false, _ = found.statements
    assert true.citations[0].sentence == "Marie Curie was born in Warsaw in 1867."
    assert [marker.status.value for marker in true.markers] == ["right"]
    assert [marker.status.value for marker in false.markers] == ["wrong"]
    assert true.prior is not None and true.decision is not None and true.decision.q_bar is not None
    assert true.prior < true.decision.q_bar


def test_sync_and_async_audits_of_the_real_model_agree(found: AnswerAudit) -> None:
    again = asyncio.run(ISRGate().aaudit(answer=ANSWER, question="Who was Marie Curie?", evidence=EVIDENCE))
    assert [one.verdict for one in again.statements] == [one.verdict for one in found.statements]
    for one, other in zip(again.statements, found.statements, strict=True):
        if one.probabilities is not None and other.probabilities is not None:
            assert one.probabilities.supported == pytest.approx(other.probabilities.supported, abs=1e-4)


def test_the_evidence_is_read_once() -> None:
    gate = ISRGate()
    engine: Any = gate.scorer.engine  # type: ignore[attr-defined]
    topics = "harbours bridges valleys forests"
    evidence = [f"Notes of the survey on {topic}: nothing of interest was found. " * 6 for topic in topics.split()]
    statements = [f"The survey says much about the {topic} of Norway." for topic in topics.split()]

    def tokens(count: int) -> int:
        before = engine.computed_tokens
        gate.audit(answer=" ".join(statements[:count]), evidence=evidence, citations=False)
        return int(engine.computed_tokens - before)

    first, second = tokens(1), tokens(4)
    assert first > 4 * 6 * 10 / 2, "the first audit reads what it needs of the evidence"
    # A statement costs its closing after all chunks and one after each of the four: far less than the evidence again.
    assert second < first + 4 * 200, "the second one reads what was left, and short closings"
    assert tokens(4) < 4 * 200, "what was read is kept"
