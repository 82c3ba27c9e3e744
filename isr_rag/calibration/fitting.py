"""From labelled scores to a calibration artefact: held-out figures, the calibrator, the Learn-then-Test cuts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isr_rag.bounds import TOLERANCE
from isr_rag.calibration import combination
from isr_rag.calibration.artefact import (
    BelongsTo,
    BinCalibration,
    CalibrationArtefact,
    LoopCalibration,
    PredicateCalibration,
)
from isr_rag.calibration.checks import (
    TrainingHashes,
    enough_of_each_class,
    labelled_scores,
    scored_labels,
)
from isr_rag.calibration.combination import Cases, Combination
from isr_rag.calibration.errors import CalibrationError, CalibrationWarning, fitting_libraries
from isr_rag.calibration.ltt import Cut, LearnThenTest
from isr_rag.calibration.records import CalibrationRecord, LoopRecord, check_loops, check_records, data_hash, groups_of
from isr_rag.calibration.tail import Steps, Tail, loop_steps, source_steps
from isr_rag.calibration.venn_abers import VennAbers
from isr_rag.languages import languages_of

Floats = NDArray[np.float64]


BINS = ((1, 1), (2, 2), (3, 6), (7, 12), (13, 20), (21, None))
"""Ranges of chunks that are calibrated by themselves, where they hold enough items."""
LEAST_OF_A_BIN = 400
"""Items of each class that a bin needs; with fewer it is pooled with the next one. A cut at 1 - h* = 0.95 with one
wrong answer in it needs 38 right ones: in thin bins one error more or less decides whether anything is answered, and
the share of wrong answers on items left out is higher than where they are pooled."""
LEAST_AT_THE_END = 5
"""Items that must have the most chunks of the last bin, or more: one long item says nothing of all long ones."""
LEAST_OF_A_SOURCE = 20
"""Items of each class from which on a source counts by itself."""
DOUBT = 0.05
"""Probability that any source is taken for worse than it is at a score, over all sources (Bonferroni)."""

Rule = Callable[[CalibrationRecord, float, float], bool]
"""(record, p_ref, h_star) -> whether the gate answers the item by its own rule; must not look at the label."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Calibrated probabilities of items that the calibrator which gave them had not seen; shape (n,) each.

    Attributes:
        ids: the items, sorted.
        q_bar: raw scores.
        lower: Venn-Abers lower probabilities.
        upper: Venn-Abers upper probabilities.
        mean: one calibrated probability each.
        labels: 0 or 1.
        groups: the items' groups.
    """

    ids: tuple[str, ...]
    q_bar: Floats
    lower: Floats
    upper: Floats
    mean: Floats
    labels: NDArray[np.int64]
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FittedCalibration:
    """What `fit_artefact` gives: the artefact, and the held-out predictions that its figures are made of."""

    artefact: CalibrationArtefact
    held_out: Mapping[str, HeldOut]


def reference_at_target(record: CalibrationRecord, p_ref: float, h_star: float) -> bool:
    """The gate's guard p_ref >= 1 - h_star: with no dispersion over orderings it is the whole rule."""
    return p_ref >= 1.0 - h_star - TOLERANCE


