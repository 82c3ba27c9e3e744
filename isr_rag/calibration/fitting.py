"""From labelled scores to a calibration artefact: held-out figures, the calibrator, the Learn-then-Test cuts."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isr_rag.bounds import TOLERANCE
from isr_rag.calibration import combination
from isr_rag.calibration.artefact import BelongsTo, CalibrationArtefact, PredicateCalibration
from isr_rag.calibration.checks import labelled_scores, normalised, refuse_duplicates, refuse_leakage
from isr_rag.calibration.combination import Cases, Combination
from isr_rag.calibration.errors import CalibrationError, CalibrationWarning, fitting_libraries
from isr_rag.calibration.ltt import Cut, LearnThenTest
from isr_rag.calibration.venn_abers import VennAbers
from isr_rag.wording import Wording

Floats = NDArray[np.float64]


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
    """

    id: str
    predicate: str
    q_bar: float
    label: int
    group: str | None = None
    text: str | None = None
    q: tuple[float, ...] = ()
    wording: Wording | None = None


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
    """The gate's guard p_ref >= 1 - h_star: with no dispersion over orderings it is the whole rule (METHOD)."""
    return p_ref >= 1.0 - h_star - TOLERANCE


def fit_artefact(
    records: Iterable[CalibrationRecord],
    *,
    belongs_to: BelongsTo,
    created_by: str,
    targets: Sequence[tuple[float, float]] = ((0.05, 0.1),),
    rule: Rule = reference_at_target,
    training_ids: Iterable[str] = (),
    training_texts: Iterable[str] = (),
    folds: int = 5,
    cut_share: float = 0.5,
    resamples: int = 1000,
    seed: int = 0,
) -> FittedCalibration:
    """Calibrate each predicate's scores.

    The groups of a predicate are split once, by `seed`. The first part fits the shipped Venn-Abers calibrator, plans
    the thresholds, and gives the figures by grouped cross-validation; the second part, `cut_share` of the groups,
    tests the cuts: both for answering on the score alone and for what the gate answers by `rule` as well. Without
    targets everything goes into the first part. The result does not depend on the order of the records.

    Where all records of a predicate have their wording, q_bar and wording are joined to one score
    (`Combination`) if that predicts held-out labels better beyond chance; the calibrator
    and the cuts then belong to that score, and the calibrator is fitted on scores made out of fold.

    Args:
        records: labelled, scored items, of one or several predicates.
        belongs_to: what the scores were made with.
        created_by: program and version, for the file.
        targets: (h_star, delta) pairs to find cuts for. Each holds at its own delta; all at once at their sum.
        rule: the gate's own answer rule.
        training_ids: ids of the items that the scorer was trained on.
        training_texts: their texts; compared with `CalibrationRecord.text`.
        folds: folds of the cross-validation, >= 2.
        cut_share: share of the groups kept for the cuts, in (0, 1).
        resamples: bootstrap resamples behind each interval.
        seed: seed of splits, folds and resamples.

    Raises:
        CalibrationError: for no records, duplicated ids or texts, leakage from training, bad scores or labels, one
            class only or too few of a class in either part, or too few groups to split.

    Warns:
        CalibrationWarning: under 50 items of a class.
    """
    items = sorted(records, key=lambda record: (record.predicate, record.id))
    _check_records(items, list(training_ids), list(training_texts))
    if folds < 2 or not 0.0 < cut_share < 1.0:
        raise CalibrationError(f"folds must be >= 2 and cut_share in (0, 1), not {folds} and {cut_share}")
    tests = [LearnThenTest(h_star, delta) for h_star, delta in targets]
    calibrations: dict[str, PredicateCalibration] = {}
    held_out: dict[str, HeldOut] = {}
    for predicate in sorted({record.predicate for record in items}):
        own = [record for record in items if record.predicate == predicate]
        try:
            labelled_scores([r.q_bar for r in own], [r.label for r in own])
            fit_part, cut_part = _split(own, cut_share, seed) if tests else (own, [])
            cases = None if _cases(own) is None else _cases(fit_part)
            joined = cases is not None and combination.helps(cases, folds, seed)
            fitted = _fit(fit_part, joined, folds, seed)
            held_out[predicate] = _cross_validate(fit_part, joined, folds, seed)
            cuts = [cut for test in tests for cut in _cuts(test, fitted, fit_part, cut_part, rule, seed)]
        except CalibrationError as error:
            raise CalibrationError(f"predicate {predicate!r}: {error}") from error
        n_true = sum(int(record.label) for record in own)
        figures = _figures(held_out[predicate], [test.h_star for test in tests], resamples, seed)
        calibrations[predicate] = PredicateCalibration(
            fitted.calibrator,
            n_true,
            len(own) - n_true,
            _data_hash(own),
            figures,
            tuple(cuts),
            combination=fitted.combination,
        )
    return FittedCalibration(CalibrationArtefact(belongs_to, calibrations, created_by), held_out)


