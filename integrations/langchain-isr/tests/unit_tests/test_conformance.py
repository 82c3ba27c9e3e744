"""The contract that adapters of both frameworks keep, for each way to use this package."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import NodeCancelledError
from lc_fakes import ScriptedModel, searching

from isr_rag_conformance.suite import Conformance, Outcome, Passage, Setup, Shape
from langchain_isr import ISRChain, ISRGate, ISRMiddleware, ISRRetriever, create_isr_graph

MODES: Any = ["messages", "values", "updates", "custom", "tasks", "debug", "checkpoints"]


def passage(document: Document) -> Passage:
    return Passage(document.id or "", document.page_content)


def prompt_of(messages: Sequence[BaseMessage]) -> str:
    return "\n".join(str(message.text) for message in messages)


def drafting(setup: Setup) -> Runnable[Any, Any]:
    """Question and documents to a prompt, to a model."""
    prompt = ChatPromptTemplate.from_template("{question}\n{context}")
    context = RunnablePassthrough.assign(context=lambda state: "\n".join(d.page_content for d in state["documents"]))
    return context | prompt | ScriptedModel(reply=lambda messages: setup.draft(prompt_of(messages)))


class Base:
    """What the harnesses share: every adapter takes a question and ends in a state."""

    def native(self, passage: Passage) -> Document:
        return Document(passage.text, id=passage.id, metadata={"source": {"name": passage.id}})

    def snapshot(self, native: Document) -> object:
        return native.model_dump()

    def checkpoint(self, value: Any) -> Any:
        serde = JsonPlusSerializer()
        return serde.loads_typed(serde.dumps_typed(value))

    def run(self, adapter: Any, question: str, outcome: Outcome, *, stream: bool) -> None:
        if stream:
            state: dict[str, Any] = {}
            for piece in adapter.stream({"question": question}):
                self._add(state, piece, outcome)
        else:
            state = adapter.invoke({"question": question})
            outcome.text.append(state["answer"])
        self._finish(state, outcome)

    async def arun(self, adapter: Any, question: str, outcome: Outcome, *, stream: bool) -> None:
        if stream:
            state: dict[str, Any] = {}
            async for piece in adapter.astream({"question": question}):
                self._add(state, piece, outcome)
        else:
            state = await adapter.ainvoke({"question": question})
            outcome.text.append(state["answer"])
        self._finish(state, outcome)

    def batch(self, adapter: Any, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        for state, outcome in zip(adapter.batch([{"question": q} for q in questions]), outcomes, strict=True):
            outcome.text.append(state["answer"])
            self._finish(state, outcome)

    async def abatch(self, adapter: Any, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        for state, outcome in zip(await adapter.abatch([{"question": q} for q in questions]), outcomes, strict=True):
            outcome.text.append(state["answer"])
            self._finish(state, outcome)

    def _add(self, state: dict[str, Any], piece: dict[str, Any], outcome: Outcome) -> None:
        outcome.text += [piece["answer"]] if "answer" in piece else []
        state.update(piece)

    def _finish(self, state: dict[str, Any], outcome: Outcome) -> None:
        outcome.observed.append(state)
        outcome.evidence = [passage(document) for document in state["documents"]]
        outcome.decisions = [state["isr"]]


class GateHarness(Base):
    """A retriever, the gate, a drafting model: plain LCEL."""

    def build(self, setup: Setup) -> Any:
        gate = ISRGate(gate=setup.gate)
        gates = {"before": gate} if setup.place == "before" else {"after": gate}
        found = RunnablePassthrough.assign(documents=lambda state: setup.retrieve(state["question"], 0))
        return found | ISRChain(draft=drafting(setup), **cast(Any, gates))


class RetrieverHarness(Base):
    """The gated retriever in front of a drafting model."""

    def build(self, setup: Setup) -> Any:
        retriever = ISRRetriever(
            retriever=RunnableLambda(lambda query: setup.retrieve(query, 0)),
            gate=setup.gate,
            rounds=setup.rounds,
            factor=2,
            deepen=lambda own, k: RunnableLambda(lambda query: setup.retrieve(query, k.bit_length() - 3)),
        )
        return ISRChain(before=retriever.as_gate(), draft=drafting(setup))


@contextmanager
def cancellations() -> Iterator[None]:
    """LangGraph reports a cancellation inside a node as an error of its own; the suite looks for the real one."""
    try:
        yield
    except NodeCancelledError as error:
        raise asyncio.CancelledError from error


class GraphHarness(Base):
    """The LangGraph loop."""

    def build(self, setup: Setup) -> Any:
        return create_isr_graph(
            lambda round_number: RunnableLambda(lambda query: setup.retrieve(query, round_number)),
            drafting(setup),
            setup.gate,
            when=setup.place,
            rounds=setup.rounds,
        )

    def run(self, adapter: Any, question: str, outcome: Outcome, *, stream: bool) -> None:
        if not stream:
            return super().run(adapter, question, outcome, stream=False)
        state: dict[str, Any] = {}
        for ns, mode, piece in adapter.stream({"question": question}, stream_mode=MODES, subgraphs=True):
            self._note(ns, mode, piece, state, outcome)
        self._close(state, outcome)

    async def arun(self, adapter: Any, question: str, outcome: Outcome, *, stream: bool) -> None:
        with cancellations():
            if not stream:
                return await super().arun(adapter, question, outcome, stream=False)
            state: dict[str, Any] = {}
            async for ns, mode, piece in adapter.astream({"question": question}, stream_mode=MODES, subgraphs=True):
                self._note(ns, mode, piece, state, outcome)
            self._close(state, outcome)

    async def abatch(self, adapter: Any, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        with cancellations():
            await super().abatch(adapter, questions, outcomes)

    def _note(self, ns: Any, mode: str, piece: Any, state: dict[str, Any], outcome: Outcome) -> None:
        outcome.observed.append(piece)
        if ns:
            return
        if mode == "messages":
            outcome.text.append(str(piece[0].text))
        elif mode == "values":
            state.update(piece)

    def _close(self, state: dict[str, Any], outcome: Outcome) -> None:
        streamed = "".join(outcome.text).strip()
        outcome.text[:] = [streamed] if streamed else [state["answer"]]
        self._finish(state, outcome)

    def _finish(self, state: dict[str, Any], outcome: Outcome) -> None:
        super()._finish(state, outcome)
        outcome.decisions = state["decisions"]


class AgentHarness(Base):
    """An agent with a search tool; what it is told in a message of its own, it searches for."""

    def build(self, setup: Setup) -> Any:
        @tool(response_format="content_and_artifact")
        def search(query: str) -> tuple[str, list[Document]]:
            """Look for evidence."""
            question, round_number = query.rsplit("#", 1)
            found = setup.retrieve(question, int(round_number))
            return "\n".join(document.page_content for document in found), found

        def reply(messages: list[BaseMessage]) -> AIMessage | str:
            if isinstance(messages[-1], HumanMessage):
                round_number = sum(isinstance(message, ToolMessage) for message in messages)
                asked = next(m for m in messages if isinstance(m, HumanMessage))
                return searching(f"{asked.text}#{round_number}", number=round_number)
            return setup.draft(prompt_of(messages))

        middleware = ISRMiddleware(setup.gate, when=setup.place, rounds=setup.rounds)
        return create_agent(ScriptedModel(reply=reply), [search], middleware=[middleware])

    def run(self, adapter: Any, question: str, outcome: Outcome, *, stream: bool) -> None:
        asked: dict[str, Any] = {"messages": [HumanMessage(question)]}
        if not stream:
            return self._end(adapter.invoke(asked), outcome)
        state: dict[str, Any] = {}
        for ns, mode, piece in adapter.stream(asked, stream_mode=MODES, subgraphs=True):
            state = self._note(ns, mode, piece, state, outcome)
        self._finish(state, outcome)

    async def arun(self, adapter: Any, question: str, outcome: Outcome, *, stream: bool) -> None:
        asked: dict[str, Any] = {"messages": [HumanMessage(question)]}
        with cancellations():
            if not stream:
                return self._end(await adapter.ainvoke(asked), outcome)
            state: dict[str, Any] = {}
            async for ns, mode, piece in adapter.astream(asked, stream_mode=MODES, subgraphs=True):
                state = self._note(ns, mode, piece, state, outcome)
            self._finish(state, outcome)

    def batch(self, adapter: Any, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        states = adapter.batch([{"messages": [HumanMessage(q)]} for q in questions])
        for state, outcome in zip(states, outcomes, strict=True):
            self._end(state, outcome)

    async def abatch(self, adapter: Any, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        with cancellations():
            states = await adapter.abatch([{"messages": [HumanMessage(q)]} for q in questions])
        for state, outcome in zip(states, outcomes, strict=True):
            self._end(state, outcome)

    def _note(self, ns: Any, mode: str, piece: Any, state: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
        outcome.observed.append(piece)
        if mode == "values" and not ns:
            return cast(dict[str, Any], piece)
        if mode == "messages" and isinstance(piece[0], (AIMessage, AIMessageChunk)):
            outcome.text.append(str(piece[0].text))
        return state

    def _end(self, state: dict[str, Any], outcome: Outcome) -> None:
        outcome.text.append(str(state["messages"][-1].text))
        self._finish(state, outcome)

    def _finish(self, state: dict[str, Any], outcome: Outcome) -> None:
        outcome.observed.append(state)
        outcome.text[:] = ["".join(outcome.text).strip()]
        outcome.evidence = [passage(document) for document in state["isr_documents"]]
        outcome.decisions = state["isr"]


SHAPES: tuple[Shape, ...] = ()
"""Drafts of every shape, in every mode of streams and with checkpoints, are in test_canary.py."""


class TestTheGateInAChain(Conformance):
    harness = GateHarness()
    places = ("before", "after")
    shapes = SHAPES
    acquires = False
    owns_retrieval = False


class TestTheRetriever(Conformance):
    harness = RetrieverHarness()


class TestTheGraph(Conformance):
    harness = GraphHarness()
    places = ("before", "after")
    shapes = SHAPES


class TestTheAgent(Conformance):
    harness = AgentHarness()
    places = ("before", "after")
    shapes = SHAPES
