"""The gate behind HTTP and MCP, with queueing, metrics and logging."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeVar, cast

from isr_rag import __version__
from isr_rag.audit import AnswerAudit, AuditItem
from isr_rag.core.decision import Decision
from isr_rag.core.evidence import Chunk, as_chunks
from isr_rag.core.work import Item
from isr_rag.gate import ISRGate
from isr_rag_server.http.bodies import Bodies
from isr_rag_server.http.decisions import DecisionsRequest
from isr_rag_server.http.desk import Desk, readers_of, streams_of
from isr_rag_server.http.fields import AuditRequest, DecideRequest, EvidenceItem, IndexRequest, IndexResponse, TextChunk
from isr_rag_server.http.kept import KeptChunks, bytes_of, hash_of
from isr_rag_server.http.log import DecisionLog
from isr_rag_server.http.metrics import Metrics
from isr_rag_server.http.problems import Problem
from isr_rag_server.http.settings import Settings

_SLICE = 4, 16
"""Questions of a request that are answered together: at first, and at most."""
_QUICK, _SLOW = 0.5, 1.0
"""Seconds that such a slice takes: after quicker ones the next is twice as long, after slower ones half."""
_SLICE_SIZE = 2**20
"""Characters of their evidence: a thread that works on when a request's time is over has no more left to prepare."""
_READ_AHEAD = 2**14
"""Characters of chunks that a model reads ahead at a time."""

Progress = Callable[[int, str], Awaitable[None]]


