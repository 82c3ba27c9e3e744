"""The gate as tools of an agent (MCP): judge what was drafted, ask whether evidence suffices, search a folder."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, ValidationError

from isr_rag import __version__
from isr_rag._util.bm25 import Bm25
from isr_rag._util.text import printable
from isr_rag.audit import AnswerAudit, AuditAction, Verdict
from isr_rag.audit.statement import MarkerStatus
from isr_rag.core.decision import Action, Decision, Reason
from isr_rag.core.evidence import Chunk, one_line
from isr_rag.core.work import Asked
from isr_rag.errors import ISRError
from isr_rag.gate.acquisition import aacquire
from isr_rag.io.sources import read_evidence
from isr_rag_server.http.bodies import Bodies, parsed
from isr_rag_server.http.clients import Allowance
from isr_rag_server.http.fields import AuditRequest, DecideRequest, TextChunk
from isr_rag_server.http.problems import Problem, refusal
from isr_rag_server.http.service import Asker, Service

_INSTRUCTIONS = (
    "Before you rely on an answer or a claim, let these tools judge whether your evidence carries it. `answer` means "
    "that it may go out; `abstain` means that it must not, unless better evidence is found. Do not reword a claim "
    "until it passes: every further round is another chance to be wrong."
)
_LOOKS_A_SEARCH = 2
_FORGOTTEN_AFTER = 1800.0
"""Seconds after which the rounds of a client that has searched no more are forgotten."""

_COMPLAINTS = 5
"""Errors in the arguments that one reply names at most."""
_WRONG = {
    "missing": "is missing",
    "extra_forbidden": "is not known",
    "list_type": "must be a list of passages",
    "string_type": "must be a text",
    "model_type": "must be a text or {text, title}",
}
"""What is wrong, by the type of a validation error."""

_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_COUNTS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=False, open_world_hint=False)


_NUMBERS = ("h_star", "top_k")
_DIGITS = 100
"""Characters of a number that is sent as a text."""

_TAGS = ("as a string", "as a chunk")


def _kind(value: Any) -> str:
    return _TAGS[0] if isinstance(value, str) else _TAGS[1]


_Passage = Annotated[Annotated[str, Tag(_TAGS[0])] | Annotated[TextChunk, Tag(_TAGS[1])], Discriminator(_kind)]
Evidence = Annotated[
    list[_Passage],
    Field(fail_fast=True, description="The retrieved passages, each a text or {text, title}; all of them."),
]
Question = Annotated[str, Field(description="The question, complete in itself.")]
Answer = Annotated[str, Field(description="The drafted answer to the question.")]
Claim = Annotated[str, Field(description="One statement, complete in itself.")]
Text = Annotated[str, BeforeValidator(lambda given: "" if given is None else given, json_schema_input_type=str | None)]
"""A text that may be left out; `str | None` would be read as JSON by the SDK."""
HStar = Annotated[
    float | None, Field(gt=0.0, lt=1.0, description="Tolerated rate of wrong answers; the server's own by default.")
]


class Judgement(BaseModel):
    """Whether evidence carries an answer."""

    action: Action = Field(description="answer: it may go out. abstain: it must not.")
    reason: Reason
    explanation: str = Field(description="In words, with what would change an abstention.")
    trusted: float | None = Field(description="p_ref: by default the share that holds among cases at least as sure.")
    needed: float = Field(description="The probability that is needed, 1 - h_star.")
    chunks: int = Field(description="Passages that were judged.")
    left_out: list[int] = Field(description="Indices of passages for which there was no room.")


class Passage(BaseModel):
    """A passage that was found."""

    title: str | None
    text: str


class SearchedJudgement(Judgement):
    """Whether what a search found carries an answer."""

    evidence: list[Passage] = Field(description="What was found and judged.")
    rounds: int = Field(description="Number of search rounds made.")
    looks_left: int = Field(description="Search rounds left to this client.")


class Cited(BaseModel):
    """A sentence of the evidence."""

    chunk: int = Field(description="Index of its passage.")
    sentence: str


class AuditedStatement(BaseModel):
    """A statement of the answer."""

    text: str
    verdict: Verdict = Field(description="not_judged: nothing was stated, or it could not be judged.")
    goes_out: bool
    left_out_because: str = Field(description="Why the part that may go out lacks it; empty where it does not.")
    citations: list[Cited] = Field(description="The sentences that carry it, or refute it.")
    wrong_markers: list[str] = Field(description="Citation markers of the answer that name a wrong passage.")


class Audited(BaseModel):
    """What may go out of an answer."""

    action: AuditAction = Field(description="answer: all of it. trim: a part. abstain: nothing.")
    headline: str
    releasable: str = Field(description="The part of the answer that may go out; empty where nothing may.")
    statements: list[AuditedStatement]


class _Server(MCPServer[Any]):
    """Says what is wrong with arguments in one plain line.

    The SDK reads as JSON what is sent as a text for anything but a text, whatever it holds: here it is read strictly.
    """

    bodies: Bodies

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        takes = [tool.input_schema.get("properties", {}) for tool in await self.list_tools() if tool.name == name]
        if takes and (unknown := sorted(set(arguments) - set(takes[0]))):
            told = f"there is no argument {printable(unknown[0])}; it takes {', '.join(takes[0])}"
            raise ToolError(f"{name}: {told}")
        numbers = {one: arguments[one][:_DIGITS] for one in _NUMBERS if isinstance(arguments.get(one), str)}
        arguments = {**arguments, **numbers}
        if isinstance(text := arguments.get("evidence"), str):  # as some clients send a list
            arguments["evidence"] = await self._listed(name, text.encode("utf-8", "surrogatepass"))
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(f"{name}: {_complaints(error.__cause__)}") from error.__cause__
            raise

    async def _listed(self, name: str, text: bytes) -> list[Any]:
        def read() -> Any:
            self.bodies.check_json(text)
            return parsed(text)

        with suppress(Problem):
            if isinstance(found := await self.bodies.in_turn(len(text), read), list):
                return found
        raise ToolError(f"{name}: evidence {_WRONG['list_type']}")


def _complaints(error: ValidationError) -> str:
    """The arguments that are wrong, and what is wrong with each."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{_place(one['loc'])} {_WRONG.get(one['type']) or _plain(one['msg'])}" for one in found[:_COMPLAINTS]]
    more = len(found) - len(told)
    return printable(one_line("; ".join(told))) + (f"; and {more} more" if more else "")


