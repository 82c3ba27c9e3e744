"""The result of an audit: an answer statement by statement, the part of it that may go out, and the HTML report."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from isr_rag._util.files import write_atomically
from isr_rag._util.pages import rendered
from isr_rag._util.sealed import from_plain
from isr_rag._util.text import printable
from isr_rag.audit.calibration import Budget
from isr_rag.audit.redaction import Redaction, redact, shortened
from isr_rag.audit.statement import Citation, MarkerStatus, Statement, Verdict
from isr_rag.core.decision import json_of
from isr_rag.core.evidence import Chunk
from isr_rag.errors import InvalidInputError

SCHEMA_VERSION = 2
_MASK = "\N{LIGHT SHADE}"
_NAMES = {verdict: verdict.replace("_", " ") for verdict in Verdict} | {Verdict.NOT_ENOUGH: "not enough information"}
_AROUND = 600  # characters of a chunk shown on either side of a cited sentence


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
        return replace(audit, action=action) if kept else audit

    def __bool__(self) -> bool:
        raise TypeError("an AnswerAudit is neither true nor false: compare audit.action")

    @property
    def counts(self) -> dict[str, int]:
        """Number of statements by verdict."""
        found = Counter(one.verdict.value for one in self.statements)
        return {verdict.value: found[verdict.value] for verdict in Verdict}

    def releasable(self, h_star: float | None = None, *, cite: bool = False) -> Redaction:
        """The part of the answer that may go out; only statements whose verdict is `supported` ever do.

        With a threshold calibrated on whole answers (conformal factuality), statements go out whose P(supported)
        exceeds it: for answers like the calibration's, with probability 1 - h* nothing that is kept is unsupported.
        Without one, the surest statements that the gate answers go out while the sum of their risks stays within h*
        (a union bound). The risk of a statement is 1 - `Decision.pointwise`; where that is unknown, it is held back.

        Args:
            h_star: error budget of the whole answer, in (0, 1); the audit's own for None.
            cite: add markers such as `[1]`, counted from 1, to statements that bring none that is right.

        Raises:
            ConfigurationError: if h_star lies outside (0, 1).
        """
        target = self.h_star if h_star is None else h_star
        return redact(self.answer, self.statements, self.budget, target, question=self.question, cite=cite)

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
        return replace(self, answer="".join(characters), statements=tuple(statements))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return cast(dict[str, Any], json.loads(self.to_json()))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> AnswerAudit:
        """The inverse of `to_dict`; InvalidInputError for another schema version, or a missing or unknown field."""
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
        fields = asdict(replace(self, statements=()))
        plain = {"schema_version": SCHEMA_VERSION, **fields, "statements": [one.to_dict() for one in self.statements]}
        return json.dumps(plain, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> AnswerAudit:
        """The inverse of `to_json`; InvalidInputError for any other text."""
        return cls.from_dict(json_of(text))

    def headline(self) -> str:
        """What may go out and the number of statements by verdict, on one line."""
        said = [f"{count} {verdict.replace('_', ' ')}" for verdict, count in self.counts.items() if count]
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
            wrong = [marker for marker in one.markers if marker.status is not MarkerStatus.RIGHT]
            lines += [f"          marker {m.text or '(none)'}: {m.status.value.replace('_', ' ')}" for m in wrong]
        return "\n".join(printable(line, None) for line in lines)

    def _repr_html_(self) -> str:
        """The answer with every statement coloured, for notebooks."""
        return self._rendered(whole=False)

    def html(self) -> str:
        """The report as one self-contained page without scripts, for light and dark screens and for paper."""
        return self._rendered(whole=True)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the report to a file and return its path."""
        target = Path(path)
        write_atomically(target, self.html())
        return target

    def _rendered(self, *, whole: bool) -> str:
        """The report, or only the answer with its statements coloured."""
        segments: list[tuple[str, int | None]] = []
        at = 0
        for i, one in enumerate(self.statements):
            first, last = one.span
            if first >= at:
                segments += [(self.answer[at:first], None), (self.answer[first:last], i)]
                at = last
        return rendered(
            "audit/page.html",
            audit=self,
            whole=whole,
            names=_NAMES,
            counts=self.counts,
            released=self.releasable(),
            segments=[*segments, (self.answer[at:], None)],
            around=lambda chunk, cited: _around(self.evidence[chunk].text, cited),
        )


def _around(text: str, cited: Sequence[Citation]) -> list[tuple[str, bool]]:
    """A chunk's text around its cited sentences, in parts, and whether each is cited."""
    parts, at, shown = list[tuple[str, bool]](), 0, 0
    for a, b in sorted(citation.span for citation in cited):
        if a >= at:
            start = max(a - _AROUND, at)
            gap = [(text[at:shown], False), ("…", False)] if start > shown else [(text[at:start], False)]
            parts += [*gap, (text[start:a], False), (text[a:b], True)]
            at, shown = b, b + _AROUND
    return [*parts, (text[at:shown], False), ("…" if shown < len(text) else "", False)]
