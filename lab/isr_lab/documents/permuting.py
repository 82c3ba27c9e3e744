"""Does reading several orders, and gating by ISR, let out fewer wrong answers than one pass and a threshold?

    python -m isr_lab.documents.permuting score ITEMS.jsonl --model permuted --m 12 --out row.jsonl
    python -m isr_lab.documents.permuting score ITEMS.jsonl --model standard --out side.jsonl
    python -m isr_lab.documents.permuting report ITEMS.jsonl row.jsonl side.jsonl

Items are those of `isr-lab documents`. Scoring goes on where it stopped. A gate of m orders is given the first m of the
scored ones, in an order drawn for each item, and a calibration with the other sources.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_lab.documents.records import read_lines
from isr_lab.documents.report import left_out
from isr_lab.metrics import Interval, auroc, bootstrap_intervals
from isr_lab.tables import markdown_table
from isr_rag import Decision, ISRGate, Reason
from isr_rag.calibration.fitting import WEIGHT
from isr_rag.calibration.records import CalibrationRecord
from isr_rag.core.bounds import TOLERANCE
from isr_rag.core.settings import Orderings, Rule
from isr_rag.gate.labelled import calibrate, score_labelled, texts_of
from isr_rag.references import CalibratedMixture, Oracle
from isr_rag.testing import FixedScorer

MOST_CHUNKS = 6
H_STARS = (0.05, 0.1, 0.2)
_Decisions = Sequence[Decision | None]
NAMES = {"supported-claim/1": "claims", "supported-answer/1": "drafts", "sufficient/1": "questions"}


@dataclass(frozen=True, slots=True)
class Read:
    """A labelled item with what two readers said.

    Attributes:
        item: as `score_labelled` takes it.
        record: its scores in a row, in all orders, as a calibration takes them.
        side: the score side by side, in (0, 1): log-odds of all chunks and of the best one, weighed as by default.
        once: that of all chunks alone: one pass.
        beside: the scores side by side, as a calibration takes them.
    """

    item: dict[str, Any]
    record: CalibrationRecord
    side: float
    once: float
    beside: CalibrationRecord

    def orders(self, m: int) -> tuple[float, ...]:
        """Probabilities in m orders, in [0, 1], shape (min(m, scored),)."""
        return tuple(random.Random(self.record.id).sample(self.record.q, min(m, len(self.record.q))))


def score(gate: ISRGate, items: Sequence[dict[str, Any]], out: Path) -> Iterator[int]:
    """Score items of 1 to `MOST_CHUNKS` chunks in a fixed random order, and say how many are done."""
    wanted = [item for item in items if len(item["evidence"]) <= MOST_CHUNKS]
    wanted.sort(key=lambda item: hashlib.sha256(str(item["id"]).encode()).digest())
    done = {line["id"] for line in read_lines(out)} if out.exists() else set[str]()
    with out.open("a", encoding="utf-8") as file:
        for place, item in enumerate(wanted):
            if str(item["id"]) not in done:
                (one,) = score_labelled(gate, [item])
                line = {name: getattr(one, name) for name in ("id", "predicate", "q_bar", "q", "chunks", "alone")}
                file.write(json.dumps(line) + "\n")
                file.flush()
            yield place + 1


def read(items: Path, row: Path, side: Path) -> list[Read]:
    """The items that both readers scored."""
    known = {str(item["id"]): item for item in read_lines(items)}
    beside = {line["id"]: line for line in read_lines(side)}
    found: list[Read] = []
    for line in read_lines(row):
        if line["id"] not in beside or line["id"] not in known:
            continue
        item, other = known[line["id"]], beside[line["id"]]
        record = CalibrationRecord(
            line["id"],
            line["predicate"],
            line["q_bar"],
            int(item["label"]),
            text=line["id"],
            q=tuple(line["q"]),
            group=str(item["group"]),
            source=str(item["source"]),
            chunks=line["chunks"],
        )
        alone = other["q_bar"] if other["alone"] is None else other["alone"]
        whole, best = (math.log(q / (1 - q)) for q in (other["q_bar"], alone))
        weighed = 1 / (1 + math.exp((WEIGHT - 1) * whole - WEIGHT * best))
        beside_record = replace(record, q_bar=other["q_bar"], q=(other["q_bar"],), alone=alone)
        found.append(Read(item, record, weighed, other["q_bar"], beside_record))
    return found


def references(items: Sequence[Read], m: int) -> dict[str, CalibratedMixture]:
    """For each source the reference of a gate of m orders, calibrated with the other sources."""
    records = [replace(one.record, q_bar=float(np.mean(one.orders(m))), q=one.orders(m)) for one in items]
    gate = ISRGate(FixedScorer([0.5]), Oracle(1.0), orderings=Orderings(m=m))
    found: dict[str, CalibratedMixture] = {}
    for source in sorted({str(one.item["source"]) for one in items}):
        others = [record for record in records if record.source != source]
        found[source] = CalibratedMixture(calibrate(gate, others, targets=()))
    return found


def decisions(
    items: Sequence[Read],
    by_source: Mapping[str, CalibratedMixture],
    m: int,
    h_star: float,
    rule: Rule,
    *,
    cascade: bool = False,
) -> list[Decision | None]:
    """What gates of m orders decide; None where too few labels reach this target: a gate would be refused."""
    found: list[Decision | None] = []
    orderings = Orderings(m=m, cascade=cascade)
    for one in items:
        reference = by_source[str(one.item["source"])]
        if rule.convention == "safe" and (reference.ceiling(None) or 0.0) < 1.0 - h_star:
            found.append(None)
            continue
        gate = ISRGate(FixedScorer(one.orders(m)), reference, h_star=h_star, rule=rule, orderings=orderings)
        found += gate.decide_batch([texts_of(one.item) | {"evidence": one.item["evidence"]}])
    return found


def decided(found: _Decisions) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which decisions answer, and which only the orders held back; shape (items,) each."""
    answered = [one is not None and one.answered for one in found]
    held = [one is not None and one.reason is Reason.ORDER_SENSITIVE for one in found]
    return np.array(answered, dtype=np.bool_), np.array(held, dtype=np.bool_)


