"""The LangGraph loop: bounded, checkpointed, resumed, and silent about undecided drafts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from lc_fakes import ScriptedModel, gate, rivers
from pydantic import BaseModel

from isr_rag import Decision
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError, RetrieverFailedError
from langchain_isr import create_isr_graph, isr_node

SECRET = "draft-red draft-green"
ASKED: Any = {"question": "Which river flows through Paris?"}


def retriever(round_number: int) -> Any:
    return RunnableLambda(lambda query: rivers(2 * (round_number + 1)))


def draft(calls: list[str] | None = None) -> Any:
    def write(messages: Any) -> str:
        if calls is not None:
            calls.append(SECRET)
        return SECRET

    return RunnableLambda(lambda state: state["question"]) | ScriptedModel(reply=write)


def graph(enough: int, **more: Any) -> Any:
    return create_isr_graph(retriever, draft(), gate(enough), **more)


def test_it_searches_deeper_until_the_evidence_suffices_and_then_drafts_once() -> None:
    calls: list[str] = []
    state = create_isr_graph(retriever, draft(calls), gate(4), when="before", rounds=3).invoke(ASKED)
    assert (state["answer"], state["round"], state["stop"], len(calls)) == (SECRET, 2, "answered", 1)
    assert state["documents"] == rivers(4)
    assert [decision["action"] for decision in state["decisions"]] == ["acquire", "answer"]
    assert Decision.from_dict(state["isr"]).h_star == pytest.approx(0.2 / 3)


def test_a_draft_that_is_not_supported_leads_to_more_evidence_and_a_new_draft() -> None:
    calls: list[str] = []
    state = create_isr_graph(retriever, draft(calls), gate(4), when="after", rounds=3).invoke(ASKED)
    assert (state["answer"], state["round"], len(calls)) == (SECRET, 2, 2)


@pytest.mark.parametrize("when", ["after", "both"])
def test_a_model_that_drafts_nothing_is_an_abstention_and_no_error(when: Any) -> None:
    built = create_isr_graph(retriever, RunnableLambda(lambda state: ""), gate(), when=when, rounds=2)
    for state in (built.invoke(ASKED), asyncio.run(built.ainvoke(ASKED))):
        assert state["answer"].startswith("I cannot answer") and state["isr"]["action"] == "abstain"
        assert (state["isr"]["detail"], state["round"]) == ("the model drafted no text", 1)


@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_the_rounds_are_bounded_by_the_graph_itself(when: Any) -> None:
    state = graph(99, when=when, rounds=4).invoke(ASKED)
    assert (state["round"], state["stop"]) == (4, "rounds_spent")
    assert state["isr"]["action"] == "abstain"


def test_a_round_that_brings_nothing_new_is_the_last() -> None:
    asked: list[str] = []

    def same(query: str) -> list[Document]:
        asked.append(query)
        return rivers(2)

    state = create_isr_graph(
        RunnableLambda(same),
        draft(),
        gate(99),
        rounds=5,
        rewrite=lambda question, round_number, decision: f"{question} {round_number}",
    ).invoke(ASKED)
    assert (state["stop"], len(asked)) == ("nothing_new", 2)
    assert asked[1] == f"{ASKED['question']} 1"


def test_a_second_run_on_a_thread_starts_afresh() -> None:
    built = graph(4, rounds=3, when="before", checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    first, second = built.invoke(ASKED, config), built.invoke({"question": "Where does the Loire end?"}, config)
    assert (second["round"], len(second["decisions"])) == (first["round"], len(first["decisions"]))
    assert built.get_state(config).values["question"] == "Where does the Loire end?"


@pytest.mark.parametrize("node", ["gate", "draft", "retrieve"])
def test_a_run_stopped_at_any_step_goes_on_from_a_file_in_another_process_graph(node: str, tmp_path: Path) -> None:
    config: Any = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "state.db")) as saver:
        stopped = graph(4, rounds=3, checkpointer=saver)
        stopped.invoke(ASKED, config, interrupt_before=[node])
        assert stopped.get_state(config).next == (node,)
    with SqliteSaver.from_conn_string(str(tmp_path / "state.db")) as saver:
        state = graph(4, rounds=3, checkpointer=saver).invoke(None, config)
    whole = graph(4, rounds=3).invoke(ASKED)
    assert [d["q"] for d in state["decisions"]] == [d["q"] for d in whole["decisions"]]
    assert (state["answer"], state["documents"], state["round"]) == (
        whole["answer"],
        whole["documents"],
        whole["round"],
    )


def test_a_retriever_that_fails_follows_the_policy() -> None:
    def dead(query: str) -> list[Document]:
        raise OSError("the disk is gone")

    with pytest.raises(RetrieverFailedError, match="the disk is gone"):
        create_isr_graph(RunnableLambda(dead), draft(), gate()).invoke(ASKED)
    state = create_isr_graph(RunnableLambda(dead), draft(), gate(on_error="abstain")).invoke(ASKED)
    assert (state["isr"]["reason"], state["stop"]) == ("retriever_failed", "failed")
    assert "the disk is gone" in state["isr"]["detail"]


def test_a_retriever_may_ask_a_person_first() -> None:
    def ask(query: str) -> list[Document]:
        return [Document(f"{interrupt('may I?')} says the Seine flows through Paris.")]

    built = create_isr_graph(RunnableLambda(ask), draft(), gate(), checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    assert built.invoke(ASKED, config)["__interrupt__"]
    assert built.invoke(Command(resume="A person"), config)["answer"] == SECRET


def test_its_picture_shows_the_loop() -> None:
    drawn = graph(1).get_graph().draw_mermaid()
    assert "gate -. &nbsp;acquire&nbsp; .-> retrieve" in drawn
    assert "abstain" in drawn


def test_each_decision_is_streamed() -> None:
    custom = list(graph(4, rounds=2).stream(ASKED, stream_mode="custom"))
    assert [piece["isr"]["action"] for piece in custom] == ["acquire", "answer", "answer"]


class Own(TypedDict, total=False):
    """The state of somebody's own graph."""

    question: str
    documents: list[Document]
    answer: str
    round: int
    isr: dict[str, Any]
    decisions: list[dict[str, Any]]


