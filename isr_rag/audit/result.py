"""What an audit finds: every statement of an answer with its verdict, its evidence, and what may go out."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from isr_rag.audit.budget import Budget
from isr_rag.decision import Decision
from isr_rag.errors import InvalidInputError
from isr_rag.evidence import Chunk
from isr_rag.printable import printable

SCHEMA_VERSION = 1
_SHOWN = 90
"""Characters of a statement on one line of a terminal."""

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


class AuditAction(StrEnum):
    """What to do with an answer."""

    ANSWER = "answer"
    """Everything that was judged may go out."""
    TRIM = "trim"
    """A part may: `AnswerAudit.releasable`."""
    ABSTAIN = "abstain"
    """Nothing may."""


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


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of an answer that does not go out.

    Attributes:
        statement: its index in `AnswerAudit.statements`.
        text: as it stood in the answer.
        reason: why, in words.
    """

    statement: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """The part of an answer that may go out under one error budget.

    Attributes:
        text: the answer without what is left out, otherwise as it was; empty where nothing may go out.
        kept: indices of the statements that were judged and go out.
        left_out: everything that does not.
        h_star: the budget: the probability, over answers, that something kept is unsupported.
        decided_by: what keeps to it: `cut` (calibrated on whole answers), or `bound` (the sum of the statements' risks,
            1 - p_ref each).
        threshold: the cut that P(supported) has to exceed; None where the sum decides.
        note: the same in words, with what it rests on.
    """

    text: str
    kept: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    h_star: float
    decided_by: str
    threshold: float | None
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return cast(dict[str, Any], _listed(dataclasses.asdict(self)))

    def __str__(self) -> str:
        lines = [self.text] if self.text else []
        if self.left_out:
            lines += ["", f"Left out ({len(self.left_out)}):"]
            lines += [f"  - {_short(one.text)}: {one.reason}" for one in self.left_out]
        return "\n".join(printable(line, None) for line in lines)