def by_default(items: Sequence[Read]) -> NDArray[np.float64]:
    """p_ref of each item read side by side, as by default, calibrated with the other sources; shape (items,)."""
    records = [one.beside for one in items]
    gate = ISRGate(FixedScorer([0.5], layout="late"), Oracle(1.0))
    return left_out(records, calibrate(gate, records, targets=()))


def _cascaded(
    items: Sequence[Read], reference: Mapping[str, CalibratedMixture], m: int, fixed: Mapping[float, _Decisions]
) -> Iterator[list[str]]:
    """What a cascade saves of the passes of gates of m orders, and what it changes of what they decide by h*."""
    for h_star, decided_fixed in fixed.items():
        early = decisions(items, reference, m, h_star, Rule(), cascade=True)
        pairs = [(a, b) for a, b in zip(decided_fixed, early, strict=True) if a is not None and b is not None]
        whole, spent = (sum(one.passes for one in some) for some in zip(*pairs, strict=True)) if pairs else (0, 0)
        other = sum(a.answered != b.answered for a, b in pairs)
        out = sum(b.answered for _, b in pairs)
        yield [f"{h_star:g}", str(len(pairs)), str(out), f"{spent / whole:.0%}" if whole else "", str(other)]


def report(items: Sequence[Read], ms: Sequence[int] = (1, 3, 6, 12), *, resamples: int = 1000) -> str:
    """Ranking and wrong answers in Markdown, with 95% intervals of the differences (bootstrap over passages).

    Of the `ms`, those are told that are scored.
    """
    ms = [m for m in ms if m <= max(len(one.record.q) for one in items)]
    label = np.array([one.record.label for one in items])
    group = [one.record.group for one in items]
    task = np.array([one.record.predicate for one in items])
    side, once = np.array([(one.side, one.once) for one in items]).T
    means = {m: np.array([np.mean(one.orders(m)) for one in items]) for m in ms}
    ranked = [("side by side", side), ("side by side, one pass", once)]
    ranked += [(f"in a row, mean of {m}", means[m]) for m in ms]
    ranked.append((f"in a row, lowest of {ms[-1]}", np.array([min(one.orders(ms[-1])) for one in items])))
    kind = np.unique(task, return_inverse=True)[1]
    names = [name for name in NAMES if (task == name).any()]
    rows: list[list[str]] = []
    for what, scores in ranked:
        cells = [what]
        for name in names:
            some = np.flatnonzero(task == name)
            own = [group[i] for i in some]
            arrays = scores[some], side[some], label[some]
            found = bootstrap_intervals({"difference": _auroc_gained}, *arrays, groups=own, resamples=resamples)
            gained = "" if scores is side else f" ({_signed(found['difference'], 3)})"
            cells.append(f"{auroc(scores[some], label[some]):.3f}{gained}")
        rows.append(cells)
    counts = [f"{NAMES[name]} ({(task == name).sum()})" for name in names]
    text = markdown_table(["AUROC (difference to side by side)", *counts], rows)
    lines: list[list[str]] = []
    by_m = {m: references(items, m) for m in ms}
    default = by_default(items)
    fixed: dict[float, _Decisions] = {}  # by the safe rule and the largest m, which a cascade is held against
    for h_star in H_STARS:
        out = default >= 1 - h_star - TOLERANCE
        wrong = str(int((out & (label == 0)).sum()))
        lines.append([f"{h_star:g}", "default", "side by side", str(int(out.sum())), wrong, "0", "", "", ""])
        for convention in ("safe", "paper"):
            for m in ms:
                made = decisions(items, by_m[m], m, h_star, Rule(convention=convention))
                if convention == "safe" and m == ms[-1]:
                    fixed[h_star] = made
                answered, held = decided(made)
                cells = [f"{h_star:g}", convention, str(m), str(int(answered.sum()))]
                cells += [str(int((answered & (label == 0)).sum())), str(int(held.sum()))]
                for other in (means[m], once, side):
                    pairs = answered, other, label, kind
                    found = bootstrap_intervals({"more": _more_wrong}, *pairs, groups=group, resamples=resamples)
                    cells.append(f"{_wrong_of_as_many(*pairs)} ({_signed(found['more'], 0)})")
                lines.append(cells)
    head = ["h\\*", "rule", "m", "answered", "wrong", "held back by order alone"]
    head += ["wrong of as many by the mean of m (gate less that)", "by one pass side by side (gate less that)"]
    head.append("by the default score (gate less that)")
    saved = ["h\\* (safe)", "decided", "answered", f"passes of m = {ms[-1]} in a cascade", "decisions that differ"]
    cascade = markdown_table(saved, list(_cascaded(items, by_m[ms[-1]], ms[-1], fixed)))
    return f"{text}\n\n{markdown_table(head, lines)}\n\n{cascade}\n"


