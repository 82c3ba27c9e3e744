"""Calibrating a gate on labelled items: scored by the very gate, fitted by its own rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from isr_rag import __version__, strict_json
from isr_rag.algorithm import weigh
from isr_rag.calibration.artefact import BelongsTo
from isr_rag.calibration.errors import CalibrationError
from isr_rag.calibration.fitting import CalibrationRecord, FittedCalibration, fit_artefact
from isr_rag.errors import InvalidInputError
from isr_rag.evidence import as_chunks
from isr_rag.gate import ISRGate
from isr_rag.predicates import predicate_for
from isr_rag.references.oracle import Oracle
from isr_rag.wording import compare

BATCH = 16
_OWN = ("id", "label", "group")


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
            it), and the arguments of `decide`.
        progress: told how many items are scored.

    Raises:
        CalibrationError: if the gate has a cascade, or an item no id or label.
        ISRError: as the gate's `decide`, with a note that names the item.
    """
    if gate.cascade:
        raise CalibrationError("calibrate a gate without its cascade: a calibration belongs to one m")
    oracle = Oracle(1.0)
    records: list[CalibrationRecord] = []
    for start in range(0, len(items), BATCH):
        batch = items[start : start + BATCH]
        asked = [{k: v for k, v in item.items() if k not in _OWN} | {"reference": oracle} for item in batch]
        for item, decision in zip(batch, gate.decide_batch(asked), strict=True):
            if item.get("label") not in (0, 1) or item.get("id") is None:
                raise CalibrationError(f"a labelled item needs an id and a label of 0 or 1, got {dict(item)!r:.200}")
            if decision.q_bar is None:
                raise CalibrationError(f"item {item['id']!r} has no evidence: there is nothing to calibrate on")
            group = item.get("group")
            texts = {name: item.get(name) for name in ("claim", "question", "answer")}
            evidence = json.dumps(item["evidence"], sort_keys=True, default=str)
            asked_for = item.get("predicate") or predicate_for(**texts)
            records.append(
                CalibrationRecord(
                    id=str(item["id"]),
                    predicate=decision.predicate,
                    q_bar=decision.q_bar,
                    label=int(item["label"]),
                    group=None if group is None else str(group),
                    text="\n".join([*(text for text in texts.values() if text), evidence]),
                    q=decision.q,
                    wording=compare(asked_for, as_chunks(item["evidence"])),
                )
            )
        progress(len(records))
    return records


def calibrate(
    gate: ISRGate,
    records: Iterable[CalibrationRecord],
    *,
    targets: Sequence[tuple[float, float]] = ((0.05, 0.1),),
    training_texts: Iterable[str] = (),
    seed: int = 0,
) -> FittedCalibration:
    """Fit the calibration that belongs to exactly this gate.

    Args:
        gate: as in `score_labelled`.
        records: its scores.
        targets: (h*, delta) pairs to find Learn-then-Test cuts for; empty for none, which leaves all items to the
            calibrator.
        training_texts: what the scorer was trained on, held against the records.
        seed: seed of splits and folds.

    Raises:
        CalibrationError: if the records cannot carry a calibration; says why.
    """
    invariant = gate.scorer.layout != "full"

    def answers(record: CalibrationRecord, p_ref: float, h_star: float) -> bool:
        return weigh(record.q, p_ref, gate.with_h_star(h_star).rule).answers

    return fit_artefact(
        records,
        belongs_to=BelongsTo(
            scorer=gate.scorer.identity,
            orderings=None if invariant else gate.orderings,
            m=None if invariant else gate.m,
            focus=gate.focus,
        ),
        created_by=f"isr-rag {__version__}",
        targets=targets,
        rule=answers,
        training_texts=training_texts,
        seed=seed,
    )


def read_labelled(path: Path) -> list[dict[str, Any]]:
    """Labelled items from JSONL: `{"id", "label", "question"?, "answer"?, "claim"?, "evidence", "group"?}` a line.

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
            known = {*_OWN, "question", "answer", "claim", "evidence"}
            if not isinstance(item, dict) or not {"id", "label", "evidence"} <= set(item) <= known:
                raise InvalidInputError(
                    f"{path}, line {number}: an item has id, label, evidence, and some of {sorted(known)}"
                )
            yield item
