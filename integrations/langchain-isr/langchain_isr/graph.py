"""The gate as a LangGraph node, and a whole graph around it: retrieve, gate, draft, release, with a bounded loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_stream_writer
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict

from isr_rag import Decision
from isr_rag import ISRGate as CoreGate
from isr_rag.acquisition import Stop
from isr_rag.errors import ConfigurationError
from langchain_isr.common import (
    DOCUMENT_PROMPT,
    EVENT,
    KEY,
    MESSAGE,
    DocumentPrompt,
    State,
    for_one_look,
    gathered,
    item_of,
    retriever_failed,
    settled,
    text_of,
)
from langchain_isr.quiet import quiet_config

When = Literal["before", "after", "both"]
RetrieverLike: TypeAlias = Runnable[str, list[Document]]
Rewrite: TypeAlias = Callable[[str, int, Decision], str]


class ISRState(TypedDict, total=False):
    """The state of the graph: strings, plain numbers and documents, which every checkpointer can keep.

    Attributes:
        question: what is asked; the graph's input.
        documents: the evidence, in the order it was found.
        look: rounds of retrieval done in this run.
        isr: the last decision, as plain data.
        decisions: every decision of this run.
        answer: the released answer, or the message after an abstention; never an undecided draft.
        stop: why the run ended: `answered`, `nothing_new`, `looks_spent` or `failed`; None while it goes on.
    """

    question: str
    documents: list[Document]
    look: int
    isr: dict[str, Any] | None
    decisions: list[dict[str, Any]]
    answer: str | None
    stop: Stop | None


class Question(TypedDict):
    """The graph's input."""

    question: str


def isr_node(
    gate: CoreGate | None = None, *, looks: int = 1, document_prompt: DocumentPrompt = DOCUMENT_PROMPT
) -> Runnable[Any, State]:
    """A node that decides about `question`, `documents` and, where there is one, `answer` in a graph's state.

    It writes `isr` (the decision as plain data) and appends it to `decisions`. Route on
    `state["isr"]["action"]`: `"answer"`, `"abstain"`, or `"acquire"` while `state["look"]`, which your
    retrieval counts from 1, is below `looks`. A draft that is in the state before this node decides is visible
    in the graph's streams and checkpoints; `create_isr_graph` keeps it out of them.

    Args:
        gate: the gate of `isr_rag` that decides; by default the embedded model with its calibration. Its target
            hallucination rate is split over the looks.
        looks: rounds of retrieval at most, >= 1.
        document_prompt: how your graph renders a document for its model; the gate judges exactly that text.

    Raises:
        ConfigurationError: if looks < 1.
    """
    core = for_one_look(gate, looks)

    def item(state: State) -> dict[str, Any]:
        return item_of(state, can_acquire=int(state.get("look", looks)) < looks, document_prompt=document_prompt)

    def decide(state: State, config: RunnableConfig) -> State:
        decision = core.decide_batch([item(state)])[0]
        return _noted(state, decision, config)

    async def adecide(state: State, config: RunnableConfig) -> State:
        decision = (await core.adecide_batch([item(state)]))[0]
        return await _anoted(state, decision, config)

    return RunnableLambda(decide, afunc=adecide, name="isr_gate")


