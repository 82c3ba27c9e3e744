"""Nodes as evidence: what the gate reads of them, and how more of them are fetched."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.dispatcher import active_instrument_tags, instrument_tags
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.tools import BaseTool

from isr_rag import Decision, ISRGate, aacquire, acquire
from isr_rag.core.evidence import Chunk, one_line
from isr_rag.errors import ConfigurationError, InvalidTypeError
from isr_rag.gate.adapters import asked, drafting, not_alone, unquoted
from llama_index.postprocessor.isr.events import ISRDecisionEvent

dispatcher = get_dispatcher(__name__)

quietly = partial(drafting, "llama_index", "workflows")
"""What is said of a draft that is made inside loses its words, as `drafting` says."""

KEY = "isr"
"""Where a decision rides in metadata."""

Nodes = list[NodeWithScore]
Fetch = Callable[[str, int, Decision | None], Nodes]
"""Fetches the nodes of a round: takes the query, the round from 0 and the previous decision."""

AFetch = Callable[[str, int, Decision | None], Awaitable[Nodes]]

Rewrite = Callable[[str, int, Decision], str]
"""Rewords a query: takes the query, the round from 1 and the previous decision."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a gate decided, and on what.

    Attributes:
        decisions: one a round; the last is ANSWER or ABSTAIN.
        nodes: the caller's own nodes in the order they were first seen.
    """

    decisions: tuple[Decision, ...]
    nodes: Nodes

    @property
    def decision(self) -> Decision:
        """The one that counts."""
        return self.decisions[-1]

    def after(self, earlier: Gathered) -> Gathered:
        """The same, with the decisions of an earlier gate before its own."""
        return replace(self, decisions=(*earlier.decisions, *self.decisions))

    def metadata(self) -> dict[str, Any]:
        """Plain data for a response: the decision, and all decisions in their order."""
        rounds = [decision.to_dict() for decision in self.decisions]
        return {KEY: rounds[-1], f"{KEY}_rounds": rounds}


def gather(
    gate: ISRGate, fetch: Fetch, *, question: str, answer: str | None = None, rounds: int = 1, drafted: bool = False
) -> Gathered:
    """Retrieve until the gate answers, at most `rounds` times (`isr_rag.acquire`).

    A question that does not stand alone is an abstention; nothing is retrieved for it. Where nodes may hold words of
    the model that drafts (`drafted`), decisions do not quote them, and after an abstention none is given back.

    Raises:
        ISRError: as `isr_rag.acquire`.
    """
    nodes: Nodes = []
    if (refused := not_alone(gate, question, answer)) is not None:
        return decided((refused,), nodes, question)

    def retrieve(query: str, number: int, previous: Decision | None) -> Sequence[Chunk]:
        with _quiet(answer):
            found = attempt(lambda: fetch(query, number, previous))
        return _keep(nodes, found)

    with unquoted(answer):
        trail = acquire(gate, retrieve, question=question, answer=answer, rounds=rounds)
    return decided(trail.decisions, nodes, question, answer, drafted=drafted)


async def agather(
    gate: ISRGate, fetch: AFetch, *, question: str, answer: str | None = None, rounds: int = 1, drafted: bool = False
) -> Gathered:
    """As `gather`, awaiting the retriever and the gate."""
    nodes: Nodes = []
    if (refused := not_alone(gate, question, answer)) is not None:
        return decided((refused,), nodes, question)

    async def retrieve(query: str, number: int, previous: Decision | None) -> Sequence[Chunk]:
        with _quiet(answer):
            found = await aattempt(fetch(query, number, previous))
        return _keep(nodes, found)

    with unquoted(answer):
        trail = await aacquire(gate, retrieve, question=question, answer=answer, rounds=rounds)
    return decided(trail.decisions, nodes, question, answer, drafted=drafted)


def decided(
    made: Sequence[Decision], nodes: Nodes, question: str, draft: str | None = None, *, drafted: bool = False
) -> Gathered:
    """Decisions with the question that they are about, told to the instrumentation; `drafted` as for `gather`."""
    decisions = tuple(asked(decision, question, draft) for decision in made)
    if drafted:
        decisions = tuple(replace(decision, nearest=None) for decision in decisions)
        nodes = nodes if decisions[-1].answered else []
    # A workflow tags what happens in a step with a summary of its input, such as the arguments of a tool.
    tags = {name: tag for name, tag in active_instrument_tags.get().items() if not name.startswith("llamaindex.")}
    with instrument_tags(tags):
        for decision in decisions:
            dispatcher.event(ISRDecisionEvent(decision=decision.to_dict()))
    return Gathered(decisions, nodes)


def attempt(call: Callable[[], Nodes]) -> Nodes | Exception:
    """What a retrieval gives, or what it raises."""
    try:
        return call()
    except Exception as error:
        return error


async def aattempt(call: Awaitable[Nodes]) -> Nodes | Exception:
    """As `attempt`, awaited."""
    try:
        return await call
    except Exception as error:
        return error


def _quiet(draft: str | None) -> AbstractContextManager[None]:
    """While support of a draft is searched for, by its words, LlamaIndex logs none of them."""
    return nullcontext() if draft is None else quietly()


def _keep(nodes: Nodes, found: Sequence[NodeWithScore] | Exception) -> list[Chunk]:
    """Add nodes whose text is new to the LLM (ids repeat); equal nodes of one round are all kept."""
    if isinstance(found, Exception):
        raise found
    there = Counter(map(chunk_of, nodes))
    for node in found:
        chunk = chunk_of(node)
        if there[chunk]:
            there[chunk] -= 1
        else:
            nodes.append(node)
    return [chunk for chunk in map(chunk_of, found) if one_line(chunk.text)]


def chunk_of(node: NodeWithScore) -> Chunk:
    """A node as a chunk of evidence: exactly the text that a response synthesizer puts before the LLM.

    That is the node's content with the metadata the LLM sees (`MetadataMode.LLM`): nothing that
    `excluded_llm_metadata_keys` hides, and everything that it does not.
    """
    return Chunk(node.node.get_content(MetadataMode.LLM))


@dataclass(frozen=True, slots=True)
class Widening:
    """How a further round retrieves: deeper by a factor, with other words, or both.

    Attributes:
        factor: how much deeper each further round goes, >= 2.
        rewrite: other words for the query of each further round; None keeps them.
    """

    factor: int = 2
    rewrite: Rewrite | None = None

    def __post_init__(self) -> None:
        if self.factor < 2:
            raise ConfigurationError(f"factor must be at least 2 to widen, got {self.factor}")

    def check(self, retriever: object, rounds: int) -> None:
        """Refuse further rounds that could bring nothing new.

        Raises:
            ConfigurationError: if there are any, and nothing changes between them.
        """
        if rounds > 1 and self.rewrite is None and not _has_depth(retriever, {id(retriever)}):
            name = "the engine" if retriever is None else type(retriever).__name__
            raise ConfigurationError(
                f"{name} has no similarity_top_k to widen, so a further round would bring the "
                "same nodes: give rewrite=..., or rounds=1"
            )

    def bundle(self, asked: QueryBundle, query: str, number: int, previous: Decision | None) -> QueryBundle:
        """The query of a round: the caller's own bundle, with its embedding, unless it is reworded."""
        if self.rewrite is not None and previous is not None:
            query = self.rewrite(query, number, previous)
        return asked if query == asked.query_str else QueryBundle(query)

    def widened(self, retriever: BaseRetriever, number: int) -> BaseRetriever:
        """The retriever of a round: a copy that looks deeper, as do those that it asks."""
        return retriever if number == 0 else _deeper(retriever, self.factor**number, {})


