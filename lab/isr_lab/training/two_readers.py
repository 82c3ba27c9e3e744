"""The calibration of an adjudicator with a second reader: fitted from two files of scores, and what it gains."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isr_lab.slice.reading import read_items
from isr_lab.training.card import table
from isr_lab.training.evaluate import ScoredItem, read_scored
from isr_lab.training.shipping import DELTA, TRAINED, Scored
from isr_lab.training.trust import TASKS
from isr_rag import __version__
from isr_rag.adjudicators import AdjudicatorName, adjudicator_named
from isr_rag.bounds import TOLERANCE
from isr_rag.calibration import (
    BelongsTo,
    CalibrationArtefact,
    CalibrationRecord,
    FittedCalibration,
    Tail,
    TrainingHashes,
    fit_artefact,
)
from isr_rag.calibration.combination import best_weight, closely, second_weight
from isr_rag.calibration.metrics import auroc, bootstrap_interval
from isr_rag.calibration.records import groups_of
from isr_rag.defaults import SECOND, TWO_READERS
from isr_rag.doctor import TARGETS
from isr_rag.scorers.embedded import FOCUS_WORDS

LEAST_OF_A_SOURCE = 20
"""Items of each class from which on a source is left out by itself; smaller ones are left out together."""
RESAMPLES = 300

Floats = NDArray[np.float64]


def both_read(items: Sequence[Path], first: Sequence[Path], second: Sequence[Path]) -> list[CalibrationRecord]:
    """The records of the items that both readers scored.

    Args:
        items: files of items.
        first: scores of the first reader, as `isr_lab.training.evaluate.evaluate` writes them, each chunk alone where
            that is to count.
        second: scores of the second reader; of these only q counts.
    """
    other = {scored.id: scored.q for path in second for scored in read_scored(path)}
    own: dict[str, ScoredItem] = {scored.id: scored for path in first for scored in read_scored(path)}
    found = [item for item in read_items(*items) if item.id in own and item.id in other]
    records = Scored(tuple(found), tuple(own[item.id] for item in found)).records()
    return [replace(record, second=other[record.id]) for record in records]


def fit_two_readers(
    records: Sequence[CalibrationRecord], *, adjudicator: AdjudicatorName | None = None, out: Path | None = None
) -> tuple[FittedCalibration, list[CalibrationRecord]]:
    """Fit and save what `ISRGate(reference="two-readers")` uses.

    Args:
        records: as `both_read` gives them. Items that either reader was trained on are left out.
        adjudicator: the first reader; its calibration must be there, and says whose scores they are.
        out: folder; by default beside that calibration.

    Returns:
        The calibration, and the records that it was fitted on.

    Raises:
        CalibrationError: if the records do not carry a calibration.
    """
    one, two = adjudicator_named(adjudicator), adjudicator_named(SECOND)
    scorers = [CalibrationArtefact.load(each.directory / "calibration.json").belongs_to.scorer for each in (one, two)]
    known = np.union1d(*(TrainingHashes.load(each.directory / TRAINED).values for each in (one, two)))
    own = untrained(records, TrainingHashes(known))
    fitted = fit_artefact(
        own,
        belongs_to=BelongsTo(scorers[0], orderings=None, m=None, focus=FOCUS_WORDS, second=scorers[1]),
        created_by=f"isr-rag {__version__}",
        targets=[(h_star, DELTA) for h_star in TARGETS],
        training=TrainingHashes(known),
        resamples=100,
    )
    fitted.artefact.save((one.directory if out is None else out) / TWO_READERS)
    return fitted, own


def untrained(records: Sequence[CalibrationRecord], training: TrainingHashes) -> list[CalibrationRecord]:
    """The records that are not among what a model was trained on, by id and by text."""
    known = set(training.values.tolist())

    def seen(text: str | None) -> bool:
        return text is not None and int(TrainingHashes.of([text]).values[0]) in known

    return [record for record in records if not seen(record.id) and not seen(record.text)]


@dataclass(frozen=True, slots=True)
class Gain:
    """What a second reader brings on sources that neither its weight nor the cut was fitted on.

    Attributes:
        task: of the items.
        items: how many.
        weights: the least and the highest weight that was fitted, over the sources left out.
        auroc: of the first reader alone, of the second alone, of both.
        more: by how much both are above the first alone, with its 95% interval (paired bootstrap over groups).
        answered: h* -> for the first alone and for both: share of the supported answered, wrong, answered.
    """

    task: str
    items: int
    weights: tuple[float, float]
    auroc: tuple[float, float, float]
    more: tuple[float, float, float]
    answered: dict[float, tuple[tuple[float, int, int], tuple[float, int, int]]]


def gains(records: Sequence[CalibrationRecord], *, seed: int = 0) -> list[Gain]:
    """The gain of each predicate."""
    by_predicate: dict[str, list[CalibrationRecord]] = defaultdict(list)
    for record in records:
        by_predicate[record.predicate].append(record)
    return [_gain(name, own, seed) for name, own in sorted(by_predicate.items())]


def gains_table(found: Sequence[Gain]) -> str:
    """As markdown."""
    rows = [("task", "items", "weights", "AUROC: first, second, both", "gain", *(f"h\\* = {h:g}" for h in TARGETS))]
    for one in found:
        chosen = f"{one.weights[0]:.2f} to {one.weights[1]:.2f}"
        low, high = one.more[1:]
        pairs = [
            " → ".join(f"{share:.0%} ({wrong}/{count})" for share, wrong, count in one.answered[h]) for h in TARGETS
        ]
        ranks = ", ".join(f"{value:.3f}" for value in one.auroc)
        rows.append(
            (one.task, str(one.items), chosen, ranks, f"{one.more[0]:+.3f} ({low:+.3f} to {high:+.3f})", *pairs)
        )
    return table(rows)


def _gain(predicate: str, own: list[CalibrationRecord], seed: int) -> Gain:
    labels = np.array([record.label for record in own])
    parts = _sources(own)
    second = np.array([record.second for record in own], dtype=np.float64)
    first, both = np.empty(len(own)), np.empty(len(own))
    weights: list[float] = []
    answered = {h: (np.zeros(len(own), bool), np.zeros(len(own), bool)) for h in TARGETS}
    for name in sorted(set(parts)):
        left = np.array([part == name for part in parts])
        rest = [record for record, out in zip(own, left, strict=True) if not out]
        close = _close(rest, seed)
        q = np.array([_closely(record, close) for record in own])
        weights.append(second_weight(q[~left].tolist(), second[~left].tolist(), labels[~left].tolist()))
        scores = (q, np.array([closely(a, b, weights[-1]) for a, b in zip(q, second, strict=True)]))
        first[left], both[left] = (each[left] for each in scores)
        for h, marks in answered.items():
            for each, mark in zip(scores, marks, strict=True):
                cut = Tail.fit(each[~left].tolist(), labels[~left].tolist()).steps().cut(1.0 - h)
                mark[left] = False if cut is None else each[left] >= cut - TOLERANCE
    return Gain(
        TASKS.get(predicate, predicate),
        len(own),
        (min(weights), max(weights)),
        (auroc(first, labels), auroc(second, labels), auroc(both, labels)),
        _difference(first, both, labels, groups_of(own), seed),
        {h: (_counts(marks[0], labels), _counts(marks[1], labels)) for h, marks in answered.items()},
    )


def _closely(record: CalibrationRecord, weight: float) -> float:
    return record.q_bar if record.alone is None else closely(record.q_bar, record.alone, weight)


def _close(records: Sequence[CalibrationRecord], seed: int) -> float:
    if any(record.alone is None for record in records):
        return 0.0
    q, labels, sources = zip(*[(record.q_bar, record.label, record.source) for record in records], strict=True)
    alone = [record.alone for record in records if record.alone is not None]
    return best_weight(q, alone, labels, groups_of(records), sources, 5, seed)


def _sources(own: Sequence[CalibrationRecord]) -> list[str]:
    """The source of each record, small ones pooled."""
    counts = Counter((record.source, record.label) for record in own)
    large = {r.source for r in own if min(counts[r.source, 0], counts[r.source, 1]) >= LEAST_OF_A_SOURCE}
    return [record.source or "" if record.source in large else "the rest" for record in own]


def _counts(answered: NDArray[np.bool_], labels: NDArray[np.int64]) -> tuple[float, int, int]:
    return float(answered[labels == 1].mean()), int((answered & (labels == 0)).sum()), int(answered.sum())


def _difference(
    first: Floats, both: Floats, labels: NDArray[np.int64], groups: Sequence[str], seed: int
) -> tuple[float, float, float]:
    found = bootstrap_interval(
        lambda one, two, y: auroc(two, y) - auroc(one, y),
        *(first, both, labels),
        groups=groups,
        resamples=RESAMPLES,
        seed=seed,
    )
    return found.estimate, found.lower, found.upper
