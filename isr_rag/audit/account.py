"""What an audit found, as it is handed out."""

from __future__ import annotations

import math
from dataclasses import replace

from isr_rag.audit.budget import Budget
from isr_rag.audit.cutting import Part
from isr_rag.audit.progress import CARRIES, MOST, AnswerInProgress, StatementInProgress, q_of
from isr_rag.audit.release import action_of
from isr_rag.audit.result import AnswerAudit, AuditAction
from isr_rag.audit.statement import Kind, Marker, MarkerStatus, Statement, Verdict


def audit_of(answer: AnswerInProgress, passes: int, seconds: float) -> AnswerAudit:
    """The audit of an answer that has gone through all stages."""
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


def _statement(answer: AnswerInProgress, i: int, part: Part) -> Statement:
    text, sentence = answer.answer[slice(*part.span)], part.sentence or part.span
    one = answer.judged.get(i)
    if one is None:
        kind = answer.skipped.get(i, part.kind)
        return Statement(
            text, part.span, sentence, kind, markers=_idle_markers(answer, part), detail=_WHY.get(kind, "")
        )
    q = q_of(one.decision) if one.decision is not None else 0.0
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


def _markers(answer: AnswerInProgress, one: StatementInProgress) -> tuple[Marker, ...]:
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


def _idle_markers(answer: AnswerInProgress, part: Part) -> tuple[Marker, ...]:
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
