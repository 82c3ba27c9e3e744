"""The tiny server, scorers on it, and the tiny model in this process to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from isr_rag.core.evidence import Chunk
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.predicates import Supported
from isr_rag.core.scorer import ScoreRequest
from isr_rag.scorers.transformers import TransformersScorer
from tests.scorers.remote.servers import Features, Proxy, Tiny

if TYPE_CHECKING:
    from isr_rag.scorers.remote import RemoteScorer

Connect = Callable[..., "RemoteScorer"]


@pytest.fixture(scope="module")
def tiny_server() -> Tiny:
    return Tiny()


@pytest.fixture
def server(tiny_server: Tiny) -> Tiny:
    """The tiny server with every feature, as new."""
    tiny_server.features = Features()
    tiny_server.most_in_flight = 0
    for kept in (tiny_server.seen, tiny_server.headers, tiny_server.connections):
        kept.clear()
    return tiny_server


@pytest.fixture
def proxy(server: Tiny) -> Iterator[Proxy]:
    """Passes on to the tiny server until it is told to spoil something."""
    with server.serve() as url:
        yield Proxy(url)


@pytest.fixture
def connect(server: Tiny) -> Iterator[Connect]:
    """A scorer for the tiny server, or for a URL of one's own; closed afterwards."""
    from isr_rag.scorers.remote import remote_scorer

    with ExitStack() as stack:

        def call(url: str | None = None, *, known: bool = True, **settings: Any) -> RemoteScorer:
            if url is None:
                url = stack.enter_context(server.serve())
            settings = {"top": 1000, "retries": 2, "timeout": 5.0, "deadline": 20.0, **settings}
            tokenizer = server.tokenizer if known else None
            return stack.enter_context(remote_scorer(url, tokenizer=tokenizer, **settings))

        yield call


@pytest.fixture(scope="module")
def local(tiny_server: Tiny) -> TransformersScorer:
    """The same weights in this process."""
    return TransformersScorer(tiny_server.model, tiny_server.tokenizer)


def request_about(claim: str = "Paris is the capital of France.", chunks: int = 4, m: int = 6) -> ScoreRequest:
    texts = [f"Lyon is city number {i} of France." for i in range(chunks)]
    return ScoreRequest(Supported(claim=claim).render([Chunk(text) for text in texts]), draw_orderings(chunks, m))
