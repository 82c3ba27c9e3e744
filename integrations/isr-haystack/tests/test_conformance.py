"""All components keep the contract that every adapter keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from haystack import Document, Pipeline
from haystack.dataclasses import ChatMessage, ChatRole, FileContent, ReasoningContent, TextContent, ToolCall
from hs_parts import FunctionGenerator, gated_after, gated_before, gated_inside

from haystack_integrations.components.routers.isr import ISRChatGenerator, ISRDraftGate, ISRGate
from isr_rag_conformance.suite import HIDDEN, Conformance, Outcome, Passage, Setup, Shape

SHAPES: tuple[Shape, ...] = ("parts", "hidden", "call", "content")
"""Further ones, which are other pipelines, are in test_canary_matrix.py."""


def drafting(setup: Setup) -> FunctionGenerator:
    """A generator whose replies have the shape that is asked for."""

    def reply(text: str) -> ChatMessage:
        texts = [TextContent(f"{word} ") for word in text.split()] if setup.shape == "parts" else [TextContent(text)]
        beside: dict[str | None, Any] = {
            "hidden": ReasoningContent(HIDDEN),
            "call": ToolCall("search", {"query": HIDDEN}),
            "content": FileContent("aGk=", "application/pdf", HIDDEN),
        }
        meta = {"note": HIDDEN} if setup.shape == "hidden" else {}
        more = [beside[setup.shape]] if setup.shape in beside else []
        return ChatMessage(_role=ChatRole.ASSISTANT, _content=[*texts, *more], _meta=meta)

    return FunctionGenerator(setup.draft, reply)


class HaystackHarness:
    """A pipeline with the gate in it."""

    def native(self, passage: Passage) -> Document:
        return Document(id=passage.id, content=passage.text, meta={"source": {"name": passage.id}})

    def snapshot(self, native: Document) -> object:
        return native.to_dict()

    def checkpoint(self, value: Any) -> Any:
        return json.loads(json.dumps(value))

    def build(self, setup: Setup) -> Pipeline:
        if setup.place == "before":
            return gated_before(ISRGate(setup.gate, rounds=setup.rounds), setup.retrieve, setup.draft)
        gate = ISRDraftGate(setup.gate, rounds=setup.rounds)
        return self.shaped(gated_after(gate, setup.retrieve, drafting(setup)), setup)

    def shaped(self, pipeline: Pipeline, setup: Setup) -> Pipeline:
        """With the shape of its drafts written down."""
        pipeline.metadata["shape"] = setup.shape
        return pipeline

    def run(self, adapter: Pipeline, question: str, outcome: Outcome, *, stream: bool) -> None:
        outcome.shape = adapter.metadata.get("shape")
        data: dict[str, Any] = {"ask": {"value": question}}
        if stream:
            data["llm"] = {"streaming_callback": lambda chunk: outcome.text.append(chunk.content)}
        self.finish(adapter.run(data, include_outputs_from={"gate"}), outcome)

    async def arun(self, adapter: Pipeline, question: str, outcome: Outcome, *, stream: bool) -> None:
        outcome.shape = adapter.metadata.get("shape")
        data = {"ask": {"value": question}}
        if not stream:
            return self.finish(await adapter.run_async(data, include_outputs_from={"gate"}), outcome)
        handle = adapter.stream(data, include_outputs_from={"gate"})
        async for chunk in handle:
            outcome.text.append(chunk.content)
        self.finish(handle.result, outcome)

    def finish(self, result: dict[str, Any], outcome: Outcome) -> None:
        outcome.observed.append(result)
        gate = result["gate"]
        outcome.decisions.append(gate["decision"])
        if "abstained" in gate:
            documents, replies = gate["abstained"], []
        elif "documents" in gate:
            documents, replies = gate["documents"], gate["answered"]
        else:
            documents, replies = gate["answered"], result["llm"]["replies"]
        outcome.evidence += [Passage(document.id, document.content) for document in documents]
        text = "".join(outcome.text).strip() or "".join(reply.text for reply in replies)
        outcome.text[:] = [text or "I cannot say."]

    def batch(self, adapter: Pipeline, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        raise NotImplementedError("a pipeline takes one question at a time")

    async def abatch(self, adapter: Pipeline, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        raise NotImplementedError("a pipeline takes one question at a time")


class TestISRGate(Conformance):
    harness = HaystackHarness()
    paths = ("sync", "async", "stream", "astream")
    owns_retrieval = False
    owns_further_rounds = False


class TestISRDraftGate(Conformance):
    harness = HaystackHarness()
    places = ("after",)
    shapes = SHAPES
    paths = ("sync", "async")
    owns_retrieval = False
    owns_further_rounds = False


class InsideHarness(HaystackHarness):
    def build(self, setup: Setup) -> Pipeline:
        made = ISRChatGenerator(drafting(setup), setup.gate, rounds=setup.rounds)
        return self.shaped(gated_inside(made, setup.retrieve), setup)


class TestISRChatGenerator(Conformance):
    harness = InsideHarness()
    places = ("after",)
    shapes = SHAPES
    paths = ("sync", "async", "astream")
    owns_retrieval = False
    owns_further_rounds = False
