"""An audit, step by step: what is asked about the statements of an answer, and what follows from the decisions.

An audit is a generator that asks for decisions and scores where it needs them, so that sync, async, batched and single
audits are the same. It goes through all answers of a call in stages:

1. Is each statement supported, and is it contradicted?
2. The nearest chunks alone: which of them carries it? Where effects are wanted, every chunk alone and taken out.
3. The nearest sentences of the chunk that carries it, alone.
4. Everything that was read without the sentence that carries it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from isr_rag.audit import orders
from isr_rag.audit.budget import Budget
from isr_rag.audit.calibration import AuditCalibration, calibration_of
from isr_rag.audit.context import Context
from isr_rag.audit.cutting import Part, cut, is_latin
from isr_rag.audit.markers import Markers
from isr_rag.audit.pieces import Piece, Pieces
from isr_rag.audit.release import action_of, at_target
from isr_rag.audit.result import (
    AnswerAudit,
    AuditAction,
    ChunkEffect,
    Citation,
    Kind,
    Marker,
    MarkerStatus,
    OrderEffects,
    Probabilities,
    Span,
    Statement,
    Verdict,
)
from isr_rag.batch import Item
from isr_rag.bm25 import Bm25
from isr_rag.decision import Decision, Reason
from isr_rag.errors import InvalidInputError, InvalidTypeError
from isr_rag.evidence import Chunk, EvidenceLike, as_chunks, one_line
from isr_rag.predicates import Refuted, Supported
from isr_rag.references.oracle import Oracle
from isr_rag.scorers.protocol import ScoreRequest, Scores

if TYPE_CHECKING:
    from isr_rag.gate import ISRGate

MOST = 1000
"""Statements that are judged of one answer; what comes after them is not judged, and says so."""

NEAR = 3
"""Chunks, the nearest by their words, that are asked about alone for each statement at most."""

SENTENCES = 5
"""Sentences of a chunk, the nearest by their words, that are asked about alone at most."""

FIRST_SENTENCES = 2
"""Of these the ones that are asked about first; the others only where none of them carries the statement."""

CITED = 3
"""Sentences that are cited for one statement at most."""

CARRIES = 0.5
"""Probability from which on a chunk or sentence by itself is said to carry a statement."""

CLOSE_FROM = 0.3
"""Probability from which on a statement is also read against single chunks, where the calibration is one for that."""

DISTRACTION = 0.05
"""Rise of q without a chunk from which on it is said to distract."""

_FAILED = frozenset({Reason.SCORER_FAILED, Reason.REFERENCE_FAILED})
_NOTHING = Chunk("…")
"""What is read where nothing is left of the evidence."""

_UNUSED = Oracle(0.5)
"""The reference of questions whose probability alone is wanted."""


class AuditItem(TypedDict, total=False):
    """One answer of a batch: the arguments of `isr_rag.ISRGate.audit`.

    Attributes:
        answer: the answer, plain or in markdown.
        question: what it answers; None where that is not known.
        evidence: the chunks that it should rest on.
        h_star: error budget of this answer; the gate's own for None.
    """

    answer: str
    question: str | None
    evidence: Sequence[EvidenceLike]
    h_star: float | None


@dataclass(frozen=True, slots=True)
class Ask:
    """What an audit wants to know next.

    Attributes:
        items: what is to be decided.
        requests: what is to be scored.
    """

    items: tuple[Item, ...] = ()
    requests: tuple[ScoreRequest, ...] = ()


_ALL = slice(None)
Told: TypeAlias = tuple[Sequence[Decision], Sequence[Scores]]
"""The decisions and scores that were asked for."""

Steps: TypeAlias = Generator[Ask, Told, list[AnswerAudit]]


@dataclass(slots=True)
class _Judged:
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


_Asking: TypeAlias = "Callable[[Sequence[tuple[_Answer, Item]]], Generator[Ask, Told, Sequence[Decision]]]"


class _Answer:
    """One answer on its way through the stages."""

    def __init__(
        self,
        item: AuditItem | Mapping[str, Any],
        gate: ISRGate,
        calibration: AuditCalibration | None,
        parts: slice,
        *,
        split: bool,
    ) -> None:
        self.answer, self.question, self.chunks = _checked(item)
        given = item.get("h_star")
        self.gate = gate if given is None else gate.with_h_star(given)
        self.h_star = self.gate.h_star
        self.calibration = calibration
        self.invariant = gate.scorer.layout != "full"
        self.pieces = Pieces(self.chunks, gate.focus)
        self.parts = cut(self.answer, Markers(self.chunks, self.answer), split=split)
        self.judged: dict[int, _Judged] = {}
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
                self.judged[i] = _Judged(part, context.asked(part))
        wanted = range(len(self.parts))[parts]
        self.judged = {i: one for i, one in self.judged.items() if i in wanted}
        for one in self.judged.values():
            named = [chunk for marker in one.part.markers for chunk in marker.chunks]
            one.read = self.pieces.read(one.query, named) if self.chunks else ()

    @property
    def cites(self) -> bool:
        """Whether the answer has citation markers at all."""
        return any(part.markers for part in self.parts if part.kind is not Kind.SOURCES)

    def remapped(self, one: _Judged, decision: Decision) -> Decision:
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

    def is_looked_into(self, one: _Judged) -> bool:
        """Whether chunks are asked about alone: where the verdict is one of evidence, or may become so."""
        close = self.calibration is not None and self.calibration.close and one.decision is not None
        may_be = close and one.decision is not None and one.refuted is not None and _q(one.decision) >= CLOSE_FROM
        return one.verdict in (Verdict.SUPPORTED, Verdict.REFUTED) or may_be

    def near(self, one: _Judged, wave: int) -> list[int]:
        """The chunks to ask about alone: the nearest and those that markers name, then others where none carries it."""
        read = list(dict.fromkeys(self.pieces.pieces[i].chunk for i in self._by_nearness(one)))
        if len(read) == 1:
            one.alone[read[0]] = _of_target(one)
            return []
        if wave:
            return [] if max(one.alone.values()) >= CARRIES else [c for c in read[:NEAR] if c not in one.alone]
        named = [chunk for marker in one.part.markers for chunk in marker.chunks if chunk in read]
        return list(dict.fromkeys([read[0], *named]))

    def chunks_read(self, one: _Judged) -> list[int]:
        """The chunks that were read for a statement, in their order."""
        return sorted({self.pieces.pieces[i].chunk for i in one.read})

    def _by_nearness(self, one: _Judged) -> list[int]:
        read = set(one.read)
        return [i for i in self.pieces.ranked(one.query) if i in read]

    def of(self, one: _Judged, chunks: Iterable[int] | None = None) -> list[Chunk]:
        """What is read for a statement, of some of the chunks only where they are given."""
        wanted = None if chunks is None else set(chunks)
        pieces = (self.pieces.pieces[i] for i in one.read)
        return [piece.text for piece in pieces if wanted is None or piece.chunk in wanted]

    def read_of(self, one: _Judged, chunk: int) -> list[Piece]:
        """The pieces of a chunk that are read for a statement."""
        return [self.pieces.pieces[i] for i in one.read if self.pieces.pieces[i].chunk == chunk]


def steps(
    gate: ISRGate,
    items: Sequence[AuditItem | Mapping[str, Any]],
    *,
    citations: bool = True,
    effects: bool = False,
    calibration: AuditCalibration | None = None,
    parts: slice = _ALL,
    split: bool = True,
) -> Steps:
    """The audits of one call, as a generator that asks and is told.

    Args:
        gate: decides.
        items: the answers.
        citations: also look for the sentences that carry each statement, and ask without them.
        effects: also ask what each chunk does, and for models that see it the order.
        parts: which parts of the answers are judged; the others stay as they are.
        split: judge coordinate clauses by themselves, where the parser of the extra "claims" is installed.
        calibration: of the verdicts and of whole answers; by default the one that comes with the scorer, if there is.

    Raises:
        ConfigurationError: if the calibration is not one of the gate's scorer and focus.
        InvalidInputError: for an empty answer, or unknown or missing arguments.
        InvalidTypeError: for arguments of the wrong type.
    """
    started = time.perf_counter()
    if calibration is None:
        calibration = calibration_of(gate.scorer.identity, gate.focus)
    else:
        calibration.check_belongs(gate.scorer.identity, gate.focus)
    answers = [_Answer(item, gate, calibration, parts, split=split) for item in items]
    everyone = [(answer, one) for answer in answers for one in answer.judged.values()]
    passes = dict.fromkeys(map(id, answers), 0)

    def ask(questions: Sequence[tuple[_Answer, Item]]) -> Generator[Ask, Told, Sequence[Decision]]:
        if not questions:
            return []
        decisions, _ = yield Ask(items=tuple(item for _, item in questions))
        for (answer, _), decision in zip(questions, decisions, strict=True):
            passes[id(answer)] += decision.passes
        return decisions

    # 1. supported, and contradicted?
    with_evidence = [(a, one) for a, one in everyone if one.read]
    both: list[tuple[_Answer, Item]] = [(a, {"evidence": a.of(one), **one.asked}) for a, one in everyone]
    both += [(a, _refuted(one, a.of(one))) for a, one in with_evidence]
    told = yield from ask(both)
    supports, refutes = told[: len(everyone)], told[len(everyone) :]
    denied = {id(one): decision for (_, one), decision in zip(with_evidence, refutes, strict=True)}
    for (answer, one), decision in zip(everyone, supports, strict=True):
        _judge(answer, one, decision, denied.get(id(one)))
    found = [(a, one) for a, one in everyone if a.is_looked_into(one)]

    # 2. the nearest chunks alone, with those that markers name; the next ones only where none of these carries it
    for wave in range(2):
        near = [(a, one, chunk) for a, one in found for chunk in a.near(one, wave)]
        alone = yield from ask([(a, _plain(one, a.of(one, [chunk]))) for a, one, chunk in near])
        for (_, one, chunk), decision in zip(near, alone, strict=True):
            one.alone[chunk] = _q(decision)
    joint = [(a, one, named) for a, one in found if (named := _unproven(one))]
    together = yield from ask([(a, _plain(one, a.of(one, named))) for a, one, named in joint])
    for (_, one, _), decision in zip(joint, together, strict=True):
        one.joint = _q(decision)
    for answer, one in found:
        _conclude(answer, one)
    found = [(a, one) for a, one in found if one.verdict is not Verdict.NOT_ENOUGH]
    if effects:
        yield from _effects_of_chunks(with_evidence, ask)
        yield from _orders([(a, one) for a, one in with_evidence if not a.invariant and len(one.read) > 1])

    if not citations:
        found = []
    # 3. the nearest sentences of the best chunk alone; the next ones only where none of these carries it
    for wave in range(2):
        looked = [(a, one, chunk, span) for a, one in found for chunk, span in _candidates(a, one, wave)]
        single = yield from ask([(a, _plain(one, [_sentence(a, chunk, span)])) for a, one, chunk, span in looked])
        for (_, one, chunk, span), decision in zip(looked, single, strict=True):
            one.sentences.append((chunk, span, _q(decision)))
    for answer, one in found:
        one.citations = _cited(answer, one)

    # 4. what was read without the sentences that carry it
    scrubbed = [(a, one, spans) for a, one in found if one.verdict is Verdict.SUPPORTED for spans in _scrubs(one)]
    rest = yield from ask([(a, {"evidence": _scrubbed(a, one, spans), **one.asked}) for a, one, spans in scrubbed])
    for (_, one, spans), decision in zip(scrubbed, rest, strict=True):
        _note_without(one, spans, decision)

    seconds = time.perf_counter() - started
    return [_result(answer, passes[id(answer)], seconds) for answer in answers]


def _checked(item: AuditItem | Mapping[str, Any]) -> tuple[str, str | None, tuple[Chunk, ...]]:
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


def _plain(one: _Judged, evidence: list[Chunk], target: Verdict | None = None) -> Item:
    """A question whose probability alone is wanted."""
    if (target or one.target) is Verdict.REFUTED:
        return _refuted(one, evidence)
    return {"evidence": evidence, "reference": _UNUSED, **one.asked}


def _refuted(one: _Judged, evidence: list[Chunk]) -> Item:
    return {"evidence": evidence, "predicate": Refuted(one.claim), "reference": _UNUSED}


def _judge(answer: _Answer, one: _Judged, decision: Decision, denied: Decision | None) -> None:
    """The verdict that follows from both answers of the model."""
    one.decision = answer.remapped(one, decision)
    failed = next((d for d in (decision, denied) if d is not None and d.reason in _FAILED), None)
    if failed is not None:
        one.detail = f"not judged: {failed.detail}"
        return
    if denied is None or decision.q_bar is None or denied.q_bar is None:
        one.detail = "not judged: there is no evidence"
        return
    one.refuted = denied.q_bar
    _conclude(answer, one)


def _conclude(answer: _Answer, one: _Judged) -> None:
    """The verdict from all that the model has said so far."""
    assert one.decision is not None and one.refuted is not None
    target = one.target
    one.probabilities = _probabilities(answer, one, one.decision, one.refuted)
    one.verdict = Verdict.SUPPORTED if one.decision.answered else one.probabilities.verdict
    if one.verdict is Verdict.REFUTED and target is not Verdict.REFUTED:
        one.alone.clear()  # it was asked what supports it, not what refutes it


def _probabilities(answer: _Answer, one: _Judged, decision: Decision, refuted: float) -> Probabilities:
    """Calibrated where there is a calibration; else read off the model, or off a reference that is not made from it."""
    assert decision.q_bar is not None
    if answer.calibration is not None:
        closest = [*one.alone.values(), *([] if one.joint is None else [one.joint])]
        alone = max(closest, default=1.0) if answer.calibration.close and one.target is Verdict.SUPPORTED else 1.0
        return answer.calibration.probabilities(min(decision.q_bar, alone), refuted)
    reference = answer.gate.reference
    own = reference is None or reference.needs_scores or decision.p_ref is None
    supported = decision.q_bar if own else float(decision.p_ref or 0.0)
    return Probabilities(supported, (1.0 - supported) * refuted, (1.0 - supported) * (1.0 - refuted))


def _q(decision: Decision) -> float:
    return 0.0 if decision.q_bar is None else decision.q_bar


def _of_target(one: _Judged) -> float:
    """The probability of a statement's verdict from all that was read."""
    if one.target is Verdict.REFUTED:
        return one.refuted or 0.0
    return 0.0 if one.decision is None else _q(one.decision)


