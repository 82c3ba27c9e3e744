"""The gate behind HTTP and MCP, with queueing, metrics and logging."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from isr_rag import __version__
from isr_rag.audit import AnswerAudit, AuditItem
from isr_rag.core.decision import Decision
from isr_rag.core.evidence import Chunk, as_chunks
from isr_rag.core.scorer import kept_bytes_of
from isr_rag.gate import ISRGate
from isr_rag_server.http.desk import Desk
from isr_rag_server.http.fields import AuditRequest, DecideRequest, EvidenceItem, IndexRequest, IndexResponse, TextChunk
from isr_rag_server.http.kept import KeptChunks
from isr_rag_server.http.log import DecisionLog
from isr_rag_server.http.metrics import Metrics
from isr_rag_server.http.problems import Problem
from isr_rag_server.http.settings import Settings

_SLICE = 16
"""Questions of an audit that are answered together."""

Progress = Callable[[int, str], Awaitable[None]]


async def _silent(answered: int, said: str) -> None:
    """Tell nobody."""


class Service:
    """One gate, for many clients.

    Args:
        gate: decides.
        settings: whom it serves, and within which limits.

    Attributes:
        desk: who is served when.
        metrics: what was counted.
    """

    def __init__(self, gate: ISRGate, settings: Settings) -> None:
        self.gate, self.settings = gate, settings
        self.desk = Desk(settings.limits)
        self.kept = KeptChunks(settings.limits.kept_bytes)
        self.log = None if settings.log is None else DecisionLog(settings.log)
        self.metrics = Metrics(
            {
                "isr_rag_running": ("Requests that the gate works on", lambda: self.desk.running),
                "isr_rag_waiting": ("Requests that wait for their turn", lambda: self.desk.waiting),
                "isr_rag_state_bytes": ("Bytes of kept states of chunks", lambda: kept_bytes_of(gate.scorer) or 0),
                "isr_rag_kept_chunk_bytes": ("Bytes of chunks kept under their hash", lambda: self.kept.nbytes),
            }
        )

    async def decide(self, asked: DecideRequest, identifier: str) -> Decision:
        """Decide about an item when it is its turn, count it and log it.

        Raises:
            Problem: if there is no room, no time or an unknown chunk.
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        chunks = self.chunks(asked.evidence)
        gate = self.gate if asked.h_star is None else self.gate.with_h_star(asked.h_star)
        decision = await self.desk.run(
            lambda: gate.adecide(chunks, claim=asked.claim, question=asked.question, answer=asked.answer)
        )
        self.note(decision, identifier if asked.id is None else asked.id)
        return decision

    async def audit(
        self, asked: AuditRequest, identifier: str, *, progress: Progress = _silent, seconds: float | None = None
    ) -> AnswerAudit:
        """Judge a whole answer when it is its turn, count its decisions and log them.

        Args:
            asked: the answer.
            identifier: names it in the log where it has no id.
            progress: told in words, with the number of questions that the model has answered.
            seconds: time that it may take; `limits.seconds` for None.

        Raises:
            Problem: if there is no room, no time, an unknown chunk or more statements than are allowed.
            ISRError: as `isr_rag.ISRGate.audit`.
        """
        chunks = self.chunks(asked.evidence)
        audit = await self.desk.run(lambda: self._audit(asked, chunks, progress), seconds=seconds)
        name = identifier if asked.id is None else asked.id
        for statement in audit.statements:
            if statement.decision is not None:
                self.note(statement.decision, name)
        return audit

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
            for first in range(0, len(questions), _SLICE):
                part = questions[first : first + _SLICE]
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

    def chunks(self, evidence: Sequence[EvidenceItem]) -> list[Chunk]:
        """The chunks of a request, those named by a hash among them.

        Raises:
            Problem: `too-many-chunks` or `unknown-chunk`.
        """
        most = self.settings.limits.chunks
        if len(evidence) > most:
            raise Problem("too-many-chunks", f"{len(evidence)} chunks of evidence; {most} are allowed: retrieve fewer")
        return [self._chunk(item, place) for place, item in enumerate(evidence)]

    def _chunk(self, item: EvidenceItem, place: int) -> Chunk:
        if isinstance(item, str):
            return Chunk(item)
        if isinstance(item, TextChunk):
            return Chunk(item.text, item.title)
        found = self.kept.get(item.sha256)
        if found is None:
            raise Problem(
                "unknown-chunk",
                f"evidence[{place}] names a chunk that is not kept (any more): give it to /v1/index, or send its text",
                errors=[{"at": f"/evidence/{place}", "detail": "not kept"}],
            )
        return found

    async def index(self, asked: IndexRequest) -> IndexResponse:
        """Read chunks ahead, and keep them under their hashes.

        Raises:
            Problem: if there is no room, no time or an unknown chunk.
            InvalidInputError: for an empty chunk, or one that does not fit the model.
        """
        chunks = as_chunks(self.chunks(asked.evidence))
        tokens, able = 0, kept_bytes_of(self.gate.scorer) is not None
        if able:
            tokens = await self.desk.run(lambda: asyncio.to_thread(self.gate.index, chunks), abandon=True)
        return IndexResponse(sha256=[self.kept.keep(chunk) for chunk in chunks], read_ahead=able, tokens=tokens)

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
        allowed = {name: getattr(limits, name) for name in ("body", "chunks", "statements", "seconds")}
        return {"models": [model], "limits": allowed, "version": __version__}
