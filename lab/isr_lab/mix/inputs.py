"""What every reader is handed: where the files are, where bad rows go, and its own random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from isr_lab.mix.records import Candidate, RowLog
from isr_lab.mix.text import squeeze
from isr_lab.slice.schema import Kind, SliceChunk


@dataclass(frozen=True, slots=True)
class ReaderInputs:
    """The raw folder, the log of bad rows, and a generator seeded for this source alone."""

    raw: Path
    log: RowLog
    rng: random.Random


def _unmarked(chunks: Sequence[SliceChunk]) -> tuple[SliceChunk, ...]:
    return tuple(chunk.model_copy(update={"is_support": False}) for chunk in chunks)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the items of one record come from; makes its candidates."""

    source: str
    file: str
    record: str
    keys: tuple[str, ...]
    unit: str

    def _make(self, kind: Kind, chunks: Sequence[SliceChunk], how: str, unit: str, **texts: str) -> Candidate:
        return Candidate(
            source=self.source,
            keys=self.keys,
            unit=unit,
            label=int(kind == "supported"),
            kind=kind,
            chunks=_unmarked(chunks) if kind == "insufficient" else tuple(chunks),
            file=self.file,
            record=self.record,
            construction=how,
            **{name: squeeze(text) for name, text in texts.items()},
        )

    def claim(self, claim: str, kind: Kind, chunks: Sequence[SliceChunk], how: str = "original") -> Candidate:
        """A claim item."""
        return self._make(kind, chunks, how, self.unit, claim=claim)

    def draft(
        self, question: str, answer: str, kind: Kind, chunks: Sequence[SliceChunk], how: str = "original"
    ) -> Candidate:
        """A question with a drafted answer."""
        return self._make(kind, chunks, how, self.unit, question=question, answer=answer)

    def sufficiency(
        self,
        question: str,
        kind: Kind,
        chunks: Sequence[SliceChunk],
        how: str = "original",
        unit: str | None = None,
    ) -> Candidate:
        """A question alone."""
        return self._make(kind, chunks, how, unit or self.unit, question=question)


def with_evidence(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those candidates that have any evidence (a document can be empty)."""
    return [candidate for candidate in candidates if candidate.chunks]