def create_isr_graph(
    retriever: RetrieverLike | Callable[[int], RetrieverLike],
    draft: Runnable[Any, Any],
    gate: CoreGate | None = None,
    *,
    when: When = "both",
    looks: int = 2,
    rewrite: Rewrite | None = None,
    message: str = MESSAGE,
    document_prompt: DocumentPrompt = DOCUMENT_PROMPT,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A compiled graph that takes `{"question"}` and answers only from evidence that carries the answer.

    Retrieve, gate the evidence, draft, gate the draft; while a gate does not answer and looks are left, retrieve
    again. Counters, evidence and decisions start afresh with every run, also on one thread of a checkpointer; a run
    that was interrupted goes on from its last step. Drafts are undecided only inside one node: they reach no stream,
    no state and no checkpoint before their release.

    Args:
        retriever: finds documents; or a function that takes the number of the look, from 0, and returns a retriever.
        draft: takes the state and returns a draft, as a string or a message.
        gate: the gate of `isr_rag` that decides; by default the embedded model with its calibration. Its target
            hallucination rate is split over the looks; its `on_error` also holds for the retriever.
        when: gate the evidence `"before"` drafting, the draft `"after"` it, or `"both"`.
        looks: rounds of retrieval at most, >= 1.
        rewrite: rewords the query for each further look: takes the question, the number of the look, and the
            decision before it.
        message: the answer after an abstention.
        document_prompt: how `draft` renders a document for its model; the gate judges exactly that text.
        checkpointer: keeps the state between steps and runs.

    Raises:
        ConfigurationError: if looks < 1 or `when` is none of the three.
    """
    if when not in ("before", "after", "both"):
        raise ConfigurationError(f"when must be 'before', 'after' or 'both', got {when!r}")
    core = for_one_look(gate, looks, when)
    nodes = _Nodes(core, retriever, draft, looks, rewrite, message, document_prompt, release=when != "before")
    # Nodes take and return parts of the state, for which LangGraph's types have no name.
    graph: Any = StateGraph(ISRState, input_schema=Question)
    graph.add_node("begin", _begin)
    graph.add_node("retrieve", RunnableLambda(nodes.retrieve, afunc=nodes.aretrieve))
    graph.add_node("draft", RunnableLambda(nodes.answer, afunc=nodes.aanswer))
    graph.add_node("abstain", nodes.abstain)
    graph.add_edge(START, "begin")
    graph.add_edge("begin", "retrieve")
    first = "draft"
    if when != "after":
        first = "gate"
        graph.add_node("gate", isr_node(gate, looks=looks, document_prompt=document_prompt))
        graph.add_conditional_edges("gate", _route, {"answer": "draft", "acquire": "retrieve", "abstain": "abstain"})
    graph.add_conditional_edges("retrieve", _found, {"go on": first, "abstain": "abstain"})
    graph.add_conditional_edges("draft", _route, {"answer": END, "acquire": "retrieve", "abstain": "abstain"})
    graph.add_edge("abstain", END)
    return cast(CompiledStateGraph[Any, Any, Any, Any], graph.compile(checkpointer=checkpointer))


class _Nodes:
    """The nodes of the graph; all state is in the graph."""

    def __init__(
        self,
        core: CoreGate,
        retriever: RetrieverLike | Callable[[int], RetrieverLike],
        draft: Runnable[Any, Any],
        looks: int,
        rewrite: Rewrite | None,
        message: str,
        document_prompt: DocumentPrompt,
        *,
        release: bool,
    ) -> None:
        self.core, self.draft, self.looks, self.rewrite, self.message = core, draft, looks, rewrite, message
        self.retriever, self.release, self.document_prompt = retriever, release, document_prompt

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
            return {"answer": text_of(self.draft.invoke(state, config)), "stop": "answered"}
        draft = text_of(self.draft.invoke(state, quiet_config(config))) if state["documents"] else None
        decision = self.core.decide_batch([self._item(state, draft)])[0]
        return {**_noted(state, decision, config), **_released(draft, decision)}

    async def aanswer(self, state: State, config: RunnableConfig) -> State:
        """As `answer`."""
        if not self.release:
            return {"answer": text_of(await self.draft.ainvoke(state, config)), "stop": "answered"}
        draft = text_of(await self.draft.ainvoke(state, quiet_config(config))) if state["documents"] else None
        decision = (await self.core.adecide_batch([self._item(state, draft)]))[0]
        return {**await _anoted(state, decision, config), **_released(draft, decision)}

    def abstain(self, state: State) -> State:
        """Say so, with the decision that led here."""
        last = settled(Decision.from_dict(state[KEY]))
        stop = state["stop"] or ("failed" if last.reason.value.endswith("_failed") else "looks_spent")
        plain = last.to_dict()
        return {"answer": self.message, KEY: plain, "decisions": [*state["decisions"][:-1], plain], "stop": stop}

    def _source(self, state: State) -> RetrieverLike:
        return self.retriever if isinstance(self.retriever, Runnable) else self.retriever(state["look"])

    def _query(self, state: State) -> str:
        question, look = cast(str, state["question"]), cast(int, state["look"])
        if self.rewrite is None or look == 0:
            return question
        return self.rewrite(question, look, Decision.from_dict(state[KEY]))

    def _more(self, state: State, found: list[Document]) -> State:
        """The state with what a round brought; a further round that brings nothing new is the last."""
        documents = gathered([state["documents"], found])
        nothing_new = state["look"] > 0 and len(documents) == len(state["documents"])
        return {"documents": documents, "look": state["look"] + 1, "stop": "nothing_new" if nothing_new else None}

    def _item(self, state: State, draft: str | None) -> dict[str, Any]:
        return item_of(
            {**state, "answer": draft},
            can_acquire=state["look"] < self.looks,
            document_prompt=self.document_prompt,
        )


def _begin(state: State) -> State:
    """A fresh run, whatever an earlier one left in the checkpoint."""
    return {"documents": [], "look": 0, KEY: None, "decisions": [], "answer": None, "stop": None}


def _released(draft: str | None, decision: Decision) -> State:
    return {"answer": draft, "stop": "answered"} if decision.answered else {}


def _route(state: State) -> str:
    return str(state[KEY]["action"])


def _found(state: State) -> str:
    return "go on" if state["stop"] is None else "abstain"


def _noted(state: State, decision: Decision, config: RunnableConfig) -> State:
    plain = decision.to_dict()
    dispatch_custom_event(EVENT, plain, config=config)
    get_stream_writer()({KEY: plain})
    return {KEY: plain, "decisions": [*state.get("decisions", []), plain]}


async def _anoted(state: State, decision: Decision, config: RunnableConfig) -> State:
    plain = decision.to_dict()
    await adispatch_custom_event(EVENT, plain, config=config)
    get_stream_writer()({KEY: plain})
    return {KEY: plain, "decisions": [*state.get("decisions", []), plain]}
