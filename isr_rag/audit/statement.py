"""One part of an audited answer: what it is, what the evidence says about it, and where it says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from isr_rag.decision import Decision

Span = tuple[int, int]
"""First character and the one after the last."""


class Verdict(StrEnum):
    """What the evidence says about a statement."""

    SUPPORTED = "supported"
    """More likely supported than not."""
    REFUTED = "refuted"
    """More likely contradicted than not."""
    NOT_ENOUGH = "not_enough"
    """Neither: the evidence does not say enough, or it is in doubt."""
    NOT_JUDGED = "not_judged"
    """Nothing was decided about it; `Statement.kind` and `Statement.detail` say why."""


class Kind(StrEnum):
    """What a part of an answer is."""

    STATEMENT = "statement"
    """It says something that evidence can support."""
    HEADING = "heading"
    """A heading, or the words that introduce a list."""
    GREETING = "greeting"
    """A greeting, thanks, or words about the answer itself."""
    QUESTION = "question"
    """A question."""
    OPINION = "opinion"
    """An opinion that states no fact."""
    REFUSAL = "refusal"
    """It says that the answer is not known, or not in the evidence."""
    SOURCES = "sources"
    """A list of sources or a footnote."""
    MARKS = "marks"
    """Marks without words."""
    CODE = "code"
    """A block of code."""
    TABLE = "table"
    """A table."""
    FORMULA = "formula"
    """A formula set apart."""
    HTML = "html"
    """A block of HTML."""
    SCRIPT = "script"
    """Text in a script that the model was not calibrated on."""
    TOO_LONG = "too_long"
    """More words without an end than a model can judge as one statement."""
    OVER_LIMIT = "over_limit"
    """It comes after as many statements as are judged of one answer."""


HARMLESS = frozenset({Kind.HEADING, Kind.GREETING, Kind.QUESTION, Kind.OPINION, Kind.REFUSAL, Kind.MARKS, Kind.SOURCES})
"""Kinds that state nothing: they go out beside the statements that they belong to."""


class MarkerStatus(StrEnum):
    """What a citation marker of the answer is worth."""

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
        """The one that is more likely than not; where neither is, not enough."""
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
class ChunkEffect:
    """What one chunk does to the model's probability q that a statement is supported.

    Attributes:
        chunk: index into the evidence.
        alone: q from this chunk alone.
        without: q from the others; None where there are none.
        effect: q from all minus `without`: below 0, the chunk distracts.
        distracts: whether q rises by more than `DISTRACTION` without it.
    """

    chunk: int
    alone: float
    without: float | None
    effect: float | None
    distracts: bool


@dataclass(frozen=True, slots=True)
class RankEffect:
    """How the log-odds of q move per rank that a chunk comes later, first order, with a 95% interval.

    Attributes:
        chunk: index into the evidence.
        per_rank: log-odds (nats) per rank; 0 where the fit sees nothing.
        low: lower end of the interval.
        high: upper end.
    """

    chunk: int
    per_rank: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OrderEffects:
    """How the order of the chunks moved q, for models that see it.

    Attributes:
        ranks: the effect of each chunk's rank.
        lowest: the scored order with the lowest q.
        q_lowest: that q.
        highest: the scored order with the highest q.
        q_highest: that q.
        suggested: an order that the fit thinks safe: a suggestion, scored again before it is shown.
        q_suggested: the model's q for it.
    """

    ranks: tuple[RankEffect, ...]
    lowest: tuple[int, ...]
    q_lowest: float
    highest: tuple[int, ...]
    q_highest: float
    suggested: tuple[int, ...]
    q_suggested: float


@dataclass(frozen=True, slots=True)
class Statement:
    """One part of an answer: a statement that was judged, or what was not and why.

    Attributes:
        text: as it stands in the answer.
        span: its characters in the answer.
        sentence: the characters of its sentence: more than its own where a sentence states several things.
        kind: what it is.
        verdict: what the evidence says about it.
        judged: whether something was decided about it.
        claim: what the model was asked about, in words that stand alone; empty where nothing was asked.
        decision: Algorithm 1 about the claim at the audit's h*; None where nothing was asked.
        probabilities: of the three verdicts; None where nothing was scored.
        q_refuted: the model's probability that the evidence contradicts it; None where nothing was scored.
        q_alone: the highest q, of the chunks that were read alone, that it is supported; None where none was.
        citations: the sentences that carry or refute it, the strongest first.
        markers: the answer's own citation markers at this statement, checked.
        prior: q with the cited sentences taken out of what was read; None without citations.
        lift: ln(q_bar / prior) in nats: what the cited sentences bring.
        known: the model says yes also without them, and no other chunk carries it alone: it need not have read them.
        chunk_effects: with `effects=True`, what each chunk that was read does to q.
        order_effects: with `effects=True`, how their order moved q, where the model sees it.
        detail: why nothing was judged, or what failed.
    """

    text: str
    span: Span
    sentence: Span
    kind: Kind
    verdict: Verdict = Verdict.NOT_JUDGED
    judged: bool = False
    claim: str = ""
    decision: Decision | None = None
    probabilities: Probabilities | None = None
    q_refuted: float | None = None
    q_alone: float | None = None
    citations: tuple[Citation, ...] = ()
    markers: tuple[Marker, ...] = ()
    prior: float | None = None
    lift: float | None = None
    known: bool = False
    chunk_effects: tuple[ChunkEffect, ...] = ()
    order_effects: OrderEffects | None = None
    detail: str = ""


def listed(value: Any) -> Any:
    """Tuples as lists, all the way down."""
    if isinstance(value, dict):
        return {key: listed(one) for key, one in cast(dict[str, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [listed(one) for one in cast(tuple[Any, ...], value)]
    return value.value if isinstance(value, StrEnum) else value


def statement_to_dict(one: Statement) -> dict[str, Any]:
    """Plain data for JSON."""
    plain = {f.name: getattr(one, f.name) for f in dataclasses.fields(one)}
    plain["decision"] = None if one.decision is None else one.decision.to_dict()
    for name in ("citations", "markers", "chunk_effects"):
        plain[name] = [dataclasses.asdict(part) for part in plain[name]]
    for name in ("probabilities", "order_effects"):
        plain[name] = None if plain[name] is None else dataclasses.asdict(plain[name])
    return cast(dict[str, Any], listed(plain))


def statement_from_dict(plain: Mapping[str, Any]) -> Statement:
    """The inverse of `statement_to_dict`."""
    values = dict(plain)
    values["span"], values["sentence"] = _pair(values["span"]), _pair(values["sentence"])
    values["kind"], values["verdict"] = Kind(values["kind"]), Verdict(values["verdict"])
    values["decision"] = None if values["decision"] is None else Decision.from_dict(values["decision"])
    values["probabilities"] = None if values["probabilities"] is None else Probabilities(**values["probabilities"])
    values["citations"] = tuple(Citation(**_with(one, span=_pair(one["span"]))) for one in values["citations"])
    values["markers"] = tuple(
        Marker(**_with(one, span=_pair(one["span"]), status=MarkerStatus(one["status"]))) for one in values["markers"]
    )
    values["chunk_effects"] = tuple(ChunkEffect(**one) for one in values["chunk_effects"])
    order = values["order_effects"]
    if order is not None:
        ranks = tuple(RankEffect(**one) for one in order["ranks"])
        orders = {name: tuple(order[name]) for name in ("lowest", "highest", "suggested")}
        values["order_effects"] = OrderEffects(**_with(order, ranks=ranks, **orders))
    return Statement(**values)


def _with(plain: Mapping[str, Any], **read: Any) -> dict[str, Any]:
    """Plain data with some of its values as they are held."""
    return {**plain, **read}


def _pair(span: Any) -> Span:
    first, last = span
    return int(first), int(last)
