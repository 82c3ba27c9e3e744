"""A query engine that abstains: before the LLM drafts, before a draft is released, or both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from copy import deepcopy
from typing import Any, Literal, cast

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    PydanticResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import QueryBundle
from pydantic import BaseModel, ValidationError

from isr_rag import AnswerAudit, Decision, ISRGate, Reason
from isr_rag.core.evidence import Chunk, one_line
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError
from isr_rag.gate.acquisition import abstain
from isr_rag.gate.adapters import MESSAGE, gate_for, stands_alone, unquoted
from llama_index.postprocessor.isr.evidence import (
    AFetch,
    EngineRounds,
    Fetch,
    Gathered,
    Nodes,
    Rewrite,
    Widening,
    aattempt,
    agather,
    aretrieve,
    attempt,
    can_retrieve,
    check_engine,
    chunk_of,
    copied,
    decided,
    gather,
    originals,
    quietly,
)
from llama_index.postprocessor.isr.gate import warn_unless_last
from llama_index.postprocessor.isr.inner_answers import documents

dispatcher = get_dispatcher(__name__)

Place = Literal["before", "after", "both"]
AUDIT_KEY = "isr_audit"
"""Where an audit is in a response's metadata."""


class ISRQueryEngine(BaseQueryEngine):
    """Answers through another query engine, or abstains with a message and the evidence still attached.

    `response.metadata["isr"]` holds the decision and `["isr_rounds"]` every decision of the run, as plain data.
    Where the engine streams, a gate before drafting leaves the token stream as it is; one after drafting takes in the
    whole draft and releases nothing of it before it has decided.

    With `audit=True` the draft is judged statement by statement instead of as a whole: the response is what may go
    out of it, with inline citations `[n]` of `source_nodes`, and `metadata["isr_audit"]` the audit as plain data
    (`isr_rag.AnswerAudit.from_dict` reads it), in which blocks take the place of what is left out.

    ```python
    engine = ISRQueryEngine(index.as_query_engine(), place="both")
    print(engine.query("Which river flows through Paris?"))
    ```

    Args:
        query_engine: drafts the answer: `index.as_query_engine()`, `RetrieverQueryEngine(retriever, synthesizer)`
            or any other. One that cannot retrieve without answering can be gated `after` only. Of its nodes those that
            hold what an engine inside it answered are no evidence; since others may hold words of its model, too, an
            abstention gives none of them back.
        gate: decides; by default the embedded model with its shipped calibration, at h* = 0.2 before drafting and at
            0.05 after it. Its `on_error` says what happens when the scorer or the retriever fails.
        place: `before`: does the evidence hold enough to answer, else the LLM is not called. `after`: does the
            evidence support the draft. `both`: one after the other.
        rounds: how often to retrieve at most, >= 1; h* is split over the rounds. A gate `after` drafts once, on the
            first round, and then searches for more support of that draft.
        factor: how much deeper each further round goes, >= 2.
        rewrite: other words for the query of a further round: `rewrite(query, round_number, decision)`.
        message: what the caller reads after an abstention.
        audit: audit the draft; with `place="after"` or `"both"` in place of the decision about the whole of it.
        callback_manager: the engine's own by default.

    Raises:
        ConfigurationError: for settings out of range, or that the engine cannot follow.
        InvalidTypeError: for a gate that is not one of `isr_rag`, or an engine that is none.
        ISRError: from a query, as `isr_rag.ISRGate.decide`.
    """

    def __init__(
        self,
        query_engine: BaseQueryEngine,
        *,
        gate: ISRGate | None = None,
        place: Place = "before",
        rounds: int = 1,
        factor: int = 2,
        rewrite: Rewrite | None = None,
        message: str = MESSAGE,
        audit: bool = False,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_engine(query_engine)
        if place not in ("before", "after", "both"):
            raise ConfigurationError(f"place must be 'before', 'after' or 'both', got {place!r}")
        widening = Widening(factor, rewrite)
        widening.check(getattr(query_engine, "retriever", None), rounds)
        if not can_retrieve(query_engine) and (place != "after" or rounds > 1):
            raise ConfigurationError(
                f"{type(query_engine).__name__} cannot retrieve without answering: "
                "gate it with place='after' and rounds=1"
            )
        if audit and place == "after" and rounds > 1:
            raise ConfigurationError("an audit judges the draft on the nodes that it was drafted from: give rounds=1")
        super().__init__(callback_manager or query_engine.callback_manager)
        self._engine, self._place, self._message = query_engine, place, message
        self._rounds, self._widening = rounds, widening
        self._audit = audit
        self._gate = gate_for("after" if place == "after" else "before", gate, rounds=rounds)
        self._judge = gate_for("after", gate) if place == "both" or audit else self._gate
        warn_unless_last(query_engine)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {"query_engine": self._engine}

    def retrieve(self, query_bundle: QueryBundle) -> Nodes:
        """The nodes of the first round, ungated."""
        return self._engine.retrieve(query_bundle)

    async def aretrieve(self, query_bundle: QueryBundle) -> Nodes:
        """As `retrieve`, awaited."""
        return await aretrieve(self._engine, query_bundle)

    @dispatcher.span
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        if self._place == "after":
            return self._after(query_bundle)
        rounds, question = EngineRounds(self._engine, self._widening, query_bundle), query_bundle.query_str
        found = gather(self._gate, rounds.fetch, question=question, rounds=self._rounds)
        if not found.decision.answered:
            return self._abstain(found, StreamingResponse if self._streams() else Response)
        if self._place == "before" and not self._audit:
            return _attach(self._engine.synthesize(query_bundle, found.nodes), found)
        with quietly():
            response = self._engine.synthesize(deepcopy(query_bundle), copied(found.nodes))
            draft = read_whole(response)
        read = originals(draft.source_nodes, found.nodes) or found.nodes
        if self._audit:
            audit = _audit(self._judge, question, draft, read)
            return self._audited(response, draft, read, audit, found)
        checked = gather(self._judge, _given(read), question=question, answer=draft.response)
        return self._release(response, draft, checked.after(found))

    def _after(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        question = query_bundle.query_str
        rounds = EngineRounds(self._engine, self._widening, query_bundle)
        first: Nodes = []
        if can_retrieve(self._engine):
            found_first = attempt(lambda: self._engine.retrieve(query_bundle))
            if not isinstance(found_first, list) or not found_first:  # nothing to draft from: the gate's policy decides
                nothing = gather(self._gate, _given(found_first), question=question)
                return self._abstain(nothing, StreamingResponse if self._streams() else Response)
            first = found_first
        with quietly(), documents() as of_documents:
            if first:
                response = self._engine.synthesize(deepcopy(query_bundle), copied(first))
            else:
                response = self._engine.query(deepcopy(query_bundle))
            draft = read_whole(response)
        read = originals(draft.source_nodes, first) if first else of_documents(draft.source_nodes)
        if draft.source_nodes and not read:
            return self._release(response, draft, self._unfounded(question, draft))
        if self._audit and stands_alone(question):
            audit = _audit(self._gate, question, draft, read)
            return self._audited(response, draft, read, audit, None)

        def fetch(query: str, number: int, previous: Decision | None) -> Nodes:
            return rounds.fetch(query, number, previous) if number else read

        found = gather(
            self._gate,
            fetch,
            question=question,
            answer=draft.response,
            rounds=self._rounds,
            drafted=not can_retrieve(self._engine),
        )
        return self._release(response, draft, found)

    @dispatcher.span
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        if self._place == "after":
            return await self._aafter(query_bundle)
        rounds, question = EngineRounds(self._engine, self._widening, query_bundle), query_bundle.query_str
        found = await agather(self._gate, rounds.afetch, question=question, rounds=self._rounds)
        if not found.decision.answered:
            return self._abstain(found, AsyncStreamingResponse if self._streams() else Response)
        if self._place == "before" and not self._audit:
            return _attach(await self._engine.asynthesize(query_bundle, found.nodes), found)
        with quietly():
            response = await self._engine.asynthesize(deepcopy(query_bundle), copied(found.nodes))
            draft = await aread_whole(response)
        read = originals(draft.source_nodes, found.nodes) or found.nodes
        if self._audit:
            audit = await _aaudit(self._judge, question, draft, read)
            return self._audited(response, draft, read, audit, found)
        checked = await agather(self._judge, _agiven(read), question=question, answer=draft.response)
        return self._release(response, draft, checked.after(found))

    async def _aafter(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        question = query_bundle.query_str
        rounds = EngineRounds(self._engine, self._widening, query_bundle)
        first: Nodes = []
        if can_retrieve(self._engine):
            found_first = await aattempt(aretrieve(self._engine, query_bundle))
            if not isinstance(found_first, list) or not found_first:
                nothing = await agather(self._gate, _agiven(found_first), question=question)
                return self._abstain(nothing, AsyncStreamingResponse if self._streams() else Response)
            first = found_first
        with quietly(), documents() as of_documents:
            if first:
                response = await self._engine.asynthesize(deepcopy(query_bundle), copied(first))
            else:
                response = await self._engine.aquery(deepcopy(query_bundle))
            draft = await aread_whole(response)
        read = originals(draft.source_nodes, first) if first else of_documents(draft.source_nodes)
        if draft.source_nodes and not read:
            return self._release(response, draft, self._unfounded(question, draft))
        if self._audit and stands_alone(question):
            audit = await _aaudit(self._gate, question, draft, read)
            return self._audited(response, draft, read, audit, None)

        async def fetch(query: str, number: int, previous: Decision | None) -> Nodes:
            return await rounds.afetch(query, number, previous) if number else read

        found = await agather(
            self._gate,
            fetch,
            question=question,
            answer=draft.response,
            rounds=self._rounds,
            drafted=not can_retrieve(self._engine),
        )
        return self._release(response, draft, found)

    def _streams(self) -> bool:
        """Whether the engine streams: chat engines switch it on and off between two queries."""
        engine: object = self._engine
        while isinstance(inner := getattr(engine, "_query_engine", None), BaseQueryEngine):
            engine = inner
        return bool(getattr(getattr(engine, "_response_synthesizer", None), "_streaming", False))

    def _abstain(self, found: Gathered, kind: type[RESPONSE_TYPE]) -> RESPONSE_TYPE:
        return _respond(self._message, kind, found.nodes, found.metadata())

    def _unfounded(self, question: str, draft: Response) -> Gathered:
        """The abstention about a draft that rests on nothing but answers of engines inside the one that wrote it."""
        detail = "its nodes hold nothing but answers of other engines, which nobody has judged: give documents, too"
        made = abstain(self._gate, Reason.NO_EVIDENCE, detail, question=question, answer=draft.response)
        return decided((made,), [], question, draft.response)

    def _release(self, response: RESPONSE_TYPE, draft: Response, found: Gathered) -> RESPONSE_TYPE:
        """The draft made anew from its text, or the abstention in its place, in the form that the engine answers in."""
        if not found.decision.answered:
            return self._abstain(found, type(response))
        text, metadata = draft.response or "", {**_sources(found.nodes), **found.metadata()}
        if isinstance(response, PydanticResponse):
            return PydanticResponse(_anew(response.response, text), source_nodes=found.nodes, metadata=metadata)
        return _respond(text, type(response), found.nodes, metadata)

    def _audited(
        self, response: RESPONSE_TYPE, draft: Response, nodes: Nodes, audit: AnswerAudit | None, found: Gathered | None
    ) -> RESPONSE_TYPE:
        """What may go out of a draft, or the abstention in its place, in the form that the engine answers in."""
        metadata = found.metadata() if found is not None else {}
        text = ""
        if audit is not None:
            metadata[AUDIT_KEY] = audit.masked().to_dict()
            text = audit.releasable(cite=True).text
        if text:
            metadata = {**_sources(nodes), **metadata}
        elif not can_retrieve(self._engine):  # nodes, and the audit with them, may hold words of the engine's model
            nodes, metadata = [], {}
        return _respond(text or self._message, type(response), nodes, metadata)


def _anew(draft: BaseModel | None, judged: str) -> BaseModel:
    """A structured draft made anew from its JSON, which was judged.

    Raises:
        InvalidInputError: if that makes another one, or none.
    """
    try:
        made = type(draft).model_validate_json(judged)  # type: ignore[union-attr]  # it has a text: not None
    except ValidationError:
        made = None
    # A set may come in another order in JSON.
    if made is None or (_json(made) != judged and _held(made) != _held(draft)):
        raise InvalidInputError("the structured draft cannot be made anew from its JSON")
    return made


def _json(structured: BaseModel) -> str:
    return structured.model_dump_json(warnings=False)


def _held(structured: Any) -> dict[str, Any]:
    return structured.model_dump(warnings=False)  # type: ignore[no-any-return]


def _sources(nodes: Nodes) -> dict[str, Any]:
    """The metadata of nodes by their ids, as response synthesizers attach it."""
    return {one.node.node_id: one.node.metadata for one in nodes}


def _asked(question: str, draft: Response, nodes: Nodes) -> dict[str, Any]:
    """The arguments of an audit; a node without text keeps its place in the evidence, since markers count it."""
    evidence = [chunk if one_line(chunk.text) else Chunk("…") for chunk in map(chunk_of, nodes)]
    return {"answer": draft.response, "question": question if question.strip() else None, "evidence": evidence}


def _audit(gate: ISRGate, question: str, draft: Response, nodes: Nodes) -> AnswerAudit | None:
    """The audit of a draft; None where it has no text."""
    with unquoted(draft.response):
        return gate.audit(**_asked(question, draft, nodes)) if draft.response else None


async def _aaudit(gate: ISRGate, question: str, draft: Response, nodes: Nodes) -> AnswerAudit | None:
    """As `_audit`, without blocking the event loop."""
    with unquoted(draft.response):
        return await gate.aaudit(**_asked(question, draft, nodes)) if draft.response else None


def _given(first: Nodes | Exception) -> Fetch:
    """A round that finds what is there already, or fails as that did."""

    def fetch(query: str, number: int, previous: Decision | None) -> Nodes:
        if isinstance(first, Exception):
            raise first
        return first

    return fetch


def _agiven(first: Nodes | Exception) -> AFetch:
    given = _given(first)

    async def fetch(query: str, number: int, previous: Decision | None) -> Nodes:
        return given(query, number, previous)

    return fetch


def _attach(response: RESPONSE_TYPE, found: Gathered) -> RESPONSE_TYPE:
    response.metadata = {**(response.metadata or {}), **found.metadata()}
    return response


def read_whole(response: RESPONSE_TYPE) -> Response:
    """A draft as a whole; a stream of it is taken in before anybody sees a word.

    Raises:
        InvalidInputError: for a response without text, whose draft may be anywhere in it.
    """
    if isinstance(response, AsyncStreamingResponse):
        raise InvalidTypeError("a sync query was answered with an async stream: use aquery()")
    given = cast(object, response)  # not every engine heeds its type
    if not isinstance(given, (Response, PydanticResponse, StreamingResponse)):
        raise InvalidTypeError(f"a query engine answers with a Response, not {type(given).__name__}")
    if isinstance(response, PydanticResponse) and response.response is not None:
        return Response(_json(response.response), response.source_nodes, response.metadata)
    return _whole(response if isinstance(response, Response) else response.get_response(), response)


async def aread_whole(response: RESPONSE_TYPE) -> Response:
    """As `read_whole`, for either kind of stream."""
    if isinstance(response, AsyncStreamingResponse):
        return _whole(await response.get_response(), response)
    return read_whole(response)


def _whole(draft: Response, response: RESPONSE_TYPE) -> Response:
    if draft.response is None or (isinstance(response, PydanticResponse) and response.response is None):
        raise InvalidInputError("the engine's response has no text: what it drafted cannot be judged")
    return draft


def _respond(text: str, kind: type[RESPONSE_TYPE], nodes: Nodes, metadata: dict[str, Any]) -> RESPONSE_TYPE:
    if kind is StreamingResponse:
        return StreamingResponse(_tokens(text), source_nodes=nodes, metadata=metadata)
    if kind is AsyncStreamingResponse:
        return AsyncStreamingResponse(_atokens(text), source_nodes=nodes, metadata=metadata)
    return Response(text, source_nodes=nodes, metadata=metadata)


def _tokens(text: str) -> Generator[str, None, None]:
    yield text


async def _atokens(text: str) -> AsyncGenerator[str, None]:
    yield text