def _place(parts: Sequence[str | int]) -> str:
    """An argument, or a place in it, as one writes it: evidence[0].text."""
    name, *inside = parts
    kept = [part for part in inside if part not in _TAGS]
    return f"{name}{''.join(f'[{part}]' if isinstance(part, int) else f'.{part}' for part in kept)}"


def _plain(message: str) -> str:
    return message.replace("Input should be", "must be", 1)


def mcp_server(service: Service) -> MCPServer[Any]:
    """The tools of a service.

    Raises:
        InvalidInputError: if the folder to search holds nothing to read.
    """
    with _logging_left_alone():
        server = _Server(
            "isr-rag", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING", subscriptions=False
        )

    async def judge(context: Context[Any, Any], evidence: list[str | TextChunk], **asked: Any) -> Judgement:
        item = DecideRequest.model_construct(None, evidence=evidence, **asked)
        await context.report_progress(0, 1, f"judging by {len(evidence)} passages")
        with _refusals_told(context):
            decision = await service.decide(item, _asker(context))
        await context.report_progress(1, 1, decision.action.value)
        return Judgement(**_judged(decision))

    @server.tool(annotations=_READS)
    async def judge_answer(
        question: Question, answer: Answer, evidence: Evidence, context: Context[Any, Any], h_star: HStar = None
    ) -> Judgement:
        """Does the evidence support this drafted answer to the question? Ask before the answer goes out."""
        return await judge(context, evidence, question=question, answer=answer, h_star=h_star)

    @server.tool(annotations=_READS)
    async def judge_claim(
        claim: Claim, evidence: Evidence, context: Context[Any, Any], h_star: HStar = None
    ) -> Judgement:
        """Does the evidence support this claim?"""
        return await judge(context, evidence, claim=claim, h_star=h_star)

    @server.tool(annotations=_READS)
    async def is_evidence_sufficient(
        question: Question, evidence: Evidence, context: Context[Any, Any], h_star: HStar = None
    ) -> Judgement:
        """Does the evidence hold enough to answer the question? Ask before drafting, and retrieve more if not."""
        return await judge(context, evidence, question=question, h_star=h_star)

    @server.tool(annotations=_READS)
    async def audit_answer(
        answer: Annotated[str, Field(description="The whole answer, plain or in markdown.")],
        evidence: Evidence,
        context: Context[Any, Any],
        question: Annotated[Text, Field(description="What it answers.")] = "",
        h_star: HStar = None,
    ) -> Audited:
        """Judge a whole answer, sentence by sentence, with the sentences of the evidence that carry each of them.

        Use the text of `releasable`: it is the part of the answer that may go out.
        """
        given: dict[str, Any] = {"answer": answer, "question": question or None, "evidence": evidence, "h_star": h_star}
        asked = AuditRequest.model_construct(None, **given)

        async def progress(answered: int, said: str) -> None:
            await context.report_progress(answered, None, said)

        with _refusals_told(context):
            return await service.audit(asked, _asker(context), _audited, progress=progress)

    server.bodies = service.bodies
    if service.settings.folder is not None:
        _add_search(server, service, Library(str(service.settings.folder)))
    return server


@contextmanager
def _logging_left_alone() -> Generator[None]:
    """Around what would set up the logging of the whole process: it does so only where nobody has."""
    somebody = logging.NullHandler()
    logging.getLogger().addHandler(somebody)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(somebody)


