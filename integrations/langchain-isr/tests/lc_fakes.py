"""Real retrievers over a few sentences; a chat model that says what a function says; gates with fixed numbers;
a collector of run trees."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import bm25s
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, create_retriever_tool
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run

from isr_rag import ISRGate
from isr_rag.references import Case, Oracle
from isr_rag.testing import FixedScorer
from langchain_isr import ISRRetriever

Reply = Callable[[list[BaseMessage]], AIMessage | str]


class ScriptedModel(BaseChatModel):
    """Replies by a function of the messages; streams word by word; any tools can be bound to it."""

    reply: Reply

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _message(self, messages: list[BaseMessage]) -> AIMessage:
        said = self.reply(messages)
        return AIMessage(said) if isinstance(said, str) else said

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._message(messages))])

    def _pieces(self, messages: list[BaseMessage]) -> list[AIMessageChunk]:
        message = self._message(messages)
        pieces = [AIMessageChunk(word) for word in re.findall(r"\s*\S+", str(message.text)) or [""]]
        calls = [
            {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": i}
            for i, call in enumerate(message.tool_calls)
        ]
        return [*pieces, AIMessageChunk("", tool_call_chunks=calls)] if calls else pieces

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> Iterator[ChatGenerationChunk]:
        for piece in self._pieces(messages):
            chunk = ChatGenerationChunk(message=piece)
            if run_manager:
                run_manager.on_llm_new_token(str(piece.text), chunk=chunk)
            yield chunk

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in self._pieces(messages):
            chunk = ChatGenerationChunk(message=piece)
            if run_manager:
                await run_manager.on_llm_new_token(str(piece.text), chunk=chunk)
            yield chunk


def searching(query: str, *, words: str = "", number: int = 0) -> AIMessage:
    """A message that calls the tool `search`."""
    return AIMessage(words, tool_calls=[ToolCall(name="search", args={"query": query}, id=f"call-{number}")])


def gate(enough: int | Callable[[Case], float] = 0, q: float = 0.97, **settings: Any) -> ISRGate:
    """A gate that answers from so many chunks on, or as a function of the case says."""
    says = enough if callable(enough) else lambda case: float(len(case.chunks) >= enough)
    return ISRGate(scorer=FixedScorer([q]), reference=Oracle(says), h_star=0.2, **settings)


def rivers(count: int = 3) -> list[Document]:
    """Documents about rivers."""
    texts = ["The Seine flows through Paris.", "The Loire ends at Saint-Nazaire.", "The Rhône passes Lake Geneva."]
    return [Document(texts[i % 3] + " " * (i // 3), id=f"d{i}", metadata={"title": f"River {i}"}) for i in range(count)]


class BM25(BaseRetriever):
    """BM25 from its library."""

    docs: list[Document]
    k: int = 2

    def _get_relevant_documents(self, query: str, *, run_manager: Any = None) -> list[Document]:
        index = bm25s.BM25()
        index.index(bm25s.tokenize([d.page_content for d in self.docs], show_progress=False), show_progress=False)
        found, _ = index.retrieve(bm25s.tokenize(query, show_progress=False), k=self.k, show_progress=False)
        return [self.docs[int(i)] for i in found[0]]


TEXTS = [
    "The Seine flows through Paris.",
    "The Loire ends at Saint-Nazaire.",
    "The Rhône passes Lake Geneva.",
    "The Garonne flows through Toulouse.",
    "The Meuse rises in France.",
    "The Somme flows through Amiens.",
]


def bm25(k: int = 2) -> BM25:
    return BM25(docs=[Document(text, metadata={"title": f"River {i}"}) for i, text in enumerate(TEXTS)], k=k)


class Runs(BaseTracer):
    """Keeps every finished run tree."""

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[Run] = []

    def _persist_run(self, run: Run) -> None:
        self.roots.append(run)


class SearchTool:
    """The gated retriever as a tool, as the suites of langchain-tests ask for it."""

    @property
    def tool_constructor(self) -> BaseTool:
        retriever = ISRRetriever(retriever=bm25(), gate=gate())
        return create_retriever_tool(retriever, "search", "Find evidence.", response_format="content_and_artifact")

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "Which river flows through Paris?"}
