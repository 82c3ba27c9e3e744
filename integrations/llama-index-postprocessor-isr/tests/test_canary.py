"""A secret draft is nowhere before its release, and settings that can never answer are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, JsonSerializer
from llama_parts import DraftingLLM, ScriptedLLM, TopKRetriever, fixed, node
from pydantic import ValidationError

from isr_rag import ISRGate as CoreGate
from isr_rag.errors import ConfigurationError
from isr_rag.references import Case
from isr_rag.testing import FixedScorer
from llama_index.postprocessor.isr import GatedAgent, ISRGate, ISRQueryEngine, ISRWorkflow, evidence_tool

SECRET = "UNGATEDCANARY"
QUESTION = "Which river flows through Rouen?"
NODES = [node("The Loire is a river.", "a")]
RETRIEVER = TopKRetriever(lambda query, number: NODES)


def function_agent(searches: int = 1, retriever: Any = RETRIEVER) -> FunctionAgent:
    llm = ScriptedLLM(asks=[{"search": "rivers"}] * searches, last=lambda heard: SECRET)
    return FunctionAgent(tools=[evidence_tool(retriever, gate=fixed(0.0))], llm=llm, streaming=False)


class Saying(MockLLM):
    """Answers as a ReAct agent does."""

    async def achat(self, messages: Any, **kwargs: Any) -> Any:
        response = await super().achat(messages, **kwargs)
        response.message.content = f"Thought: I can answer.\nAnswer: {SECRET}"
        return response


def react_agent() -> ReActAgent:
    return ReActAgent(tools=[evidence_tool(RETRIEVER, gate=fixed(0.0))], llm=Saying(), streaming=False)


async def observed(context: Context) -> str:
    memory: Any = await context.store.get("memory", default=None)
    messages = [] if memory is None else await memory.aget_all()
    return repr(messages) + json.dumps(context.to_dict(serializer=JsonSerializer()))


@pytest.mark.parametrize("make", [function_agent, react_agent])
@pytest.mark.parametrize("outcome", ["abstain", "raise", "cancel", "time out"])
def test_no_memory_and_no_state_of_an_agent_keeps_a_draft(
    make: Callable[[], Any], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(case: Case) -> float:
        if outcome == "raise":
            raise RuntimeError("the machine is gone")
        return 0.0

    gated = GatedAgent(make(), gate=fixed(judge), message="no idea")
    entered = asyncio.Event()

    async def stuck(*args: Any, **settings: Any) -> Any:
        entered.set()
        await asyncio.sleep(60)

    if outcome in ("cancel", "time out"):
        monkeypatch.setattr("llama_index.postprocessor.isr.gated_agent.agather", stuck)

    async def talk() -> str:
        context = Context(gated._agent)
        if outcome == "abstain":
            assert str(await gated.run(QUESTION, ctx=context)) == "no idea"
        elif outcome == "raise":
            # nothing was searched in the ReAct run, and so nothing is asked of the reference
            if make is react_agent:
                assert str(await gated.run(QUESTION, ctx=context)) == "no idea"
            else:
                with pytest.raises(Exception, match="the machine is gone"):
                    await gated.run(QUESTION, ctx=context)
        elif outcome == "time out":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(gated.run(QUESTION, ctx=context), 2)
        else:
            task = asyncio.create_task(gated.run(QUESTION, ctx=context))
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return await observed(context)

    assert SECRET not in asyncio.run(talk())


@pytest.mark.parametrize("without", ["pass", "abstain"])
def test_a_search_that_failed_was_a_search(without: Any) -> None:
    def dead(query: str, number: int) -> Any:
        raise OSError("the disk is gone")

    agent = function_agent(retriever=TopKRetriever(dead))
    gated = GatedAgent(agent, gate=fixed(1.0), message="no idea", without_evidence=without)

    async def talk() -> str:
        return str(await gated.run(QUESTION))

    assert asyncio.run(talk()) == "no idea"


def test_without_a_search_an_agent_abstains_by_default() -> None:
    async def talk(**settings: Any) -> str:
        return str(await GatedAgent(function_agent(0), gate=fixed(1.0), message="no idea", **settings).run(QUESTION))

    assert asyncio.run(talk()) == "no idea"
    assert asyncio.run(talk(without_evidence="pass")) == SECRET


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


class Low:
    """A calibration that reaches little for questions and drafts."""

    needs_scores = False

    def estimate(self, case: Case) -> Any:
        raise AssertionError("nothing is decided here")

    def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
        return 0.99 if predicate is None else 0.7


def test_settings_that_can_never_answer_are_refused_when_the_object_is_made() -> None:
    low = CoreGate(scorer=FixedScorer([0.9]), reference=Low())
    engine = RetrieverQueryEngine(RETRIEVER, get_response_synthesizer(llm=DraftingLLM(write=lambda prompt: "a")))
    makers: list[Callable[[], object]] = [
        lambda: ISRGate(gate=low),
        lambda: ISRGate(gate=low, retriever=RETRIEVER, rounds=1),
        lambda: ISRQueryEngine(engine, gate=low),
        lambda: ISRQueryEngine(engine, gate=low, place="after"),
        lambda: ISRQueryEngine(engine, gate=low, place="both"),
        lambda: ISRWorkflow(engine, gate=low, rounds=1),
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
