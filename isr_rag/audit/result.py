"""The result of an audit: an answer statement by statement, the part of it that may go out, and the HTML report."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from isr_rag._util.files import write_atomically
from isr_rag._util.sealed import from_plain
from isr_rag._util.text import printable
from isr_rag.audit.calibration import Budget
from isr_rag.audit.redaction import Redaction, redact, shortened
from isr_rag.audit.statement import Citation, MarkerStatus, Statement, Verdict
from isr_rag.core.evidence import Chunk
from isr_rag.core.pictures import strip
from isr_rag.errors import InvalidInputError

SCHEMA_VERSION = 2
_MASK = "\N{LIGHT SHADE}"
_NAMES = {
    Verdict.SUPPORTED: "supported",
    Verdict.REFUTED: "refuted",
    Verdict.NOT_ENOUGH: "not enough information",
    Verdict.NOT_JUDGED: "not judged",
}
_AROUND = 600
"""Characters of a chunk shown on either side of a cited sentence."""


class AuditAction(StrEnum):
    """What to do with an answer."""

    ANSWER = "answer"
    """Everything may go out."""
    TRIM = "trim"
    """A part may go out: see `AnswerAudit.releasable`."""
    ABSTAIN = "abstain"
    """Nothing may go out."""


@dataclass(frozen=True, slots=True)
class AnswerAudit:
    """The audit of an answer, statement by statement.

    Attributes:
        answer: the answer.
        question: the question; None where none was given.
        evidence: the evidence, to which citations refer.
        statements: every part of the answer, in its order.
        h_star: the error budget of the whole answer.
        action: what to do with the answer under this budget.
        budget: how the budget is kept: a calibrated threshold, or a sum of risks.
        scorer: identity of the scorer.
        invariant: the model cannot see the order of the evidence.
        passes: forward passes of its decisions; a pass that several decisions share counts for each.
        seconds: wall-clock time.

    Examples:
        >>> from isr_rag import ISRGate
        >>> from isr_rag.references import Oracle
        >>> from isr_rag.testing import FixedScorer
        >>> gate = ISRGate(FixedScorer([0.97]), Oracle(0.99), h_star=0.2)
        >>> audit = gate.audit(answer="Paris lies on the Seine.", evidence=["The Seine flows through Paris."])
        >>> audit.releasable().text
        'Paris lies on the Seine.'
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

    @classmethod
    def of(cls, **found: Any) -> AnswerAudit:
        """An audit of all fields but `action`, which follows from what is releasable."""
        audit = cls(action=AuditAction.ABSTAIN, **found)
        kept = len(audit.releasable().kept)
        stated = sum(one.states_something for one in audit.statements)
        action = AuditAction.ANSWER if kept == stated else AuditAction.TRIM
        return dataclasses.replace(audit, action=action) if kept else audit

    def __bool__(self) -> bool:
        raise TypeError("an AnswerAudit is neither true nor false: compare audit.action")

    @property
    def counts(self) -> dict[str, int]:
        """Number of statements by verdict."""
        found = Counter(one.verdict.value for one in self.statements)
        return {verdict.value: found[verdict.value] for verdict in Verdict}

    @property
    def not_judged(self) -> dict[str, int]:
        """Number of parts that were not judged, by kind."""
        return dict(Counter(one.kind.value for one in self.statements if not one.judged))

    def releasable(self, h_star: float | None = None, *, cite: bool = False) -> Redaction:
        """The part of the answer that may go out; only statements whose verdict is `supported` ever do.

        With a threshold calibrated on whole answers (conformal factuality), statements go out whose P(supported)
        exceeds it: over answers like those of the calibration, nothing kept is unsupported with probability 1 - h*.
        Without one, the surest statements that the gate answers go out while the sum of their risks stays within h*
        (a union bound). The risk of a statement is 1 - `Decision.pointwise`; a statement whose reference knows no
        such value does not go out.

        Args:
            h_star: error budget of the whole answer, in (0, 1); the audit's own for None.
            cite: add markers such as `[1]`, counted from 1, to statements that bring none that is right.

        Raises:
            ConfigurationError: if h_star lies outside (0, 1).
        """
        target = self.h_star if h_star is None else h_star
        return redact(self.answer, self.statements, self.budget, target, cite=cite)

    def masked(self) -> AnswerAudit:
        """The audit without the words of what may not go out, for metadata, events and logs.

        Lengths and positions stay as they are; what is left out of `releasable` becomes a run of blocks.
        """
        released = self.releasable()
        away = {one.statement for one in released.left_out} if released.text else set(range(len(self.statements)))
        characters = list(self.answer if released.text else _MASK * len(self.answer))
        statements = list(self.statements)
        for i in away:
            first, last = statements[i].span
            characters[first:last] = _MASK * (last - first)
            statements[i] = statements[i].masked(_MASK)
        return dataclasses.replace(self, answer="".join(characters), statements=tuple(statements))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return cast(dict[str, Any], json.loads(self.to_json()))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> AnswerAudit:
        """The inverse of `to_dict`.

        Raises:
            InvalidInputError: if the schema version is another one, or a field is missing or unknown.
        """
        try:
            values = dict(plain)
            version = values.pop("schema_version", None)
            if version != SCHEMA_VERSION:
                raise InvalidInputError(f"an audit of schema version {version!r}; this package reads {SCHEMA_VERSION}")
            values["statements"] = [Statement.from_dict(one) for one in values["statements"]]
            return from_plain(cls, values)
        except InvalidInputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(f"this is not an audit as to_dict writes it: {error!r}") from error

    def to_json(self) -> str:
        """One line of JSON."""
        fields = dataclasses.asdict(dataclasses.replace(self, statements=()))
        plain = {"schema_version": SCHEMA_VERSION, **fields, "statements": [one.to_dict() for one in self.statements]}
        return json.dumps(plain, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> AnswerAudit:
        """The inverse of `to_json`.

        Raises:
            InvalidInputError: if the text is not a JSON object of an audit.
        """
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise InvalidInputError(f"this is not JSON: {error}") from error

    def headline(self) -> str:
        """What may go out and the number of statements by verdict, on one line."""
        counts = self.counts
        said = [f"{count} {verdict.replace('_', ' ')}" for verdict, count in counts.items() if count]
        what = {
            AuditAction.ANSWER: "everything that was judged may go out",
            AuditAction.TRIM: "a part may go out",
            AuditAction.ABSTAIN: "nothing may go out",
        }[self.action]
        return f"{self.action.name}: {what} (h* = {self.h_star:g}). {', '.join(said) or 'nothing was stated'}"

    def __str__(self) -> str:
        lines = [self.headline()]
        for number, one in enumerate(self.statements, start=1):
            label = (one.verdict if one.judged else one.kind).value.replace("_", " ")
            lines.append(f"{number:>4}  {label:<14}{shortened(one.text)}")
            lines += [f"          chunk {c.chunk + 1}: {shortened(c.sentence)}" for c in one.citations]
            lines += [
                f"          marker {m.text or '(none)'}: {m.status.value.replace('_', ' ')}"
                for m in one.markers
                if m.status is not MarkerStatus.RIGHT
            ]
        return "\n".join(printable(line, None) for line in lines)

    def _repr_html_(self) -> str:
        """The answer with every statement coloured, for notebooks."""
        return (
            f'<div class="isr"><style>{_css("marks.css")}</style><b>{_h(self.headline())}</b><p>{_chips(self)}</p>'
            f'<div class="answer" dir="auto">{_marked(self, None)}</div></div>'
        )

    def html(self) -> str:
        """The report as one self-contained page, for light and dark screens and for paper."""
        return _page(self)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the report to a file and return its path.

        Raises:
            OSError: if it cannot be written.
        """
        target = Path(path)
        write_atomically(target, self.html())
        return target


def _page(audit: AnswerAudit) -> str:
    """The report: one page without scripts, for light and dark screens and for paper.

    A click on a statement shows its section by the CSS selector `:target`; on paper every section is printed.
    """
    question, redaction = audit.question, audit.releasable()
    title = "Audit of an answer" if question is None else f"Audit: {_text(question)[:80]}"
    cards = "".join(_card(audit, i, one, redaction) for i, one in enumerate(audit.statements))
    asked = "" if question is None else f"<p><b>Question.</b> {_h(question)}</p>"
    seen = "does not see" if audit.invariant else "sees"
    calibrated = "calibrated" if audit.budget.calibrated else "as the model gives them, not calibrated"
    foot = (
        f"{len(audit.evidence)} chunks, {audit.passes} forward passes, {audit.seconds:.1f} s. The model {seen} the "
        f"order of the evidence: {audit.scorer}. Probabilities of the verdicts: {calibrated}."
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{_css('marks.css')}{_css('page.css')}</style></head>"
        f'<body class="isr"><main><header><h1>{_h(audit.headline())}</h1>{asked}<p>{_chips(audit)}</p></header>'
        "<article><h2>The answer, statement by statement</h2>"
        f'<div class="answer" dir="auto">{_marked(audit, "#s")}</div>{_redacted(redaction)}</article>'
        f'<aside class="side"><p class="hint faint">Click a statement to see its evidence.</p>{cards}</aside>'
        f"<footer><small>{_h(foot)}</small></footer></main></body></html>\n"
    )


def _css(name: str) -> str:
    return files("isr_rag.audit").joinpath(name).read_text("utf-8")


def _text(text: str) -> str:
    return " ".join(printable(text, None).split())


def _h(text: str) -> str:
    """Text for HTML, its line breaks kept, without what would control a terminal or turn the direction of writing."""
    return "\n".join(escape(printable(line, None)) for line in text.split("\n"))


def _chips(audit: AnswerAudit) -> str:
    counts = audit.counts
    return " ".join(f'<span class="chip {v}">{counts[v]} {name}</span>' for v, name in _NAMES.items() if counts[v])


def _marked(audit: AnswerAudit, link: str | None) -> str:
    """The answer with each part linked to its section, or with its verdict as a tooltip."""
    found: list[str] = []
    answer, at = audit.answer, 0
    for i, one in enumerate(audit.statements):
        first, last = one.span
        if first < at:
            continue
        text = _h(answer[first:last])
        said = _NAMES[one.verdict]
        opening = f'<span title="{said}"' if link is None else f'<a href="{link}{i}" title="{said}"'
        closing = "</span>" if link is None else "</a>"
        found += [_h(answer[at:first]), f'{opening} class="s {one.verdict.value}">{text}{closing}', _wrong(one)]
        at = last
    return "".join([*found, _h(answer[at:])])


def _wrong(one: Statement) -> str:
    """A note beside a supported statement whose markers name chunks that do not carry it."""
    wrong = ", ".join(marker.text for marker in one.markers if marker.status is MarkerStatus.WRONG)
    if one.verdict is not Verdict.SUPPORTED or not wrong:
        return ""
    return f' <small class="chip refuted">wrong citation: {_h(wrong)}</small>'


def _redacted(released: Redaction) -> str:
    out = "".join(
        f'<li><a class="s" href="#s{one.statement}">{_h(_text(one.text)[:160])}</a><br>'
        f"<small>{_h(one.reason)}</small></li>"
        for one in released.left_out
    )
    text = f'<div class="released" dir="auto">{_h(released.text)}</div>' if released.text else "<p>Nothing.</p>"
    left = f'<h2>Left out</h2><ul class="out">{out}</ul>' if out else ""
    return f"<h2>What may go out</h2>{text}<p><small>{_h(released.note)}.</small></p>{left}"


def _card(audit: AnswerAudit, i: int, one: Statement, redaction: Redaction) -> str:
    kept = "" if not one.judged else (" · goes out" if i in redaction.kept else " · left out")
    name = _NAMES[one.verdict] if one.judged else f"not judged: {one.kind.value.replace('_', ' ')}"
    place = f"{i + 1} of {len(audit.statements)}"
    parts = [
        f'<h3><span class="chip {one.verdict.value}">{name}</span> <small>{place}{kept}</small></h3>',
        f'<p dir="auto">{_h(_text(one.text))}</p>',
    ]
    if one.detail:
        parts.append(f"<p><small>{_h(one.detail)}</small></p>")
    if one.claim and one.claim != _text(one.text):
        parts.append(f"<p><small>Judged as: {_h(one.claim)}</small></p>")
    for chunk, cited in groupby(one.citations, key=lambda citation: citation.chunk):
        parts.append(_evidence(chunk, audit.evidence[chunk], list(cited)))
    rows = _rows(one)
    if rows:
        parts.append("<table>" + "".join(f"<tr><th>{_h(a)}</th><td>{_h(b)}</td></tr>" for a, b in rows) + "</table>")
    if one.decision is not None and one.judged:
        picture = strip(one.decision.q, one.decision.p_star, one.decision.p_ref, f"var(--{one.verdict.value})")
        parts.append(f"<p><small>{_h(one.decision.explain())}</small></p>{picture}")
    return f'<section class="card" id="s{i}">{"".join(parts)}</section>'


def _evidence(number: int, chunk: Chunk, cited: list[Citation]) -> str:
    """The cited sentences of a chunk in their context."""
    text, title = chunk.text, chunk.title
    spans = sorted(citation.span for citation in cited)
    first, last = max(spans[0][0] - _AROUND, 0), min(spans[-1][1] + _AROUND, len(text))
    found = ["…" if first else ""]
    at = first
    for a, b in spans:
        if a >= at:
            found += [_h(text[at:a]), f"<mark>{_h(text[a:b])}</mark>"]
            at = b
    found += [_h(text[at:last]), "…" if last < len(text) else ""]
    numbers = "; ".join(
        f"alone {citation.alone:.2f}, share {citation.share:.0%}"
        + ("" if citation.fall is None else f", without it p_ref falls by {citation.fall:.2f}")
        for citation in cited
    )
    head = f"Chunk {number + 1}" + (f": {_h(_text(title))}" if title else "")
    quoted = f'<blockquote dir="auto">{"".join(found)}</blockquote>'
    return f"<p><small>{head}</small></p>{quoted}<p><small>{_h(numbers)}</small></p>"


def _rows(one: Statement) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if one.probabilities is not None:
        p = one.probabilities
        rows.append(
            ("probabilities", f"supported {p.supported:.3f}, refuted {p.refuted:.3f}, not enough {p.not_enough:.3f}")
        )
    if one.decision is not None and one.decision.p_ref is not None and one.decision.q_bar is not None:
        rows.append(("p_ref, q", f"{one.decision.p_ref:.3f}, {one.decision.q_bar:.3f}"))
    if one.prior is not None and one.lift is not None:
        knew = "; the model says yes also without what is cited" if one.known else ""
        rows.append(("without what is cited", f"q {one.prior:.3f}: it brings {one.lift:+.2f} nats{knew}"))
    for marker in one.markers:
        named = "names no chunk" if marker.chunk is None else f"chunk {marker.chunk + 1}"
        should = "should name " if marker.status is MarkerStatus.MISSING else ""
        rows.append((f"marker {marker.text}".strip(), f"{marker.status.value.replace('_', ' ')} ({should}{named})"))
    return rows