class Library:
    """The documents of a folder, cut into chunks and searched by BM25; what cannot be read is skipped and logged.

    Raises:
        InvalidInputError: if there is nothing to read.
    """

    def __init__(self, folder: str) -> None:
        log = logging.getLogger("isr_rag_server.http")
        self.chunks = read_evidence([folder], note=lambda line: log.warning("%s", printable(line)), skip=True)
        self._index = Bm25([f"{chunk.title or ''} {chunk.text}" for chunk in self.chunks])

    def search(self, query: str, k: int) -> list[Chunk]:
        """The chunks nearest to a query, best first; none that shares no word with it."""
        scores = self._index.scores(query)
        return [self.chunks[i] for i in self._index.best(query, k) if scores[i] > 0.0]


def _add_search(server: MCPServer[Any], service: Service, library: Library) -> None:
    rounds = Allowance(service.settings.rounds, _FORGOTTEN_AFTER)

    @server.tool(annotations=_COUNTS)
    async def search_and_judge(
        context: Context[Any, Any],
        claim: Annotated[Text, Field(description="One statement; or give a question.")] = "",
        question: Annotated[Text, Field(description="A question, alone or with a drafted answer.")] = "",
        answer: Annotated[Text, Field(description="The drafted answer to the question.")] = "",
        top_k: Annotated[int, Field(ge=1, le=20, description="Passages to find at the first round.")] = 5,
        h_star: HStar = None,
    ) -> SearchedJudgement:
        """Search the operator's documents and judge by what is found; if it must abstain, search more widely once.

        Both rounds share the tolerated error rate, and a client has a limited number of rounds.
        """
        with _refusals_told(context):
            service.check_texts(claim=claim, question=question, answer=answer)
            gate = service.gate if h_star is None else service.gate.with_h_star(h_star)
        asker = _asker(context)
        allowed = min(_LOOKS_A_SEARCH, rounds.left(asker.client))
        if not allowed:
            raise ToolError(
                f"this client has spent its {service.settings.rounds} rounds: each is another chance to be wrong, "
                "so answer from what was found, or abstain"
            )
        rounds.spend(asker.client, allowed)  # before anything is awaited: calls in parallel share the same rounds
        found: list[Decision] = []
        asked = Asked(claim=claim or None, question=question or None, answer=answer or None)

        async def retrieve(query: str, round_number: int, previous: Decision | None, /) -> list[Chunk]:
            await context.report_progress(round_number, allowed, f"round {round_number + 1}: searching")
            if previous is not None:
                found.append(previous)
            return await asyncio.to_thread(library.search, query, top_k * (round_number + 1))

        try:
            with _refusals_told(context):
                trail = await service.desk.run(asker.client, lambda: aacquire(gate, retrieve, rounds=allowed, **asked))
        except ToolError:
            rounds.spend(asker.client, len(found) - allowed)
            raise
        rounds.spend(asker.client, len(trail.decisions) - allowed)
        for number, decision in enumerate(trail.decisions, start=1):
            service.note(decision, f"{asker.request}#{number}")
        await context.report_progress(allowed, allowed, trail.decision.action.value)
        passages = [Passage(title=chunk.title, text=chunk.text) for chunk in trail.evidence if isinstance(chunk, Chunk)]
        return SearchedJudgement(
            **_judged(trail.decision),
            evidence=passages,
            rounds=len(trail.decisions),
            looks_left=rounds.left(asker.client),
        )


@contextmanager
def _refusals_told(context: Context[Any, Any]) -> Generator[None]:
    """A refusal of what is done inside becomes an error of the tool, in words."""
    try:
        yield
    except (Problem, ISRError) as error:
        raise ToolError(refusal(error, _name(context)).detail) from error


def _audited(audit: AnswerAudit) -> Audited:
    released = audit.releasable()
    because = {one.statement: one.reason for one in released.left_out}
    statements = [
        AuditedStatement(
            text=one.text,
            verdict=one.verdict,
            goes_out=place in released.kept,
            left_out_because=because.get(place, ""),
            citations=[Cited(chunk=cited.chunk, sentence=cited.sentence) for cited in one.citations],
            wrong_markers=[marker.text for marker in one.markers if marker.status is MarkerStatus.WRONG],
        )
        for place, one in enumerate(audit.statements)
    ]
    return Audited(action=audit.action, headline=audit.headline(), releasable=released.text, statements=statements)


def _judged(decision: Decision) -> dict[str, Any]:
    return {
        "action": decision.action,
        "reason": decision.reason,
        "explanation": decision.explain(),
        "trusted": decision.p_ref,
        "needed": decision.p_star,
        "chunks": decision.chunks,
        "left_out": list(decision.left_out),
    }


def _asker(context: Context[Any, Any]) -> Asker:
    """Who asks: over HTTP by the client's address, and not by a session, which anybody may open anew."""
    request = context.request_context.request
    state = getattr(request, "state", None)
    return Asker(_name(context), getattr(state, "client", "this process"))


def _name(context: Context[Any, Any]) -> str:
    """The request's name in logs: over HTTP its own, which the response has in a header, elsewhere one of its kind."""
    state = getattr(context.request_context.request, "state", None)
    return getattr(state, "request_id", None) or f"mcp-{uuid.uuid4().hex}"
