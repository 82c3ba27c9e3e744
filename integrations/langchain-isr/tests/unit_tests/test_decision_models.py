"""Decision models of langchain-core 1.8, on both sides of the gate; what is said where it has none."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

import pytest

import langchain_isr
from isr_rag import Choice as ChoicePredicate, ISRGate
from isr_rag.core.settings import Orderings
from isr_rag.errors import InvalidInputError, ScorerError
from isr_rag.references import Oracle, ToolReference
from isr_rag.testing import FixedScorer

THERE = importlib.util.find_spec("langchain_core.decisions") is not None
needs_decisions = pytest.mark.skipif(not THERE, reason="langchain-core has no decision models before 1.8")
EVIDENCE = ["The Seine flows through Paris.", "The Loire ends at Saint-Nazaire."]


@pytest.mark.skipif(THERE, reason="langchain-core has decision models")
def test_without_decision_models_the_error_names_the_version() -> None:
    for name in ("ISRDecisionModel", "DecisionModelScorer"):
        with pytest.raises(ImportError, match=r"langchain-core>=1\.8"):
            getattr(langchain_isr, name)


def remote(noul: float = 0.8, **answer: Any) -> Any:
    """A decision model as a provider's package has it, with given answers."""
    from langchain_core.decisions import BaseDecisionModel, ClassifierResponse

    class Remote(BaseDecisionModel):
        model: str = "remote-1"
        asked: list[Any] = []  # noqa: RUF012  # pydantic copies it

        @property
        def _provider(self) -> str:
            return "test"

        def _classify(self, state: Any, questions: Any) -> ClassifierResponse:
            self.asked.append((state, questions))
            given = answer or {"type": "noul", "noul": noul}
            return ClassifierResponse.model_validate({"model": self.model, "answers": dict.fromkeys(questions, given)})

    return Remote()


@needs_decisions
def test_a_decision_model_scores_every_ordering() -> None:
    model = remote(0.8)
    scorer = langchain_isr.DecisionModelScorer(model)
    gate = ISRGate(scorer=scorer, reference=Oracle(1.0), orderings=Orderings(m=2))
    decision = gate.decide(EVIDENCE, claim="The Seine flows through Paris.")
    assert decision.q == pytest.approx((0.8, 0.8))
    assert "remote-1" in decision.settings.scorer
    states = [state for state, _ in model.asked]
    assert states[0] != states[1]
    assert all("Seine" in state and "Loire" in state for state in states)
    assert "Claim: The Seine flows through Paris." in model.asked[0][1]["g"].instructions
    waited = asyncio.run(gate.adecide(EVIDENCE, claim="The Seine flows through Paris."))
    assert waited.q == decision.q


@needs_decisions
def test_options_are_asked_as_a_choice() -> None:
    model = remote(type="choice", choice="B", probabilities={"A": 0.25, "B": 0.75}, confidence=0.75)
    gate = ISRGate(
        scorer=langchain_isr.DecisionModelScorer(model), reference=ToolReference("Loire"), orderings=Orderings(m=1)
    )
    decision = gate.decide(EVIDENCE, predicate=ChoicePredicate("Which river ends there?", ["Seine", "Loire"]))
    assert decision.q == pytest.approx((0.75,))


@needs_decisions
def test_an_answer_to_another_question_is_a_failed_score() -> None:
    model = remote(type="choice", choice="A", probabilities={"A": 1.0}, confidence=1.0)
    with pytest.raises(ScorerError, match="did not answer"):
        ISRGate(scorer=langchain_isr.DecisionModelScorer(model), reference=Oracle(1.0)).decide(EVIDENCE, claim="c")


@needs_decisions
def test_a_local_scorer_answers_every_kind_of_question_about_text() -> None:
    from langchain_core.decisions import Choice, Noul, Score

    model = langchain_isr.ISRDecisionModel(scorer=FixedScorer([[0.2, 0.8], [0.4, 0.6]]), model="fixed")
    questions = {
        "yes": Noul(instructions="Is Paris on the Seine?", criteria={"true": "it is", "false": None}),
        "which": Choice(instructions="Which river?", criteria={"seine": "in Paris", "loire": None}),
        "much": Score(instructions="How long?", criteria=["short", "long"]),
    }
    response = model.invoke({"state": EVIDENCE, "questions": questions})
    assert response.nouls["yes"].noul == pytest.approx(0.3)
    assert response.choices["which"].choice == "loire"
    assert response.choices["which"].confidence == pytest.approx(0.7)
    assert response.scores["much"].score == pytest.approx(0.7)
    assert response.scores["much"].legend == {0: "short", 1: "long"}
    again = asyncio.run(model.ainvoke({"state": EVIDENCE, "questions": questions}))
    assert again == response


@needs_decisions
def test_states_of_every_kind_are_evidence_and_empty_ones_are_refused() -> None:
    from langchain_core.decisions import Box, Noul
    from langchain_core.messages import HumanMessage

    scorer = FixedScorer([0.9])
    model = langchain_isr.ISRDecisionModel(scorer=scorer)
    asked = {"q": Noul(instructions="Is it?")}
    for state, chunks in (
        ("text", 1),
        (HumanMessage("text"), 1),
        (["a", HumanMessage("b"), {"c": 1}], 3),
        ({"title": "text", "other": ["x", 2]}, 2),
    ):
        scorer.requests.clear()
        model.invoke({"state": state, "questions": asked})
        assert len(scorer.requests[0].prompt.chunks) == chunks
    with pytest.raises(InvalidInputError, match="no text"):
        model.invoke({"state": " ", "questions": asked})
    with pytest.raises(InvalidInputError, match="box"):
        model.invoke({"state": "text", "questions": {"q": Box(instructions="Where?")}})
