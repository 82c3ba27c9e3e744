"""Components around a gate: a retriever that looks deeper, and a chat generator with a function for a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from haystack import Document, Pipeline, component
from haystack.components.builders import ChatPromptBuilder
from haystack.components.joiners import BranchJoiner
from haystack.dataclasses import ChatMessage, StreamingChunk

TEMPLATE = [ChatMessage.from_user("{{ query }}\n{% for document in documents %}{{ document.content }}\n{% endfor %}")]


@component
class DeepeningRetriever:
    """Looks deeper each time it is asked again in a run."""

    def __init__(self, search: Callable[[str, int], list[Document]]) -> None:
        self.search = search

    @component.output_types(documents=list[Document])
    def run(self, query: str, trail: dict[str, Any] | None = None) -> dict[str, Any]:
        return {"documents": self.search(query, 0 if trail is None else len(trail["decisions"]))}


@component
class FindsDocuments:
    """A retriever that finds the same for every query."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents = documents

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, Any]:
        return {"documents": self.documents}


@component
class FunctionGenerator:
    """A chat generator; it streams word by word where it is given a callback."""

    def __init__(
        self, write: Callable[[str], str], reply: Callable[[str], ChatMessage] = ChatMessage.from_assistant
    ) -> None:
        self.write, self.reply = write, reply

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], streaming_callback: Any = None) -> dict[str, Any]:
        text = self.write(messages[-1].text or "")
        for piece in text.split(" ") if streaming_callback else ():
            streaming_callback(StreamingChunk(f"{piece} "))
        return {"replies": [self.reply(text)]}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(self, messages: list[ChatMessage], streaming_callback: Any = None) -> dict[str, Any]:
        text = await asyncio.to_thread(self.write, messages[-1].text or "")
        for piece in text.split(" ") if streaming_callback else ():
            await streaming_callback(StreamingChunk(f"{piece} "))
        return {"replies": [self.reply(text)]}


def gated_before(gate: Any, search: Callable[[str, int], list[Document]], write: Callable[[str], str]) -> Pipeline:
    """Retrieve, gate, look again or draft: `run({"ask": {"value": question}})`."""
    pipeline = _loop(gate, search, write)
    pipeline.connect("gate.answered", "prompt.documents")
    return pipeline


def gated_after(
    gate: Any, search: Callable[[str, int], list[Document]], write: Callable[[str], str] | FunctionGenerator
) -> Pipeline:
    """Retrieve, draft, gate, look again or let the draft out."""
    pipeline = _loop(gate, search, write)
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("llm.replies", "gate.replies")
    return pipeline


def gated_inside(gate: Any, search: Callable[[str, int], list[Document]]) -> Pipeline:
    """Retrieve, draft and gate in one component, look again or let the draft out."""
    pipeline = _loop(gate, search, None)
    pipeline.connect("retriever.documents", "prompt.documents")
    return pipeline


def _loop(
    gate: Any, search: Callable[[str, int], list[Document]], write: Callable[[str], str] | FunctionGenerator | None
) -> Pipeline:
    pipeline = Pipeline()
    pipeline.add_component("ask", BranchJoiner(str))
    pipeline.add_component("retriever", DeepeningRetriever(search))
    pipeline.add_component("gate", gate)
    pipeline.add_component("prompt", ChatPromptBuilder(TEMPLATE, required_variables="*"))
    if write is not None:
        pipeline.add_component("llm", write if isinstance(write, FunctionGenerator) else FunctionGenerator(write))
    pipeline.connect("ask.value", "retriever.query")
    pipeline.connect("ask.value", "gate.query")
    pipeline.connect("ask.value", "prompt.query")
    pipeline.connect("retriever.documents", "gate.documents")
    pipeline.connect("prompt.prompt", "gate.messages" if write is None else "llm.messages")
    if gate.rounds > 1:
        pipeline.connect("gate.acquire", "ask.value")
        pipeline.add_component("again", BranchJoiner(dict[str, Any]))
        pipeline.connect("gate.trail", "again.value")
        pipeline.connect("again.value", "gate.trail")
        pipeline.connect("again.value", "retriever.trail")
    return pipeline
