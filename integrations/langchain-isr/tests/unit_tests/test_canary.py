"""A secret draft in every shape is in nothing that anybody can observe before its release."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import InjectedToolCallId, create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from lc_fakes import ScriptedModel, bm25, gate, rivers, searching
from pydantic import ValidationError

from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.references import Case
from langchain_isr import ISRChain, ISRCompressor, ISRGate, ISRMiddleware, ISRRetriever, create_isr_graph, isr_node

SECRET = "UNGATEDCANARY"
QUESTION = "Which river flows through Paris?"
ASKED: Any = {"question": QUESTION}
MODES: Any = ["values", "updates", "messages", "custom", "tasks", "debug", "checkpoints"]


class Inner(TypedDict, total=False):
    question: str
    text: str


def inner(checkpointer: Any = None) -> Any:
    """A graph that drafts."""
    built = StateGraph(Inner)
    built.add_node("write", lambda state: {"text": SECRET})
    built.add_edge(START, "write")
    built.add_edge("write", END)
    return built.compile(checkpointer=checkpointer)


def writing(state: Any) -> str:
    get_stream_writer()(SECRET)
    return SECRET


async def awriting(state: Any) -> str:
    get_stream_writer()(SECRET)
    return SECRET


def as_messages(state: Any) -> Any:
    return {"messages": [HumanMessage(state["question"])]}


SHARED = InMemorySaver()
DRAFTS: dict[str, Any] = {
    "a graph": inner() | RunnableLambda(lambda state: state["text"]),
    "a graph with a checkpointer": inner(SHARED) | RunnableLambda(lambda state: state["text"]),
    "a graph called in a function": RunnableLambda(lambda state: inner().invoke(state)["text"]),
    "an agent": RunnableLambda(as_messages)
    | create_agent(ScriptedModel(reply=lambda messages: SECRET), [])
    | RunnableLambda(lambda state: state["messages"][-1]),
    "a writer": RunnableLambda(writing, afunc=awriting),
    "a model": RunnableLambda(lambda state: state["question"]) | ScriptedModel(reply=lambda messages: SECRET),
}


async def observed(built: Any, asked: Any, saver: InMemorySaver) -> str:
    """Everything that streams, events, states and checkpoints show."""
    seen: list[Any] = []
    for n, subgraphs in enumerate((False, True)):
        config: Any = {"configurable": {"thread_id": f"s{n}"}}
        seen += list(built.stream(asked, config, stream_mode=MODES, subgraphs=subgraphs))
        config = {"configurable": {"thread_id": f"a{n}"}}
        seen += [piece async for piece in built.astream(asked, config, stream_mode=MODES, subgraphs=subgraphs)]
        seen += list(built.get_state_history(config))
    for version in ("v1", "v2"):
        config = {"configurable": {"thread_id": version}}
        seen += [event async for event in built.astream_events(asked, config, version=version)]
    seen += [patch async for patch in built.astream_log(asked, {"configurable": {"thread_id": "log"}})]
    for kept in (saver, SHARED):
        seen += [kept.storage, kept.blobs, kept.writes]
    return repr(seen)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", sorted(DRAFTS))
@pytest.mark.parametrize("when", ["after", "both"])
def test_a_draft_of_a_graph_is_seen_nowhere(shape: str, when: Any) -> None:
    saver = InMemorySaver()
    enough = gate(lambda case: float(case.predicate.template.startswith("sufficient")))
    built = create_isr_graph(bm25(), DRAFTS[shape], enough, when=when, rounds=1, checkpointer=saver)
    assert SECRET not in asyncio.run(observed(built, ASKED, saver))
    released = create_isr_graph(bm25(), DRAFTS[shape], gate(), when=when, rounds=1, checkpointer=InMemorySaver())
    assert released.invoke(ASKED, {"configurable": {"thread_id": "r"}})["answer"] == SECRET


MIXED: dict[str, Any] = {
    "a refusal": AIMessage([{"type": "text", "text": "The Seine."}, {"type": "refusal", "refusal": SECRET}]),
    "another content type": AIMessage(
        [{"type": "text", "text": "The Seine."}, {"type": "output_text", "text": SECRET}]
    ),
    "reasoning": AIMessage([{"type": "reasoning", "reasoning": SECRET}, {"type": "text", "text": "The Seine."}]),
    "additional fields": AIMessage("The Seine.", additional_kwargs={"reasoning_content": SECRET}),
    "metadata": AIMessage("The Seine.", response_metadata={"logprobs": {"content": [{"token": SECRET}]}}),
    "calls of tools": AIMessage("The Seine.", tool_calls=[ToolCall(name="t", args={"x": SECRET}, id="1")]),
}


@pytest.mark.parametrize("shape", sorted(MIXED))
def test_only_the_text_that_was_judged_is_released(shape: str) -> None:
    judged: list[str] = []
    honest = gate(lambda case: judged.append(case.predicate.query) or 1.0)  # type: ignore[func-returns-value]
    state: Any = {**ASKED, "documents": rivers(2), "answer": MIXED[shape]}
    done = ISRGate(gate=honest).invoke(state)
    assert done["answer"].text == "The Seine." and SECRET not in repr(done)
    assert SECRET not in repr(judged)
    chain = ISRChain(draft=RunnableLambda(lambda state: MIXED[shape]), after=ISRGate(gate=honest))
    assert SECRET not in repr(chain.invoke(state))
    if shape != "calls of tools":
        reply = speaking(MIXED[shape])
        built = create_agent(ScriptedModel(reply=reply), [shelf()], middleware=[ISRMiddleware(honest)])
        done = built.invoke({"messages": [HumanMessage(QUESTION)]})
        assert done["messages"][-1].text == "The Seine." and SECRET not in repr(done)


def test_several_texts_are_judged_together() -> None:
    both = AIMessage([{"type": "text", "text": "The Seine. "}, {"type": "text", "text": SECRET}])
    doubting = gate(lambda case: float(SECRET not in case.predicate.query))
    done = ISRGate(gate=doubting).invoke({**ASKED, "documents": rivers(2), "answer": both})
    assert done["isr"]["action"] == "abstain" and SECRET not in repr(done)


@pytest.mark.parametrize("key", ["draft", "anwser", "output", "response"])
@pytest.mark.parametrize("draft", [SECRET, AIMessage(SECRET)])
def test_a_draft_under_a_key_that_the_gate_does_not_know_is_an_error(key: str, draft: Any) -> None:
    state = {**ASKED, "documents": rivers(2), key: draft}
    with pytest.raises(InvalidInputError, match="answer_key"):
        ISRGate(gate=gate()).invoke(state)
    with pytest.raises(InvalidInputError, match="answer_key"):
        ISRGate(gate=gate(), answer_key="reply").invoke({**ASKED, "documents": rivers(2), "answer": draft})
    assert ISRGate(gate=gate(), other_texts="pass").invoke(state)["isr"]["predicate"] == "sufficient/1"
    node = StateGraph(dict)
    node.add_node("gate", isr_node(gate()))
    node.add_edge(START, "gate")
    with pytest.raises(InvalidInputError, match="answer_key"):
        node.compile().invoke(state)


def shelf() -> Any:
    return create_retriever_tool(bm25(2), "search", "Find evidence.", response_format="content_and_artifact")


@tool
def clock(zone: str) -> str:
    """Say the time."""
    return "noon"


def speaking(last: Any, others: int = 0) -> Any:
    """Searches first, calls another tool so many times, and then drafts."""
    turn = [0]

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        turn[0] += 1
        if turn[0] == 1:
            return searching("rivers")
        if turn[0] <= 1 + others:
            return AIMessage("", tool_calls=[ToolCall(name="clock", args={"zone": "x"}, id=f"c{turn[0]}")])
        return last

    return reply


@pytest.mark.parametrize("when", ["before", "after", "both"])
@pytest.mark.parametrize("keep", [2, 6, 20])
@pytest.mark.parametrize("without", ["pass", "abstain"])
def test_evidence_that_was_sought_counts_after_a_summary(when: Any, keep: int, without: Any) -> None:
    model = ScriptedModel(reply=lambda messages: "A summary.")
    short = SummarizationMiddleware(model, trigger=("messages", keep + 4), keep=("messages", keep))
    gated = ISRMiddleware(gate(99), tools=["search"], when=when, rounds=2, without_evidence=without)
    built = create_agent(
        ScriptedModel(reply=speaking(SECRET, others=keep)), [shelf(), clock], middleware=[gated, short]
    )
    done = built.invoke({"messages": [HumanMessage(QUESTION)]}, {"recursion_limit": 200})
    assert SECRET not in repr(done) and done["isr"][-1]["action"] == "abstain"
    assert done["isr"][-1]["reason"] != "no_evidence"


def test_a_summarised_question_is_still_the_one_that_is_judged() -> None:
    judged: list[str] = []
    model = ScriptedModel(reply=lambda messages: "A summary.")
    short = SummarizationMiddleware(model, trigger=("messages", 6), keep=("messages", 2))
    noting = gate(lambda case: judged.append(case.predicate.query) or 1.0)  # type: ignore[func-returns-value]
    gated = ISRMiddleware(noting, tools=["search"])
    built = create_agent(
        ScriptedModel(reply=speaking("The Seine.", others=6)), [shelf(), clock], middleware=[gated, short]
    )
    done = built.invoke({"messages": [HumanMessage(QUESTION)]}, {"recursion_limit": 200})
    assert done["messages"][-1].text == "The Seine." and judged[-1].startswith(QUESTION)


@pytest.mark.parametrize("without", ["pass", "abstain"])
def test_a_tool_that_answers_directly_is_refused(without: Any) -> None:
    @tool(return_direct=True)
    def expert(question: str) -> str:
        """Ask an expert."""
        return SECRET

    @tool
    def leader(question: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Ask a leader."""
        return Command(goto=END, update={"messages": [ToolMessage(SECRET, tool_call_id=tool_call_id)]})

    for own in (expert, leader):
        call = AIMessage("", tool_calls=[ToolCall(name=own.name, args={"question": "x"}, id="e")])
        gated = ISRMiddleware(gate(), without_evidence=without)
        built = create_agent(ScriptedModel(reply=lambda messages, call=call: call), [own], middleware=[gated])
        with pytest.raises(ConfigurationError, match=f"{own.name}.*make"):
            built.invoke({"messages": [HumanMessage(QUESTION)]})