def _has_depth(retriever: object, seen: set[int]) -> bool:
    """Whether a retriever, or one that it asks, can look deeper."""
    if hasattr(retriever, "similarity_top_k"):
        return True
    return isinstance(retriever, BaseRetriever) and any(_has_depth(one, seen) for one in _held(retriever, seen))


def _deeper(retriever: BaseRetriever, factor: int, made: dict[int, Any]) -> BaseRetriever:
    """A copy of a retriever that looks deeper by a factor, and asks such copies of those that the retriever asks."""
    if id(retriever) in made:
        return made[id(retriever)]  # type: ignore[no-any-return]
    wider: Any = copy.copy(retriever)
    made[id(retriever)] = wider
    top_k = getattr(retriever, "similarity_top_k", None)
    if isinstance(top_k, int):
        wider.similarity_top_k = min(top_k * factor, _size(retriever))

    def part(one: Any) -> Any:
        return _deeper(one, factor, made) if isinstance(one, BaseRetriever) else one

    for name, own in vars(retriever).items():
        if isinstance(own, BaseRetriever):
            vars(wider)[name] = part(own)
        elif isinstance(own, list) and any(isinstance(one, BaseRetriever) for one in own):
            vars(wider)[name] = list(map(part, own))
        elif isinstance(own, dict) and any(isinstance(one, BaseRetriever) for one in own.values()):
            vars(wider)[name] = {key: part(one) for key, one in own.items()}
    return wider  # type: ignore[no-any-return]


def _size(retriever: Any) -> int:
    """How many nodes a retriever holds, where it refuses a greater top-k (BM25 does)."""
    scores = getattr(getattr(retriever, "bm25", None), "scores", None)
    return int(scores["num_docs"]) if isinstance(scores, dict) and "num_docs" in scores else 10**6