def _unproven(one: _Judged) -> list[int]:
    """The chunks that a supported statement's markers name, where they are several and none carries it alone."""
    if one.target is not Verdict.SUPPORTED or not one.alone:
        return []
    named = list(dict.fromkeys(c for marker in one.part.markers for c in marker.chunks if c in one.alone))
    return named if len(named) > 1 and max(one.alone[c] for c in named) < CARRIES else []


def _candidates(answer: _Answer, one: _Judged, wave: int) -> list[tuple[int, Span]]:
    """The sentences to ask about: the nearest ones of the best chunk, then others where none of these carries it."""
    if not one.alone:
        return []
    if wave and max((q for _, _, q in one.sentences), default=1.0) >= CARRIES:
        return []
    chunk = max(one.alone, key=lambda c: one.alone[c])
    spans = [span for piece in answer.read_of(one, chunk) for span in answer.pieces.sentences(piece)]
    if len(spans) > FIRST_SENTENCES:
        text = answer.chunks[chunk].text
        spans = [spans[i] for i in Bm25([text[a:b] for a, b in spans]).best(one.claim, SENTENCES)]
    return [(chunk, span) for span in (spans[FIRST_SENTENCES:] if wave else spans[:FIRST_SENTENCES])]


def _sentence(answer: _Answer, chunk: int, span: Span) -> Chunk:
    """A sentence by itself: in words that stand alone, as a statement would be."""
    return Chunk(answer.pieces.by_themselves(chunk)[span], answer.chunks[chunk].title)


