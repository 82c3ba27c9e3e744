"""A chat model with logprobs as a scorer."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from lc_fakes import Runs

import langchain_isr
from isr_rag import Choice, ISRGate
from isr_rag.core.scorer import AsyncScorer
from isr_rag.core.settings import Orderings
from isr_rag.errors import ConfigurationError, ScorerError
from isr_rag.references import Oracle
from langchain_isr import ChatModelScorer

EVIDENCE = ["The Seine flows through Paris.", "The Loire ends at Saint-Nazaire."]


class Logprobs(BaseChatModel):
    """Lists first tokens as OpenAI's API does, and notes what it was asked."""

    tokens: dict[str, float]
    asked: list[Any] = []  # noqa: RUF012  # pydantic copies it

    @property
    def _llm_type(self) -> str:
        return "logprobs"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **given: Any) -> Any:
        self.asked.append((messages, given))
        listed = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in self.tokens.items()]
        content = [{**listed[0], "top_logprobs": listed}] if listed else []
        metadata = {"logprobs": {"content": content}} if content else {}
        message = AIMessage("1", response_metadata=metadata)
        return ChatResult(generations=[ChatGeneration(message=message)])


def gated(model: Logprobs, **settings: Any) -> ISRGate:
    scorer = ChatModelScorer(model, name="test-model", **settings)
    assert isinstance(scorer, AsyncScorer)
    return ISRGate(scorer=scorer, reference=Oracle(1.0), orderings=Orderings(m=2))


def test_the_probability_is_that_of_the_labels_among_the_first_tokens() -> None:
    model = Logprobs(tokens={"1": 0.6, " 1": 0.1, "0": 0.15, " 0": 0.05})
    decision = gated(model, top=4).decide(EVIDENCE, claim="The Seine flows through Paris.")
    assert decision.q == pytest.approx([0.7 / 0.9] * 2)
    assert decision.passes == 2
    (first, given), (second, _) = model.asked
    assert (given["logprobs"], given["top_logprobs"], given["max_tokens"]) == (True, 4, 1)
    assert [message.type for message in first] == ["system", "human"]
    assert first[1].content != second[1].content
    assert sorted(str(first[1].content).split("\n")) == sorted(str(second[1].content).split("\n"))


def test_sync_and_async_agree_and_the_calls_are_children_of_the_gates_run() -> None:
    model = Logprobs(tokens={"1": 0.6, "0": 0.2})
    runnable = langchain_isr.ISRGate(gate=gated(model, top=2), on_abstain="annotate")
    runs = Runs()
    state: Any = {"question": "Which river?", "documents": EVIDENCE}
    sync = runnable.invoke(state, {"callbacks": [runs]})
    waited = asyncio.run(runnable.ainvoke(state, {"callbacks": [runs]}))
    assert sync["isr"]["q"] == waited["isr"]["q"]
    for root in runs.roots:
        assert [(child.run_type, child.name) for child in root.child_runs] == [("llm", "Logprobs")] * 2


def test_a_label_that_is_not_listed_is_not_taken_for_impossible() -> None:
    scorer = ChatModelScorer(Logprobs(tokens={"1": 0.6, "maybe": 0.1}), name="test-model", top=2)
    decision = ISRGate(scorer=scorer, reference=Oracle(1.0), orderings=Orderings(m=1)).decide(EVIDENCE[:1], claim="c")
    assert 0.6 / 0.9 < decision.q[0] < 1.0  # the other label may have up to 0.2 of two spellings


def test_replies_without_logprobs_or_labels_are_failed_scores() -> None:
    for tokens in ({}, {"maybe": 0.9, "no": 0.05}):
        with pytest.raises(ScorerError):
            gated(Logprobs(tokens=tokens), top=2).decide(EVIDENCE, claim="c")
    calm = ISRGate(
        scorer=ChatModelScorer(Logprobs(tokens={}), name="test-model"), reference=Oracle(1.0), on_error="abstain"
    )
    assert calm.decide(EVIDENCE, claim="c").reason.value == "scorer_failed"


def test_options_are_read_from_their_letters() -> None:
    from isr_rag.references import ToolReference

    scorer = ChatModelScorer(Logprobs(tokens={"B": 0.45, "A": 0.2, " A": 0.05, " B": 0.05}), name="m", top=4)
    gate = ISRGate(scorer=scorer, reference=ToolReference("Loire"), orderings=Orderings(m=1))
    decision = gate.decide(EVIDENCE, predicate=Choice("Which river ends at Saint-Nazaire?", ["Seine", "Loire"]))
    assert decision.q == pytest.approx([2 / 3])


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="name"):
        ChatModelScorer(Logprobs(tokens={}), name=" ")
    with pytest.raises(ConfigurationError, match="top"):
        ChatModelScorer(Logprobs(tokens={}), name="x", top=1)