@dataclass(frozen=True, slots=True)
class EngineRounds:
    """Rounds of retrieval through a query engine, for one question."""

    engine: BaseQueryEngine
    widening: Widening
    asked: QueryBundle

    def fetch(self, query: str, number: int, previous: Decision | None) -> Nodes:
        """The nodes of one round, after the engine's own postprocessors."""
        return self._engine(number).retrieve(self.widening.bundle(self.asked, query, number, previous))

    async def afetch(self, query: str, number: int, previous: Decision | None) -> Nodes:
        """As `fetch`, awaited."""
        bundle = self.asked
        if number:  # rewriting may call a model
            bundle = await asyncio.to_thread(self.widening.bundle, self.asked, query, number, previous)
        return await aretrieve(self._engine(number), bundle)

    def _engine(self, number: int) -> BaseQueryEngine:
        retriever = getattr(self.engine, "retriever", None)
        if number == 0 or not isinstance(retriever, BaseRetriever):
            return self.engine
        wider: Any = copy.copy(self.engine)
        wider._retriever = self.widening.widened(retriever, number)
        return wider  # type: ignore[no-any-return]


def check_engine(engine: object) -> None:
    """Refuse what is no query engine, such as an index.

    Raises:
        InvalidTypeError: if it is none.
    """
    if not isinstance(engine, BaseQueryEngine):
        raise InvalidTypeError(
            f"query_engine must be a query engine, not {type(engine).__name__}: an index makes one, as_query_engine()"
        )


def can_retrieve(engine: BaseQueryEngine, seen: set[int] | None = None) -> bool:
    """Whether a query engine can retrieve without answering, and answer from that; a retriever of answers cannot."""
    kind, seen = type(engine), {id(engine)} if seen is None else seen
    apart = kind.retrieve is not BaseQueryEngine.retrieve and kind.synthesize is not BaseQueryEngine.synthesize
    return apart and all(
        can_retrieve(one, seen) if isinstance(one, BaseQueryEngine) else not _answers(one, seen)
        for one in _held(engine, seen)
    )


def _answers(retriever: object, seen: set[int]) -> bool:
    """Whether a retriever asks query engines, whose answers become its nodes; itself or one that it asks."""
    return any(isinstance(one, BaseQueryEngine) or _answers(one, seen) for one in _held(retriever, seen))


def _held(one: object, seen: set[int]) -> Iterator[object]:
    """The engines, retrievers and tools that one of them holds, alone or in a list or dict, and that are new."""
    for own in (vars(one) | (getattr(one, "__pydantic_private__", None) or {})).values():
        each = own.values() if isinstance(own, dict) else own if isinstance(own, (list, tuple, set)) else [own]
        kinds = {kind for kind in set(map(type, each)) if issubclass(kind, (BaseQueryEngine, BaseRetriever, BaseTool))}
        for part in each if kinds else ():  # most lists are long, and of texts
            if type(part) in kinds and id(part) not in seen:
                seen.add(id(part))
                yield part


def check_finds(retriever: object) -> None:
    """Refuse to take what engines answer for evidence.

    Raises:
        ConfigurationError: if a retriever asks query engines.
    """
    if isinstance(retriever, BaseRetriever) and _answers(retriever, {id(retriever)}):
        raise ConfigurationError(
            f"{type(retriever).__name__} asks query engines, whose answers no gate has judged and are no evidence: "
            "give a retriever of the documents"
        )


def copied(nodes: Nodes) -> Nodes:
    """Copies for what drafts: what it writes into them goes nowhere."""
    return [node.model_copy(deep=True) for node in nodes]


def originals(nodes: Nodes, given: Nodes) -> Nodes:
    """The nodes that a draft was made from, as they were retrieved where their text is what it was; ids repeat."""
    left: dict[tuple[str, str], Nodes] = {}
    for node in given:
        left.setdefault(_known_by(node), []).append(node)
    kept: Nodes = []
    for node in nodes:
        same = left.get(_known_by(node), [node])
        kept.append(same.pop(0) if len(same) > 1 else same[0])
    return kept


def _known_by(node: NodeWithScore) -> tuple[str, str]:
    return node.node.node_id, node.node.get_content()


async def aretrieve(engine: BaseQueryEngine, bundle: QueryBundle) -> Nodes:
    """Await an engine's retrieval; in a thread where it has no async one."""
    own = getattr(engine, "aretrieve", None)
    if own is None:
        return await asyncio.to_thread(engine.retrieve, bundle)
    found: Nodes = await own(bundle)
    return found
