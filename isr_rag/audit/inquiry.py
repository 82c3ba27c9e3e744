"""What is asked about one statement, in which order, and what follows from the answers.

Everything that is concluded is computed from `Inquiry.told`, the answers so far. The questions come in stages; a stage
is reached when every question of the stages before it is answered:

1. Is the statement supported, and is it contradicted?
2. Which of the nearest chunks carries it alone? If none does: the next nearest ones, then all those that it cites.
3. Which sentences of the best chunk carry it alone? If the nearest ones do not: the next nearest ones.
4. What is left of it without the cited sentences?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from isr_rag._util.bm25 import Bm25
from isr_rag._util.text import Span
from isr_rag.audit.calibration import AuditCalibration
from isr_rag.audit.cutting import Part
from isr_rag.audit.pieces import Pieces
from isr_rag.audit.redaction import at_target
from isr_rag.audit.statement import Citation, Kind, Marker, MarkerStatus, Probabilities, Statement, Verdict
from isr_rag.core.decision import Action, Decision, Reason
from isr_rag.core.evidence import Chunk, one_line
from isr_rag.core.exact import missing_numbers, missing_quotes, quotations
from isr_rag.core.predicates import Refuted
from isr_rag.core.work import Item
from isr_rag.references.direct import Oracle

CARRIES = 0.5  # a chunk or sentence carries a statement from this probability on: more likely than not

CLOSE_FROM = 0.3
"""Statements from this probability on are read against single chunks too, if the calibration asks for it."""

_CHUNKS = 3  # most chunks, the nearest by their words, that are read alone for a statement, besides those that it cites

_SENTENCES, _FIRST_SENTENCES = 5, 2
"""Most sentences of a chunk that are read alone, and how many of them before the others."""

_CITED = 3  # most sentences that are cited for a statement
_NOTHING = Chunk("…")  # what is read if nothing is left of the evidence
_UNUSED = Oracle(0.5)  # the reference of questions whose probability alone matters
_FAILED = frozenset({Reason.SCORER_FAILED, Reason.REFERENCE_FAILED})

Place = tuple[int, Span]
"""A sentence of the evidence: its chunk, and its characters in the chunk's text."""


@dataclass(frozen=True, slots=True)
class Question:
    """Whether a part of the evidence supports or refutes the statement, as `target` says."""

    target: Verdict = Verdict.SUPPORTED
    chunks: tuple[int, ...] = ()  # only these chunks are read; empty for all that are read for the statement
    sentence: Place | None = None  # only this sentence is read; None for whole chunks
    without: tuple[Place, ...] = ()  # these sentences are taken out


_SUPPORTED, _REFUTED = Question(), Question(Verdict.REFUTED)


