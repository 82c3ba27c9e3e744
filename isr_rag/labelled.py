"""Calibrating a gate on labelled items: scored by the very gate, fitted by its own rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isr_rag import __version__, strict_json
from isr_rag.acquisition import Retrieve
from isr_rag.adjudicators import ADJUDICATORS
from isr_rag.algorithm import weigh
from isr_rag.calibration.artefact import BelongsTo, CalibrationArtefact
from isr_rag.calibration.checks import TrainingHashes, normalised, refuse_duplicates
from isr_rag.calibration.errors import CalibrationError
from isr_rag.calibration.fitting import FittedCalibration, fit_artefact
from isr_rag.calibration.records import CalibrationRecord, LoopRecord
from isr_rag.decision import Decision
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.evidence import Chunk, as_chunks, one_line
from isr_rag.gate import ISRGate
from isr_rag.predicates import predicate_for
from isr_rag.references.oracle import Oracle
from isr_rag.wording import compare

BATCH = 16
_OWN = ("id", "label", "group", "source", "support")


def score_labelled(
    gate: ISRGate,
    items: Sequence[Mapping[str, Any]],
    *,
    progress: Callable[[int], None] = lambda scored: None,
) -> list[CalibrationRecord]:
    """Score labelled items with a gate's own scorer, orderings and focus; its reference is not asked.

    Args:
        gate: whose scores are to be calibrated. Without a cascade: a calibration belongs to one m.
        items: mappings with `id`, `label` (0 or 1), optionally `group` (items that are not independent share
            it) and `source` (each that is large enough is calibrated by itself), and the arguments of
            `isr_rag.ISRGate.decide`.
        progress: told how many items are scored.

    Raises:
        CalibrationError: if the gate has a cascade, or an item has no id, label or evidence, or occurs twice; all of
            this is checked before anything is scored. Also if nothing of an item fits the model.
        ISRError: as the gate's `decide`, with a note that names the item.
    """
    if gate.cascade:
        raise CalibrationError("calibrate a gate without its cascade: a calibration belongs to one m")
    _check(items)
    oracle = _Reading(gate)
    records: list[CalibrationRecord] = []
    for start in range(0, len(items), BATCH):
        batch = items[start : start + BATCH]
        asked = [{k: v for k, v in item.items() if k not in _OWN} | {"reference": oracle} for item in batch]
        for item, decision in zip(batch, gate.decide_batch(asked), strict=True):
            if decision.q_bar is None:
                raise CalibrationError(f"nothing of item {item['id']!r} fits the model: leave it out")
            evidence = as_chunks(item["evidence"])
            predicate = item.get("predicate") or predicate_for(**_texts(item))
            records.append(
                CalibrationRecord(
                    id=str(item["id"]),
                    predicate=decision.predicate,
                    q_bar=decision.q_bar,
                    label=int(item["label"]),
                    group=_text_or_none(item.get("group")),
                    text=fingerprint(predicate.query, [chunk.text for chunk in evidence]),
                    q=decision.q,
                    wording=compare(predicate, evidence),
                    source=_text_or_none(item.get("source")),
                    chunks=decision.chunks - len(decision.left_out),
                    language=" ".join(chunk.text for chunk in evidence),
                    alone=oracle.best_alone(decision),
                )
            )
        progress(len(records))
    return records


def _check(items: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what no calibration can be fitted on, before hours are spent on scoring it."""
    ids: list[str] = []
    seen: list[str] = []
    for item in items:
        if item.get("label") not in (0, 1) or item.get("id") is None:
            raise CalibrationError(f"a labelled item needs an id and a label of 0 or 1, got {dict(item)!r:.200}")
        chunks = as_chunks(item.get("evidence", ()))
        if not chunks:
            raise CalibrationError(f"item {item['id']!r} has no evidence: there is nothing to calibrate on")
        predicate = item.get("predicate") or predicate_for(**_texts(item))
        ids.append(f"{predicate.template}: {item['id']}")
        seen.append(f"{predicate.template}: {fingerprint(predicate.query, [chunk.text for chunk in chunks])}")
    refuse_duplicates(ids, "ids")
    refuse_duplicates(seen, "texts")


class _Reading(Oracle):
    """Trusts everything, and has each chunk read alone where that costs little: chunks that do not see each other."""

    def __init__(self, gate: ISRGate) -> None:
        super().__init__(1.0)
        self._closely = gate.scorer.layout != "full"

    def reads_alone(self, predicate: str) -> bool:
        """Whether each chunk is read by itself."""
        return self._closely

    def best_alone(self, decision: Decision) -> float | None:
        """The highest q of any chunk; of a single one that of the decision; None where they were not read so."""
        return max(decision.q_alone, default=decision.q_bar) if self._closely else None


def fingerprint(query: str, chunks: Sequence[str]) -> str:
    """What makes two labelled items the same one: what is judged, and the evidence in any order."""
    return json.dumps([normalised(query), *sorted(map(normalised, chunks))], ensure_ascii=False)


