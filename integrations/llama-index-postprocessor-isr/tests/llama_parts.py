"""Parts for the tests: a drafting LLM and a retriever that do what they are told, and small real ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
from llama_index.core.base.response.schema import Response
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from pydantic import Field

from isr_rag import ISRGate
from isr_rag.references import Case, Oracle
from isr_rag.testing import FixedScorer


class DraftingLLM(CustomLLM):
    """Writes what a function says about the prompt; streams it word by word."""

    write: Callable[[str], str]

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=8000, num_output=256, model_name="drafting")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.write(prompt))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        draft = self.write(prompt)

        def pieces() -> CompletionResponseGen:
            told = ""
            for i, word in enumerate(draft.split(" ")):
                delta = word if i == 0 else f" {word}"
                told += delta
                yield CompletionResponse(text=told, delta=delta)

        return pieces()


class TopKRetriever(BaseRetriever):
    """Asks a function for the nodes of a round; the round follows from the top-k: 2, 4, 8, ..."""

    def __init__(self, find: Callable[[str, int], list[NodeWithScore]]) -> None:
        self.similarity_top_k = 2
        self.find = find
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.find(query_bundle.query_str, round(math.log2(self.similarity_top_k)) - 1)

    # The framework's own retrieve() drops nodes of one id; what an adapter is given may hold them all the same.
    def retrieve(self, str_or_query_bundle: str | QueryBundle) -> list[NodeWithScore]:
        asked = str_or_query_bundle
        return self._retrieve(QueryBundle(asked) if isinstance(asked, str) else asked)

    async def aretrieve(self, str_or_query_bundle: str | QueryBundle) -> list[NodeWithScore]:
        return self.retrieve(str_or_query_bundle)


def node(text: str, name: str = "n", **metadata: Any) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text, id_=name, metadata=metadata), score=0.5)


def fixed(p_ref: float | Callable[[Case], float] = 1.0, **settings: Any) -> ISRGate:
    """A gate with a model that is sure, and an oracle."""
    return ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(p_ref), **settings)


def speaks_of(*words: str) -> Callable[[Case], float]:
    """An oracle that is satisfied when every word stands somewhere in the evidence."""

    def judge(case: Case) -> float:
        text = " ".join(chunk.text for chunk in case.chunks)
        return float(all(word in text for word in words))

    return judge


def texts(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [n.node.get_content() for n in nodes]


class ScriptedLLM(FunctionCallingLLM):
    """Calls `search_evidence` as its script says, one call a turn, and then speaks its last words."""

    asks: list[dict[str, str]]
    last: Callable[[list[str]], str | ChatMessage] = lambda heard: "done"
    condensed: str = ""
    tool: str = "search_evidence"
    heard: list[str] = Field(default_factory=list)
    users: list[str] = Field(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, is_chat_model=True)

    def _prepare_chat_with_tools(self, tools: Any, user_msg: Any = None, chat_history: Any = None, **kw: Any) -> Any:
        return {}

    async def achat_with_tools(self, *args: Any, chat_history: Any = None, **kwargs: Any) -> ChatResponse:
        self.heard[:] = [str(m.content) for m in chat_history or [] if m.role == MessageRole.TOOL]
        self.users[:] = [str(m.content) for m in chat_history or [] if m.role == MessageRole.USER]
        said = "" if len(self.heard) < len(self.asks) else self.last(self.heard)
        message = said if isinstance(said, ChatMessage) else ChatMessage(role="assistant", content=said)
        return ChatResponse(message=message, raw={"turn": len(self.heard)})

    def get_tool_calls_from_response(self, response: ChatResponse, *args: Any, **kwargs: Any) -> list[ToolSelection]:
        turn = response.raw["turn"] if isinstance(response.raw, dict) else len(self.asks)
        if turn >= len(self.asks):
            return []
        return [ToolSelection(tool_id=f"t{turn}", tool_name=self.tool, tool_kwargs=self.asks[turn])]

    def _never(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("agents call achat_with_tools")

    chat = stream_chat = complete = stream_complete = astream_chat = acomplete = astream_complete = _never

    async def achat(self, *args: Any, **kwargs: Any) -> Any:
        """Rewrites a follow-up."""
        return ChatResponse(message=ChatMessage(role="assistant", content=self.condensed))


class OpaqueEngine(BaseQueryEngine):
    """An engine that cannot retrieve without answering."""

    def __init__(self, nodes: list[NodeWithScore]) -> None:
        super().__init__(None)
        self.nodes = nodes

    def _get_prompt_modules(self) -> Any:
        return {}

    def _query(self, query_bundle: QueryBundle) -> Any:
        return Response("drafted", source_nodes=self.nodes)

    async def _aquery(self, query_bundle: QueryBundle) -> Any:
        return self._query(query_bundle)


class OneQuestion(BaseQuestionGenerator):
    """Asks the question itself as the one sub-question."""

    def _get_prompts(self) -> dict[str, Any]:
        return {}

    def _update_prompts(self, prompts: Any) -> None:
        pass

    def generate(self, tools: Any, query: QueryBundle) -> list[SubQuestion]:
        return [SubQuestion(sub_question=query.query_str, tool_name="rivers")]

    async def agenerate(self, tools: Any, query: QueryBundle) -> list[SubQuestion]:
        return self.generate(tools, query)


class Recorder(BaseEventHandler):
    events: list[Any] = Field(default_factory=list)

    def handle(self, event: Any, **kwargs: Any) -> None:
        self.events.append(event)


@contextmanager
def recorded() -> Iterator[tuple[Recorder, SimpleSpanHandler]]:
    root, recorder, spans = get_dispatcher(), Recorder(), SimpleSpanHandler()
    root.add_event_handler(recorder)
    root.add_span_handler(spans)
    try:
        yield recorder, spans
    finally:
        root.event_handlers.remove(recorder)
        root.span_handlers.remove(spans)