def fit_artefact(
    records: Iterable[CalibrationRecord],
    *,
    belongs_to: BelongsTo,
    created_by: str,
    targets: Sequence[tuple[float, float]] = ((0.05, 0.1),),
    rule: Rule = reference_at_target,
    loops: Iterable[LoopRecord] = (),
    retriever: str = "",
    training_ids: Iterable[str] = (),
    training_texts: Iterable[str] = (),
    training: TrainingHashes | None = None,
    folds: int = 5,
    cut_share: float = 0.5,
    resamples: int = 1000,
    seed: int = 0,
) -> FittedCalibration:
    """Calibrate each predicate's scores.

    Every labelled item counts for p_ref: for the rate among the answered and for Venn-Abers' lower probability, by the
    number of chunks read (`BINS`; a bin with too few items of a class is pooled with the next one, and more
    chunks than `LEAST_AT_THE_END` items have stay outside). A source that is proven to be wrong more often than the
    rest lowers p_ref (`source_steps`).

    The Learn-then-Test cuts need items that nothing else looked at. For them the groups of each bin are split once, by
    `seed`: the first part plans the thresholds, and gives p_ref where `delta` is asked for; the second part,
    `cut_share` of the groups, tests the cuts, both for answering on the score alone and for what the gate answers
    by `rule` as well.

    Where all records of a predicate say what the best chunk alone gets, that counts as well if the surest are then
    wrong less often (`PredicateCalibration.close`); as that is decided on all items, the cuts are tested at half their
    delta. Where `belongs_to` names a second reader, the weight of its log-odds is fitted on the first part
    (`PredicateCalibration.second`). Where all records of a predicate have their wording, q_bar and wording are joined
    to one score (`Combination`) if that ranks and predicts better on sources that it was not fitted on; everything then
    belongs to that score. The weights come from the first part, whose own scores are made out of fold.

    The result does not depend on the order of the records.

    Args:
        records: labelled, scored items, of one or several predicates.
        belongs_to: what the scores were made with; its languages are filled in from the records.
        created_by: program and version, for the file.
        targets: (h_star, delta) pairs to find cuts for. Each holds at its own delta; all at once at their sum.
        rule: the gate's own answer rule.
        loops: labelled loops of acquisition, calibrated by their number of looks.
        retriever: how those loops retrieved, in words.
        training_ids: ids of the items that the scorer was trained on.
        training_texts: their texts; compared with `CalibrationRecord.text`.
        training: hashes of both, as they ship with an adapter.
        folds: folds of the cross-validation, >= 2.
        cut_share: share of the groups kept for the cuts, in (0, 1).
        resamples: bootstrap resamples behind each interval.
        seed: seed of splits, folds and resamples.

    Raises:
        CalibrationError: for no records, duplicated ids or texts, leakage from training, bad scores or labels, one
            class only or too few of a class, too few groups to split, loops of a predicate without records, or a
            second reader that not every record has read with, or that has no say in loops.

    Warns:
        CalibrationWarning: under 50 items of a class.
    """
    items = sorted(records, key=lambda record: (record.predicate, record.id))
    looped = sorted(loops, key=lambda record: (record.predicate, record.id))
    trained = list(training_ids)
    check_records(items, trained, list(training_texts), training)
    check_loops(looped, {record.predicate for record in items}, trained, training)
    _check_second(items, looped, belongs_to)
    if folds < 2 or not 0.0 < cut_share < 1.0:
        raise CalibrationError(f"folds must be >= 2 and cut_share in (0, 1), not {folds} and {cut_share}")
    tests = [LearnThenTest(h_star, delta) for h_star, delta in targets]
    calibrations: dict[str, PredicateCalibration] = {}
    held_out: dict[str, HeldOut] = {}
    for predicate in sorted({record.predicate for record in items}):
        own = [record for record in items if record.predicate == predicate]
        try:
            scored, held_out[predicate] = _score(own, tests, folds, cut_share, seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)  # the fit on all items has warned already
                bins = tuple(_fit_bin(part, tests, rule, seed) for part in _bins(scored))
        except CalibrationError as error:
            raise CalibrationError(f"predicate {predicate!r}: {error}") from error
        n_true = sum(int(record.label) for record in own)
        calibrations[predicate] = PredicateCalibration(
            bins,
            n_true,
            len(own) - n_true,
            data_hash(own),
            _figures(held_out[predicate], [test.h_star for test in tests], resamples, seed),
            sources=_sources(scored),
            loops=_loops([record for record in looped if record.predicate == predicate], scored, retriever),
            combination=scored.joined,
            close=scored.close,
            second=scored.second,
        )
    known = replace(belongs_to, languages=languages_of(r.language for r in items if r.language is not None))
    return FittedCalibration(CalibrationArtefact(known, calibrations, created_by), held_out)


def _check_second(items: Sequence[CalibrationRecord], loops: Sequence[LoopRecord], belongs_to: BelongsTo) -> None:
    """Refuse records without the second reader that the calibration is to belong to, and with one that it does not."""
    wanted = belongs_to.second is not None
    other = [record for record in items if (record.second is not None) != wanted]
    if other and wanted:
        raise CalibrationError(f"{len(other)} items lack what the second reader says, such as {other[0].id!r}")
    if other:
        raise CalibrationError("the items say what a second reader reads: name its identity in BelongsTo(second=...)")
    if wanted:
        said = [record.second for record in items if record.second is not None]
        scored_labels(said, [record.label for record in items])
    if loops and wanted:
        raise CalibrationError("loops are calibrated with one reader: fit them without BelongsTo(second=...)")


