"""What every door leads to, HTTP or MCP: one gate, asked in turn, counted and logged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from isr_rag import __version__
from isr_rag.decision import Decision
from isr_rag.evidence import Chunk, as_chunks
from isr_rag.gate import ISRGate
from isr_rag.scorers.protocol import IndexingScorer
from isr_rag.serve.desk import Desk
from isr_rag.serve.fields import DecideRequest, EvidenceItem, IndexRequest, IndexResponse, TextChunk
from isr_rag.serve.kept import KeptChunks
from isr_rag.serve.log import DecisionLog
from isr_rag.serve.metrics import Metrics, kept_bytes_of
from isr_rag.serve.problems import Problem
from isr_rag.serve.settings import Settings


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
                "isr_rag_state_bytes": ("Bytes of kept states of chunks", lambda: kept_bytes_of(gate.scorer)),
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
        tokens, able = (
            0,
            isinstance(self.gate.scorer, IndexingScorer) and getattr(self.gate.scorer, "states", None) is not None,
        )
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
            "m": gate.m,
            "focus": gate.focus,
            "convention": gate.rule.convention,
        }
        allowed = {name: getattr(limits, name) for name in ("body", "chunks", "statements", "seconds")}
        return {"models": [model], "limits": allowed, "version": __version__}
