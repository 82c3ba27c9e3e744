"""One part of an audited answer: what it is, what the evidence says about it, and where it says so."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from isr_rag._util.sealed import from_plain
from isr_rag._util.text import Span
from isr_rag.core.decision import Decision
from isr_rag.core.evidence import words


class Verdict(StrEnum):
    """What the evidence says about a statement."""

    SUPPORTED = "supported"
    """More likely supported than not."""
    REFUTED = "refuted"
    """More likely contradicted than not."""
    NOT_ENOUGH = "not_enough"
    """Neither: the evidence does not say enough, or it is in doubt."""
    NOT_JUDGED = "not_judged"
    """The evidence was not held against it; `Statement.kind` and `Statement.detail` say why."""


class Kind(StrEnum):
    """What a part of an answer is."""

    STATEMENT = "statement"
    """It says something that evidence can support."""
    HEADING = "heading"
    """A heading, or the words that introduce a list."""
    GREETING = "greeting"
    """A greeting, thanks, or words about the answer itself."""
    QUESTION = "question"
    REFUSAL = "refusal"
    """It says that the answer is not known, or not in the evidence."""
    SOURCES = "sources"
    """A list of sources or a footnote."""
    MARKS = "marks"
    """Marks without words."""
    CODE = "code"
    TABLE = "table"
    FORMULA = "formula"
    """A formula set apart."""
    HTML = "html"
    SCRIPT = "script"
    """Text in a script that the model was not calibrated for."""
    TOO_LONG = "too_long"
    """A sentence of more words than a model can judge as one statement."""
    OVER_LIMIT = "over_limit"
    """It comes after the last statement that is judged of one answer."""
    UNKNOWN_SOURCE = "unknown_source"
    """It links to an address, or lists a source, that the evidence does not have."""


HARMLESS = frozenset({Kind.HEADING, Kind.GREETING, Kind.QUESTION, Kind.REFUSAL, Kind.MARKS, Kind.SOURCES})
"""Kinds that state no fact: they go out with the statements around them."""


VERB = re.compile(
    r"^(?:he|she|it|they|we|there|this|these)\b|\b(?:is|are|was|were|be|been|has|have|had|do|does|did|can|could|will|"
    r"would|(?!(?-i:May))may|might|must(?!-)|shall|should|became|becomes|made|makes|won|wins|died|lives?|lived|born|"
    r"wrote|founded)\b",
    re.IGNORECASE,
)
"""Signs of a full sentence; without them a few words are read as a bare answer."""
_NOT = re.compile(r"\b(?:not|never|no longer|cannot)\b|n['’]t\b", re.IGNORECASE)


def may_state(text: str, *, named: bool = False) -> bool:
    """Whether a heading, a title (`named`) or the words before a list may state something, and not only name it."""
    whole = text.rstrip("\"'”’)»*: ").endswith((".", "!", "。")) or words(text) > 6
    how_to = text[:7].casefold() == "how to "
    return (whole and not (named or how_to)) or bool(VERB.search(text) or _NOT.search(text))


class MarkerStatus(StrEnum):
    """Whether a citation marker of the answer is correct."""

    RIGHT = "right"
    """The chunk that it names carries the statement."""
    WRONG = "wrong"
    """The chunk that it names does not carry the statement, or there is no such chunk."""
    MISSING = "missing"
    """The answer cites elsewhere, and this supported statement has no marker; `Marker.chunk` is what it should name."""
    NOT_NEEDED = "not_needed"
    """Another marker of the statement is right and this one carries nothing, or nothing is stated here."""


@dataclass(frozen=True, slots=True)
class Probabilities:
    """Calibrated probabilities of the three verdicts; their sum is 1."""

    supported: float
    refuted: float
    not_enough: float

    @property
    def verdict(self) -> Verdict:
        """The verdict that is more likely than not; `NOT_ENOUGH` if neither of the other two is."""
        if self.supported > 0.5:
            return Verdict.SUPPORTED
        return Verdict.REFUTED if self.refuted > 0.5 else Verdict.NOT_ENOUGH


@dataclass(frozen=True, slots=True)
class Citation:
    """A sentence of the evidence that carries a statement, or refutes it.

    Attributes:
        chunk: index into the evidence.
        sentence: the sentence.
        span: its characters in the chunk's text.
        share: its share of what all citations of the statement carry, in [0, 1].
        alone: the model's probability of the verdict from this sentence alone.
        fall: how much p_ref falls when this sentence is taken out of what was read; below 0 where it rises; None
            for a statement that is refuted.
    """

    chunk: int
    sentence: str
    span: Span
    share: float
    alone: float
    fall: float | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """A citation marker of the answer itself.

    Attributes:
        text: as it stands in the answer; empty where it is missing.
        span: its characters in the answer.
        chunk: index of the chunk that it names (or, where missing, should name); None where it names none.
        status: whether the chunk carries the statement.
    """

    text: str
    span: Span
    chunk: int | None
    status: MarkerStatus


@dataclass(frozen=True, slots=True)
class Statement:
    """One part of an answer: a statement that was judged, or a part that was not.

    Attributes:
        text: as it stands in the answer.
        span: its characters in the answer.
        kind: what it is.
        verdict: what the evidence says about it.
        claim: what the model was asked about, in words that stand alone; empty where nothing was asked.
        decision: Algorithm 1 about the claim at the audit's h*; None where nothing was asked.
        probabilities: of the three verdicts; None where nothing was scored.
        q_refuted: the model's probability that the evidence contradicts it; None where nothing was scored.
        q_alone: the highest probability that a chunk read alone supports it; None where none was read alone.
        citations: the sentences that carry or refute it, the strongest first.
        markers: the answer's own citation markers at this statement, checked.
        prior: q with the cited sentences taken out of what was read; None without citations.
        known: the model says yes without the cited sentences, and no other chunk carries the statement alone: the
            answer may come from the model's memory.
        absent: its quotations and numbers that the evidence does not have where it should; it is then not released.
        detail: why nothing was judged, what failed, or what is absent.
    """

    text: str
    span: Span
    kind: Kind
    verdict: Verdict = Verdict.NOT_JUDGED
    claim: str = ""
    decision: Decision | None = None
    probabilities: Probabilities | None = None
    q_refuted: float | None = None
    q_alone: float | None = None
    citations: tuple[Citation, ...] = ()
    markers: tuple[Marker, ...] = ()
    prior: float | None = None
    known: bool = False
    absent: tuple[str, ...] = ()
    detail: str = ""

    @property
    def judged(self) -> bool:
        """Whether the evidence was held against it."""
        return self.verdict is not Verdict.NOT_JUDGED

    @property
    def states_something(self) -> bool:
        """Whether it may state a fact, judged or not."""
        return self.judged or self.kind not in HARMLESS

    @property
    def lift(self) -> float | None:
        """ln(q / prior) in nats: what the cited sentences bring; None without citations."""
        if self.prior is None or self.decision is None:
            return None
        return math.log(max(self.decision.q_bar or 0.0, 1e-9)) - math.log(max(self.prior, 1e-9))

    def masked(self, mask: str) -> Statement:
        """The same without its words, each character of its text replaced by one."""
        decision = self.decision
        if decision is not None:
            nearest = decision.nearest and replace(decision.nearest, lacking=())
            decision = replace(decision, nearest=nearest, detail="")
        text = mask * len(self.text)
        return replace(self, text=text, claim="", absent=(), detail="", markers=(), decision=decision)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        decision = None if self.decision is None else self.decision.to_dict()
        fields = asdict(replace(self, decision=None))
        return {**fields, "decision": decision, "judged": self.judged, "lift": self.lift}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Statement:
        """The inverse of `to_dict`."""
        values = {name: value for name, value in plain.items() if name not in ("judged", "lift")}
        decision = None if values["decision"] is None else Decision.from_dict(values["decision"])
        return from_plain(cls, {**values, "decision": decision})
