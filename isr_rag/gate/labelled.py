"""Calibrating a gate on labelled items: scored by the very gate, fitted by its own rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from isr_rag import __version__
from isr_rag._util.text import well_formed
from isr_rag.calibration.artefact import CalibrationArtefact, Fingerprint
from isr_rag.calibration.checks import TrainingHashes, normalised, refuse_duplicates
from isr_rag.calibration.fitting import FitSettings, fit_artefact
from isr_rag.calibration.records import CalibrationRecord
from isr_rag.core.bounds import weigh
from isr_rag.core.decision import Decision
from isr_rag.core.evidence import as_chunks
from isr_rag.core.predicates import predicate_for
from isr_rag.core.scorer import ORDERED
from isr_rag.errors import CalibrationError, ISRError
from isr_rag.gate import ISRGate
from isr_rag.references.direct import Oracle
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.scorers.pairs import PairScorer

BATCH = 16
_OWN = ("id", "label", "group", "source", "kind", "support")


def score_labelled(gate: ISRGate, items: Sequence[Mapping[str, Any]]) -> list[CalibrationRecord]:
    """Score labelled items with a gate's own scorer, orderings and focus; its reference is not asked.

    Args:
        gate: whose scores are to be calibrated. Without a cascade: a calibration belongs to one m.
        items: mappings with `id`, `label` (0 or 1), optionally `group` (items that are not independent share it),
            `source` (its data set or product) and `kind`, and the arguments of `isr_rag.ISRGate.decide`.

    Raises:
        CalibrationError: if the gate has a cascade, an item lacks id, label or evidence, is repeated, or does not fit.
        ISRError: as the gate's `decide`, with a note that names the item.
    """
    if gate.settings.orderings.cascade:
        raise CalibrationError("turn the cascade off to calibrate: a calibration belongs to one m")
    texts = check_labelled(items)
    oracle = ReadingAlone(gate)
    records: list[CalibrationRecord] = []
    for start in range(0, len(items), BATCH):
        batch = items[start : start + BATCH]
        asked = [{k: v for k, v in item.items() if k not in _OWN} | {"reference": oracle} for item in batch]
        try:
            decisions = gate.decide_batch(asked)
        except ISRError as error:
            if error.position is not None:
                error.add_note(f"its id is {batch[error.position]['id']!r}")
            raise
        for item, decision in zip(batch, decisions, strict=True):
            if decision.q_bar is None:
                raise CalibrationError(f"nothing of item {item['id']!r} fits the model: leave it out")
            text, evidence = texts[len(records)]
            named = {name: str(item[name]) for name in ("group", "source") if item.get(name) not in (None, "")}
            records.append(
                CalibrationRecord(
                    id=str(item["id"]),
                    predicate=decision.predicate,
                    q_bar=decision.q_bar,
                    label=int(item["label"]),
                    text=text,
                    q=decision.q,
                    chunks=decision.chunks - len(decision.left_out),
                    language=" ".join(evidence),
                    alone=oracle.best_alone(decision),
                    q_high=decision.q_high,
                    **named,
                )
            )
    return records


def check_labelled(items: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """The key (`item_key`) and the chunks' texts of each item; CalibrationError as `score_labelled`."""
    texts: list[tuple[str, list[str]]] = []
    ids, seen = list[str](), list[str]()
    for item in items:
        if item.get("label") not in (0, 1) or item.get("id") is None:
            given = f"the id {item.get('id')!r:.80} and the label {item.get('label')!r:.80}"
            raise CalibrationError(f"a labelled item needs an id and a label of 0 or 1, not {given}")
        try:
            chunks = [chunk.text for chunk in as_chunks(item.get("evidence", ()))]
            predicate = item.get("predicate") or predicate_for(**texts_of(item))
        except ISRError as error:
            error.add_note(f"in item {item['id']!r}")
            raise
        if not chunks:
            raise CalibrationError(f"item {item['id']!r} has no evidence: there is nothing to calibrate on")
        texts.append((item_key(predicate.query, chunks), chunks))
        ids.append(f"{predicate.template}: {item['id']}")
        seen.append(f"{predicate.template}: {texts[-1][0]}")
    refuse_duplicates(ids, "ids")
    refuse_duplicates(seen, "texts")
    return texts


class ReadingAlone(Oracle):
    """Trusts everything, and has each chunk read alone where that costs little: chunks that do not see each other."""

    def __init__(self, gate: ISRGate) -> None:
        super().__init__(1.0)
        pairs = isinstance(getattr(gate.scorer, "scorer", gate.scorer), PairScorer)  # of what a cache asks, too
        self._closely = gate.scorer.layout not in ORDERED and not pairs

    def reads_alone(self, predicate: str) -> bool:
        """Whether each chunk is read alone."""
        return self._closely

    def best_alone(self, decision: Decision) -> float | None:
        """The highest q of any chunk; of a single one that of the decision; None where they were not read so."""
        return max(decision.q_alone, default=decision.q_bar) if self._closely else None


def item_key(query: str, chunks: Sequence[str]) -> str:
    """What makes two labelled items the same one: what is judged, and the evidence in any order."""
    return well_formed(json.dumps([normalised(query), *sorted(map(normalised, chunks))], ensure_ascii=False))


def calibrate(
    gate: ISRGate,
    records: Iterable[CalibrationRecord],
    *,
    targets: Sequence[tuple[float, float]] = ((0.05, 0.1),),
    training: TrainingHashes | None = None,
) -> CalibrationArtefact:
    """Fit the calibration that belongs to exactly this gate.

    Args:
        gate: as in `score_labelled`.
        records: its scores.
        targets: (h*, delta) pairs of Learn-then-Test thresholds; none leaves all items to the calibrator.
        training: hashes of what the scorer was trained on, made by `TrainingHashes.of` from ids and from texts as
            `item_key` writes them; None: those that ship with the judge.

    Raises:
        CalibrationError: if the records cannot carry a calibration, or were trained on; the message says why.
    """
    own = Fingerprint.of(gate.settings)
    if gate.settings.invariant:
        own = Fingerprint(own.scorer, orderings=None, m=None, max_words=own.max_words)

    def answers(record: CalibrationRecord, p_ref: float, h_star: float) -> bool:
        return weigh(record.q, p_ref, replace(gate.settings, h_star=h_star), record.q_high).answers

    return fit_artefact(
        records,
        fingerprint=own,
        created_by=f"isr-rag {__version__}",
        settings=FitSettings(targets=tuple(targets), rule=answers),
        training=shipped_hashes(gate.scorer.identity) if training is None else training,
    )


def shipped_hashes(scorer: str) -> TrainingHashes | None:
    """Hashes of what the adjudicator was trained on, by its scorer's identity; None for any other scorer."""
    own = CalibrationArtefact.load(STANDARD.directory / "calibration.json").fingerprint.scorer
    if own.split("/")[:3] != scorer.split("/")[:3]:  # the same base and adapter, on whatever device and in any layout
        return None
    return TrainingHashes.load(STANDARD.directory / "trained.u64")


def texts_of(item: Mapping[str, Any]) -> dict[str, str | None]:
    """What is judged of a labelled item, as arguments of a gate."""
    return {name: item.get(name) for name in ("claim", "question", "answer")}
