"""Labelled items and loops with their scores: what a calibration is fitted on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from isr_rag.calibration.checks import TrainingHashes, normalised, refuse_duplicates
from isr_rag.errors import CalibrationError


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """One labelled item, scored; CalibrationError for chunks or alone out of range.

    Attributes:
        id: names the item; unique within its predicate.
        predicate: id of the predicate's template.
        q_bar: mean probability over the orderings (or a verifier's score), in [0, 1].
        label: 1 if the predicate holds, 0 if not.
        group: shared by items that are not independent of each other (same page, same question); None: independent.
        text: what was judged, for finding duplicates and leakage; optional.
        q: probability of each ordering, for a rule that needs them; optional.
        q_high: the high ends, where `q` are the low ends of what is known up to an interval; optional.
        source: the data set or product that the item comes from; optional.
        chunks: number of chunks that were read; None: unknown, and the calibration then holds for any number.
        language: text whose language counts, usually the evidence; optional.
        alone: the highest probability that any chunk gets when it is read by itself; optional.
    """

    id: str
    predicate: str
    q_bar: float
    label: int
    group: str | None = None
    text: str | None = None
    q: tuple[float, ...] = ()
    source: str | None = None
    chunks: int | None = None
    language: str | None = None
    alone: float | None = None
    q_high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        plain = {one.name: v.item() for one in fields(self) if isinstance(v := getattr(self, one.name), np.generic)}
        label = plain.get("label", self.label)
        for name, value in {**plain, "label": int(label) if label in (0, 1) else label}.items():
            object.__setattr__(self, name, value)  # what a file can hold
        if not (self.chunks is None or (isinstance(self.chunks, int) and self.chunks >= 1)):
            raise CalibrationError(f"item {self.id!r}: chunks must be a whole number from 1 on, not {self.chunks!r}")
        if not (self.alone is None or 0.0 <= self.alone <= 1.0):
            raise CalibrationError(f"item {self.id!r}: alone must lie in [0, 1], not {self.alone!r}")


def check_records(items: Sequence[CalibrationRecord], training: TrainingHashes | None) -> None:
    """Refuse what would make a calibration promise too much: no items, repeats, and what was trained on."""
    if not items:
        raise CalibrationError("no labelled items: a calibration needs at least 50 of each class for each predicate")
    refuse_duplicates((f"{r.predicate}: {r.id}" for r in items), "ids")
    refuse_duplicates((f"{r.predicate}: {normalised(r.text)}" for r in items if r.text is not None), "texts")
    if training is not None:
        training.refuse((r.id for r in items), what="ids")
        training.refuse((r.text for r in items if r.text is not None), what="texts")


def groups_of(records: Sequence[CalibrationRecord]) -> list[str]:
    """The group of each record; a record without one is a group by itself."""
    return [f"item {record.id}" if record.group is None else f"group {record.group}" for record in records]


def data_hash(records: Sequence[CalibrationRecord]) -> str:
    """A hash of everything that a fit takes from the records."""
    rows = [[r.id, float(r.q_bar), r.alone, int(r.label), r.group, r.source, r.chunks] for r in records]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()
