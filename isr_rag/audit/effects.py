"""What each chunk, and its place among the others, does to q."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from isr_rag.audit import orders
from isr_rag.audit.asking import Ask, Told
from isr_rag.audit.judging import plain_question
from isr_rag.audit.progress import AnswerInProgress, Asking, StatementInProgress, q_of
from isr_rag.audit.statement import ChunkEffect, Verdict
from isr_rag.batch import Item
from isr_rag.predicates import Supported
from isr_rag.scorers.protocol import ScoreRequest

DISTRACTION = 0.05
"""Rise of q without a chunk from which on it is said to distract."""


def effects_of_chunks(
    found: Sequence[tuple[AnswerInProgress, StatementInProgress]], ask: Asking
) -> Generator[Ask, Told, None]:
    """What each chunk that was read does to q, alone and taken out."""
    each = [(a, one, c, {a.pieces.pieces[i].chunk for i in one.read}) for a, one in found for c in a.chunks_read(one)]
    several = [(a, one, c, read - {c}) for a, one, c, read in each if len(read) > 1]
    alone = yield from ask([(a, plain_question(one, a.of(one, [c]), Verdict.SUPPORTED)) for a, one, c, _ in several])
    others = yield from ask(
        [(a, plain_question(one, a.of(one, rest), Verdict.SUPPORTED)) for a, one, _, rest in several]
    )
    for (_, one, chunk, _), by_itself, left in zip(several, alone, others, strict=True):
        q, without = 0.0 if one.decision is None else q_of(one.decision), q_of(left)
        effect = ChunkEffect(chunk, q_of(by_itself), without, q - without, without > q + DISTRACTION)
        one.effects = (*one.effects, effect)
    for _, one, chunk, read in each:
        if len(read) == 1 and one.decision is not None:
            one.effects = (ChunkEffect(chunk, q_of(one.decision), None, None, False),)


def effects_of_order(found: Sequence[tuple[AnswerInProgress, StatementInProgress]]) -> Generator[Ask, Told, None]:
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
