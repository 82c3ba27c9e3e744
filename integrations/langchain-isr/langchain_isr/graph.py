"""The gate as a LangGraph node, and a whole graph around it: retrieve, gate, draft, release, with a bounded loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, cast

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel
from typing_extensions import TypedDict

from isr_rag import Decision, ISRGate as CoreGate
from isr_rag.core.settings import check_count
from isr_rag.errors import ConfigurationError, InvalidTypeError
from isr_rag.gate.acquisition import Stop, gate_of_round
from isr_rag.gate.adapters import (
    MESSAGE,
    TEMPLATES,
    Place,
    core_gate,
    gate_for,
    not_alone,
)
from langchain_isr.common import (
    DOCUMENT_PROMPT,
    EVENT,
    KEY,
    OTHER_NAMES,
    DocumentPrompt,
    State,
    gathered,
    handed,
    item_of,
    question_of,
    refuse_unknown_drafts,
    retriever_failed,
    settled,
    text_of,
)
from langchain_isr.gate import adecided, decided, gate_at, no_text, require_some_answer
from langchain_isr.quiet import RUNTIME, quiet_config, quietly, refuse_telling
from langchain_isr.retriever import RetrieverLike, Rewrite

When = Literal["before", "after", "both"]


class ISRState(TypedDict, total=False):
    """The state of the graph: strings, plain numbers and documents, which every checkpointer can keep.

    Attributes:
        question: what is asked; the graph's input.
        documents: the evidence, in the order it was found.
        round: rounds of retrieval done in this run.
        isr: the last decision, as plain data.
        decisions: every decision of this run.
        answer: the released answer, or the message after an abstention; never an undecided draft.
        stop: why the run ended: `answered`, `nothing_new`, `rounds_spent` or `failed`; None while it goes on.
    """

    question: str
    documents: list[Document]
    round: int
    isr: dict[str, Any] | None
    decisions: list[dict[str, Any]]
    answer: str | None
    stop: Stop | None


_KNOWN = ("question", "documents", "round", KEY, "decisions", "stop", "answer")
"""Keys of `ISRState`."""


class Question(TypedDict):
    """The graph's input."""

    question: str


def isr_node(
    gate: CoreGate | None = None,
    *,
    rounds: int = 1,
    document_prompt: DocumentPrompt = DOCUMENT_PROMPT,
    other_texts: Literal["refuse", "pass"] = "refuse",
) -> Runnable[Any, State]:
    """A node that decides about `question`, `documents` and, where there is one, `answer` in a graph's state.

    It writes `isr` (the decision as plain data) and `decisions`, which has it last and needs no reducer. Route on
    `state["isr"]["action"]`: `"answer"`, `"abstain"`, or `"acquire"` while `state["round"]`, which your
    retrieval counts from 1, is below `rounds`. The node withholds nothing: a draft that is in the state before it
    decides is visible in the graph's streams and checkpoints; `create_isr_graph` keeps it out of them. With a
    checkpointer the answer of an earlier run counts as a draft: begin a run with `{"question": ..., "answer": None}`.
    Where a state has other names, put a step before the node:
    `RunnableLambda(lambda state: {"question": ..., "documents": state["context"], "answer": ...}) | isr_node()`.

    Args:
        gate: the gate of `isr_rag` that decides. By default the embedded model with its calibration, at h* = 0.2
            without an answer and at 0.05 with one. Its target hallucination rate is split over the rounds, unless its
            calibration covers whole loops.
        rounds: rounds of retrieval at most, >= 1.
        document_prompt: how your graph renders a document for its model; the gate judges exactly that text.
        other_texts: `"refuse"` a state that holds what may be a draft under a key that the node does not know, as
            `ISRGate` says; or let such texts `"pass"`.

    Raises:
        ConfigurationError: if rounds < 1, or no evidence could ever lead such a loop to an answer, neither before
            drafting nor after it; from a call, if none could where it is asked.
        InvalidTypeError: if `gate` is not one of `isr_rag`.
    """
    own = None if gate is None else core_gate(gate)
    check_count("rounds", rounds, 1)
    require_some_answer(own, rounds=rounds)  # the embedded model is loaded here, and not by the first request

    def core(state: State) -> CoreGate:
        place: Place = "before" if state.get("answer") is None else "after"
        if other_texts == "refuse":
            refuse_unknown_drafts(state, _KNOWN, "answer", OTHER_NAMES)
        return gate_of_round(gate_at(place, own), rounds, TEMPLATES[place])

    return _gate_node(core, rounds, document_prompt)


