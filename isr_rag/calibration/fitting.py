"""From labelled scores to a calibration artefact: the calibrators and the Learn-then-Test thresholds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from isr_rag._util.text import languages_of
from isr_rag.calibration.artefact import BinCalibration, CalibrationArtefact, Fingerprint, PredicateCalibration, joined
from isr_rag.calibration.calibrators import Tail, VennAbers
from isr_rag.calibration.checks import TrainingHashes, labelled_scores
from isr_rag.calibration.ltt import LearnThenTest, Threshold
from isr_rag.calibration.records import CalibrationRecord, check_records, data_hash, groups_of
from isr_rag.core.bounds import TOLERANCE
from isr_rag.errors import CalibrationError, CalibrationWarning, needed_for

BINS = ((1, 1), (2, 2), (3, 6), (7, 12), (13, 20), (21, None))
"""Ranges of chunks that are calibrated by themselves if they hold enough items."""
LEAST_OF_A_BIN = 500
"""Items of each class that a bin needs; with fewer it is pooled with the next one. At h* = 0.05 a threshold with one
wrong answer needs 38 right ones: in thin bins one error more or less decides whether anything is answered, and the
share of wrong answers on items left out is higher than where bins are pooled."""
WEIGHT = 0.85
"""Weight of the best chunk read alone, against that of all chunks together. Of weights from 2/3 to 1, tried on the
calibration items of the judge with one source left out at a time, those from 0.8 on answer most and let the fewest
look-alikes through; from 0.9 on fewer claims are answered at h* = 0.1."""
LEAST_AT_THE_END = 5
"""Items that must have the most chunks of the last bin, or more: one long item says nothing about all long ones."""

Rule = Callable[[CalibrationRecord, float, float], bool]
"""(record, p_ref, h_star) -> whether the gate answers the item by its own rule; must not look at the label."""


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How a calibration is fitted.

    Attributes:
        targets: (h_star, delta) pairs to find thresholds for. Each holds at its own delta; all at once at their sum.
        rule: the gate's own answer rule; by default its guard p_ref >= 1 - h_star, the whole rule where orders agree.
        seed: seed of the split.
    """

    targets: tuple[tuple[float, float], ...] = ((0.05, 0.1),)
    rule: Rule = lambda record, p_ref, h_star: p_ref >= 1.0 - h_star - TOLERANCE
    seed: int = 0


def fit_artefact(
    records: Iterable[CalibrationRecord],
    *,
    fingerprint: Fingerprint,
    created_by: str,
    settings: FitSettings | None = None,
    training: TrainingHashes | None = None,
) -> CalibrationArtefact:
    """Calibrate each predicate's scores; the result does not depend on the order of the records.

    Every labelled item counts for p_ref, by the number of chunks read (`BINS`). A bin with too few items of a class is
    pooled with the next one. More chunks than `LEAST_AT_THE_END` items have stay outside of the calibration.

    For the Learn-then-Test thresholds the groups are split once: the first part plans them, and gives p_ref where
    `delta` is asked for; the second tests them, for answering on the score alone and for what `rule` answers as well.

    If all records of a predicate have the best chunk's probability, it counts with `WEIGHT`.

    Args:
        records: labelled, scored items, of one or several predicates.
        fingerprint: what the scores were made with; its languages are filled in from the records.
        created_by: program and version, for the file.
        settings: targets, answer rule and seed; None: the defaults of `FitSettings`.
        training: hashes of ids and texts that the scorer was trained on (`TrainingHashes.of`); such items are refused.

    Raises:
        CalibrationError: for repeated ids or texts, leakage from training, bad scores or labels, or too few of a
            class or too few groups. Under 50 items of a class a CalibrationWarning is given.
    """
    settings = FitSettings() if settings is None else settings
    items = sorted(records, key=lambda record: (record.predicate, record.id))
    check_records(items, training)
    calibrations: dict[str, PredicateCalibration] = {}
    for predicate in sorted({record.predicate for record in items}):
        own = [record for record in items if record.predicate == predicate]
        try:
            calibrations[predicate] = _fit_predicate(own, settings)
        except CalibrationError as error:
            raise CalibrationError(f"predicate {predicate!r}: {error}") from error
    known = replace(fingerprint, languages=languages_of(r.language for r in items if r.language is not None))
    return CalibrationArtefact(known, calibrations, created_by)


