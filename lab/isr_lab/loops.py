"""Calibrations of whole acquisition loops: scoring labelled loops, and fitting what `CalibratedMixture` then uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isr_rag.calibration import CalibrationArtefact, TrainingHashes
from isr_rag.calibration.artefact import LoopCalibration, joined
from isr_rag.calibration.calibrators import Steps
from isr_rag.calibration.checks import normalised, refuse_duplicates, scored_labels
from isr_rag.core.evidence import Chunk, as_chunks, one_line
from isr_rag.core.predicates import predicate_for
from isr_rag.core.settings import check_count
from isr_rag.errors import CalibrationError
from isr_rag.gate import ISRGate
from isr_rag.gate.acquisition import Retrieve
from isr_rag.gate.labelled import ReadingAlone, texts_of


@dataclass(frozen=True, slots=True)
class LoopRecord:
    """One labelled acquisition loop, scored at each round until it ran out of rounds or of new evidence.

    Attributes:
        id: names the item.
        predicate: id of the predicate's template.
        q_bar: of each round, at least one.
        labels: 1 where the predicate holds for the evidence gathered by that round, same length.
        alone: highest probability of any chunk read by itself in each round, same length; empty if not read so.
    """

    id: str
    predicate: str
    q_bar: tuple[float, ...]
    labels: tuple[int, ...]
    alone: tuple[float, ...] = ()


def score_loops(
    gate: ISRGate,
    items: Sequence[Mapping[str, Any]],
    retrieve: Retrieve,
    *,
    rounds: int = 2,
    progress: Callable[[int], None] = lambda scored: None,
) -> list[LoopRecord]:
    """Run the loop of acquisition on labelled items, every round of it, and score each round.

    Args:
        gate: whose scores are to be calibrated; its reference is not asked.
        items: mappings with `id`, `label` (1: holds where its support is found), `support` (texts of the chunks
            that must all be gathered for it to hold; empty: it needs none), and `claim`, or `question` with or
            without `answer`.
        retrieve: the retriever of the loop; gets None instead of a previous decision.
        rounds: most rounds, >= 2.
        progress: called with the number of items scored.
    """
    check_count("rounds", rounds, 2)
    oracle = ReadingAlone(gate)
    records: list[LoopRecord] = []
    for item in items:
        if item.get("label") not in (0, 1) or item.get("id") is None or "support" not in item:
            raise CalibrationError(f"a labelled loop needs id, label of 0 or 1 and support, got {dict(item)!r:.200}")
        texts = texts_of(item)
        predicate = predicate_for(**texts)
        needed = {normalised(text) for text in item["support"]}
        gathered: dict[tuple[str, str], Chunk] = {}
        asked: list[dict[str, Any]] = []
        labels: list[int] = []
        for round_number in range(rounds):
            before = len(gathered)
            for chunk in as_chunks(retrieve(predicate.query, round_number, None)):
                gathered.setdefault((chunk.title or "", one_line(chunk.text)), chunk)
            if round_number > 0 and len(gathered) == before:
                break  # as the loop does
            if gathered:
                asked.append({**texts, "evidence": list(gathered.values()), "reference": oracle})
                found = {normalised(chunk.text) for chunk in gathered.values()}
                labels.append(int(bool(item["label"]) and needed <= found))
        read = [
            (decision.q_bar, label, oracle.best_alone(decision))
            for decision, label in zip(gate.decide_batch(asked), labels, strict=True)
            if decision.q_bar is not None
        ]
        if read:
            means, held, alone = zip(*read, strict=True)
            best = tuple(one for one in alone if one is not None)
            records.append(LoopRecord(str(item["id"]), predicate.template, means, held, best))
            progress(len(records))
    return records


def with_loops(
    artefact: CalibrationArtefact,
    loops: Iterable[LoopRecord],
    *,
    retriever: str = "",
    training: TrainingHashes | None = None,
) -> CalibrationArtefact:
    """An artefact with calibrations of whole loops beside the single decisions of their predicates.

    Args:
        artefact: the calibration of single decisions.
        loops: labelled loops, calibrated by their number of rounds.
        retriever: how those loops retrieved, in words.
        training: hashes of ids that the scorer was trained on; such loops are refused.

    Raises:
        CalibrationError: if loops repeat, were trained on, have bad scores or labels, or belong to no predicate of the
            artefact.
    """
    ordered = sorted(loops, key=lambda record: (record.predicate, record.id))
    _check(ordered, set(artefact.predicates), training)
    predicates = dict(artefact.predicates)
    for name in {record.predicate for record in ordered}:
        own = [record for record in ordered if record.predicate == name]
        predicates[name] = replace(predicates[name], loops=_fitted(own, predicates[name].close, retriever))
    return replace(artefact, predicates=predicates)


def _check(loops: Sequence[LoopRecord], predicates: set[str], training: TrainingHashes | None) -> None:
    """As `check_records`, for loops, which are calibrated beside the single decisions of their predicate."""
    for record in loops:
        scored_labels(record.q_bar, record.labels)
        if record.alone and len(record.alone) != len(record.q_bar):
            raise CalibrationError(f"the loop {record.id!r} has {len(record.alone)} rounds in `alone`, not as in q_bar")
    unknown = sorted({record.predicate for record in loops} - predicates)
    if unknown:
        raise CalibrationError(f"there are loops of {', '.join(unknown)} and no labelled items of it: add some")
    refuse_duplicates((f"{record.predicate}: {record.id}" for record in loops), "ids of loops")
    if training is not None:
        training.refuse((record.id for record in loops), what="ids of loops")


def _fitted(records: Sequence[LoopRecord], weight: float, retriever: str) -> tuple[LoopCalibration, ...]:
    """One calibration for each number of rounds from 2 to the most that a record has."""
    found: list[LoopCalibration] = []
    for rounds in range(2, max((len(record.q_bar) for record in records), default=1) + 1):
        scores: list[list[float]] = []
        for record in records:
            if weight and not record.alone:
                raise CalibrationError(f"the loop {record.id!r} lacks the best chunk's probability, which counts here")
            alone = record.alone if weight else record.q_bar
            scores.append([joined(*pair, weight) for pair in zip(record.q_bar, alone, strict=True)][:rounds])
        steps = loop_steps(scores, [record.labels[:rounds] for record in records])
        found.append(LoopCalibration(rounds, steps, len(records), retriever))
    return tuple(found)


def loop_steps(scores: Sequence[Sequence[float]], labels: Sequence[Sequence[int]]) -> Steps:
    """p_ref of a whole acquisition loop: the same rate, over cases that stop at the first round that reaches a score.

    At a threshold t a case is answered at its first round whose score is at least t, and is wrong where the predicate
    does not hold for the evidence gathered by then. Further evidence may make an answer wrong that was right before, so
    a case counts as an error at t if it is wrong at t or at any higher threshold: errors then only become fewer as t
    rises, which is all that the argument of `Tail` asks of them.

    Args:
        scores: of each round of each case, shape (n, rounds of that case).
        labels: whether the predicate holds for the evidence of that round, same shape.
    """
    if not scores or any(len(s) != len(y) or not s for s, y in zip(scores, labels, strict=True)):
        raise CalibrationError("a loop needs cases with a label for the score of each round")
    thresholds = np.unique([score for case in scores for score in case])
    answered, wrong = np.zeros(len(thresholds), dtype=np.int64), np.zeros(len(thresholds), dtype=np.int64)
    for case, held in zip(scores, labels, strict=True):
        reached = failed = -1.0
        for score, label in zip(case, held, strict=True):
            if score > reached:  # this round answers for the thresholds in (reached, score]
                reached, failed = score, failed if label else score
        answered[: np.searchsorted(thresholds, reached, side="right")] += 1
        wrong[: np.searchsorted(thresholds, failed, side="right")] += 1
    return Steps.highest_so_far(thresholds, 1.0 - (wrong + 1) / (answered + 1))
