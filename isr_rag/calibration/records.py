"""What a calibration is fitted on: labelled items and loops, scored; and how they are checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from isr_rag.calibration.checks import (
    TrainingHashes,
    normalised,
    refuse_duplicates,
    refuse_leakage,
    scored_labels,
)
from isr_rag.calibration.errors import CalibrationError
from isr_rag.wording import Wording


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """One labelled item, scored.

    Attributes:
        id: names the item; unique within its predicate.
        predicate: id of the predicate's template.
        q_bar: mean probability over the orderings (or a verifier's score), in [0, 1].
        label: 1 if the predicate holds, 0 if not.
        group: items that are not independent of each other (same page, same question) share it; None: alone.
        text: what was judged, for finding duplicates and leakage; optional.
        q: probability of each ordering, for a rule that needs them; optional.
        wording: what the words of claim and evidence show; optional.
        source: where the item comes from (a data set, a product); each source that is large enough counts by itself.
        chunks: number of chunks that were read; None: unknown, and the calibration then holds for any number.
        language: the text whose language counts, as a rule the evidence; optional.
        alone: the highest probability that any chunk gets when it is read by itself; optional.
        second: the probability that a second reader gives (`BelongsTo.second`); None where there is none.
    """

    id: str
    predicate: str
    q_bar: float
    label: int
    group: str | None = None
    text: str | None = None
    q: tuple[float, ...] = ()
    wording: Wording | None = None
    source: str | None = None
    chunks: int | None = None
    language: str | None = None
    alone: float | None = None
    second: float | None = None


@dataclass(frozen=True, slots=True)
class LoopRecord:
    """One labelled loop of acquisition, scored at each look until it ran out of looks or of new evidence.

    Attributes:
        id: names the item.
        predicate: id of the predicate's template.
        q_bar: of each look, at least one.
        labels: 1 where the predicate holds for the evidence gathered by that look, same length.
        wording: of each look, same length; empty where none was taken.
        alone: of each look the highest probability of any chunk read by itself, same length; empty where none was.
    """

    id: str
    predicate: str
    q_bar: tuple[float, ...]
    labels: tuple[int, ...]
    wording: tuple[Wording, ...] = ()
    alone: tuple[float, ...] = ()


def check_records(
    items: list[CalibrationRecord],
    training_ids: list[str],
    training_texts: list[str],
    training: TrainingHashes | None,
) -> None:
    """Refuse what would make a calibration promise too much: repeated items, and items that the model was trained on.

    Raises:
        CalibrationError: if there are no items, items repeat, or one was trained on.
    """
    if not items:
        raise CalibrationError("no labelled items: a calibration needs at least 50 of each class for each predicate")
    refuse_duplicates((f"{r.predicate}: {r.id}" for r in items), "ids")
    refuse_duplicates((f"{r.predicate}: {normalised(r.text)}" for r in items if r.text is not None), "texts")
    refuse_leakage((r.id for r in items), training_ids, what="ids")
    refuse_leakage((r.text for r in items if r.text is not None), training_texts, what="texts")
    if training is not None:
        training.refuse((r.id for r in items), what="ids")
        training.refuse((r.text for r in items if r.text is not None), what="texts")


def check_loops(
    loops: list[LoopRecord], predicates: set[str], training_ids: list[str], training: TrainingHashes | None
) -> None:
    """As `check_records`, for loops; a loop is calibrated beside the single decisions of its predicate.

    Raises:
        CalibrationError: if loops repeat, one was trained on, has bad scores or labels, or there are no items of its
            predicate.
    """
    for record in loops:
        scored_labels(record.q_bar, record.labels)
        if any(part and len(part) != len(record.q_bar) for part in (record.wording, record.alone)):
            raise CalibrationError(f"the loop {record.id!r} has other numbers of looks in its scores and beside them")
    unknown = sorted({record.predicate for record in loops} - predicates)
    if unknown:
        raise CalibrationError(f"there are loops of {', '.join(unknown)} and no labelled items of it: add some")
    refuse_duplicates((f"{record.predicate}: {record.id}" for record in loops), "ids of loops")
    refuse_leakage((record.id for record in loops), training_ids, what="ids of loops")
    if training is not None:
        training.refuse((record.id for record in loops), what="ids of loops")


def groups_of(records: Sequence[CalibrationRecord]) -> list[str]:
    """The group of each record, where a record without one is a group by itself."""
    return [f"item {record.id}" if record.group is None else f"group {record.group}" for record in records]


def data_hash(records: Sequence[CalibrationRecord]) -> str:
    """A hash of all that a fit takes from the records."""
    rows = [
        [r.id, float(r.q_bar), r.alone, int(r.label), r.group, r.source, r.chunks, _values(r.wording)]
        + ([] if r.second is None else [r.second])
        for r in records
    ]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def _values(wording: Wording | None) -> tuple[tuple[float, ...], ...]:
    return () if wording is None else wording.sentences