def _check_records(items: list[CalibrationRecord], training_ids: list[str], training_texts: list[str]) -> None:
    if not items:
        raise CalibrationError("no labelled items: a calibration needs at least 50 of each class for each predicate")
    refuse_duplicates((f"{r.predicate}: {r.id}" for r in items), "ids")
    refuse_duplicates((f"{r.predicate}: {normalised(r.text)}" for r in items if r.text is not None), "texts")
    refuse_leakage((r.id for r in items), training_ids, what="ids")
    refuse_leakage((r.text for r in items if r.text is not None), training_texts, what="texts")


def _groups(records: Sequence[CalibrationRecord]) -> list[str]:
    return [f"item {record.id}" if record.group is None else f"group {record.group}" for record in records]


def _split(
    records: list[CalibrationRecord], share: float, seed: int
) -> tuple[list[CalibrationRecord], list[CalibrationRecord]]:
    with fitting_libraries():
        from sklearn.model_selection import GroupShuffleSplit

    groups = _groups(records)
    if len(set(groups)) < 2:
        raise CalibrationError("all items share one group, so nothing independent is left to test a cut on")
    splitter = cast(Any, GroupShuffleSplit)(n_splits=1, test_size=share, random_state=seed)
    fit_rows, cut_rows = next(splitter.split(np.zeros(len(records)), groups=groups))
    return [records[i] for i in fit_rows], [records[i] for i in cut_rows]


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
    return Cases([r.q_bar for r in records], wordings, [r.label for r in records], _groups(records))


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
    groups = _groups(records)
    lower, upper, mean = np.empty_like(scores), np.empty_like(scores), np.empty_like(scores)
    for seen, unseen in combination.split([record.label for record in records], groups, folds, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # the fit on all items has warned already
            fold = _fit([records[row] for row in seen], joined, folds, seed)
        own = np.array(fold.scores([records[row] for row in unseen]))
        lower[unseen], upper[unseen] = fold.calibrator.apply_many(own)
        mean[unseen] = fold.calibrator.mean(own)
    return HeldOut(tuple(r.id for r in records), scores, lower, upper, mean, labels, tuple(groups))


def _cuts(
    test: LearnThenTest,
    fitted: _Fitted,
    pilot: list[CalibrationRecord],
    tested: list[CalibrationRecord],
    rule: Rule,
    seed: int,
) -> list[Cut]:
    """The cut on the score alone, and the one on what the gate's rule answers as well."""

    def answered(records: list[CalibrationRecord]) -> list[bool]:
        lower = map(fitted.calibrator.lower, fitted.scores(records))
        return [bool(rule(record, p_ref, test.h_star)) for record, p_ref in zip(records, lower, strict=True)]

    groups = _groups(tested)
    pilot_scores, pilot_labels = fitted.scores(pilot), [r.label for r in pilot]
    cuts: list[Cut] = []
    for may_pilot, may in ((None, None), (answered(pilot), answered(tested))):
        thresholds = test.plan(pilot_scores, pilot_labels, items=len(set(groups)), answerable=may_pilot)
        cuts.append(
            test.fit(
                fitted.scores(tested),
                [r.label for r in tested],
                thresholds=thresholds,
                answerable=may,
                groups=groups,
                seed=seed,
            )
        )
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


def _data_hash(records: Sequence[CalibrationRecord]) -> str:
    rows = [[r.id, float(r.q_bar), int(r.label), r.group, *_values(r.wording)] for r in records]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def _values(wording: Wording | None) -> tuple[float, ...]:
    return () if wording is None else astuple(wording)
