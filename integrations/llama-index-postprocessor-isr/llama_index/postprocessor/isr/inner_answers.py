"""What engines inside an engine answer: nobody has judged it, so it is no evidence of a draft that rests on it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.query import QueryEndEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.instrumentation.events.synthesis import SynthesizeEndEvent
from llama_index.core.schema import NodeWithScore

from isr_rag.core.evidence import one_line
from llama_index.postprocessor.isr.evidence import Nodes


class _Listener(BaseEventHandler):
    """Hears, for every engine that is being asked, what engines answer and what retrievers find."""

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        if isinstance(event, (QueryEndEvent, SynthesizeEndEvent, RetrievalEndEvent)):
            for heard in [*_hearing.values()]:
                heard.append(event)


_listener = _Listener()
_hearing: dict[object, list[BaseEvent]] = {}


@contextmanager
def documents() -> Generator[Callable[[Nodes], Nodes], None, None]:
    """While an engine is asked that asks others: leaves out nodes that hold what those answered.

    Nobody has judged such an answer: as evidence it would support the draft that was made from it. A retriever may find
    a document with the same words; that stays.
    """
    key, heard, root = object(), list[BaseEvent](), get_dispatcher()
    if all(one is not _listener for one in root.event_handlers):
        root.add_event_handler(_listener)
    _hearing[key] = heard  # not by context: an engine may ask others in threads of its own
    try:
        yield partial(_documents, heard)
    finally:
        del _hearing[key]


def _documents(heard: Sequence[BaseEvent], nodes: Nodes) -> Nodes:
    told, known = list[tuple[str, str]](), dict[str, bool]()
    for event in heard:
        if isinstance(event, RetrievalEndEvent):
            for node in event.nodes:
                known.setdefault(node.node.node_id, _holds_answer(node, told))
        elif isinstance(event, (QueryEndEvent, SynthesizeEndEvent)):
            query, given = event.query, event.response
            if isinstance(given, (StreamingResponse, AsyncStreamingResponse)):
                text = given.response_txt or ""  # str() would use the stream up
            else:
                text = str(given)
            told.append((one_line(query if isinstance(query, str) else query.query_str), one_line(text)))
    return [node for node in nodes if not known.get(node.node.node_id, _holds_answer(node, told))]


def _holds_answer(node: NodeWithScore, told: Sequence[tuple[str, str]]) -> bool:
    """Whether a node is an answer, or the record of a question with its answer."""
    text = one_line(node.node.get_content())
    return any(answer and (text == answer or (query in text and answer in text)) for query, answer in told)
