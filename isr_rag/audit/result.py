"""What an audit finds: an answer statement by statement, and the part of it that may go out."""

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
from isr_rag.audit.statement import MarkerStatus, Statement, Verdict, listed, statement_from_dict, statement_to_dict
from isr_rag.errors import InvalidInputError
from isr_rag.evidence import Chunk
from isr_rag.printable import printable

SCHEMA_VERSION = 1

_SHOWN = 90
"""Characters of a statement on one line of a terminal."""


class AuditAction(StrEnum):
    """What to do with an answer."""

    ANSWER = "answer"
    """Everything that was judged may go out."""
    TRIM = "trim"
    """A part may: `AnswerAudit.releasable`."""
    ABSTAIN = "abstain"
    """Nothing may."""


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
        return cast(dict[str, Any], listed(dataclasses.asdict(self)))

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
            "statements": [statement_to_dict(one) for one in self.statements],
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
            values["statements"] = tuple(statement_from_dict(one) for one in values["statements"])
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
