"""What each chunk of the evidence, and its position, does to the statements of an audited answer.

For inspection only: nothing here changes what may go out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isr_rag.audit import AnswerAudit, AuditItem
from isr_rag.audit.inquiry import Inquiry, Question
from isr_rag.core.algorithm import raise_failures, score
from isr_rag.core.bounds import log_odds
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.predicates import predicate_for
from isr_rag.core.prompt import Ordering
from isr_rag.core.scorer import ScoreRequest
from isr_rag.gate import ISRGate


@dataclass(frozen=True, slots=True)
class ChunkEffect:
    """What one chunk does to the model's probability q that a statement is supported.

    Attributes: statement: index into `AnswerAudit.statements`. chunk: index into the evidence. q: from everything that
    was read. alone: q from this chunk alone. without: q from all other chunks; None if there are none. A high value
    without the chunk that carries the statement shows that the model knows it from its training, a value above q that
    the chunk distracts. per_rank: how the log-odds of q change, in nats, per rank that the chunk (or its first piece)
    comes later. None if the model cannot see the order, or only one chunk was read. per_rank_error: standard error of
    `per_rank`.
    """

    statement: int
    chunk: int
    q: float
    alone: float
    without: float | None
    per_rank: float | None = None
    per_rank_error: float | None = None


def measure(gate: ISRGate, audit: AnswerAudit) -> list[ChunkEffect]:
    """Measure what each chunk, and its position, does to each judged statement of a gate's audit.

    It costs two passes per chunk and statement, and 2n + 6 more for a model that sees the order of n chunks.

    Examples:
        >>> from isr_lab.effects import measure
        >>> from isr_rag import ISRGate
        >>> from isr_rag.references import Oracle
        >>> from isr_rag.testing import FixedScorer
        >>> gate = ISRGate(FixedScorer([0.97]), Oracle(0.99), h_star=0.2)
        >>> audit = gate.audit(answer="Lyon is a city.", evidence=["The city of Lyon is old.", "Paris is a city."])
        >>> [effect.chunk for effect in measure(gate, audit)]
        [0, 1]
    """
    item = AuditItem(answer=audit.answer, question=audit.question, evidence=audit.evidence)
    [opened] = gate.begin_audits([item]).answers
    found: list[ChunkEffect] = []
    for i, one in opened.inquiries.items():
        decision = audit.statements[i].decision
        if not audit.statements[i].judged or decision is None:
            continue
        subsets = [(chunk,) for chunk in one.chunks] + [_others(one, chunk) for chunk in one.chunks]
        told = gate.decide_batch([one.item(Question(chunks=subset)) for subset in subsets if subset])
        q = dict(zip(filter(None, subsets), (told.q_bar or 0.0 for told in told), strict=True))
        slopes = {} if audit.invariant or len(one.read) < 2 else _slopes(gate, one)
        found += [
            ChunkEffect(
                i, chunk, decision.q_bar or 0.0, q[chunk,], q.get(_others(one, chunk)), *slopes.get(chunk, (None, None))
            )
            for chunk in one.chunks
        ]
    return found


def _others(one: Inquiry, chunk: int) -> tuple[int, ...]:
    return tuple(other for other in one.chunks if other != chunk)


def _slopes(gate: ISRGate, one: Inquiry) -> dict[int, tuple[float, float]]:
    """The effect of each chunk's rank with its standard error, from a designed set of orderings."""
    asked = one.item(Question())
    predicate = predicate_for(question=asked.get("question"), answer=asked.get("answer"), claim=asked.get("claim"))
    orderings = draw_orderings(len(one.read), 2 * len(one.read) + 6, family="auto", seed=gate.settings.orderings.seed)
    prompt = predicate.render(tuple(piece.text for piece in one.read))
    [scores] = raise_failures(score(gate.scorer, [ScoreRequest(prompt, tuple(orderings))]))
    probabilities = np.exp(np.asarray(scores.logprobs, dtype=np.float64))
    slopes, errors = fit_ranks(orderings, probabilities[:, 0] / probabilities.sum(axis=1))
    found: dict[int, tuple[float, float]] = {}
    for piece, slope, error in zip(one.read, slopes.tolist(), errors.tolist(), strict=True):
        found.setdefault(piece.chunk, (slope, error))
    return found


def fit_ranks(orderings: Sequence[Ordering], q: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least-squares fit of the log-odds of q, shape (m,), on the centred ranks of n chunks in m > n orderings.

    Returns:
        Log-odds per rank of each chunk and their standard errors, each of shape (n,). The slopes sum to 0, since the
        ranks of every ordering have the same sum.
    """
    n = len(orderings[0])
    x = np.argsort(np.asarray(orderings), axis=1) - (n - 1) / 2
    y = log_odds(q, eps=1e-6)
    y = y - y.mean()
    inverse = np.linalg.pinv(x.T @ x)
    slopes = inverse @ x.T @ y
    spread = float(np.sum((y - x @ slopes) ** 2)) / max(len(orderings) - n, 1)  # n - 1 effects and a mean
    return slopes - slopes.mean(), np.sqrt(np.maximum(np.diag(inverse) * spread, 0.0))
