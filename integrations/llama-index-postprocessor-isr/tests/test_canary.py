"""A secret draft is nowhere before its release, and settings that can never answer are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, JsonSerializer
from llama_parts import DraftingLLM, ScriptedLLM, TopKRetriever, fixed, node
from pydantic import ValidationError

from isr_rag import ISRGate as CoreGate
from isr_rag.errors import ConfigurationError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from llama_index.postprocessor.isr import GatedAgent, ISRGate, ISRQueryEngine, evidence_tool

SECRET = "UNGATEDCANARY"
QUESTION = "Which river flows through Rouen?"
NODES = [node("The Loire is a river.", "a")]
RETRIEVER = TopKRetriever(lambda query, number: NODES)


def function_agent(searches: int = 1, retriever: Any = RETRIEVER) -> FunctionAgent:
    llm = ScriptedLLM(asks=[{"search": "rivers"}] * searches, last=lambda heard: SECRET)
    return FunctionAgent(tools=[evidence_tool(retriever, gate=fixed(0.0))], llm=llm, streaming=False)


@pytest.mark.parametrize("without", ["pass", "abstain"])
def test_a_search_that_failed_was_a_search(without: Any) -> None:
    def dead(query: str, number: int) -> Any:
        raise OSError("the disk is gone")

    agent = function_agent(retriever=TopKRetriever(dead))
    gated = GatedAgent(agent, gate=fixed(1.0), message="no idea", without_evidence=without)

    async def talk() -> str:
        return str(await gated.run(QUESTION))

    assert asyncio.run(talk()) == "no idea"


class Talk:
    """A conversation, whose agent searches in the runs that it is told to, and says the secret in each."""

    def __init__(self, kind: str, fails: bool = False) -> None:
        self.kind, self.fails = kind, fails
        self.memory = ChatMemoryBuffer.from_defaults(token_limit=4000)
        self.context: Any = None

    async def says(self, searches: int, said: str = QUESTION) -> str:
        gated = GatedAgent(self._agent(searches), gate=fixed(0.0), message="no idea", without_evidence="pass")
        given: dict[str, Any] = {"memory": self.memory} if self.kind == "memory" else {}
        if self.kind != "memory":
            kept, plain = self.context or Context(gated._agent), JsonSerializer()
            if self.kind == "context as JSON":
                kept = Context.from_dict(gated._agent, kept.to_dict(serializer=plain), serializer=plain)
            given["ctx"] = self.context = kept
        return str(await gated.run(said, **given))

    def _agent(self, searches: int) -> FunctionAgent:
        agent = function_agent(searches)

        def last(heard: list[str]) -> str:
            if searches and self.fails:
                raise RuntimeError("the model is gone")
            return SECRET

        agent.llm.last = last  # type: ignore[attr-defined]
        return agent


@pytest.mark.parametrize("kind", ["context", "context as JSON", "memory"])
@pytest.mark.parametrize("ends", ["abstains", "fails"])
def test_once_evidence_was_sought_no_later_run_of_the_conversation_passes_unjudged(kind: str, ends: str) -> None:
    async def talk() -> list[str]:
        conversation = Talk(kind, ends == "fails")
        heard = [await conversation.says(0)]
        try:
            heard.append(await conversation.says(1))
        except RuntimeError:
            heard.append("no idea")
        return [*heard, await conversation.says(0), await conversation.says(0, "Who wrote Les Misérables?")]

    assert asyncio.run(talk()) == [SECRET, "no idea", "no idea", "no idea"]


def test_a_conversation_in_which_nothing_was_sought_goes_on_to_pass_where_its_context_says_so() -> None:
    async def talk(kind: str) -> list[str]:
        conversation = Talk(kind)
        return [await conversation.says(0), await conversation.says(0, "Who wrote Les Misérables?")]

    assert asyncio.run(talk("context")) == asyncio.run(talk("context as JSON")) == [SECRET, SECRET]
    assert asyncio.run(talk("memory")) == [SECRET, "no idea"]  # nothing says what was sought in its earlier runs


@pytest.mark.parametrize("what", ["a search of the agent alone", "another tool of the agent alone", "a history"])
def test_what_a_conversation_sought_without_the_gate_counts_too(what: str) -> None:
    async def talk() -> list[str]:
        conversation = Talk("context")
        heard = [await conversation.says(0, "Hello there, my friend.")]
        ctx, more = conversation.context, {}
        if what == "a history":
            more = {"chat_history": [ChatMessage(role=role, content=QUESTION) for role in ("user", "assistant")]}
        else:
            alone = conversation._agent(1)
            if what.startswith("another"):
                clock = FunctionTool.from_defaults(lambda search: "noon", name="clock")
                alone = FunctionAgent(tools=[clock], llm=alone.llm, streaming=False)
                alone.llm.tool = "clock"  # type: ignore[attr-defined]
            await alone.run(user_msg=QUESTION, ctx=ctx)
        gated = GatedAgent(conversation._agent(0), gate=fixed(0.0), message="no idea", without_evidence="pass")
        return [*heard, str(await gated.run("Who wrote Les Misérables?", ctx=ctx, **more))]

    assert asyncio.run(talk()) == [SECRET, "no idea"]


class Low(Oracle):
    """A calibration that reaches little for questions and drafts."""

    def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
        return 0.99 if predicate is None else 0.7


def test_settings_that_can_never_answer_are_refused_when_the_object_is_made() -> None:
    low = CoreGate(scorer=FixedScorer([0.9]), reference=Low(0.7))
    engine = RetrieverQueryEngine(RETRIEVER, get_response_synthesizer(llm=DraftingLLM(write=lambda prompt: "a")))
    makers: list[Callable[[], object]] = [  # what test_conformance.py does not build
        lambda: ISRQueryEngine(engine, gate=low, place="both"),
        lambda: evidence_tool(RETRIEVER, gate=low, rounds=1),
        lambda: GatedAgent(function_agent(), gate=low),
    ]
    for make in makers:
        with pytest.raises((ConfigurationError, ValidationError), match=r"h_star >= 0.3"):
            make()


def test_the_default_target_can_be_reached_and_one_that_cannot_is_refused_without_loading_a_model() -> None:
    assert ISRGate().h_star == 0.2
    assert ISRGate(retriever=RETRIEVER, rounds=2).h_star == 0.2
    with pytest.raises(ValidationError, match=r"sufficient/1.*Choose h_star >= 0\.028"):
        ISRGate(h_star=0.01)