def _cited(answer: _Answer, one: _Judged) -> tuple[Citation, ...]:
    """The best sentence, and of a supported statement the others that carry it as well."""
    ranked = sorted(one.sentences, key=lambda found: -found[2])
    most = CITED if one.verdict is Verdict.SUPPORTED else 1
    kept = [found for k, found in enumerate(ranked[:most]) if k == 0 or found[2] >= CARRIES]
    total = math.fsum(q for _, _, q in kept) or 1.0
    return tuple(
        Citation(chunk, answer.chunks[chunk].text[slice(*span)], span, q / total, q) for chunk, span, q in kept
    )


def _scrubs(one: _Judged) -> list[tuple[tuple[int, Span], ...]]:
    """The sets of cited sentences to take out: all of them, and each by itself where there are several."""
    spans = tuple((citation.chunk, citation.span) for citation in one.citations)
    if not spans:
        return []
    return [spans, *([(span,) for span in spans] if len(spans) > 1 else [])]


def _scrubbed(answer: _Answer, one: _Judged, spans: Sequence[tuple[int, Span]]) -> list[Chunk]:
    """What was read for a statement without some sentences."""
    left: list[Chunk] = []
    for i in one.read:
        piece = answer.pieces.pieces[i]
        inside = {span for chunk, span in spans if chunk == piece.chunk and piece.start <= span[0] < piece.end}
        chunk = answer.pieces.without(piece, inside) if inside else piece.text
        if chunk is not None:
            left.append(chunk)
    return left or [_NOTHING]


