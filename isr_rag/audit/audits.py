"""The audits of one call: questions for a gate, and what follows from its decisions.

Whoever drives the audits asks a gate until nothing is open:

```python
audits = gate.begin_audits([{"answer": answer, "evidence": chunks}])
while questions := audits.plan():
    audits.absorb(gate.decide_batch(questions))
[audit] = audits.results()
```
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from isr_rag._util.text import Span
from isr_rag.audit.calibration import AuditCalibration, Budget, calibration_of
from isr_rag.audit.context import Context
from isr_rag.audit.cutting import Part, affirms, cut, is_latin
from isr_rag.audit.inquiry import Inquiry, Question, unjudged
from isr_rag.audit.markers import Markers
from isr_rag.audit.pieces import Pieces
from isr_rag.audit.result import AnswerAudit
from isr_rag.audit.statement import Kind
from isr_rag.core.algorithm import noted
from isr_rag.core.decision import Decision
from isr_rag.core.evidence import Chunk, EvidenceLike, as_chunks
from isr_rag.core.exact import quotations
from isr_rag.core.predicates import check_text
from isr_rag.core.settings import Reference, Settings
from isr_rag.core.work import Item
from isr_rag.errors import InvalidInputError, InvalidTypeError

MOST = 1000  # most statements of one answer that are judged

LONGEST_ANSWER = 100_000
"""Characters of the longest answer that is audited: more than `MOST` statements of ordinary length."""

_LONGEST_QUESTION = 10_000
_BEGINNING = 500  # characters of a title that are read with each piece, and of a chunk that a listed source may name
_LINK = re.compile(r"\]\(\s*(<[^<>\n]*|\S+)")  # also of one whose text another part begins
_ADDRESS = re.compile(r"(?:mailto:)?(\w(?:[^\s<>()\[\]\"'`|*]*[^\s<>()\[\]\"'`|*.,;:!?/])?)")
_WHY = {
    Kind.CODE: "not judged: code",
    Kind.TABLE: "not judged: a table",
    Kind.FORMULA: "not judged: a formula",
    Kind.HTML: "not judged: HTML",
    Kind.SCRIPT: "not judged: in a script that the model was not calibrated on",
    Kind.TOO_LONG: "not judged: too long to be one statement",
    Kind.OVER_LIMIT: f"not judged: it comes after the first {MOST} statements",
    Kind.UNKNOWN_SOURCE: "not judged: it names an address or a source that the evidence does not have",
}


class AuditItem(TypedDict, total=False):
    """One answer of a batch: the arguments of `isr_rag.ISRGate.audit`."""

    answer: str
    question: str | None
    evidence: Sequence[EvidenceLike]
    h_star: float | None


AuditLike = AuditItem | Mapping[str, Any]


class AuditOptions(TypedDict, total=False):
    """How answers are audited: `citations` and `calibration` of `isr_rag.ISRGate.audit`."""

    citations: bool
    calibration: AuditCalibration | None


class Audits:
    """The audits of some answers under way; arguments and errors are those of `isr_rag.ISRGate.audit_batch`."""

    def __init__(
        self,
        settings: Settings,
        reference: Reference | None,
        items: Sequence[AuditLike],
        *,
        citations: bool = True,
        calibration: AuditCalibration | None = None,
    ) -> None:
        self._started = time.perf_counter()
        if calibration is None:
            calibration = calibration_of(settings.scorer, settings.max_words)
        else:
            calibration.check_belongs(settings.scorer, settings.max_words)
        self._citations = citations
        self.answers: list[OpenAudit] = []
        for position, item in enumerate(items := list(items)):
            with noted(position, len(items)):
                self.answers.append(OpenAudit(settings, reference, item, calibration))
        self._asked: list[tuple[Inquiry, Question]] = []

    @property
    def statements(self) -> int:
        """Number of statements that are judged."""
        return sum(len(answer.inquiries) for answer in self.answers)

    def plan(self) -> list[Item]:
        """The questions to ask a gate next; none when the audits are done."""
        inquiries = [one for answer in self.answers for one in answer.inquiries.values()]
        self._asked = [(one, question) for one in inquiries for question in one.plan(citations=self._citations)]
        return [one.item(question) for one, question in self._asked]

    def absorb(self, decisions: Sequence[Decision]) -> None:
        """Take in the decisions about the questions of `plan`, in their order."""
        for (one, question), decision in zip(self._asked, decisions, strict=True):
            one.told[question] = decision

    def results(self) -> list[AnswerAudit]:
        """The audits, in the order of the answers; call this when `plan` returns nothing."""
        seconds = time.perf_counter() - self._started
        return [answer.audit(seconds) for answer in self.answers]


class OpenAudit:
    """One answer, cut into parts, with an inquiry for each statement."""

    def __init__(
        self, settings: Settings, reference: Reference | None, item: AuditLike, calibration: AuditCalibration | None
    ) -> None:
        self._answer, self._question, self._evidence = _checked(item)
        chunks = tuple(Chunk(one.text, one.title and one.title[:_BEGINNING]) for one in self._evidence)
        if (h_star := item.get("h_star")) is not None:
            settings = replace(settings, h_star=h_star)
        self._settings, self._calibration = settings, calibration
        self._parts = cut(self._answer, Markers(chunks, self._answer), asked=self._question is not None)
        self._kinds = [part.kind for part in self._parts]
        by_reference = reference is not None and not reference.needs_scores
        context = Context(self._question)
        quoted = quotations(self._answer) if settings.rule.exact else None
        asked: dict[int, Item] = {}
        unknown = _unknown_sources(self._answer, self._parts, chunks)
        for i, part in enumerate(self._parts):
            if i in unknown:
                self._kinds[i] = Kind.UNKNOWN_SOURCE
            elif part.kind is not Kind.STATEMENT and not affirms(part.plain, self._question):
                continue
            elif len(asked) >= MOST:
                self._kinds[i] = Kind.OVER_LIMIT
            elif calibration is not None and not is_latin(part.plain):
                self._kinds[i] = Kind.SCRIPT
            else:
                before = self._parts[i - 1] if i else part
                asks = before.kind is Kind.QUESTION or (before.kind is Kind.HEADING and not part.item)
                asked[i] = context.asked(part, before.plain if asks and before.plain != part.heading else "")
        pieces = Pieces(chunks, settings.max_words, asked.values())
        given = pieces, settings.h_star, calibration, by_reference, self._question
        self.inquiries: dict[int, Inquiry] = {}
        for i, item in asked.items():
            own = None if quoted is None else _within(self._answer, self._parts[i].span, quoted)
            self.inquiries[i] = Inquiry(self._parts[i], item, *given, own)

    def audit(self, seconds: float) -> AnswerAudit:
        """The audit, when every question is answered."""
        cites = any(part.markers for part in self._parts if part.kind is not Kind.SOURCES)
        return AnswerAudit.of(
            answer=self._answer,
            question=self._question,
            evidence=self._evidence,
            statements=tuple(
                self.inquiries[i].statement(self._answer, cites=cites)
                if i in self.inquiries
                else unjudged(self._answer, part, kind, _WHY.get(kind, ""))
                for i, (part, kind) in enumerate(zip(self._parts, self._kinds, strict=True))
            ),
            h_star=self._settings.h_star,
            budget=Budget() if self._calibration is None else self._calibration.budget,
            scorer=self._settings.scorer,
            invariant=self._settings.invariant,
            passes=sum(decision.passes for one in self.inquiries.values() for decision in one.told.values()),
            seconds=seconds,
        )


def _unknown_sources(answer: str, parts: Sequence[Part], chunks: Sequence[Chunk]) -> set[int]:
    """Indices of the parts that link to an address, or list a source, that the evidence does not have."""
    links = ((i, part, " ".join(_LINK.findall(answer, *part.span))) for i, part in enumerate(parts))
    found = _ADDRESS.findall
    led = {i: {*found(to)} - {*found(part.plain)} for i, part, to in links if to}  # what is read is judged
    wanted = set[str]().union(*led.values())
    texts = (f"{chunk.title or ''} {chunk.text}" for chunk in (chunks if wanted else ()))
    had = wanted.intersection(match[1] for text in texts for match in _ADDRESS.finditer(text))
    return {i for i, to in led.items() if not to <= had} | {
        i for i, part in enumerate(parts) if part.kind is Kind.SOURCES and not _lists(part, chunks)
    }


def _lists(source: Part, chunks: Sequence[Chunk]) -> bool:
    """Whether the chunks that an entry of a list of sources names have its words in the title or at the beginning."""
    named = (chunks[i] for found in source.markers for i in found.chunks)
    had = " ".join(f"{chunk.title or ''} {chunk.text[:_BEGINNING]}" for chunk in named)
    told = re.sub(r"\[\^?\d+\]", "", source.plain)
    return {*re.findall(r"\w+", told.casefold())} <= {*re.findall(r"\w+", had.casefold())}


def _within(text: str, span: Span, others: Sequence[Span]) -> list[str]:
    """What of other spans lies within a span: a quotation may go on over several sentences."""
    first, last = span
    return [text[max(a, first) : min(b, last)] for a, b in others if a < last and first < b]


def _checked(item: AuditLike) -> tuple[str, str | None, tuple[Chunk, ...]]:
    """Answer, question and evidence of an item, checked."""
    if not isinstance(item, Mapping):
        raise InvalidTypeError(f"an answer is a mapping of the arguments of audit(), not {type(item).__name__}")
    if unknown := sorted(set(item) - set(AuditItem.__annotations__)):
        raise InvalidInputError(f"unknown arguments {unknown}; an answer has {sorted(AuditItem.__annotations__)}")
    answer, question = item.get("answer"), item.get("question")
    _check(answer, "answer", LONGEST_ANSWER)
    if question is not None:
        _check(question, "question", _LONGEST_QUESTION)
    if "evidence" not in item:
        raise InvalidInputError("an answer needs evidence: a list of chunks, which may be empty")
    return str(answer), question, as_chunks(item["evidence"])


def _check(text: Any, name: str, most: int) -> None:
    check_text(text, name)
    if len(text) > most:
        raise InvalidInputError(f"the {name} has {len(text):,} characters; {most:,} are allowed: shorten it")
