"""What every reader turns a source into, and the account of what it could not read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FeverLabel = Literal["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]
Form = Literal["claim", "extractive", "multihop", "incomplete", "timed", "stale"]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a page; `title` is None only where the source does not say."""

    text: str
    title: str | None
    sentence_id: int | None = None
    snapshot: str | None = None


@dataclass(frozen=True, slots=True)
class Rival:
    """An answer that is wrong here though it was right at another time, with the sentences that carry it."""

    answer: str
    evidence: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One claim or question of a source with all that is known about its evidence.

    Attributes:
        form: how the items are made: `claim`; `extractive` (the answer is in one gold sentence);
            `multihop` (all gold needed); `incomplete` (gold known to be missing); `timed` (answer bound to
            a time); `stale` (the evidence is older than the question).
        answers: accepted answers, the first one preferred; empty for claims and unanswerable questions.
        gold: the sentences that settle the record; several for multi-hop records.
        own: further sentences of the record's own passages.
        pages: folded titles of the gold pages; records that share one stay in one split.
        missing: pages of gold facts that the record's own context lacks (form `incomplete`).
        answer_type: answers of the same type stand in for each other as false drafts.
    """

    source: str
    key: str
    dataset: str
    file: str
    record: str
    license: str
    form: Form
    text: str
    verdict: FeverLabel | None = None
    answers: tuple[str, ...] = ()
    gold: tuple[Sentence, ...] = ()
    own: tuple[Sentence, ...] = ()
    pages: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    rivals: tuple[Rival, ...] = ()
    answer_type: str = ""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One line or record that was not used, and why."""

    file: str
    record: str
    reason: str


@dataclass(slots=True)
class SourceReport:
    """What one source gave: files read with their sha256, records used, records refused with file and line, notes."""

    source: str
    files: dict[str, str] = field(default_factory=dict[str, str])
    read: int = 0
    used: int = 0
    bad: list[BadRecord] = field(default_factory=list[BadRecord])
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    notes: list[str] = field(default_factory=list[str])

    def refuse(self, file: str, record: object, reason: str) -> None:
        """Note a broken line or record."""
        self.bad.append(BadRecord(file, str(record), reason))

    def skip(self, reason: str, count: int = 1) -> None:
        """Count well-formed records left out on purpose."""
        self.skipped[reason] = self.skipped.get(reason, 0) + count