def _note_without(one: _Judged, spans: tuple[tuple[int, Span], ...], decision: Decision) -> None:
    """Note q and p_ref without some of the cited sentences."""
    assert one.decision is not None
    if len(spans) == len(one.citations):
        one.prior = _q(decision)
    if len(spans) == 1 and one.decision.p_ref is not None:
        fall = one.decision.p_ref - (decision.p_ref or 0.0)
        one.citations = tuple(
            replace(citation, fall=fall) if (citation.chunk, citation.span) == spans[0] else citation
            for citation in one.citations
        )


def _effects_of_chunks(found: Sequence[tuple[_Answer, _Judged]], ask: _Asking) -> Generator[Ask, Told, None]:
    """What each chunk that was read does to q, alone and taken out."""
    each = [(a, one, c, {a.pieces.pieces[i].chunk for i in one.read}) for a, one in found for c in a.chunks_read(one)]
    several = [(a, one, c, read - {c}) for a, one, c, read in each if len(read) > 1]
    alone = yield from ask([(a, _plain(one, a.of(one, [c]), Verdict.SUPPORTED)) for a, one, c, _ in several])
    others = yield from ask([(a, _plain(one, a.of(one, rest), Verdict.SUPPORTED)) for a, one, _, rest in several])
    for (_, one, chunk, _), by_itself, left in zip(several, alone, others, strict=True):
        q, without = 0.0 if one.decision is None else _q(one.decision), _q(left)
        effect = ChunkEffect(chunk, _q(by_itself), without, q - without, without > q + DISTRACTION)
        one.effects = (*one.effects, effect)
    for _, one, chunk, read in each:
        if len(read) == 1 and one.decision is not None:
            one.effects = (ChunkEffect(chunk, _q(one.decision), None, None, False),)


