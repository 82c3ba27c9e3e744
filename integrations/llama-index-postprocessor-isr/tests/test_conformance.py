"""Every adapter of this package keeps the shared contract."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.workflow import Context, JsonSerializer
from llama_parts import DraftingLLM, TopKRetriever

from isr_rag_conformance.suite import Conformance, Outcome, Passage, Setup
from llama_index.postprocessor.isr import AbstainedError, ISRGate, ISRQueryEngine, ISRWorkflow
from llama_index.postprocessor.isr.workflow import TokenEvent


@dataclass
class Engines:
    """One adapter in an engine that streams, and in one that does not."""

    whole: Any
    streaming: Any


class LlamaIndexHarness:
    def native(self, passage: Passage) -> NodeWithScore:
        return NodeWithScore(node=TextNode(text=passage.text, id_=passage.id, metadata={"page": passage.id}), score=0.5)

    def snapshot(self, native: Any) -> object:
        return native.model_dump()

    def checkpoint(self, value: Any) -> Any:
        serializer = JsonSerializer()
        return serializer.deserialize(serializer.serialize(value))

    def build(self, setup: Setup) -> Engines:
        return Engines(*(self.adapter(setup, self.engine(setup, streaming)) for streaming in (False, True)))

    def engine(self, setup: Setup, streaming: bool) -> BaseQueryEngine:
        llm = DraftingLLM(write=setup.draft)
        synthesizer = get_response_synthesizer(llm=llm, streaming=streaming)
        return RetrieverQueryEngine(TopKRetriever(setup.retrieve), synthesizer, self.postprocessors(setup))

    def postprocessors(self, setup: Setup) -> list[Any]:
        return []

    def adapter(self, setup: Setup, engine: BaseQueryEngine) -> Any:
        return ISRQueryEngine(engine, gate=setup.gate, place=setup.place, rounds=setup.rounds)

    def run(self, adapter: Engines, question: str, outcome: Outcome, *, stream: bool) -> None:
        response = (adapter.streaming if stream else adapter.whole).query(question)
        if isinstance(response, StreamingResponse):
            outcome.text += response.response_gen
        else:
            outcome.text.append(str(response))
        self.fill(outcome, response)

    async def arun(self, adapter: Engines, question: str, outcome: Outcome, *, stream: bool) -> None:
        response = await (adapter.streaming if stream else adapter.whole).aquery(question)
        if isinstance(response, AsyncStreamingResponse):
            async for piece in response.async_response_gen():
                outcome.text.append(piece)
        else:
            outcome.text.append(str(response))
        self.fill(outcome, response)

    def fill(self, outcome: Outcome, response: Any) -> None:
        outcome.observed.append((response.source_nodes, response.metadata))
        outcome.evidence += [Passage(n.node.node_id, n.node.get_content()) for n in response.source_nodes]
        outcome.decisions += response.metadata["isr_rounds"]
        assert response.metadata["isr"] == outcome.decisions[-1]

    def batch(self, adapter: Engines, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        for question, outcome in zip(questions, outcomes, strict=True):
            self.run(adapter, question, outcome, stream=False)

    async def abatch(self, adapter: Engines, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        runs = [self.arun(adapter, q, o, stream=False) for q, o in zip(questions, outcomes, strict=True)]
        await asyncio.gather(*runs)


class PostprocessorHarness(LlamaIndexHarness):
    """The postprocessor in an ordinary engine; it raises on abstention, so that the decision reaches the caller."""

    def postprocessors(self, setup: Setup) -> list[Any]:
        retriever = TopKRetriever(setup.retrieve) if setup.rounds > 1 else None
        return [ISRGate(gate=setup.gate, on_abstain="raise", retriever=retriever, rounds=setup.rounds)]

    def adapter(self, setup: Setup, engine: BaseQueryEngine) -> Any:
        return engine

    def run(self, adapter: Engines, question: str, outcome: Outcome, *, stream: bool) -> None:
        try:
            super().run(adapter, question, outcome, stream=stream)
        except AbstainedError as abstained:
            outcome.decisions.append(abstained.decision.to_dict())

    async def arun(self, adapter: Engines, question: str, outcome: Outcome, *, stream: bool) -> None:
        try:
            await super().arun(adapter, question, outcome, stream=stream)
        except AbstainedError as abstained:
            outcome.decisions.append(abstained.decision.to_dict())

    def fill(self, outcome: Outcome, response: Any) -> None:
        outcome.evidence += [Passage(n.node.node_id, n.node.get_content()) for n in response.source_nodes]
        outcome.decisions.append(response.source_nodes[0].node.metadata["isr"])


class WorkflowHarness(LlamaIndexHarness):
    def adapter(self, setup: Setup, engine: BaseQueryEngine) -> Any:
        return ISRWorkflow(engine, gate=setup.gate, rounds=setup.rounds, timeout=60)

    async def arun(self, adapter: Engines, question: str, outcome: Outcome, *, stream: bool) -> None:
        workflow = adapter.streaming if stream else adapter.whole
        handler = workflow.run(question=question, ctx=Context(workflow))
        try:
            async for event in handler.stream_events():
                outcome.observed.append(event)
                if isinstance(event, TokenEvent):
                    outcome.text.append(event.delta)
            response = await handler
        except asyncio.CancelledError:
            await handler.cancel_run()
            raise
        if not outcome.text:
            outcome.text.append(str(response))
        self.fill(outcome, response)


class TestISRQueryEngine(Conformance):
    harness = LlamaIndexHarness()
    places = ("before", "after")
    shapes = ()  # drafts of every shape are in test_canary.py and test_canary_matrix.py


class TestISRGate(Conformance):
    harness = PostprocessorHarness()
    owns_retrieval = False
    keeps_evidence = False


class TestISRWorkflow(Conformance):
    harness = WorkflowHarness()
    paths = ("async", "astream", "abatch")
