"""Which sentences carry a statement, and what is left without them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from isr_rag.audit.progress import CARRIES, AnswerInProgress, StatementInProgress, q_of
from isr_rag.audit.statement import Citation, Span, Verdict
from isr_rag.bm25 import Bm25
from isr_rag.decision import Decision
from isr_rag.evidence import Chunk

SENTENCES = 5
"""Sentences of a chunk, the nearest by their words, that are asked about alone at most."""

FIRST_SENTENCES = 2
"""Of these the ones that are asked about first; the others only where none of them carries the statement."""

CITED = 3
"""Sentences that are cited for one statement at most."""

_NOTHING = Chunk("…")
"""What is read where nothing is left of the evidence."""


def unproven(one: StatementInProgress) -> list[int]:
    """The chunks that a supported statement's markers name, where they are several and none carries it alone."""
    if one.target is not Verdict.SUPPORTED or not one.alone:
        return []
    named = list(dict.fromkeys(c for marker in one.part.markers for c in marker.chunks if c in one.alone))
    return named if len(named) > 1 and max(one.alone[c] for c in named) < CARRIES else []


def candidates(answer: AnswerInProgress, one: StatementInProgress, wave: int) -> list[tuple[int, Span]]:
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


def by_itself(answer: AnswerInProgress, chunk: int, span: Span) -> Chunk:
    """A sentence by itself: in words that stand alone, as a statement would be."""
    return Chunk(answer.pieces.by_themselves(chunk)[span], answer.chunks[chunk].title)


def cited(answer: AnswerInProgress, one: StatementInProgress) -> tuple[Citation, ...]:
    """The best sentence, and of a supported statement the others that carry it as well."""
    ranked = sorted(one.sentences, key=lambda found: -found[2])
    most = CITED if one.verdict is Verdict.SUPPORTED else 1
    kept = [found for k, found in enumerate(ranked[:most]) if k == 0 or found[2] >= CARRIES]
    total = math.fsum(q for _, _, q in kept) or 1.0
    return tuple(
        Citation(chunk, answer.chunks[chunk].text[slice(*span)], span, q / total, q) for chunk, span, q in kept
    )


def sets_to_take_out(one: StatementInProgress) -> list[tuple[tuple[int, Span], ...]]:
    """The sets of cited sentences to take out: all of them, and each by itself where there are several."""
    spans = tuple((citation.chunk, citation.span) for citation in one.citations)
    if not spans:
        return []
    return [spans, *([(span,) for span in spans] if len(spans) > 1 else [])]


def without_cited(answer: AnswerInProgress, one: StatementInProgress, spans: Sequence[tuple[int, Span]]) -> list[Chunk]:
    """What was read for a statement without some sentences."""
    left: list[Chunk] = []
    for i in one.read:
        piece = answer.pieces.pieces[i]
        inside = {span for chunk, span in spans if chunk == piece.chunk and piece.start <= span[0] < piece.end}
        chunk = answer.pieces.without(piece, inside) if inside else piece.text
        if chunk is not None:
            left.append(chunk)
    return left or [_NOTHING]


def note_without(one: StatementInProgress, spans: tuple[tuple[int, Span], ...], decision: Decision) -> None:
    """Note q and p_ref without some of the cited sentences."""
    assert one.decision is not None
    if len(spans) == len(one.citations):
        one.prior = q_of(decision)
    if len(spans) == 1 and one.decision.p_ref is not None:
        fall = one.decision.p_ref - (decision.p_ref or 0.0)
        one.citations = tuple(
            replace(citation, fall=fall) if (citation.chunk, citation.span) == spans[0] else citation
            for citation in one.citations
        )