def _orders(found: Sequence[tuple[_Answer, _Judged]]) -> Generator[Ask, Told, None]:
    """How the order of what was read moves q: a designed set of orders, then the one that the fit thinks safe."""
    if not found:
        return
    designs = [orders.design(len(one.read), answer.gate.seed) for answer, one in found]
    requests = [
        ScoreRequest(Supported(**_texts(one.asked)).render(answer.of(one)), design)
        for (answer, one), design in zip(found, designs, strict=True)
    ]
    _, scores = yield Ask(requests=tuple(requests))
    fits = [orders.fit(design, told.logprobs) for design, told in zip(designs, scores, strict=True)]
    again = [ScoreRequest(request.prompt, (fit.suggested,)) for request, fit in zip(requests, fits, strict=True)]
    _, scores = yield Ask(requests=tuple(again))
    for (answer, one), fit, told in zip(found, fits, scores, strict=True):
        places = [answer.pieces.pieces[i].chunk for i in one.read]
        one.order_effects = fit.effects(places, told.logprobs)


def _texts(asked: Item) -> dict[str, Any]:
    return {name: asked.get(name) for name in ("question", "answer", "claim")}


def _result(answer: _Answer, passes: int, seconds: float) -> AnswerAudit:
    statements = [_statement(answer, i, part) for i, part in enumerate(answer.parts)]
    calibration = answer.calibration
    audit = AnswerAudit(
        answer=answer.answer,
        question=answer.question,
        evidence=answer.chunks,
        statements=tuple(statements),
        h_star=answer.h_star,
        action=AuditAction.ABSTAIN,
        budget=Budget() if calibration is None else calibration.budget,
        scorer=answer.gate.scorer.identity,
        invariant=answer.invariant,
        passes=passes,
        seconds=seconds,
    )
    return replace(audit, action=action_of(audit))