def _split(
    records: list[CalibrationRecord], share: float, seed: int
) -> tuple[list[CalibrationRecord], list[CalibrationRecord]]:
    with fitting_libraries():
        from sklearn.model_selection import GroupShuffleSplit

    groups = groups_of(records)
    if len(set(groups)) < 2:
        raise CalibrationError("all items share one group, so nothing independent is left to test a cut on")
    splitter = cast(Any, GroupShuffleSplit)(n_splits=1, test_size=share, random_state=seed)
    fit_rows, cut_rows = next(splitter.split(np.zeros(len(records)), groups=groups))
    return [records[i] for i in fit_rows], [records[i] for i in cut_rows]


@dataclass(frozen=True, slots=True)
class _Scored:
    """A predicate's records with the scores that everything is fitted on.

    Attributes:
        records: the items.
        scores: one each.
        tested: whether the item belongs to the part that tests the cuts.
        joined: what made the scores; None: they are q_bar.
        close: how much the best chunk read alone counts in what replaces q_bar.
        second: how much the second reader counts in it.
    """

    records: list[CalibrationRecord]
    scores: list[float]
    tested: list[bool]
    joined: Combination | None
    close: float
    second: float

    def take(self, rows: Sequence[int]) -> _Scored:
        """Some of them."""
        return _Scored(
            [self.records[row] for row in rows],
            [self.scores[row] for row in rows],
            [self.tested[row] for row in rows],
            self.joined,
            self.close,
            self.second,
        )

    @property
    def labels(self) -> list[int]:
        """The items' labels."""
        return [record.label for record in self.records]


def _score(
    own: list[CalibrationRecord], tests: Sequence[LearnThenTest], folds: int, cut_share: float, seed: int
) -> tuple[_Scored, HeldOut]:
    """Scores of a predicate's records, and the predictions held out of the part that may be looked at."""
    labelled_scores([r.q_bar for r in own], [r.label for r in own])
    pilot, tested = _split(own, cut_share, seed) if tests else (own, [])
    close = _weight(own, folds, seed) if all(record.alone is not None for record in own) else 0.0
    own, pilot, tested = [_joined(records, lambda r: r.alone, close) for records in (own, pilot, tested)]
    second = _second_weight(pilot)
    own, pilot, tested = [_joined(records, lambda r: r.second, second) for records in (own, pilot, tested)]
    whole = _cases(own) is not None
    cases = _cases(pilot) if whole else None
    joined: Combination | None = None
    by_id = {record.id: record.q_bar for record in own}
    if cases is not None and combination.helps(cases, folds, seed):
        joined = combination.fit(cases)
        by_id |= zip((r.id for r in pilot), combination.out_of_fold(cases, folds, seed).tolist(), strict=True)
        by_id |= {r.id: joined.score(r.q_bar, r.wording) for r in tested if r.wording is not None}
    cut_part = {record.id for record in tested}
    scored = _Scored(own, [by_id[r.id] for r in own], [r.id in cut_part for r in own], joined, close, second)
    return scored, _cross_validate(pilot, joined is not None, folds, seed)


def _joined(
    records: list[CalibrationRecord], said: Callable[[CalibrationRecord], float | None], weight: float
) -> list[CalibrationRecord]:
    """The records, each q_bar joined with what else is said of it, where anything is."""
    pairs = [(record, said(record)) for record in records]
    return [
        record if other is None else replace(record, q_bar=combination.closely(record.q_bar, other, weight))
        for record, other in pairs
    ]


def _weight(own: list[CalibrationRecord], folds: int, seed: int) -> float:
    """How much the best chunk read alone should count."""
    alone = [record.q_bar if record.alone is None else record.alone for record in own]
    labels, sources = [r.label for r in own], [r.source for r in own]
    return combination.best_weight([r.q_bar for r in own], alone, labels, groups_of(own), sources, folds, seed)


def _second_weight(pilot: list[CalibrationRecord]) -> float:
    """How much the second reader counts; 0 where there is none."""
    read = [(r.q_bar, r.second, r.label) for r in pilot if r.second is not None]
    return combination.second_weight(*zip(*read, strict=True)) if read else 0.0


