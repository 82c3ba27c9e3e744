"""Calibrate any reader on labelled items, resumable."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from isr_rag._util.files import sha256_of, write_atomically, write_json
from isr_rag._util.text import in_markdown, well_formed
from isr_rag.calibration.artefact import CalibrationArtefact
from isr_rag.calibration.card import calibration_card, card_text
from isr_rag.calibration.checks import FEW_OF_A_CLASS, REFUSED_OF_A_CLASS, refuse_duplicates
from isr_rag.calibration.ltt import LearnThenTest
from isr_rag.calibration.records import CalibrationRecord, groups_of
from isr_rag.core.predicates import predicate_for
from isr_rag.core.settings import lowest_target
from isr_rag.errors import CalibrationError, needed_for
from isr_rag.gate import ISRGate
from isr_rag.gate.labelled import calibrate, check_labelled, score_labelled, texts_of
from isr_rag.gate.reader import CALIBRATION, Reader
from isr_rag.io.items import BATCH
from isr_rag.io.journal import Journal
from isr_rag.io.run import ItemProgress
from isr_rag.references import CalibratedMixture

SCORES = "scores.jsonl"
_SCORED = ("id", "predicate", "q_bar", "q", "q_high", "chunks", "alone")


def calibrate_reader(
    gate: ISRGate,
    scorer: Mapping[str, Any],
    items: Sequence[Mapping[str, Any]],
    out: Path,
    *,
    limit: int | None = None,
    target: tuple[float, float] = (0.05, 0.1),
    force: bool = False,
    progress: ItemProgress = lambda done, items: None,
) -> str:
    """Score labelled items, fit a calibration, and write what `ISRGate.load` reads.

    The items are scored in a fixed random order. What was scored stays in `scores.part`, so a run that was stopped,
    or that had a `limit`, is continued by the next one; whatever was scored is fitted on. The folder gets
    `calibration.json`, `reader.json`, `card.md`, `card.json` and `scores.jsonl`. A predicate with fewer than 10
    items of a class is left out; where one has under 50 groups of a class, no threshold for `target` is looked for.

    Gate, items and errors: see `isr_rag.gate.labelled.score_labelled`; force and progress: see `isr_rag.io.check_file`.

    Args:
        scorer: arguments of `isr_rag.scorers.load.load_scorer` that gave the gate's scorer.
        limit: score so many items only, rounded up to whole batches of 16.
        target: (h*, delta) of the Learn-then-Test threshold.

    Returns:
        What the card says first: where it was measured, the cost, and the line that builds the gate.
    """
    wanted = items_to_score(items, limit=limit, target=target)
    known = {str(item["id"]): (item, *text) for item, text in zip(items, check_labelled(items), strict=True)}
    content = _hash(json.dumps(_in_order(items), default=repr))
    progress(0, len(wanted))
    out.mkdir(parents=True, exist_ok=True)
    with Journal(out / "scores.part", json.dumps([repr(gate), content]), force=force) as journal:
        for start in range(0, len(wanted), BATCH):
            batch = wanted[start : start + BATCH]
            if start // BATCH not in journal.done:
                begun, sent = perf_counter(), _tokens(gate)
                scored = score_labelled(gate, batch)
                cost = {"seconds": (perf_counter() - begun) / len(batch), "tokens": (_tokens(gate) - sent) / len(batch)}
                rows = [{name: getattr(record, name) for name in _SCORED} | cost for record in scored]
                journal.keep(start // BATCH, rows)
            progress(start + len(batch), len(wanted))
        rows = list(journal.records())  # of a run before with a higher limit, too
    records: list[CalibrationRecord] = []
    for row in rows:
        item, text, evidence = known[row["id"]]
        named = {name: item[name] for name in ("group", "source") if item.get(name) not in (None, "")}
        own: dict[str, Any] = {name: well_formed(str(value)) for name, value in named.items()}
        own |= {name: row[name] for name in _SCORED} | {name: tuple(row[name]) for name in ("q", "q_high")}
        records.append(CalibrationRecord(**own, label=int(item["label"]), text=text, language=" ".join(evidence)))
    fewest = _fewest((record.predicate, record.label) for record in records)
    enough = [name for name, count in fewest.items() if count >= REFUSED_OF_A_CLASS]
    by_predicate = {name: [record for record in records if record.predicate == name] for name in enough}
    own_groups = {(r.predicate, r.label, group) for r, group in zip(records, groups_of(records), strict=True)}
    grouped = _fewest(row[:2] for row in own_groups)
    thin = min(grouped[name] for name in enough) < FEW_OF_A_CLASS
    artefact = calibrate(gate, [r for r in records if r.predicate in enough], targets=() if thin else (target,))
    kinds = {name: well_formed(str(item["kind"])) for name, (item, *_) in known.items() if item.get("kind") is not None}
    cards: dict[str, Any] = {}
    scores: dict[str, float] = {}
    for name in enough:
        part = artefact.predicates[name]
        joined = [part.score(record.q_bar, record.alone) for record in by_predicate[name]]
        cards[name] = calibration_card(by_predicate[name], joined, kinds=kinds)
        reasons = [threshold.reason for one in part.bins for threshold in one.thresholds]
        if len(part.bins) > 1:
            reasons.append("The tables pool all numbers of chunks; the gate has a threshold for each range.")
        cards[name]["thresholds"] = list(dict.fromkeys(reasons))  # with and without the gate's rule, often the same
        scores |= {record.id: score for record, score in zip(by_predicate[name], joined, strict=True)}
    lines: list[dict[str, Any]] = []
    for record, row in ((record, row) for record, row in zip(records, rows, strict=True) if record.id in scores):
        line = {"id": record.id, "predicate": record.predicate, "label": record.label}
        line |= {"item": _hash(record.text or ""), "group": record.group or record.id}
        lines.append(line | {"score": scores[record.id], "seconds": row["seconds"]})
    write_atomically(out / SCORES, (json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    artefact.save(out / CALIBRATION)
    settings = gate.settings
    Reader(scorer, settings.orderings, settings.max_words, artefact.sha256, sha256_of(out / SCORES)).save(out)
    head = _head(rows, out, artefact)
    left = "".join(f"\nLeft out, with too few items of a class: {name}." for name in fewest if name not in enough)
    if thin:
        left += f"\nNo threshold for delta was looked for, with under {FEW_OF_A_CLASS} groups of a class."
    write_json(out / "card.json", {"scorer": gate.scorer.identity, "predicates": cards})
    texts = [f"# {in_markdown(gate.scorer.identity)}\n", f"{head}{left}\n"]
    for name, card in cards.items():
        texts.append(card_text(card, name) + "".join(f"\n{in_markdown(reason)}\n" for reason in card["thresholds"]))
    write_atomically(out / "card.md", "\n".join(texts))
    return head + left


def items_to_score(
    items: Sequence[Mapping[str, Any]], *, limit: int | None = None, target: tuple[float, float] = (0.05, 0.1)
) -> list[Mapping[str, Any]]:
    """What `calibrate_reader` scores of labelled items, in its order; refuses what it would refuse, without a model.

    Args and errors: see `calibrate_reader`.
    """
    LearnThenTest(*target)  # refuses what is out of range
    with needed_for("fitting a calibration", "calibrate"):
        import venn_abers as _  # noqa: F401
    check_labelled(items)
    refuse_duplicates(str(item["id"]) for item in items)
    wanted = _in_order(items)[: len(items) if limit is None else BATCH * math.ceil(limit / BATCH)]
    predicates = [item.get("predicate") or predicate_for(**texts_of(item)) for item in wanted]
    asked = ((one.template, int(item["label"])) for one, item in zip(predicates, wanted, strict=True))
    if max(_fewest(asked).values(), default=0) < REFUSED_OF_A_CLASS:
        few = f"no predicate has {REFUSED_OF_A_CLASS} items of each class among {len(wanted)}"
        raise CalibrationError(f"{few}: raise the limit, or label more")
    return wanted


def _in_order(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(items, key=lambda item: hashlib.sha256(str(item["id"]).encode()).digest())


def _fewest(labels: Iterable[tuple[str, int]]) -> dict[str, int]:
    """For each predicate the number of items of its rarer class."""
    counts = Counter(labels)
    return {name: min(counts[name, 0], counts[name, 1]) for name, _ in sorted(counts)}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _tokens(gate: ISRGate) -> int:
    """Tokens that a server has read so far; 0 for a scorer that does not count them."""
    return int(getattr(gate.scorer, "prompt_tokens", 0))


def _head(rows: Sequence[Mapping[str, Any]], out: Path, artefact: CalibrationArtefact) -> str:
    measured = [(row["seconds"], len(row["q"]), row["tokens"]) for row in rows]
    seconds, passes, tokens = np.mean(measured, axis=0).tolist()
    cost = f"{len(rows)} items; {seconds:.3g} s and {passes:.3g} orderings a decision, in batches of {BATCH}"
    if tokens:
        cost += f"; 1,000 decisions send {1000 * tokens:,.0f} tokens in {1000 * passes:,.0f} prompts"
    reference = CalibratedMixture(artefact)  # as ISRGate.load makes it
    lowest = {name: lowest_target(reference.ceiling(name) or 0.0) for name in artefact.predicates}
    if (least := min(lowest.values())) >= 1.0:
        return f"{cost}.\nIt ranks too badly to answer anything at any h*: there is no gate to build."
    read = {name: f"{own.bins[0].first} to {own.bins[-1].last} chunks" for name, own in artefact.predicates.items()}
    reach = [f"{h_star:g} for {name} ({read[name]})" for name, h_star in lowest.items()]
    target = "" if least <= 0.05 else f", h_star={least:g}"
    return f'{cost}. It reaches h* down to {", ".join(reach)}.\nISRGate.load("{out}"{target})'