def _auroc_gained(scores: Any, side: Any, label: Any) -> float:
    return auroc(scores, label) - auroc(side, label)


def _more_wrong(answered: Any, scores: Any, label: Any, task: Any) -> float:
    return float((answered & (label == 0)).sum()) - _wrong_of_as_many(answered, scores, label, task)


def _wrong_of_as_many(answered: Any, scores: Any, label: Any, task: Any) -> int:
    """Wrong ones among as many items, task by task, with the highest scores."""
    wrong = 0
    for one in np.unique(task):
        some = np.flatnonzero(task == one)
        best = some[np.argsort(-scores[some], kind="stable")][: int(answered[some].sum())]
        wrong += int((label[best] == 0).sum())
    return wrong


def _signed(found: Interval, digits: int) -> str:
    return f"{found.lower:+.{digits}f} to {found.upper:+.{digits}f}"


def main() -> None:
    """Score, or report."""
    from isr_rag.scorers.load import load_scorer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    scoring, telling = commands.add_parser("score"), commands.add_parser("report")
    for one in (scoring, telling):
        one.add_argument("items", type=Path)
    scoring.add_argument("--model", default="permuted")
    scoring.add_argument("--m", type=int, default=12)
    scoring.add_argument("--device", default="auto")
    scoring.add_argument("--limit", type=int)
    scoring.add_argument("--out", type=Path, required=True)
    telling.add_argument("row", type=Path)
    telling.add_argument("side", type=Path)
    given = parser.parse_args()
    if given.command == "report":
        print(report(read(given.items, given.row, given.side)))
        return
    gate = ISRGate(load_scorer(given.model, device=given.device), Oracle(1.0), orderings=Orderings(m=given.m))
    for done in score(gate, list(read_lines(given.items)), given.out):
        if done == given.limit:
            break


if __name__ == "__main__":
    main()