def _bins(scored: _Scored) -> list[tuple[int, int | None, _Scored]]:
    """Ranges of chunks with their items: pooled upwards where thin, the last one downwards.

    The last range ends at the largest number of chunks that enough items have: `LEAST_AT_THE_END` of its items have so
    many or more, or all of them where there are fewer. Longer items still count in it.
    """
    if any(record.chunks is None for record in scored.records):
        return [(1, None, scored)]
    counts = [record.chunks or 0 for record in scored.records]
    parts: list[tuple[int, int, list[int]]] = []
    waiting: list[int] = []
    first: int | None = None
    for low, high in BINS:
        rows = [row for row, count in enumerate(counts) if low <= count and (high is None or count <= high)]
        if not rows:
            continue
        waiting += rows
        first = min(counts[row] for row in rows) if first is None else first
        last = max(counts[row] for row in rows) if high is None else high
        positive = sum(scored.records[row].label for row in waiting)
        if min(positive, len(waiting) - positive) >= LEAST_OF_A_BIN:
            parts.append((low if len(waiting) == len(rows) else first, last, waiting))
            waiting, first = [], None
    if waiting:
        last = max(counts[row] for row in waiting)
        begin, _, rows = parts.pop() if parts else (min(counts), last, [])
        parts.append((begin, last, rows + waiting))
    begin, end, rows = parts.pop()
    longest = sorted((counts[row] for row in rows), reverse=True)
    parts.append((begin, min(end, longest[min(LEAST_AT_THE_END, len(longest)) - 1]), rows))
    return [(first, last, scored.take(sorted(rows))) for first, last, rows in parts]


def _fit_bin(
    part: tuple[int, int | None, _Scored], tests: Sequence[LearnThenTest], rule: Rule, seed: int
) -> BinCalibration:
    first, last, scored = part
    tail = Tail.fit(scored.scores, scored.labels)
    calibrator = VennAbers.fit(scored.scores, scored.labels)
    if not tests:
        return BinCalibration(first, last, calibrator, tail)
    pilot = scored.take([row for row, tested in enumerate(scored.tested) if not tested])
    tested = scored.take([row for row, tested in enumerate(scored.tested) if tested])
    for half in (pilot, tested):
        enough_of_each_class(sum(half.labels), len(half.labels) - sum(half.labels))
    seen = Tail.fit(pilot.scores, pilot.labels)
    cuts = [cut for test in tests for cut in _cuts(test, seen, pilot, tested, rule, seed)]
    return BinCalibration(first, last, calibrator, tail, seen, tuple(cuts))