def _gate_node(
    core: Callable[[State], CoreGate], rounds: int, document_prompt: DocumentPrompt
) -> RunnableLambda[Any, State]:
    def plain(state: Any) -> State:
        named = isinstance(state, (Mapping, BaseModel))
        return dict(state) if named else {one.name: getattr(state, one.name) for one in fields(state)}

    def item(state: State) -> dict[str, Any]:
        return item_of(state, can_acquire=int(state.get("round", rounds)) < rounds, document_prompt=document_prompt)

    def decide(given: Any, config: RunnableConfig) -> State:
        state = plain(given)
        return _noted(state, decided(core(state), item(state)), config)

    async def adecide(given: Any, config: RunnableConfig) -> State:
        state = plain(given)
        return await _anoted(state, await adecided(core(state), item(state)), config)

    return RunnableLambda(decide, afunc=adecide, name="isr_gate")


def create_isr_graph(
    retriever: RetrieverLike | Callable[[int], RetrieverLike],
    draft: Runnable[Any, Any],
    gate: CoreGate | None = None,
    *,
    when: When = "both",
    rounds: int = 1,
    rewrite: Rewrite | None = None,
    message: str = MESSAGE,
    document_prompt: DocumentPrompt = DOCUMENT_PROMPT,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A compiled graph that takes `{"question"}` and answers only from evidence that carries the answer.

    Retrieve, gate the evidence, draft, gate the draft; while a gate does not answer and rounds are left, retrieve
    again. Counters, evidence and decisions start afresh with every run, also on one thread of a checkpointer; a run
    that was interrupted goes on from its last step. A draft reaches no stream, no state and no checkpoint before its
    release, also where it is a graph or an agent itself; it runs without a checkpointer. A question that does not stand
    alone, such as "and when did it end?", is an abstention: each run knows its own question only.

    Args:
        retriever: finds documents; or a function that takes the number of the round, from 0, and returns a retriever.
        draft: takes the state and returns a draft, as a string or a message.
        gate: the gate of `isr_rag` that decides. By default the embedded model with its calibration, at h* = 0.2
            before drafting and at 0.05 after it. Its target hallucination rate is split over the rounds, unless its
            calibration covers whole loops; its `on_error` also holds for the retriever.
        when: gate the evidence `"before"` drafting, the draft `"after"` it, or `"both"`.
        rounds: rounds of retrieval at most, >= 1. The default gate releases drafts in two at most: its calibration
            covers loops of two, and reaches no third of its h*.
        rewrite: rewords the query for each further round: takes the question, the number of the round, and the
            decision before it.
        message: the answer after an abstention.
        document_prompt: how `draft` renders a document for its model; the gate judges exactly that text.
        checkpointer: keeps the state between steps and runs.

    Raises:
        ConfigurationError: if rounds < 1, `when` is none of the three, or no evidence could ever lead to an answer.
        InvalidTypeError: if `gate` is not one of `isr_rag`, or `draft` or `retriever` is none.
    """
    if not isinstance(cast(object, draft), Runnable):
        raise InvalidTypeError(f"draft must be a runnable, not {type(draft).__name__}: RunnableLambda makes one")
    if not callable(retriever) and not isinstance(cast(object, retriever), Runnable):
        raise InvalidTypeError(f"retriever must be a runnable, not {type(retriever).__name__}")
    if when not in ("before", "after", "both"):
        raise ConfigurationError(f"when must be 'before', 'after' or 'both', got {when!r}")
    places: tuple[Place, ...] = ("before", "after") if when == "both" else (when,)
    gates = {place: gate_of_round(gate_for(place, gate, rounds=rounds), rounds, TEMPLATES[place]) for place in places}
    if when != "before":
        refuse_telling(draft)
    nodes = _Nodes(
        gates[places[-1]], retriever, draft, rounds, rewrite, message, document_prompt, release=when != "before"
    )
    # Nodes take and return parts of the state, for which LangGraph's types have no name.
    graph: Any = StateGraph(ISRState, input_schema=Question)
    graph.add_node("begin", RunnableLambda(nodes.begin, afunc=nodes.abegin))
    graph.add_node("retrieve", RunnableLambda(nodes.retrieve, afunc=nodes.aretrieve))
    graph.add_node("draft", RunnableLambda(nodes.answer, afunc=nodes.aanswer))
    graph.add_node("abstain", nodes.abstain)
    graph.add_edge(START, "begin")
    graph.add_conditional_edges("begin", _found, {"go on": "retrieve", "abstain": "abstain"})
    first = "draft"
    if when != "after":
        first = "gate"
        graph.add_node("gate", _gate_node(lambda state: gates["before"], rounds, document_prompt))
        graph.add_conditional_edges("gate", _route, {"answer": "draft", "acquire": "retrieve", "abstain": "abstain"})
    graph.add_conditional_edges("retrieve", _found, {"go on": first, "abstain": "abstain"})
    graph.add_conditional_edges("draft", _route, {"answer": END, "acquire": "retrieve", "abstain": "abstain"})
    graph.add_edge("abstain", END)
    return cast(CompiledStateGraph[Any, Any, Any, Any], graph.compile(checkpointer=checkpointer))


@dataclass(frozen=True)
class _Nodes:
    """The nodes of the graph; all state is in the graph."""

    core: CoreGate
    retriever: RetrieverLike | Callable[[int], RetrieverLike]
    draft: Runnable[Any, Any]
    rounds: int
    rewrite: Rewrite | None
    message: str
    document_prompt: DocumentPrompt
    release: bool

    def begin(self, state: State, config: RunnableConfig) -> State:
        """A fresh run; one whose question does not stand alone ends here."""
        refused = not_alone(self.core, question_of(state))
        return _FRESH if refused is None else {**_FRESH, **_noted({}, refused, config), "stop": "failed"}

    async def abegin(self, state: State, config: RunnableConfig) -> State:
        """As `begin`."""
        refused = not_alone(self.core, question_of(state))
        return _FRESH if refused is None else {**_FRESH, **await _anoted({}, refused, config), "stop": "failed"}

    def retrieve(self, state: State, config: RunnableConfig) -> State:
        """One round of retrieval."""
        try:
            return self._more(state, self._source(state).invoke(self._query(state), config))
        except GraphBubbleUp:  # an interrupt is not a failure
            raise
        except Exception as error:
            failed = retriever_failed(self.core, state["question"], error)
            return {**_noted(state, failed, config), "stop": "failed"}

    async def aretrieve(self, state: State, config: RunnableConfig) -> State:
        """As `retrieve`."""
        try:
            return self._more(state, await self._source(state).ainvoke(self._query(state), config))
        except GraphBubbleUp:  # an interrupt is not a failure
            raise
        except Exception as error:
            failed = retriever_failed(self.core, state["question"], error)
            return {**await _anoted(state, failed, config), "stop": "failed"}

    def answer(self, state: State, config: RunnableConfig) -> State:
        """Draft, and release the draft only if the evidence supports it."""
        if not self.release:
            return {"answer": text_of(self.draft.invoke(handed(state), config)), "stop": "answered"}
        draft = None
        if state["documents"]:
            with quietly():
                draft = text_of(self.draft.invoke(handed(state), quiet_config(config)))
        stated = no_text(self.core, question_of(state), draft)
        decision = decided(self.core, self._item(state, draft), stated)
        return {**_noted(state, decision, config), **_released(draft, decision)}

    async def aanswer(self, state: State, config: RunnableConfig) -> State:
        """As `answer`."""
        if not self.release:
            return {"answer": text_of(await self.draft.ainvoke(handed(state), config)), "stop": "answered"}
        draft = None
        if state["documents"]:
            with quietly():
                draft = text_of(await self.draft.ainvoke(handed(state), quiet_config(config)))
        stated = no_text(self.core, question_of(state), draft)
        decision = await adecided(self.core, self._item(state, draft), stated)
        return {**await _anoted(state, decision, config), **_released(draft, decision)}

    def abstain(self, state: State) -> State:
        """Say so, with the decision that led here."""
        last = settled(Decision.from_dict(state[KEY]))
        stop = state["stop"] or ("failed" if last.reason.value.endswith("_failed") else "rounds_spent")
        plain = last.to_dict()
        return {"answer": self.message, KEY: plain, "decisions": [*state["decisions"][:-1], plain], "stop": stop}

    def _source(self, state: State) -> RetrieverLike:
        source = self.retriever if isinstance(self.retriever, Runnable) else self.retriever(state["round"])
        if not isinstance(cast(object, source), Runnable):
            raise InvalidTypeError(
                "a function for retriever takes the number of the round and returns a retriever, not "
                f"{type(source).__name__}: RunnableLambda makes a retriever of one that searches"
            )
        return source

    def _query(self, state: State) -> str:
        question, round_number = cast(str, state["question"]), cast(int, state["round"])
        if self.rewrite is None or round_number == 0:
            return question
        return self.rewrite(question, round_number, Decision.from_dict(state[KEY]))

    def _more(self, state: State, found: list[Document]) -> State:
        """The state with what a round brought; a further round that brings nothing new is the last."""
        documents = gathered([state["documents"], found], self.document_prompt)
        nothing_new = state["round"] > 0 and len(documents) == len(state["documents"])
        return {"documents": documents, "round": state["round"] + 1, "stop": "nothing_new" if nothing_new else None}

    def _item(self, state: State, draft: str | None) -> dict[str, Any]:
        return item_of(
            {**state, "answer": draft},
            can_acquire=state["round"] < self.rounds,
            document_prompt=self.document_prompt,
        )


_FRESH: State = {"documents": [], "round": 0, KEY: None, "decisions": [], "answer": None, "stop": None}
"""The state of a run that begins, whatever an earlier one left in the checkpoint."""


def _released(draft: str | None, decision: Decision) -> State:
    return {"answer": draft, "stop": "answered"} if decision.answered else {}


def _route(state: State) -> str:
    return str(state[KEY]["action"])


def _found(state: State) -> str:
    return "go on" if state["stop"] is None else "abstain"


def _noted(state: State, decision: Decision, config: RunnableConfig) -> State:
    plain = decision.to_dict()
    dispatch_custom_event(EVENT, plain, config=config)
    _streamed(plain, config)
    return {KEY: plain, "decisions": [*(state.get("decisions") or []), plain]}


async def _anoted(state: State, decision: Decision, config: RunnableConfig) -> State:
    plain = decision.to_dict()
    await adispatch_custom_event(EVENT, plain, config=config)
    _streamed(plain, config)
    return {KEY: plain, "decisions": [*(state.get("decisions") or []), plain]}


def _streamed(plain: dict[str, Any], config: RunnableConfig) -> None:
    """Write a decision into the graph's stream, where the node is in a graph."""
    runtime = (config.get("configurable") or {}).get(RUNTIME)
    if runtime is not None:
        runtime.stream_writer({KEY: plain})