def _fit_predicate(own: list[CalibrationRecord], settings: FitSettings) -> PredicateCalibration:
    labelled_scores([record.q_bar for record in own], [record.label for record in own])
    tested = _tested(own, settings) if settings.targets else [False] * len(own)
    weight = 0.0 if any(record.alone is None for record in own) else WEIGHT
    scores = [record.q_bar if record.alone is None else joined(record.q_bar, record.alone, weight) for record in own]
    rows = [_Row(*row) for row in zip(own, scores, tested, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # the fit on all items has warned already
        parts = _bins(rows)
        bins = tuple(_fit_bin(first, last, part, len(parts), settings) for first, last, part in parts)
    n_true = sum(record.label for record in own)
    return PredicateCalibration(bins, n_true, len(own) - n_true, data_hash(own), close=weight)


def _tested(records: Sequence[CalibrationRecord], settings: FitSettings) -> list[bool]:
    """Which records test the thresholds; whole groups, drawn by the seed."""
    with needed_for("fitting a calibration", "calibrate"):
        from sklearn.model_selection import GroupShuffleSplit

    groups = groups_of(records)
    if len(set(groups)) < 2:
        raise CalibrationError("all items share one group, so nothing independent is left to test a threshold on")
    splitter = cast(Any, GroupShuffleSplit)(n_splits=1, test_size=0.5, random_state=settings.seed)
    _, rows = next(splitter.split(np.zeros(len(records)), groups=groups))
    chosen = set(rows.tolist())
    return [row in chosen for row in range(len(records))]


class _Row(NamedTuple):
    """A record, the score that is calibrated, and whether the record tests the thresholds."""

    record: CalibrationRecord
    score: float
    tested: bool


def _columns(rows: Sequence[_Row]) -> tuple[list[float], list[int]]:
    return [row.score for row in rows], [row.record.label for row in rows]


def _bins(scored: list[_Row]) -> list[tuple[int, int | None, list[_Row]]]:
    """Ranges of chunks with their items: pooled upwards where thin, the last one downwards.

    The last range ends at the largest number of chunks that enough items have: `LEAST_AT_THE_END` of its items have
    that many or more, or all of them if there are fewer. Longer items still count in it.
    """
    if any(row.record.chunks is None for row in scored):
        return [(1, None, scored)]
    counts = [row.record.chunks or 0 for row in scored]
    parts: list[tuple[int, int | None, list[int]]] = []
    waiting: list[int] = []
    for low, high in BINS:
        places = [i for i, count in enumerate(counts) if low <= count and (high is None or count <= high)]
        waiting += places
        positive = sum(scored[i].record.label for i in waiting)
        if min(positive, len(waiting) - positive) >= LEAST_OF_A_BIN:
            first = low if len(waiting) == len(places) else min(counts[i] for i in waiting)
            parts.append((first, high, waiting))
            waiting = []
    first, _, places = parts.pop() if parts else (min(counts), None, list[int]())
    places += waiting
    longest = sorted((counts[i] for i in places), reverse=True)
    parts.append((first, longest[min(LEAST_AT_THE_END, len(longest)) - 1], places))
    return [(first, last, [scored[i] for i in sorted(places)]) for first, last, places in parts]


def _fit_bin(first: int, last: int | None, scored: list[_Row], bins: int, settings: FitSettings) -> BinCalibration:
    calibrator, tail = VennAbers.fit(*_columns(scored)), Tail.fit(*_columns(scored))
    if not settings.targets:
        return BinCalibration(first, last, calibrator, tail)
    pilot, tested = ([row for row in scored if row.tested == test] for test in (False, True))
    seen = Tail.fit(*_columns(pilot))
    labelled_scores(*_columns(tested))  # refuses too few of a class, as the line above does
    thresholds = tuple(
        replace(threshold, delta=delta)
        for h_star, delta in settings.targets  # each range gets its part of delta, which is about all answers
        for threshold in _thresholds(LearnThenTest(h_star, delta / bins), seen, pilot, tested, settings)
    )
    return BinCalibration(first, last, calibrator, tail, seen, thresholds)


def _thresholds(
    test: LearnThenTest, seen: Tail, pilot: list[_Row], tested: list[_Row], settings: FitSettings
) -> list[Threshold]:
    """The threshold on the score alone, and the one on what the gate's rule answers as well."""
    steps = seen.steps()

    def answered(rows: list[_Row]) -> list[bool]:
        return [bool(settings.rule(row.record, steps.at(row.score), test.h_star)) for row in rows]

    scores, labels = _columns(tested)
    groups = groups_of([row.record for row in tested])
    found: list[Threshold] = []
    for may_pilot, may in ((None, None), (answered(pilot), answered(tested))):
        candidates = test.plan(*_columns(pilot), items=len(set(groups)), answerable=may_pilot)
        found.append(test.fit(scores, labels, thresholds=candidates, answerable=may, groups=groups, seed=settings.seed))
    return found
