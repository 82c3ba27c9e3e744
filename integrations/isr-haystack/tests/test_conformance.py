"""All components keep the contract that every adapter keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from haystack import Document, Pipeline
from hs_parts import FunctionGenerator, gated_after, gated_before, gated_inside

from haystack_integrations.components.routers.isr import ISRChatGenerator, ISRDraftGate, ISRGate
from isr_rag_conformance.suite import Conformance, Outcome, Passage, Setup


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
        return gated_after(ISRDraftGate(setup.gate, rounds=setup.rounds), setup.retrieve, setup.draft)

    def run(self, adapter: Pipeline, question: str, outcome: Outcome, *, stream: bool) -> None:
        data: dict[str, Any] = {"ask": {"value": question}}
        if stream:
            data["llm"] = {"streaming_callback": lambda chunk: outcome.text.append(chunk.content)}
        self.finish(adapter.run(data, include_outputs_from={"gate"}), outcome)

    async def arun(self, adapter: Pipeline, question: str, outcome: Outcome, *, stream: bool) -> None:
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
    paths = ("sync", "async")
    owns_retrieval = False
    owns_further_rounds = False


class InsideHarness(HaystackHarness):
    def build(self, setup: Setup) -> Pipeline:
        made = ISRChatGenerator(FunctionGenerator(setup.draft), setup.gate, rounds=setup.rounds)
        return gated_inside(made, setup.retrieve)


class TestISRChatGenerator(Conformance):
    harness = InsideHarness()
    places = ("after",)
    paths = ("sync", "async", "astream")
    owns_retrieval = False
    owns_further_rounds = False