@dataclass(frozen=True, slots=True)
class AnswerAudit:
    """An answer, statement by statement, and what may go out of it.

    Attributes:
        answer: the answer.
        question: the question; None where none was given.
        evidence: the evidence, to which citations refer.
        statements: every part of the answer, in its order.
        h_star: the error budget of the whole answer.
        action: what to do with the answer under this budget.
        budget: how the budget is kept: calibrated probabilities and cut, or a bound.
        scorer: identity of the scorer.
        invariant: the model cannot see the order of the evidence.
        passes: forward passes that its decisions rest on; one that several rest on counts for each.
        seconds: wall-clock time.
    """

    answer: str
    question: str | None
    evidence: tuple[Chunk, ...]
    statements: tuple[Statement, ...]
    h_star: float
    action: AuditAction
    budget: Budget
    scorer: str
    invariant: bool
    passes: int = field(default=0, compare=False)
    seconds: float = field(default=0.0, compare=False)

    def __bool__(self) -> bool:
        raise TypeError("an AnswerAudit is neither true nor false: compare audit.action")

    @property
    def counts(self) -> dict[str, int]:
        """Statements by verdict."""
        found = Counter(one.verdict.value for one in self.statements)
        return {verdict.value: found[verdict.value] for verdict in Verdict}

    @property
    def not_judged(self) -> dict[str, int]:
        """What was not judged, counted by kind."""
        return dict(Counter(one.kind.value for one in self.statements if not one.judged))

    def releasable(self, h_star: float | None = None, *, cite: bool = False) -> Release:
        """The part of the answer that may go out.

        With a cut calibrated on whole answers (conformal factuality), statements go out whose P(supported) exceeds it:
        over answers like those of the calibration, nothing kept is unsupported with probability 1 - h*. Without one,
        the surest statements that the gate answers go out while the sum of their risks (1 - p_ref) stays within h*:
        a union bound, which holds as far as each p_ref does. Nothing that is not supported goes out in either case.

        Args:
            h_star: error budget of the whole answer, in (0, 1); the audit's own for None.
            cite: add markers such as `[1]`, counted from 1, to statements that bring none that is right.

        Raises:
            ConfigurationError: if h_star lies outside (0, 1).
        """
        from isr_rag.audit.release import release

        return release(self, self.h_star if h_star is None else h_star, cite=cite)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        plain |= {
            "action": self.action.value,
            "evidence": [dataclasses.asdict(chunk) for chunk in self.evidence],
            "statements": [_statement_to(one) for one in self.statements],
            "budget": self.budget.to_dict(),
        }
        return {"schema_version": SCHEMA_VERSION, **plain}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> AnswerAudit:
        """The inverse of `to_dict`.

        Raises:
            InvalidInputError: if the schema version is another one, or a field is missing or unknown.
        """
        values = dict(plain)
        version = values.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise InvalidInputError(f"an audit of schema version {version!r}; this package reads {SCHEMA_VERSION}")
        try:
            values["action"] = AuditAction(values["action"])
            values["evidence"] = tuple(Chunk(**chunk) for chunk in values["evidence"])
            values["statements"] = tuple(_statement_from(one) for one in values["statements"])
            values["budget"] = Budget.from_dict(values["budget"])
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(f"this is not an audit as to_dict writes it: {error!r}") from error

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> AnswerAudit:
        """The inverse of `to_json`.

        Raises:
            InvalidInputError: if the text is not a JSON object of an audit.
        """
        try:
            plain: object = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidInputError(f"this is not JSON: {error}") from error
        if not isinstance(plain, dict):
            raise InvalidInputError("this is not an audit as to_json writes it")
        return cls.from_dict(cast(dict[str, Any], plain))

    def headline(self) -> str:
        """One line: what may go out, and how many statements of each verdict there are."""
        counts = self.counts
        said = [f"{counts[v.value]} {v.value.replace('_', ' ')}" for v in Verdict if counts[v.value]]
        what = {
            AuditAction.ANSWER: "everything that was judged may go out",
            AuditAction.TRIM: "a part may go out",
            AuditAction.ABSTAIN: "nothing may go out",
        }[self.action]
        return f"{self.action.name}: {what} (h* = {self.h_star:g}). {', '.join(said) or 'nothing was stated'}"

    def __str__(self) -> str:
        lines = [self.headline()]
        for number, one in enumerate(self.statements, start=1):
            lines.append(f"{number:>4}  {_label(one):<14}{_short(one.text)}")
            lines += [f"          chunk {c.chunk + 1}: {_short(c.sentence)}" for c in one.citations]
            lines += [
                f"          marker {m.text or '(none)'}: {m.status.value.replace('_', ' ')}"
                for m in one.markers
                if m.status is not MarkerStatus.RIGHT
            ]
        return "\n".join(printable(line, None) for line in lines)

    def _repr_html_(self) -> str:
        """The answer with every statement coloured, for notebooks."""
        from isr_rag.audit.page import fragment

        return fragment(self)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the report: one self-contained file, for light and dark screens and for paper.

        Raises:
            OSError: if it cannot be written.
        """
        from isr_rag.audit.page import page
        from isr_rag.files import write_atomically

        target = Path(path)
        write_atomically(target, page(self))
        return target


def _label(one: Statement) -> str:
    return one.kind.value.replace("_", " ") if not one.judged else one.verdict.value.replace("_", " ")


def _short(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= _SHOWN else f"{folded[: _SHOWN - 1]}…"


def _listed(value: Any) -> Any:
    """Tuples as lists, all the way down."""
    if isinstance(value, dict):
        return {key: _listed(one) for key, one in cast(dict[str, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [_listed(one) for one in cast(tuple[Any, ...], value)]
    return value.value if isinstance(value, StrEnum) else value


def _statement_to(one: Statement) -> dict[str, Any]:
    plain = {f.name: getattr(one, f.name) for f in dataclasses.fields(one)}
    plain["decision"] = None if one.decision is None else one.decision.to_dict()
    for name in ("citations", "markers", "chunk_effects"):
        plain[name] = [dataclasses.asdict(part) for part in plain[name]]
    for name in ("probabilities", "order_effects"):
        plain[name] = None if plain[name] is None else dataclasses.asdict(plain[name])
    return cast(dict[str, Any], _listed(plain))


def _statement_from(plain: Mapping[str, Any]) -> Statement:
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