def score_loops(
    gate: ISRGate,
    items: Sequence[Mapping[str, Any]],
    retrieve: Retrieve,
    *,
    looks: int = 2,
    progress: Callable[[int], None] = lambda scored: None,
) -> list[LoopRecord]:
    """Run the loop of acquisition on labelled items, every look of it, and score each look.

    Args:
        gate: whose scores are to be calibrated; its reference is not asked.
        items: mappings with `id`, `label` (1: holds where its support is found), `support` (texts of the chunks
            that must all be gathered for it to hold; empty: it needs none), and `claim`, or `question` with or
            without `answer`.
        retrieve: the retriever of the loop; gets None instead of a previous decision.
        looks: most looks, >= 2.
        progress: told how many items are scored.

    Raises:
        ConfigurationError: if looks < 2.
        CalibrationError: if an item has no id, label or support.
        ISRError: as the gate's `decide`.
    """
    if looks < 2:
        raise ConfigurationError(f"a loop has at least 2 looks, got {looks}")
    oracle = _Reading(gate)
    records: list[LoopRecord] = []
    for item in items:
        if item.get("label") not in (0, 1) or item.get("id") is None or "support" not in item:
            raise CalibrationError(f"a labelled loop needs id, label of 0 or 1 and support, got {dict(item)!r:.200}")
        texts = _texts(item)
        predicate = predicate_for(**texts)
        needed = {normalised(text) for text in item["support"]}
        gathered: dict[tuple[str, str], Chunk] = {}
        asked: list[dict[str, Any]] = []
        labels: list[int] = []
        for look in range(looks):
            before = len(gathered)
            for chunk in as_chunks(retrieve(predicate.query, look, None)):
                gathered.setdefault((chunk.title or "", one_line(chunk.text)), chunk)
            if look > 0 and len(gathered) == before:
                break  # as the loop does
            if gathered:
                asked.append({**texts, "evidence": list(gathered.values()), "reference": oracle})
                found = {normalised(chunk.text) for chunk in gathered.values()}
                labels.append(int(bool(item["label"]) and needed <= found))
        read = [
            (decision.q_bar, label, compare(predicate, one["evidence"]), oracle.best_alone(decision))
            for decision, label, one in zip(gate.decide_batch(asked), labels, asked, strict=True)
            if decision.q_bar is not None
        ]
        if not read:
            continue
        means, held, wording, alone = zip(*read, strict=True)
        best = tuple(one for one in alone if one is not None)
        records.append(LoopRecord(str(item["id"]), predicate.template, means, held, wording, best))
        progress(len(records))
    return records


def calibrate(
    gate: ISRGate,
    records: Iterable[CalibrationRecord],
    *,
    targets: Sequence[tuple[float, float]] = ((0.05, 0.1),),
    loops: Iterable[LoopRecord] = (),
    retriever: str = "",
    training_texts: Iterable[str] = (),
    training: TrainingHashes | None = None,
    seed: int = 0,
) -> FittedCalibration:
    """Fit the calibration that belongs to exactly this gate.

    Args:
        gate: as in `score_labelled`.
        records: its scores.
        targets: (h*, delta) pairs to find Learn-then-Test cuts for; empty for none, which leaves all items to the
            calibrator.
        loops: labelled loops from `score_loops`, for `isr_rag.acquire`.
        retriever: how those loops retrieved, in words.
        training_texts: what the scorer was trained on, as `fingerprint` writes it, compared with the records.
        training: hashes of what it was trained on; None: those that ship with an adjudicator of this package.
        seed: seed of splits and folds.

    Raises:
        CalibrationError: if the records cannot carry a calibration, or were trained on; the message says why.
    """
    texts = list(training_texts)
    if any(not text.startswith("[") for text in texts):
        raise CalibrationError("training_texts are compared as isr_rag.labelled.fingerprint(query, chunks) writes them")
    invariant = gate.scorer.layout != "full"

    def answers(record: CalibrationRecord, p_ref: float, h_star: float) -> bool:
        return weigh(record.q, p_ref, replace(gate.rule, h_star=h_star)).answers

    return fit_artefact(
        records,
        belongs_to=BelongsTo(
            scorer=gate.scorer.identity,
            orderings=None if invariant else gate.orderings,
            m=None if invariant else gate.m,
            focus=gate.focus,
            bands=gate.bands if gate.orderings == "banded" and not invariant else None,
            seed=None if invariant else gate.seed,
            clip=None if invariant else gate.rule.clip,
            convention=None if invariant else gate.rule.convention,
        ),
        created_by=f"isr-rag {__version__}",
        targets=targets,
        rule=answers,
        loops=loops,
        retriever=retriever,
        training_texts=texts,
        training=shipped_hashes(gate.scorer.identity) if training is None else training,
        seed=seed,
    )


def shipped_hashes(scorer: str) -> TrainingHashes | None:
    """Hashes of what an adjudicator of this package was trained on, by its identity; None for any other scorer."""
    for one in ADJUDICATORS.values():
        calibrated = one.directory / "calibration.json"
        if calibrated.is_file():
            own = CalibrationArtefact.load(calibrated).belongs_to.scorer
            if own.split("/")[:3] == scorer.split("/")[:3]:  # the same base and adapter, on whatever device
                return TrainingHashes.load(one.directory / "trained.u64")
    return None


def read_labelled(path: Path) -> list[dict[str, Any]]:
    """Labelled items from JSONL, one per line.

    `{"id", "label", "question"?, "answer"?, "claim"?, "evidence", "group"?, "source"?}`

    Raises:
        InvalidInputError: if the file is missing, or for the first bad line, with its number.
    """
    return list(_read_labelled(path))


def _read_labelled(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}")
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                item = strict_json.loads(line)
            except ValueError as error:
                raise InvalidInputError(f"{path}, line {number}: not JSON: {error}") from error
            known = {*_OWN, "question", "answer", "claim", "evidence"} - {"support"}
            if not isinstance(item, dict) or not {"id", "label", "evidence"} <= set(item) <= known:
                raise InvalidInputError(
                    f"{path}, line {number}: an item has id, label, evidence, and some of {sorted(known)}"
                )
            yield item


def _texts(item: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: item.get(name) for name in ("claim", "question", "answer")}


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)
