"""What an audit asks of a gate, and what it is told."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypedDict

from isr_rag.audit.result import AnswerAudit
from isr_rag.batch import Item
from isr_rag.decision import Decision
from isr_rag.evidence import EvidenceLike
from isr_rag.references.protocol import Reference
from isr_rag.scorers.protocol import Scorer, ScoreRequest, Scores


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


class Judge(Protocol):
    """The settings of a gate that an audit looks at; `isr_rag.ISRGate` has them."""

    @property
    def h_star(self) -> float:
        """Target hallucination rate h*."""
        ...

    @property
    def scorer(self) -> Scorer:
        """What gives the label probabilities."""
        ...

    @property
    def reference(self) -> Reference | None:
        """What gives p_ref."""
        ...

    @property
    def seed(self) -> int:
        """Seed of the orderings."""
        ...

    @property
    def focus(self) -> int | None:
        """Words of evidence to read at most; None for all that fits."""
        ...

    def with_h_star(self, h_star: float) -> Judge:
        """The same gate with another target hallucination rate."""
        ...


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