@dataclass(eq=False)
class Inquiry:
    """One statement of an answer.

    Attributes:
        part, asked: the statement, and the item that says what is asked about it, without evidence.
        pieces: the evidence.
        h_star, calibration: error budget of the answer, and the calibration of verdicts, if there is one.
        by_reference: without a calibration, P(supported) is p_ref and not the model's own probability.
        question: what the whole answer answers, if that is known.
        quoted: what it quotes; None if its quotations and numbers are not looked for in the evidence.
    """

    part: Part
    asked: Item
    pieces: Pieces
    h_star: float
    calibration: AuditCalibration | None
    by_reference: bool
    question: str | None
    quoted: Sequence[str] | None

    def __post_init__(self) -> None:
        self.claim = one_line(" ".join(map(str, self.asked.values())))
        self._cites = list(dict.fromkeys(chunk for marker in self.part.markers for chunk in marker.chunks))
        self._read = self.pieces.read(self.claim, self._cites)
        self.read = [self.pieces.pieces[i] for i in self._read]
        self.chunks = sorted({piece.chunk for piece in self.read})
        self.told: dict[Question, Decision] = {}

    def plan(self, *, citations: bool) -> list[Question]:
        """The questions to answer next; empty when nothing is open."""
        stages = [self._verdicts, self._nearest_chunks, self._more_chunks, self._cited_chunks]
        if citations:
            stages += [self._nearest_sentences, self._more_sentences, self._taken_out]
        for stage in stages:
            if missing := [question for question in dict.fromkeys(stage()) if question not in self.told]:
                return missing
        return []

    def item(self, question: Question) -> Item:
        """A question as an item for a gate."""
        evidence = self._evidence(question)
        if question.target is Verdict.REFUTED:
            return {"evidence": evidence, "predicate": Refuted(self.claim), "reference": _UNUSED}
        if question == _SUPPORTED or question.without:
            return {"evidence": evidence, **self.asked}
        return {"evidence": evidence, "reference": _UNUSED, **self.asked}

    def _evidence(self, question: Question) -> list[Chunk]:
        if question.sentence is not None:
            chunk, span = question.sentence
            return [Chunk(self.pieces.by_themselves(chunk)[span], self.pieces.chunks[chunk].title)]
        left: list[Chunk] = []
        for piece in self.read:
            own = [span for chunk, span in question.without if chunk == piece.chunk]
            gone = {span for span in own if piece.start <= span[0] < piece.end}
            kept = self.pieces.without(piece, gone) if gone else piece.text
            if kept is not None and (not question.chunks or piece.chunk in question.chunks):
                left.append(kept)
        return left or ([_NOTHING] if question.without else [])

    # The stages: the questions of each, given the answers so far.

    def _verdicts(self) -> list[Question]:
        return [_SUPPORTED, _REFUTED] if self.read else [_SUPPORTED]

    def _nearest_chunks(self) -> list[Question]:
        if not self._is_looked_into or len(self.chunks) < 2:
            return []
        cited = [chunk for chunk in self._cites if chunk in self.chunks]
        return [Question(self._first_target, (chunk,)) for chunk in [self._by_nearness[0], *cited]]

    def _more_chunks(self) -> list[Question]:
        if not self._nearest_chunks() or max(self._q(one) for one in self._nearest_chunks()) >= CARRIES:
            return []
        return [Question(self._first_target, (chunk,)) for chunk in self._by_nearness[:_CHUNKS]]

    def _cited_chunks(self) -> list[Question]:
        """The chunks that markers name, together, if there are several and none carries the statement alone."""
        named = [chunk for chunk in self._cites if chunk in self._alone]
        if self._first_target is Verdict.REFUTED or len(named) < 2:
            return []
        return [] if max(self._alone[chunk] for chunk in named) >= CARRIES else [Question(chunks=tuple(named))]

    def _nearest_sentences(self) -> list[Question]:
        return [Question(self._target, sentence=one) for one in self._candidates[:_FIRST_SENTENCES]]

    def _more_sentences(self) -> list[Question]:
        if any(self._q(one) >= CARRIES for one in self._nearest_sentences()):
            return []
        return [Question(self._target, sentence=one) for one in self._candidates]

    def _taken_out(self) -> list[Question]:
        """Everything without all cited sentences, and without each of them if there are several."""
        if self._verdict is not Verdict.SUPPORTED or not self._cited:
            return []
        places = tuple(place for place, _ in self._cited)
        return [Question(without=places), *(Question(without=(one,)) for one in places)]

    # What follows from the answers so far.

    def _q(self, question: Question) -> float:
        return self.told[question].q_bar or 0.0

    @cached_property
    def _failure(self) -> str:
        """Why the statement cannot be judged; empty if it can."""
        decisions = [self.told[question] for question in self._verdicts()]
        failed = next((one for one in decisions if one.reason in _FAILED), None)
        if failed is not None:
            return f"not judged: {failed.detail}"
        return "not judged: there is no evidence" if any(one.q_bar is None for one in decisions) else ""

    @cached_property
    def _decision(self) -> Decision:
        """The decision about the statement at the answer's h*, in indices of the caller's chunks."""
        decision = at_target(self.told[_SUPPORTED], self.h_star)
        places = [piece.chunk for piece in self.read]
        unread = set(decision.left_out)
        read = {chunk for at, chunk in enumerate(places) if at not in unread}
        chunks = range(len(self.pieces.chunks))
        return replace(
            decision,
            nearest=decision.nearest and replace(decision.nearest, chunk=places[decision.nearest.chunk]),
            chunks=len(chunks),
            orderings=tuple(tuple(places[i] for i in ordering) for ordering in decision.orderings),
            left_out=tuple(i for i in chunks if i not in read),
            focus=decision.focus or self.pieces.focus(self._read),
        )

    def _weighed(self, closest: float) -> tuple[Verdict, Probabilities]:
        """The verdict and its probabilities, where the best part of the evidence alone gives `closest`."""
        q, r = self._q(_SUPPORTED), self._q(_REFUTED)
        if self.calibration is not None:
            probabilities = self.calibration.probabilities(min(q, closest) if self.calibration.close else q, r)
        else:
            p_ref = self._decision.p_ref if self.by_reference else None
            supported = q if p_ref is None else p_ref
            probabilities = Probabilities(supported, (1.0 - supported) * r, (1.0 - supported) * (1.0 - r))
        return Verdict.SUPPORTED if self._decision.answered else probabilities.verdict, probabilities

    @cached_property
    def _first_verdict(self) -> Verdict:
        """The verdict before anything was read alone."""
        return Verdict.NOT_JUDGED if self._failure else self._weighed(1.0)[0]

    @property
    def _first_target(self) -> Verdict:
        return Verdict.REFUTED if self._first_verdict is Verdict.REFUTED else Verdict.SUPPORTED

    @property
    def _is_looked_into(self) -> bool:
        """Whether parts of the evidence are read alone: the verdict rests on evidence, or may come to."""
        if self._failure:
            return False
        close = self.calibration is not None and self.calibration.close
        return self._first_verdict is not Verdict.NOT_ENOUGH or (close and self._q(_SUPPORTED) >= CLOSE_FROM)

    @cached_property
    def _by_nearness(self) -> list[int]:
        """The chunks that are read, the nearest to the statement first."""
        read = set(self._read)
        ranked = (self.pieces.pieces[i].chunk for i in self.pieces.ranked(self.claim) if i in read)
        return list(dict.fromkeys(ranked))

    @property
    def _alone(self) -> dict[int, float]:
        """The probability of the first target for each chunk read alone."""
        if not self._is_looked_into:
            return {}
        target = self._first_target
        if len(self.chunks) == 1:
            return {self.chunks[0]: self._q(Question(target))}
        return {one.chunks[0]: self._q(one) for one in self.told if one.target is target and len(one.chunks) == 1}

    @property
    def _joint(self) -> float:
        """The probability from all cited chunks together; 0 if that was not asked."""
        return next((self._q(one) for one in self.told if len(one.chunks) > 1), 0.0)

    @cached_property
    def _final(self) -> tuple[Verdict, Probabilities]:
        counts = self._alone and self._first_target is Verdict.SUPPORTED
        return self._weighed(max(self._joint, *self._alone.values()) if counts else 1.0)

    @property
    def _verdict(self) -> Verdict:
        return Verdict.NOT_JUDGED if self._failure else self._final[0]

    @property
    def _target(self) -> Verdict:
        return Verdict.REFUTED if self._verdict is Verdict.REFUTED else Verdict.SUPPORTED

    @property
    def _carried(self) -> dict[int, float]:
        """The chunks read alone with the probability of the verdict; empty if they were asked about another one."""
        return self._alone if self._target is self._first_target else {}

    @cached_property
    def _candidates(self) -> list[Place]:
        """The sentences that may carry the statement: those of the best chunk, the nearest first."""
        if self._verdict not in (Verdict.SUPPORTED, Verdict.REFUTED) or not self._carried:
            return []
        chunk = max(self._carried, key=lambda c: self._carried[c])
        spans = [span for piece in self.read if piece.chunk == chunk for span in self.pieces.sentences(piece)]
        if len(spans) > _FIRST_SENTENCES:
            text = self.pieces.chunks[chunk].text
            index = Bm25((text[a:b] for a, b in spans), [self.claim], digits=True)
            spans = [spans[i] for i in index.best(self.claim, _SENTENCES)]
        return [(chunk, span) for span in spans]

    @property
    def _cited(self) -> list[tuple[Place, float]]:
        """The best sentence, and of a supported statement the others that carry it, with their probabilities."""
        told = [(one.sentence, self._q(one)) for one in self.told if one.sentence is not None]
        ranked = sorted(told, key=lambda pair: -pair[1])[: _CITED if self._verdict is Verdict.SUPPORTED else 1]
        return [pair for k, pair in enumerate(ranked) if k == 0 or pair[1] >= CARRIES]

    def _absent(self) -> tuple[Reason, list[str]]:
        """Quotations that no cited chunk has; else numbers that are not in or beside the sentences that carry it."""
        if self.quoted is None or self._verdict is not Verdict.SUPPORTED:
            return Reason.SUFFICIENT, []
        chunks = self.pieces.chunks
        lead = self.part.lead if self.part.item else ""  # is judged with it, but may rest on another sentence
        cited = [*([chunks[i] for i in self._cites] or chunks), Chunk(self.question or "")]
        quotes = missing_quotes(self.quoted, cited)
        quotes += missing_quotes([lead[slice(*span)] for span in quotations(lead)], chunks)
        if quotes:
            return Reason.QUOTE_NOT_FOUND, quotes
        bare = "answer" in self.asked
        numbers = missing_numbers(self.part.plain, self._carrying(), self.question, bare=bare)
        return Reason.NUMBER_NOT_FOUND, numbers + missing_numbers(lead, [one.text for one in self.read], self.question)

    def _carrying(self) -> list[Chunk]:
        """The sentences that carry it with those beside them and the chunk's first, which may be a table's header."""
        found: list[Chunk] = []
        for (chunk, span), _ in self._cited:
            text, spans = self.pieces.chunks[chunk].text, list(self.pieces.by_themselves(chunk))
            at = spans.index(span)
            near = [spans[0], *spans[max(at - 1, 0) : at + 2]]
            found.append(Chunk("\n".join(text[a:b] for a, b in near), self.pieces.chunks[chunk].title))
        carries = [piece.text for piece in self.read if self._carried.get(piece.chunk, 0.0) >= CARRIES]
        return found or carries or [piece.text for piece in self.read]

    # The result.

    def statement(self, answer: str, *, cites: bool) -> Statement:
        """The statement with everything that was found; `cites`: the answer has citation markers."""
        (reason, absent), decision = self._absent(), self._decision
        if absent:
            decision = replace(decision, action=Action.ABSTAIN, reason=reason)
        supported = self._verdict is Verdict.SUPPORTED and not absent
        citations = () if absent else self._citations()
        prior = self._q(Question(without=tuple(place for place, _ in self._cited))) if supported and citations else None
        elsewhere = set(self._carried) - {one.chunk for one in citations}
        unseen = prior is not None and prior >= CARRIES
        return Statement(
            text=answer[slice(*self.part.span)],
            span=self.part.span,
            kind=Kind.STATEMENT,
            verdict=Verdict.NOT_ENOUGH if absent else self._verdict,
            claim=self.claim,
            decision=decision,
            probabilities=None if self._failure else self._final[1],
            q_refuted=None if self._failure else self._q(_REFUTED),
            q_alone=max(self._carried.values(), default=None) if self._target is Verdict.SUPPORTED else None,
            citations=citations,
            markers=self._markers(answer, citations, supported=supported, add=cites),
            prior=prior,
            known=unseen and all(self._carried[chunk] < CARRIES for chunk in elsewhere),
            absent=tuple(absent),
            detail=f"the evidence does not have {', '.join(f'“{one}”' for one in absent)}" if absent else self._failure,
        )

    def _citations(self) -> tuple[Citation, ...]:
        total = math.fsum(q for _, q in self._cited) or 1.0
        found: list[Citation] = []
        for (chunk, span), q in self._cited:
            without, p_ref = self.told.get(Question(without=((chunk, span),))), self._decision.p_ref
            fall = None if without is None or p_ref is None else p_ref - (without.p_ref or 0.0)
            found.append(Citation(chunk, self.pieces.chunks[chunk].text[slice(*span)], span, q / total, q, fall))
        return tuple(found)

    def _markers(self, answer: str, citations: Sequence[Citation], *, supported: bool, add: bool) -> tuple[Marker, ...]:
        """The answer's own markers at the statement, checked, and one that is missing at its end."""
        together, carried = self._joint >= CARRIES, self._carried if supported else {}

        def carries(chunk: int | None) -> bool:
            return chunk in carried and (together or carried[chunk] >= CARRIES)

        right = any(carries(chunk) for chunk in self._cites)

        def status(chunk: int | None) -> MarkerStatus:
            if carries(chunk):
                return MarkerStatus.RIGHT
            return MarkerStatus.NOT_NEEDED if right and chunk is not None else MarkerStatus.WRONG

        own = _markers_of(answer, self.part, status)
        if supported and not own and citations and add:
            end = self.part.span[1]
            return (Marker("", (end, end), citations[0].chunk, MarkerStatus.MISSING),)
        return own


def unjudged(answer: str, part: Part, kind: Kind, detail: str) -> Statement:
    """A part that is not judged. Markers of a list of sources are checked; elsewhere none is needed."""

    def status(chunk: int | None) -> MarkerStatus:
        if part.kind is not Kind.SOURCES:
            return MarkerStatus.NOT_NEEDED
        return MarkerStatus.WRONG if chunk is None else MarkerStatus.RIGHT

    markers = _markers_of(answer, part, status)
    return Statement(answer[slice(*part.span)], part.span, kind, markers=markers, detail=detail)


def _markers_of(answer: str, part: Part, status: Callable[[int | None], MarkerStatus]) -> tuple[Marker, ...]:
    """The markers of a part, one for each chunk that a marker names."""
    return tuple(
        Marker(answer[one.start : one.end], (one.start, one.end), chunk, status(chunk))
        for one in part.markers
        for chunk in one.chunks or (None,)
    )