def test_the_node_fits_a_graph_of_ones_own() -> None:
    def more(state: Own) -> Own:
        done = state.get("round", 0)
        return {"documents": rivers(2 * done + 1), "round": done + 1}

    built = StateGraph(Own)
    built.add_node("retrieve", more)
    built.add_node("gate", isr_node(gate(3), rounds=2))
    built.add_edge(START, "retrieve")
    built.add_edge("retrieve", "gate")
    routes = {"answer": END, "abstain": END, "acquire": "retrieve"}
    built.add_conditional_edges("gate", lambda state: state["isr"]["action"], routes)
    state = built.compile().invoke({"question": "Which river?"})
    assert [decision["action"] for decision in state["decisions"]] == ["acquire", "answer"]
    once = StateGraph(Own)
    once.add_node("gate", isr_node(gate(99)))
    once.add_edge(START, "gate")
    state = asyncio.run(once.compile().ainvoke({"question": "Which river?", "documents": rivers(1), "answer": "Seine"}))
    assert (state["isr"]["action"], state["isr"]["predicate"]) == ("abstain", "supported-answer/1")


class Pydantic(BaseModel):
    """As `Own`."""

    question: str
    documents: list[Any] = []
    answer: str | None = None
    isr: dict[str, Any] | None = None
    decisions: list[dict[str, Any]] | None = None


@dataclass
class Plain:
    """As `Own`."""

    question: str
    documents: list[Any] = field(default_factory=list)
    isr: dict[str, Any] | None = None
    decisions: list[dict[str, Any]] = field(default_factory=list)


class Tutorial(TypedDict, total=False):
    question: str
    context: list[Any]
    generation: str
    isr: dict[str, Any]


def test_a_state_with_other_names_is_an_error_that_says_what_to_put_before_the_node() -> None:
    asked: Any = {"question": "Which river?", "context": rivers(2), "generation": "The Seine."}

    def built(node: Any) -> Any:
        graph = StateGraph(Tutorial)
        graph.add_node("gate", node)
        graph.add_edge(START, "gate")
        return graph.compile()

    for state in (asked, {"question": "Which river?", "context": []}):
        with pytest.raises(InvalidInputError, match=r"put a step before the node, such as RunnableLambda\(") as refused:
            built(isr_node(gate(2))).invoke(state)
        assert "answer_key" not in str(refused.value) and "set the keys" not in str(refused.value)
    step = str(refused.value).partition("such as ")[2]
    made = eval(step, {"RunnableLambda": RunnableLambda, "isr_node": lambda: isr_node(gate(2))})
    done = built(made).invoke(asked)
    assert (done["isr"]["action"], done["isr"]["predicate"]) == ("answer", "supported-answer/1")
    assert done["generation"] == "The Seine."


@pytest.mark.parametrize("schema", [Pydantic, Plain])
def test_the_node_fits_states_that_are_objects(schema: Any) -> None:
    once = StateGraph(schema)
    once.add_node("gate", isr_node(gate(2)))
    once.add_edge(START, "gate")
    for found, action in ((rivers(2), "answer"), (rivers(1), "abstain")):
        asked: Any = {"question": "Which river?", "documents": found}
        for state in (once.compile().invoke(asked), asyncio.run(once.compile().ainvoke(asked))):
            assert state["isr"]["action"] == action == state["decisions"][0]["action"]


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="rounds"):
        graph(1, rounds=0)
    with pytest.raises(ConfigurationError, match="when"):
        graph(1, when="later")


def test_functions_in_the_place_of_runnables_are_refused_with_what_to_do() -> None:
    draft: Any = RunnableLambda(lambda state: "The Seine")
    with pytest.raises(InvalidTypeError, match=r"draft must be .*, not function: RunnableLambda"):
        create_isr_graph(retriever, lambda state: "The Seine", gate())  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeError, match=r"retriever must be .*, not str"):
        create_isr_graph("index", draft, gate())  # type: ignore[arg-type]
    searches: Any = lambda query: rivers(2)  # noqa: E731
    with pytest.raises(InvalidTypeError, match=r"the number of the round .*, not list: RunnableLambda"):
        create_isr_graph(searches, draft, gate()).invoke(ASKED)


def test_the_node_can_be_called_outside_of_a_graph() -> None:
    state = {**ASKED, "documents": rivers(2)}
    for decided in (isr_node(gate(2)).invoke(state), asyncio.run(isr_node(gate(2)).ainvoke(state))):
        assert decided["isr"]["action"] == "answer"
