"""The middleware in real agents: what the model is told, what the caller sees, what the state keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from canary import Watch
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, TodoListMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from lc_fakes import Runs, ScriptedModel, gate, rivers, searching
from pydantic import BaseModel

from isr_rag import Decision
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError
from isr_rag.references import Case
from langchain_isr import ISRAbstained, ISRGate, ISRMiddleware

SECRET = "draft-red draft-green"
QUESTION = "Which river flows through Paris?"
ASKED: Any = {"messages": [HumanMessage(QUESTION)]}


@tool(response_format="content_and_artifact")
def search(query: str) -> tuple[str, list[Document]]:
    """Find evidence."""
    count = int(query) if query.isdigit() else 2
    return "\n".join(document.page_content for document in rivers(count)), rivers(count)


def diligent(messages: list[BaseMessage]) -> AIMessage | str:
    """Searches whenever a person speaks, and drafts after a search; talks beside its tool calls."""
    if isinstance(messages[-1], ToolMessage):
        return SECRET
    number = sum(isinstance(message, ToolMessage) for message in messages)
    return searching(str(2 + number), words="draft-aside", number=number)


def agent(middleware: ISRMiddleware, reply: Callable[..., Any] = diligent, tools: Any = None, **more: Any) -> Any:
    given = [search] if tools is None else tools
    return create_agent(ScriptedModel(reply=reply), given, middleware=[middleware], **more)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_after_an_abstention_no_stream_of_any_mode_has_a_word_of_a_draft(when: Any) -> None:
    watch = Watch()
    watch.run(agent(ISRMiddleware(gate(99), when=when, rounds=2)), ASKED)
    assert "draft-" not in watch.text()
    assert "I cannot answer this" in watch.text()


def test_an_answer_comes_with_its_decisions_and_evidence() -> None:
    state = agent(ISRMiddleware(gate(), when="both", rounds=2)).invoke(ASKED)
    last = state["messages"][-1]
    assert str(last.text) == SECRET
    assert [decision["predicate"] for decision in state["isr"]] == ["sufficient/1", "supported-answer/1"]
    assert last.response_metadata["isr"] == state["isr"][-1]
    assert state["isr_documents"] == rivers(2)
    assert Decision.from_dict(state["isr"][-1]).h_star == pytest.approx(0.1)


def test_an_abstention_ends_the_run_without_another_call_of_the_model() -> None:
    calls: list[int] = []

    def counting(messages: list[BaseMessage]) -> AIMessage | str:
        calls.append(len(messages))
        return diligent(messages)

    state = agent(ISRMiddleware(gate(99), when="before", rounds=3, message="no idea"), counting).invoke(ASKED)
    assert len(calls) == 3  # one search a round, and no draft
    assert str(state["messages"][-1].text) == "no idea"
    assert [decision["action"] for decision in state["isr"]] == ["acquire", "acquire", "abstain"]
    assert state["messages"][-1].response_metadata["isr"] == state["isr"][-1]


def test_insufficient_evidence_sends_the_model_searching_and_the_state_keeps_no_trace_of_it() -> None:
    state = agent(ISRMiddleware(gate(3), rounds=2, when="both")).invoke(ASKED)
    assert str(state["messages"][-1].text) == SECRET
    assert len(state["isr_documents"]) == 3
    assert sum(isinstance(message, HumanMessage) for message in state["messages"]) == 1
    assert [
        message.tool_calls[0]["args"]["query"] for message in state["messages"] if getattr(message, "tool_calls", 0)
    ]


def test_an_unsupported_draft_sends_the_model_searching_and_is_seen_nowhere() -> None:
    built = agent(ISRMiddleware(gate(3), when="after", rounds=2))
    state = built.invoke(ASKED)
    assert [decision["action"] for decision in state["isr"]] == ["acquire", "answer"]
    texts = [str(message.text) for message in state["messages"] if isinstance(message, AIMessage)]
    assert texts == ["", "", SECRET]


def test_a_model_that_answers_although_it_was_told_to_search_is_not_believed() -> None:
    def stubborn(messages: list[BaseMessage]) -> AIMessage | str:
        return SECRET if any(isinstance(message, ToolMessage) for message in messages) else searching("2")

    for when in ("before", "after", "both"):
        state = agent(ISRMiddleware(gate(99), when=when, rounds=5), stubborn).invoke(ASKED)
        assert "draft-" not in repr(state)
        assert state["isr"][-1]["action"] == "abstain"


def test_an_answer_from_no_evidence_is_an_abstention() -> None:
    for when in ("before", "after", "both"):
        state = agent(ISRMiddleware(gate(), when=when, rounds=2), lambda messages: SECRET).invoke(ASKED)
        assert "draft-" not in repr(state)
        assert state["isr"][-1]["reason"] == "no_evidence"


def test_an_answer_from_the_evidence_of_an_earlier_turn_is_released_if_that_suffices() -> None:
    def once(messages: list[BaseMessage]) -> AIMessage | str:
        return SECRET if any(isinstance(message, ToolMessage) for message in messages) else searching("2")

    for when, made in (("before", 1), ("after", 1), ("both", 2)):
        for enough in (1, 99):
            gated = ISRMiddleware(gate(enough), when=when, condense=lambda messages: "Which river flows through Paris?")
            built = agent(gated, once, checkpointer=InMemorySaver())
            config: Any = {"configurable": {"thread_id": "1"}}
            built.invoke(ASKED, config)
            state = built.invoke(ASKED, config)
            last = state["messages"][-1]
            assert (str(last.text) == SECRET) == (enough == 1) == (state["isr"][-1]["action"] == "answer")
            assert last.response_metadata["isr"] == state["isr"][-1]
            assert len(state["isr"]) == (made if enough == 1 else 1)


@pytest.mark.parametrize("when", ["after", "both"])
@pytest.mark.parametrize(("rounds", "made"), [(1, ["abstain"]), (2, ["acquire", "answer"])])
def test_a_draft_on_the_evidence_of_an_earlier_turn_takes_a_round(when: Any, rounds: int, made: list[str]) -> None:
    """Otherwise drafts would be judged once more than h* is split over."""
    drafts: list[Case] = []

    def judge(case: Case) -> float:
        if not case.predicate.template.startswith("supported"):
            return 1.0
        drafts.append(case)
        return float(len(drafts) != 2)  # the second turn's first

    def lazy(messages: list[BaseMessage]) -> AIMessage | str:
        told = str(messages[-1].text).startswith("The evidence found so far does not support")
        searched = any(isinstance(message, ToolMessage) for message in messages)
        return SECRET if searched and not told else searching("3", number=len(messages))

    gated = ISRMiddleware(gate(judge), when=when, rounds=rounds, condense=lambda messages: QUESTION)
    built, config = agent(gated, lazy, checkpointer=InMemorySaver()), Watch().config()
    built.invoke(ASKED, config)
    decisions = built.invoke(ASKED, config)["isr"]
    assert [one["action"] for one in decisions if one["predicate"].startswith("supported")] == made


def test_a_model_that_never_stops_searching_is_stopped() -> None:
    def endless(messages: list[BaseMessage]) -> AIMessage:
        return searching(str(len(messages)), number=len(messages))

    state = agent(ISRMiddleware(gate(), rounds=3, when="both"), endless).invoke(ASKED)
    assert sum(isinstance(message, ToolMessage) for message in state["messages"]) == 3
    assert "after the last of 3 rounds" in state["isr"][-1]["detail"]
    assert state["messages"][-1].response_metadata["isr"] == state["isr"][-1]
    assert state["isr"][-1]["action"] == "abstain"


def test_parallel_searches_are_one_round() -> None:
    def twice(messages: list[BaseMessage]) -> AIMessage | str:
        if isinstance(messages[-1], ToolMessage):
            return SECRET
        calls = [ToolCall(name="search", args={"query": str(n)}, id=f"call-{n}") for n in (1, 3)]
        return AIMessage("", tool_calls=calls)

    state = agent(ISRMiddleware(gate(3), rounds=1, when="both"), twice).invoke(ASKED)
    assert str(state["messages"][-1].text) == SECRET
    assert state["isr"][0]["chunks"] == 4  # the equal document of two searches in one round survives


def test_counters_are_fresh_on_every_turn_of_a_thread() -> None:
    built = agent(ISRMiddleware(gate(99), when="before", rounds=2), checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    first, second = built.invoke(ASKED, config), built.invoke(ASKED, config)
    assert len(first["isr"]) == len(second["isr"]) == 2
    assert [decision["chunks"] for decision in first["isr"]] == [2, 3]
    assert [decision["chunks"] for decision in second["isr"]] == [4, 5]  # its own searches, and none of the first's


def test_a_long_thread_is_judged_on_as_many_documents_as_are_calibrated() -> None:
    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, list[Document]]:
        """Find evidence."""
        found = [*rivers(1), *(Document(f"River {query} has {i} bridges.") for i in range(3))]
        return "\n".join(one.page_content for one in found), found

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        turn = sum(isinstance(message, HumanMessage) for message in messages)
        return SECRET if isinstance(messages[-1], ToolMessage) else searching(str(turn), number=turn)

    gated = ISRMiddleware(gate(), condense=lambda messages: QUESTION)
    built, config = agent(gated, reply, [search], checkpointer=InMemorySaver()), Watch().config()
    states = [built.invoke({"messages": [HumanMessage(QUESTION)]}, config) for _ in range(9)]
    assert [state["isr"][-1]["chunks"] for state in states] == [4, 7, 10, 13, 16, 19, 20, 20, 20]
    texts = [document.page_content for document in states[-1]["isr_documents"]]
    assert texts[0] == "River 3 has 2 bridges." and texts[16] == rivers(1)[0].page_content
    assert texts[17:] == [f"River 9 has {i} bridges." for i in range(3)]


def test_only_named_tools_find_evidence() -> None:
    @tool
    def clock() -> str:
        """Say the time."""
        return "noon"

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        done = [message.name for message in messages if isinstance(message, ToolMessage)]
        if not done:
            return AIMessage("", tool_calls=[ToolCall(name="clock", args={}, id="t")])
        return searching("2") if done == ["clock"] else SECRET

    state = agent(ISRMiddleware(gate(), rounds=1, tools=["search"], when="both"), reply, tools=[search, clock]).invoke(
        ASKED
    )
    assert str(state["messages"][-1].text) == SECRET
    assert state["isr_documents"] == rivers(2)


@pytest.mark.parametrize("when", ["before", "after", "both"])
@pytest.mark.parametrize("came", ["in the run", "along"])
def test_the_plans_of_an_agent_support_no_answer_of_its_own(when: Any, came: str) -> None:
    todos = [{"content": "Say that the Garonne flows through Paris.", "status": "in_progress"}]
    plan = AIMessage("", tool_calls=[ToolCall(name="write_todos", args={"todos": todos}, id="p")])
    done = ToolMessage(f"Updated todo list to {todos}", name="write_todos", tool_call_id="p")

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        return SECRET if any(isinstance(message, ToolMessage) for message in messages) else plan

    middleware: Any = [ISRMiddleware(gate(1), when=when), TodoListMiddleware()]
    asked = ASKED["messages"] if came == "in the run" else [*ASKED["messages"], plan, done]
    state = create_agent(ScriptedModel(reply=reply), [search], middleware=middleware).invoke({"messages": asked})
    assert state["isr_documents"] == [] and state["isr"][-1]["reason"] == "no_evidence"
    assert "draft-" not in repr(state)


@pytest.mark.parametrize(
    ("said", "rounds", "end"),
    [("respond", 1, "no_evidence"), ("reject", 1, "insufficient_information"), ("reject", 2, "sufficient")],
)
def test_what_a_person_says_in_a_tools_place_is_no_evidence_and_takes_a_round(said: str, rounds: int, end: str) -> None:
    def again(messages: list[BaseMessage]) -> AIMessage | str:
        last = messages[-1]
        return (
            SECRET if isinstance(last, ToolMessage) and last.status != "error" else searching("2", number=len(messages))
        )

    asking: Any = HumanInTheLoopMiddleware(
        interrupt_on={"search": {"allowed_decisions": ["approve", "reject", "respond"]}}
    )
    middleware: Any = [ISRMiddleware(gate(), rounds=rounds), asking]
    built = create_agent(ScriptedModel(reply=again), [search], middleware=middleware, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    built.invoke(ASKED, config)
    state = built.invoke(Command(resume={"decisions": [{"type": said, "message": "The Seine."}]}), config)
    if "__interrupt__" in state:
        state = built.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert state["isr"][-1]["reason"] == end


def test_a_tool_without_documents_counts_as_one_chunk_of_text() -> None:
    class Three(BaseRetriever):
        def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
            return rivers(3)

    plain = create_retriever_tool(Three(), "search", "Find evidence.")
    state = agent(ISRMiddleware(gate(1), when="both", rounds=2), tools=[plain]).invoke(ASKED)
    assert state["isr"][0]["chunks"] == 1
    listed = create_retriever_tool(Three(), "search", "Find evidence.", response_format="content_and_artifact")
    assert agent(ISRMiddleware(gate(1), when="both", rounds=2), tools=[listed]).invoke(ASKED)["isr"][0]["chunks"] == 3


class River(BaseModel):
    """A structured answer."""

    name: str


def test_a_structured_answer_is_released_or_withheld_as_a_whole() -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        if not any(isinstance(message, ToolMessage) for message in messages):
            return searching("2")
        return AIMessage("", tool_calls=[ToolCall(name="River", args={"name": "draft-Seine"}, id="r")])

    released = agent(ISRMiddleware(gate(), when="both", rounds=2), reply, response_format=ToolStrategy(River)).invoke(
        ASKED
    )
    assert released["structured_response"] == River(name="draft-Seine")
    withheld = agent(ISRMiddleware(gate(99), when="after", rounds=1), reply, response_format=ToolStrategy(River))
    state = withheld.invoke(ASKED)
    assert state.get("structured_response") is None
    assert "draft-" not in repr(state)


def test_malformed_structured_output_is_asked_for_again_out_of_sight() -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        tools = [message for message in messages if isinstance(message, ToolMessage)]
        if not tools:
            return searching("2")
        args = {"name": "Seine"} if len(tools) > 1 else {"nom": "draft-Seine"}
        return AIMessage("", tool_calls=[ToolCall(name="River", args=args, id=f"r{len(tools)}")])

    built = agent(ISRMiddleware(gate(), when="both", rounds=2), reply, response_format=ToolStrategy(River))
    state = built.invoke(ASKED)
    assert state["structured_response"] == River(name="Seine")
    assert "draft-" not in repr(state)


def test_the_policy_can_be_to_raise() -> None:
    with pytest.raises(ISRAbstained) as caught:
        agent(ISRMiddleware(gate(99), on_abstain="raise", when="both", rounds=2)).invoke(ASKED)
    assert caught.value.documents == rivers(3)


def test_agents_of_one_thread_are_told_apart_by_their_names_whatever_they_say() -> None:
    for gated in (ISRMiddleware(gate()), ISRMiddleware(gate(99)), ISRMiddleware(gate(), audit=True)):
        assert agent(gated, name="clerk").invoke(ASKED)["messages"][-1].name == "clerk"


def test_each_decision_is_streamed_as_a_custom_event() -> None:
    built = agent(ISRMiddleware(gate(), when="both", rounds=2))
    custom = list(built.stream(ASKED, stream_mode="custom"))
    assert [piece["isr"]["predicate"] for piece in custom] == ["sufficient/1", "supported-answer/1"]

    async def events() -> list[Any]:
        return [e async for e in built.astream_events(ASKED, version="v2") if e["event"] == "on_custom_event"]

    assert [event["data"]["predicate"] for event in asyncio.run(events())] == ["sufficient/1", "supported-answer/1"]


def test_the_run_tree_holds_every_call_of_the_model_at_its_place() -> None:
    runs = Runs()
    agent(ISRMiddleware(gate(99), when="both", rounds=2)).invoke(ASKED, {"callbacks": [runs]})
    (root,) = runs.roots
    nodes = [run for run in root.child_runs if run.name == "model"]
    called = [[child.name for child in node.child_runs if child.run_type == "llm"] for node in nodes]
    assert called == [["ScriptedModel"], ["ScriptedModel"], []]  # two searches, and an abstention without a call
    assert all(run.error is None for run in root.child_runs)


def test_a_gate_before_the_answer_keeps_its_tokens_streaming() -> None:
    built = agent(ISRMiddleware(gate(), when="before", rounds=2))
    pieces = [str(piece.text) for piece, _ in built.stream(ASKED, stream_mode="messages") if piece.type != "tool"]
    assert [piece.strip() for piece in pieces if "draft-" in piece] == SECRET.split()


def test_bad_settings_and_empty_conversations_say_so() -> None:
    with pytest.raises(ConfigurationError, match="rounds"):
        ISRMiddleware(gate(), rounds=0, when="both")
    with pytest.raises(ConfigurationError, match=r"tools=\['search'\]"):
        ISRMiddleware(gate(), tools="search")
    with pytest.raises(ConfigurationError, match="when"):
        ISRMiddleware(gate(), when="later", rounds=2)  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeError, match=r"langchain_isr\.gate\.ISRGate"):
        ISRMiddleware(ISRGate(gate=gate()))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="asked nothing"):
        agent(ISRMiddleware(gate(), when="both", rounds=2)).invoke({"messages": []})