Result = TypeVar("Result")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks.

    Attributes:
        request: names the request in the log, where it has no id of its own.
        client: the client, for whom the queue is fair.
    """

    request: str
    client: str


async def _silent(answered: int, said: str) -> None:
    """Tell nobody."""


class Service:
    """One gate, for many clients.

    Args:
        gate: decides.
        settings: whom it serves, and within which limits.

    Attributes:
        desk: who is served when.
        readers: whose documents are read when: they may take long, and no decision waits for them.
        streams: whose audit is streamed when: they may take ten times as long as all else, and leave places for that.
        bodies: what all requests hold together.
        metrics: what was counted.
    """

    def __init__(self, gate: ISRGate, settings: Settings) -> None:
        self.gate, self.settings = gate, settings
        self.desk = Desk(settings.limits)
        self.readers = Desk(replace(settings.limits, running=readers_of(settings.limits)))
        self.streams = Desk(replace(settings.limits, running=streams_of(settings.limits)))
        self.bodies = Bodies(settings.limits)
        self.kept = KeptChunks(settings.limits.kept_bytes)
        self._reading = asyncio.Lock()  # threads that read long texts at once would keep the event loop waiting
        self.log = None if settings.log is None else DecisionLog(settings.log)
        self.metrics = Metrics(
            {
                "isr_rag_running": (
                    "Requests that are worked on, also those given up",
                    lambda: self.desk.running + self.readers.running,
                ),
                "isr_rag_waiting": (
                    "Requests that wait for their turn",
                    lambda: sum(one.waiting for one in self.desks),
                ),
                "isr_rag_state_bytes": (
                    "Bytes of kept states of chunks",
                    lambda: getattr(gate.scorer, "kept_bytes", 0) or 0,
                ),
                "isr_rag_kept_chunk_bytes": ("Bytes of chunks kept under their hash", lambda: self.kept.nbytes),
            }
        )

    @property
    def desks(self) -> tuple[Desk, ...]:
        """All that is worked at, and that is waited at."""
        return self.desk, self.readers, self.streams

    async def decide(self, asked: DecideRequest, asker: Asker) -> Decision:
        """Decide about an item when it is its turn, count it and log it.

        Raises:
            Problem: if there is no room, no time, an unknown chunk or too long a text.
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        self.check_texts(claim=asked.claim, question=asked.question, answer=asked.answer)
        chunks = self.chunks(asked.evidence)
        gate = self.gate if asked.h_star is None else self.gate.with_h_star(asked.h_star)
        decision = await self.desk.run(
            asker.client,
            lambda: gate.adecide(chunks, claim=asked.claim, question=asked.question, answer=asked.answer),
        )
        self.note(decision, asker.request if asked.id is None else asked.id)
        return decision

    async def decide_all(self, asked: DecisionsRequest, asker: Asker) -> list[Decision]:
        """Decide about every question of a request when it is its turn, count the decisions and log them.

        Raises:
            Problem: if there is no room, no time, too long a text or more questions than statements are allowed.
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        questions, most = asked.asked(), self.settings.limits.statements
        if len(questions) > most:
            raise Problem("too-many-statements", f"{len(questions)} questions; {most} are allowed")
        for question in questions:
            self.check_texts(**question)
        chunks = self.chunks(asked.chunks())
        items: list[Item] = [{"evidence": chunks, **question} for question in questions]  # type: ignore[typeddict-item]

        async def work() -> list[Decision]:
            return [
                decision
                for part in _slices(items, _evidence_size, _SLICE_SIZE)
                for decision in await self.gate.adecide_batch(part)
            ]

        decisions = await self.desk.run(asker.client, work)
        for number, decision in enumerate(decisions, start=1):
            self.note(decision, f"{asker.request}#{number}")
        return decisions

    async def audit(
        self,
        asked: AuditRequest,
        asker: Asker,
        result: Callable[[AnswerAudit], Result],
        *,
        progress: Progress = _silent,
        seconds: float | None = None,
    ) -> Result:
        """Judge a whole answer when it is its turn, count its decisions and log them.

        Args:
            asked: the answer.
            asker: who asks.
            result: what is made of the audit, in a thread.
            progress: told in words, with the number of questions that the model has answered.
            seconds: time that it may take; `limits.seconds` for None.

        Raises:
            Problem: if there is no room, no time, an unknown chunk, too long a text or more statements than are
                allowed.
            ISRError: as `isr_rag.ISRGate.audit`.
        """
        self.check_texts(question=asked.question, answer=asked.answer)
        chunks = self.chunks(asked.evidence)

        async def work() -> tuple[AnswerAudit, Result]:
            audit = await self._audit(asked, chunks, progress)
            return audit, await asyncio.to_thread(result, audit)

        async def turn() -> tuple[AnswerAudit, Result]:
            return await self.desk.run(asker.client, work, seconds=seconds)

        audit, made = await (turn() if seconds is None else self.streams.run(asker.client, turn, seconds=seconds))
        name = asker.request if asked.id is None else asked.id
        noted = 0
        for number, statement in enumerate(audit.statements, start=1):
            if statement.decision is not None:
                self.note(statement.decision, f"{name}#{number}")
                noted += statement.decision.passes
        self.metrics.passed(audit.passes - noted)
        return made

    async def _audit(self, given: AuditRequest, chunks: Sequence[Chunk], progress: Progress) -> AnswerAudit:
        """An audit in slices, between which other requests have their turns with the model."""
        item = AuditItem(answer=given.answer, question=given.question, evidence=chunks, h_star=given.h_star)
        audits = await asyncio.to_thread(self.gate.begin_audits, [item])
        if (statements := audits.statements) > (most := self.settings.limits.statements):
            raise Problem("too-many-statements", f"the answer makes {statements} statements; {most} are allowed")
        await progress(0, f"{statements} statements")
        asked = 0
        while questions := await asyncio.to_thread(audits.plan):
            decisions: list[Decision] = []
            for part in _slices(questions, _evidence_size, _SLICE_SIZE):
                decisions += await self.gate.adecide_batch(part)
                asked += len(part)
                await progress(asked, f"{asked} questions answered")
            audits.absorb(decisions)
        return (await asyncio.to_thread(audits.results))[0]

    def note(self, decision: Decision, identifier: str | int) -> None:
        """Count a decision and log it."""
        self.metrics.decided(decision)
        if self.log is not None and not self.log.write(identifier, decision):
            self.metrics.unlogged()

    def check_texts(self, **texts: str | None) -> None:
        """Refuse a text that is longer than it may be.

        Raises:
            Problem: `too-long`.
        """
        most = self.settings.limits.text
        for name, text in texts.items():
            if text is not None and len(text) > most:
                raise Problem("too-long", f"the {name} has {len(text):,} characters; {most:,} are allowed")

    def chunks(self, evidence: Sequence[EvidenceItem]) -> list[Chunk]:
        """The chunks of a request, those named by a hash among them.

        Raises:
            Problem: `too-many-chunks`, `unknown-chunk` or `too-long`.
        """
        most = self.settings.limits.chunks
        if len(evidence) > most:
            raise Problem("too-many-chunks", f"{len(evidence)} chunks of evidence; {most} are allowed: retrieve fewer")
        chunks: list[Chunk] = []
        size, allowed = 0, self.settings.limits.body
        for place, item in enumerate(evidence):
            chunk, more = self._chunk(item, place)
            chunks.append(chunk)
            size += more
            if size > allowed:  # a hash is short, whatever it names
                raise Problem("too-long", f"the evidence has more than {allowed:,} bytes: name fewer chunks")
        return chunks

    def _chunk(self, item: EvidenceItem, place: int) -> tuple[Chunk, int]:
        """A chunk, and its bytes."""
        if isinstance(item, (str, TextChunk)):
            chunk = Chunk(item) if isinstance(item, str) else Chunk(item.text, item.title)
            return chunk, bytes_of(chunk)
        found = self.kept.get(item.sha256)
        if found is None:
            raise Problem(
                "unknown-chunk",
                f"evidence[{place}] names a chunk that is not kept (any more): give it to /v1/index, or send its text",
                errors=[{"at": f"/evidence/{place}", "detail": "not kept"}],
            )
        return found

    async def index(self, asked: IndexRequest, asker: Asker) -> IndexResponse:
        """Read chunks ahead, and keep them under their hashes.

        Raises:
            Problem: if there is no room, no time or an unknown chunk.
            InvalidInputError: for an empty chunk, or one that does not fit the model.
        """
        given = self.chunks(asked.evidence)
        able = getattr(self.gate.scorer, "kept_bytes", None) is not None

        async def work() -> tuple[dict[str, Chunk], list[str], int]:
            async with self._reading:
                chunks = await asyncio.to_thread(as_chunks, given)
                hashes = await asyncio.to_thread(lambda: [hash_of(chunk) for chunk in chunks])
            parts = _slices(chunks, lambda chunk: len(chunk.text), _READ_AHEAD) if able else ()
            tokens = sum([await asyncio.to_thread(self.gate.index, part) for part in parts])
            return dict(zip(hashes, chunks, strict=True)), hashes, tokens

        named, hashes, tokens = await self.desk.run(asker.client, work)
        for sha256, chunk in named.items():
            self.kept.keep(sha256, chunk)
        return IndexResponse(sha256=hashes, read_ahead=able, tokens=tokens)

    def models(self) -> dict[str, Any]:
        """What decides here, and within which limits."""
        gate, limits = self.gate, self.settings.limits
        model = {
            "scorer": gate.scorer.identity,
            "layout": gate.scorer.layout,
            "reference": None if gate.reference is None else type(gate.reference).__name__,
            "h_star": gate.h_star,
            "m": gate.settings.orderings.m,
            "focus": gate.settings.max_words,
            "convention": gate.settings.rule.convention,
        }
        allowed = {name: getattr(limits, name) for name in ("body", "chunks", "text", "statements", "seconds")}
        listed = [{"id": gate.scorer.identity, "object": "model", "owned_by": "isr-rag"}]
        return {"models": [model], "data": listed, "limits": allowed, "version": __version__}


def _evidence_size(item: Item) -> int:
    """Characters of the evidence, which is a list of chunks by now: checking it again would read every text."""
    return sum(len(chunk.text) for chunk in cast(Sequence[Chunk], item.get("evidence", ())))


def _slices(values: Sequence[Value], size_of: Callable[[Value], int], most: int) -> Iterator[list[Value]]:
    """The values in turns, between which a request can be given up and others have theirs with the model.

    Turns grow while they are quick and shrink while they are slow: a model works on after a request's time is over
    until the turn is done.
    """
    part: list[Value] = []
    size, (count, longest) = 0, _SLICE
    for value in values:
        size += size_of(value)
        if part and (len(part) >= count or size > most):
            begun = perf_counter()
            yield part
            took = perf_counter() - begun
            count = min(2 * count, longest) if took < _QUICK else max(count // 2, 1) if took > _SLOW else count
            part, size = [], size_of(value)
        part.append(value)
    if part:
        yield part