def _statement(answer: _Answer, i: int, part: Part) -> Statement:
    text, sentence = answer.answer[slice(*part.span)], part.sentence or part.span
    one = answer.judged.get(i)
    if one is None:
        kind = answer.skipped.get(i, part.kind)
        return Statement(
            text, part.span, sentence, kind, markers=_idle_markers(answer, part), detail=_WHY.get(kind, "")
        )
    q = _q(one.decision) if one.decision is not None else 0.0
    elsewhere = any(a >= CARRIES for chunk, a in one.alone.items() if chunk not in {c.chunk for c in one.citations})
    supported = one.verdict is Verdict.SUPPORTED
    return Statement(
        text=text,
        span=part.span,
        sentence=sentence,
        kind=Kind.STATEMENT,
        verdict=one.verdict,
        judged=one.verdict is not Verdict.NOT_JUDGED,
        claim=one.claim,
        decision=one.decision,
        probabilities=one.probabilities,
        q_refuted=one.refuted,
        q_alone=max(one.alone.values(), default=None) if one.target is Verdict.SUPPORTED else None,
        citations=one.citations,
        markers=_markers(answer, one),
        prior=one.prior,
        lift=None if one.prior is None else math.log(max(q, 1e-9)) - math.log(max(one.prior, 1e-9)),
        known=supported and one.prior is not None and one.prior >= CARRIES and not elsewhere,
        chunk_effects=one.effects,
        order_effects=one.order_effects,
        detail=one.detail,
    )


def _markers(answer: _Answer, one: _Judged) -> tuple[Marker, ...]:
    """The answer's own markers at a statement, each with what it is worth; one that is missing at its end."""
    own = [(answer.answer[m.start : m.end], (m.start, m.end), c) for m in one.part.markers for c in m.chunks or (None,)]
    supported = one.verdict is Verdict.SUPPORTED
    carries = {c: supported and c is not None and one.alone.get(c, 0.0) >= CARRIES for _, _, c in own}
    if supported and (one.joint or 0.0) >= CARRIES:
        carries = {c: c is not None and c in one.alone for c in carries}
    right = any(carries.values())
    found: list[Marker] = []
    for text, span, chunk in own:
        if carries[chunk]:
            status = MarkerStatus.RIGHT
        else:
            status = MarkerStatus.NOT_NEEDED if right and chunk is not None else MarkerStatus.WRONG
        found.append(Marker(text, span, chunk, status))
    if supported and not own and one.citations and answer.cites:
        end = one.part.span[1]
        found.append(Marker("", (end, end), one.citations[0].chunk, MarkerStatus.MISSING))
    return tuple(found)


def _idle_markers(answer: _Answer, part: Part) -> tuple[Marker, ...]:
    """Markers where nothing is judged: those of a list of sources name a chunk or none; elsewhere none is needed."""
    listed = part.kind is Kind.SOURCES
    return tuple(
        Marker(
            answer.answer[m.start : m.end],
            (m.start, m.end),
            chunk,
            (MarkerStatus.WRONG if chunk is None else MarkerStatus.RIGHT) if listed else MarkerStatus.NOT_NEEDED,
        )
        for m in part.markers
        for chunk in m.chunks or (None,)
    )


_WHY = {
    Kind.CODE: "not judged: code",
    Kind.TABLE: "not judged: a table",
    Kind.FORMULA: "not judged: a formula",
    Kind.HTML: "not judged: HTML",
    Kind.SCRIPT: "not judged: in a script that the model was not calibrated on",
    Kind.TOO_LONG: "not judged: too long to be one statement",
    Kind.OVER_LIMIT: f"not judged: it comes after the first {MOST} statements",
}