def _sources(scored: _Scored) -> dict[str, Steps]:
    """What the sources that have enough items of each class leave possible, if there are two at least."""
    rows: dict[str, list[int]] = {}
    for row, record in enumerate(scored.records):
        if record.source is not None:
            rows.setdefault(record.source, []).append(row)
    parts = {name: scored.take(own) for name, own in sorted(rows.items())}
    large = {
        name: part
        for name, part in parts.items()
        if min(sum(part.labels), len(part.labels) - sum(part.labels)) >= LEAST_OF_A_SOURCE
    }
    if len(large) < 2:
        return {}
    share = sum(scored.labels) / len(scored.labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # few items prove little, which is the point
        tails = {name: Tail.fit(part.scores, part.labels) for name, part in large.items()}
    return {name: source_steps(tail, share, 1.0 - DOUBT / len(tails)) for name, tail in tails.items()}


def _loops(records: Sequence[LoopRecord], scored: _Scored, retriever: str) -> tuple[LoopCalibration, ...]:
    """One calibration for each number of looks from 2 to the most that a record has."""
    found: list[LoopCalibration] = []
    for looks in range(2, max((len(record.q_bar) for record in records), default=1) + 1):
        scores: list[list[float]] = []
        for record in records:
            q = record.q_bar[:looks]
            if scored.close:
                pairs = zip(q, record.alone[:looks], strict=True)
                q = tuple(combination.closely(mean, best, scored.close) for mean, best in pairs)
            if scored.joined is not None:
                q = tuple(scored.joined.score(one, w) for one, w in zip(q, record.wording[:looks], strict=True))
            scores.append(list(q))
        steps = loop_steps(scores, [record.labels[:looks] for record in records])
        found.append(LoopCalibration(looks, steps, len(records), retriever))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Fitted:
    combination: Combination | None
    calibrator: VennAbers

    def scores(self, records: Sequence[CalibrationRecord]) -> list[float]:
        """What the calibrator takes for these records."""
        if self.combination is None:
            return [record.q_bar for record in records]
        return [self.combination.score(r.q_bar, r.wording) for r in records if r.wording is not None]


def _cases(records: Sequence[CalibrationRecord]) -> Cases | None:
    """Scores with their wording; None unless every record has it."""
    wordings = [record.wording for record in records if record.wording is not None]
    if len(wordings) < len(records):
        return None
    labels, sources = [r.label for r in records], [r.source for r in records]
    return Cases([r.q_bar for r in records], wordings, labels, groups_of(records), sources)


def _fit(records: list[CalibrationRecord], joined: bool, folds: int, seed: int) -> _Fitted:
    """The calibrator; with a combination where `joined`, and then on scores that were made out of fold."""
    labels = [record.label for record in records]
    cases = _cases(records) if joined else None
    if cases is None:
        return _Fitted(None, VennAbers.fit([record.q_bar for record in records], labels))
    scores = combination.out_of_fold(cases, folds, seed)
    return _Fitted(combination.fit(cases), VennAbers.fit(scores, labels))


def _cross_validate(records: list[CalibrationRecord], joined: bool, folds: int, seed: int) -> HeldOut:
    scores = np.array([record.q_bar for record in records], dtype=np.float64)
    labels = np.array([record.label for record in records], dtype=np.int64)
    groups = groups_of(records)
    lower, upper, mean = np.empty_like(scores), np.empty_like(scores), np.empty_like(scores)
    for seen, unseen in combination.split([record.label for record in records], groups, folds, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # the fit on all items has warned already
            fold = _fit([records[row] for row in seen], joined, folds, seed)
        own = np.array(fold.scores([records[row] for row in unseen]))
        lower[unseen], upper[unseen] = fold.calibrator.apply_many(own)
        mean[unseen] = fold.calibrator.mean(own)
    return HeldOut(tuple(r.id for r in records), scores, lower, upper, mean, labels, tuple(groups))


def _cuts(test: LearnThenTest, seen: Tail, pilot: _Scored, tested: _Scored, rule: Rule, seed: int) -> list[Cut]:
    """The cut on the score alone, and the one on what the gate's rule answers as well."""
    steps = seen.steps()

    def answered(part: _Scored) -> list[bool]:
        pairs = zip(part.records, part.scores, strict=True)
        return [bool(rule(record, steps.at(score), test.h_star)) for record, score in pairs]

    groups = groups_of(tested.records)
    tried = combination.CHOICES if all(record.alone is not None for record in tested.records) else 1
    stated, test = test.delta, LearnThenTest(test.h_star, test.delta / tried)
    cuts: list[Cut] = []
    for may_pilot, may in ((None, None), (answered(pilot), answered(tested))):
        thresholds = test.plan(pilot.scores, pilot.labels, items=len(set(groups)), answerable=may_pilot)
        cut = test.fit(tested.scores, tested.labels, thresholds=thresholds, answerable=may, groups=groups, seed=seed)
        cuts.append(replace(cut, delta=stated))
    return cuts


def _figures(held: HeldOut, h_stars: Sequence[float], resamples: int, seed: int) -> dict[str, Any]:
    """Figures of raw and calibrated scores with intervals, and what the reference alone would answer."""
    with fitting_libraries():
        from isr_rag.calibration.metrics import wilson_interval
        from isr_rag.calibration.summary import summarise

    figures: dict[str, Any] = {"items": len(held.ids), "groups": len(set(held.groups))}
    for name, scores in (("q_bar", held.q_bar), ("calibrated", held.mean)):
        summary = summarise(scores, held.labels, groups=held.groups, resamples=resamples, seed=seed)
        figures[name] = {metric: [i.estimate, i.lower, i.upper] for metric, i in summary.items()}
    for h_star in sorted(set(h_stars)):
        answered = held.lower >= 1.0 - h_star - TOLERANCE
        count, wrong = int(answered.sum()), int((answered & (held.labels == 0)).sum())
        entry: dict[str, Any] = {"answered": count, "wrong": wrong, "coverage": count / len(held.ids)}
        entry["recall"] = float(answered[held.labels == 1].mean())
        if count:
            interval = wilson_interval(wrong, count)
            entry["risk"] = [interval.estimate, interval.lower, interval.upper]
        figures[f"p_ref_at_h_star_{h_star:g}"] = entry
    return figures
