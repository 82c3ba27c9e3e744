"""An answer and its statements on their way through the stages of an audit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from isr_rag.audit.asking import Ask, AuditItem, Judge, Told
from isr_rag.audit.calibration import AuditCalibration
from isr_rag.audit.context import Context
from isr_rag.audit.cutting import Part, cut, is_latin
from isr_rag.audit.markers import Markers
from isr_rag.audit.pieces import Piece, Pieces
from isr_rag.audit.release import at_target
from isr_rag.audit.statement import ChunkEffect, Citation, Kind, OrderEffects, Probabilities, Span, Verdict
from isr_rag.batch import Item
from isr_rag.decision import Decision
from isr_rag.errors import InvalidInputError, InvalidTypeError
from isr_rag.evidence import Chunk, as_chunks, one_line

MOST = 1000
"""Statements that are judged of one answer; what comes after them is not judged, and says so."""

NEAR = 3
"""Chunks, the nearest by their words, that are asked about alone for each statement at most."""

CARRIES = 0.5
"""Probability from which on a chunk or sentence by itself is said to carry a statement."""

CLOSE_FROM = 0.3
"""Probability from which on a statement is also read against single chunks, where the calibration is one for that."""


@dataclass(slots=True)
class StatementInProgress:
    """One statement on its way through the stages."""

    part: Part
    asked: Item
    read: tuple[int, ...] = ()
    decision: Decision | None = None
    refuted: float | None = None
    probabilities: Probabilities | None = None
    verdict: Verdict = Verdict.NOT_JUDGED
    detail: str = ""
    alone: dict[int, float] = field(default_factory=dict[int, float])
    effects: tuple[ChunkEffect, ...] = ()
    joint: float | None = None
    sentences: list[tuple[int, Span, float]] = field(default_factory=list[tuple[int, Span, float]])
    citations: tuple[Citation, ...] = ()
    prior: float | None = None
    order_effects: OrderEffects | None = None

    @property
    def target(self) -> Verdict:
        """What a citation should show: that it is refuted, or else that it is supported."""
        return Verdict.REFUTED if self.verdict is Verdict.REFUTED else Verdict.SUPPORTED

    @property
    def query(self) -> str:
        """The words that the evidence should be about."""
        return " ".join(str(text) for text in self.asked.values())

    @property
    def claim(self) -> str:
        """The claim, or the question with its answer."""
        return one_line(self.query)


class AnswerInProgress:
    """One answer on its way through the stages."""

    def __init__(
        self,
        item: AuditItem | Mapping[str, Any],
        gate: Judge,
        calibration: AuditCalibration | None,
        parts: slice,
        *,
        split: bool,
    ) -> None:
        self.answer, self.question, self.chunks = checked(item)
        given = item.get("h_star")
        self.gate = gate if given is None else gate.with_h_star(given)
        self.h_star = self.gate.h_star
        self.calibration = calibration
        self.invariant = gate.scorer.layout != "full"
        self.pieces = Pieces(self.chunks, gate.focus)
        self.parts = cut(self.answer, Markers(self.chunks, self.answer), split=split)
        self.judged: dict[int, StatementInProgress] = {}
        self.skipped: dict[int, Kind] = {}
        context = Context(self.question)
        for i, part in enumerate(self.parts):
            if part.kind is not Kind.STATEMENT:
                continue
            if len(self.judged) >= MOST:
                self.skipped[i] = Kind.OVER_LIMIT
            elif self.calibration is not None and not is_latin(part.plain):
                self.skipped[i] = Kind.SCRIPT
            else:
                self.judged[i] = StatementInProgress(part, context.asked(part))
        wanted = range(len(self.parts))[parts]
        self.judged = {i: one for i, one in self.judged.items() if i in wanted}
        for one in self.judged.values():
            named = [chunk for marker in one.part.markers for chunk in marker.chunks]
            one.read = self.pieces.read(one.query, named) if self.chunks else ()

    @property
    def cites(self) -> bool:
        """Whether the answer has citation markers at all."""
        return any(part.markers for part in self.parts if part.kind is not Kind.SOURCES)

    def remapped(self, one: StatementInProgress, decision: Decision) -> Decision:
        """A decision about what was read, at the answer's h* and in the indices of the caller's chunks."""
        decision = at_target(decision, self.h_star)
        places = [self.pieces.pieces[i].chunk for i in one.read]
        unread = set(decision.left_out)
        read = {chunk for at, chunk in enumerate(places) if at not in unread}
        nearest = decision.nearest and replace(decision.nearest, chunk=places[decision.nearest.chunk])
        return replace(
            decision,
            nearest=nearest,
            chunks=len(self.chunks),
            orderings=tuple(tuple(places[i] for i in ordering) for ordering in decision.orderings),
            left_out=tuple(i for i in range(len(self.chunks)) if i not in read) if self.chunks else (),
            focus=decision.focus or self.pieces.focus(one.read, self.gate.focus),
        )

    def is_looked_into(self, one: StatementInProgress) -> bool:
        """Whether chunks are asked about alone: where the verdict is one of evidence, or may become so."""
        close = self.calibration is not None and self.calibration.close and one.decision is not None
        may_be = close and one.decision is not None and one.refuted is not None and q_of(one.decision) >= CLOSE_FROM
        return one.verdict in (Verdict.SUPPORTED, Verdict.REFUTED) or may_be

    def near(self, one: StatementInProgress, wave: int) -> list[int]:
        """The chunks to ask about alone: the nearest and those that markers name, then others where none carries it."""
        read = list(dict.fromkeys(self.pieces.pieces[i].chunk for i in self._by_nearness(one)))
        if len(read) == 1:
            one.alone[read[0]] = _of_target(one)
            return []
        if wave:
            return [] if max(one.alone.values()) >= CARRIES else [c for c in read[:NEAR] if c not in one.alone]
        named = [chunk for marker in one.part.markers for chunk in marker.chunks if chunk in read]
        return list(dict.fromkeys([read[0], *named]))

    def chunks_read(self, one: StatementInProgress) -> list[int]:
        """The chunks that were read for a statement, in their order."""
        return sorted({self.pieces.pieces[i].chunk for i in one.read})

    def _by_nearness(self, one: StatementInProgress) -> list[int]:
        read = set(one.read)
        return [i for i in self.pieces.ranked(one.query) if i in read]

    def of(self, one: StatementInProgress, chunks: Iterable[int] | None = None) -> list[Chunk]:
        """What is read for a statement, of some of the chunks only where they are given."""
        wanted = None if chunks is None else set(chunks)
        pieces = (self.pieces.pieces[i] for i in one.read)
        return [piece.text for piece in pieces if wanted is None or piece.chunk in wanted]

    def read_of(self, one: StatementInProgress, chunk: int) -> list[Piece]:
        """The pieces of a chunk that are read for a statement."""
        return [self.pieces.pieces[i] for i in one.read if self.pieces.pieces[i].chunk == chunk]


def checked(item: AuditItem | Mapping[str, Any]) -> tuple[str, str | None, tuple[Chunk, ...]]:
    """Answer, question and evidence of an item, which are refused where they make no sense."""
    if not isinstance(item, Mapping):
        raise InvalidTypeError(f"an answer is a mapping of the arguments of audit(), not {type(item).__name__}")
    unknown = sorted(set(item) - set(AuditItem.__annotations__))
    if unknown:
        raise InvalidInputError(f"unknown arguments {unknown}; an answer has {sorted(AuditItem.__annotations__)}")
    answer, question = item.get("answer"), item.get("question")
    if not isinstance(answer, str):
        raise InvalidTypeError(f"answer must be a string, not {type(answer).__name__}")
    if not one_line(answer):
        raise InvalidInputError("answer is empty or only white space: there is nothing to audit")
    if question is not None and not isinstance(question, str):
        raise InvalidTypeError(f"question must be a string or None, not {type(question).__name__}")
    if question is not None and not one_line(question):
        raise InvalidInputError("question is empty or only white space: leave it out where there is none")
    if "evidence" not in item:
        raise InvalidInputError("an answer needs evidence: a list of chunks, which may be empty")
    return answer, question, as_chunks(item["evidence"])


def _of_target(one: StatementInProgress) -> float:
    """The probability of a statement's verdict from all that was read."""
    if one.target is Verdict.REFUTED:
        return one.refuted or 0.0
    return 0.0 if one.decision is None else q_of(one.decision)


def q_of(decision: Decision) -> float:
    """The mean probability of a decision; 0 where nothing was scored."""
    return 0.0 if decision.q_bar is None else decision.q_bar


Asking: TypeAlias = Callable[[Sequence[tuple[AnswerInProgress, Item]]], Generator[Ask, Told, Sequence[Decision]]]
"""Asks for decisions about answers."""
