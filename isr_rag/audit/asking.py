"""What an audit asks of a gate, and what it is told."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

from isr_rag.audit.result import AnswerAudit
from isr_rag.batch import Item
from isr_rag.decision import Decision
from isr_rag.evidence import EvidenceLike
from isr_rag.scorers.protocol import ScoreRequest, Scores


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


Told: TypeAlias = tuple[Sequence[Decision], Sequence[Scores]]
"""The decisions and scores that were asked for."""

Steps: TypeAlias = Generator[Ask, Told, list[AnswerAudit]]
"""Audits under way."""