def test_without_evidence_an_agent_abstains_by_default() -> None:
    def say(**settings: Any) -> Any:
        gated = ISRMiddleware(gate(), tools=["search"], **settings)
        built = create_agent(ScriptedModel(reply=lambda messages: SECRET), [shelf()], middleware=[gated])
        return built.invoke({"messages": [HumanMessage(QUESTION)]})

    assert SECRET not in repr(say())
    assert say(without_evidence="pass")["messages"][-1].text == SECRET


@pytest.mark.parametrize("failure", [RuntimeError, TimeoutError, asyncio.CancelledError])
def test_a_gate_that_fails_leaves_no_draft_behind(failure: type[BaseException]) -> None:
    def dead(case: Case) -> float:
        raise failure("the machine is gone")

    saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
    graph = create_isr_graph(bm25(), DRAFTS["a model"], gate(dead), when="after", rounds=1, checkpointer=saver)
    gated = ISRMiddleware(gate(dead))
    agent = create_agent(ScriptedModel(reply=speaking(SECRET)), [shelf()], middleware=[gated], checkpointer=saver)
    for built, asked in ((graph, ASKED), (agent, {"messages": [HumanMessage(QUESTION)]})):
        seen: list[Any] = []
        with pytest.raises(BaseException, match=r"the machine is gone|[Cc]ancelled"):
            for piece in built.stream(asked, config, stream_mode=MODES, subgraphs=True):
                seen.append(piece)
        assert SECRET not in repr((seen, saver.storage, saver.blobs, saver.writes))


def test_settings_that_can_never_answer_are_refused_when_the_object_is_made() -> None:
    class Low:
        """A calibration that reaches little."""

        needs_scores = False

        def estimate(self, case: Case) -> Any:
            raise AssertionError("nothing is decided here")

        def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
            return 0.99 if predicate is None else 0.7

    from isr_rag import ISRGate as CoreGate
    from isr_rag.testing import FixedScorer

    low = CoreGate(scorer=FixedScorer([0.9]), reference=Low())
    draft = RunnableLambda(lambda state: SECRET)
    for make in (
        lambda: ISRRetriever(retriever=bm25(), gate=low, rounds=1),
        lambda: ISRCompressor(gate=low),
        lambda: ISRChain(draft=draft, before=ISRGate(gate=low)),
        lambda: ISRChain(draft=draft, after=ISRGate(gate=low)),
        lambda: ISRMiddleware(low),
        lambda: create_isr_graph(bm25(), draft, low, when="after", rounds=1),
    ):
        with pytest.raises((ConfigurationError, ValidationError), match=r"h_star >= 0.3"):
            make()
