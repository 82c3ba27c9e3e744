"""Calibrate any reader on labelled items, resumable, and put calibrated readers side by side."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_rag._util.files import sha256_of, write_atomically, write_json
from isr_rag._util.text import in_markdown
from isr_rag.calibration.card import calibration_card, card_text
from isr_rag.calibration.checks import FEW_OF_A_CLASS, REFUSED_OF_A_CLASS, refuse_duplicates
from isr_rag.calibration.errors import CalibrationCorruptError, CalibrationError, fitting_libraries
from isr_rag.calibration.records import CalibrationRecord
from isr_rag.core.settings import lowest_target
from isr_rag.gate import ISRGate
from isr_rag.gate.labelled import calibrate, check_labelled, score_labelled
from isr_rag.gate.reader import CALIBRATION, Reader
from isr_rag.io.items import BATCH
from isr_rag.io.journal import Journal
from isr_rag.io.run import ItemProgress

SCORES = "scores.jsonl"
RISKS = (0.05, 0.1, 0.2)
"""Shares of wrong answers at which coverage is compared."""
_SCORED = ("id", "predicate", "q_bar", "q", "chunks", "alone")


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

    The items are scored in a fixed random order. What was scored stays in `scores.part`, so a run that was stopped, or
    that had a `limit`, is continued by the next one. The folder gets `calibration.json`, `reader.json`, `card.md`,
    `card.json` and `scores.jsonl`. A predicate with fewer than 10 items of a class is left out, and with fewer than 50
    no threshold for `target` is looked for.

    Args:
        gate: whose scorer, orderings and number of words are to be calibrated; its reference is not asked.
        scorer: arguments of `isr_rag.scorers.load.load_scorer` that gave the gate's scorer.
        items: as for `isr_rag.gate.labelled.score_labelled`.
        out: the folder.
        limit: score so many items only, rounded up to whole batches of 16.
        target: (h*, delta) of the Learn-then-Test threshold.
        force: drop what a run with another gate or other items scored.
        progress: see `ItemProgress`.

    Returns:
        What the card says first: where it was measured, the cost, and the line that builds the gate.

    Raises:
        CalibrationError: if the items cannot carry a calibration; the message says why.
        OutputError: if the folder holds scores of another gate or other items.
        ISRError: as the gate's `decide`.
    """
    refuse_duplicates(str(item["id"]) for item in items)
    known = {str(item["id"]): (item, *text) for item, text in zip(items, check_labelled(items), strict=True)}
    order = sorted(items, key=lambda item: hashlib.sha256(str(item["id"]).encode()).digest())
    wanted = order[: len(order) if limit is None else BATCH * math.ceil(limit / BATCH)]
    content = hashlib.sha256(json.dumps(order, default=repr).encode()).hexdigest()
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
        rows = list(journal.records())[: len(wanted)]
    records: list[CalibrationRecord] = []
    for row in rows:
        item, text, evidence = known[row["id"]]
        named = {name: str(item[name]) for name in ("group", "source") if item.get(name) is not None}
        scored = {name: row[name] for name in _SCORED} | {"q": tuple(row["q"])}
        records.append(
            CalibrationRecord(**scored, label=int(item["label"]), text=text, language=" ".join(evidence), **named)
        )
    by_predicate = {
        name: [r for r in records if r.predicate == name] for name in sorted({r.predicate for r in records})
    }
    fewest = {name: min(sum(r.label == label for r in own) for label in (0, 1)) for name, own in by_predicate.items()}
    enough = [name for name, count in fewest.items() if count >= REFUSED_OF_A_CLASS]
    if not enough:
        raise CalibrationError(f"no predicate has {REFUSED_OF_A_CLASS} items of each class: score or label more")
    few = min(fewest[name] for name in enough) < FEW_OF_A_CLASS
    artefact = calibrate(gate, [r for r in records if r.predicate in enough], targets=() if few else (target,))
    kinds = {name: str(item["kind"]) for name, (item, *_) in known.items() if item.get("kind") is not None}
    cards: dict[str, Any] = {}
    scores: dict[str, float] = {}
    for name in enough:
        part = artefact.predicates[name]
        own = [part.score(record.q_bar, record.alone) for record in by_predicate[name]]
        cards[name] = calibration_card(by_predicate[name], own, kinds=kinds)
        reasons = [threshold.reason for one in part.bins for threshold in one.thresholds]
        cards[name]["thresholds"] = list(dict.fromkeys(reasons))  # with and without the gate's rule, often the same
        scores |= {f"{name} {record.id}": score for record, score in zip(by_predicate[name], own, strict=True)}
    lines = [
        {
            "id": record.id,
            "predicate": record.predicate,
            "label": record.label,
            "group": record.group or record.id,
            "score": scores[f"{record.predicate} {record.id}"],
            "seconds": row["seconds"],
        }
        for record, row in zip(records, rows, strict=True)
        if record.predicate in enough
    ]
    write_atomically(out / SCORES, (json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    artefact.save(out / CALIBRATION)
    settings = gate.settings
    reader = Reader(scorer, settings.orderings, settings.max_words, artefact.sha256, sha256_of(out / SCORES))
    reader.save(out)
    head = _head(gate, rows, out, max(artefact.predicates[name].ceiling() for name in enough))
    left = "".join(f"\nLeft out, with too few items of a class: {name}." for name in fewest if name not in enough)
    write_json(out / "card.json", {"scorer": gate.scorer.identity, "predicates": cards})
    texts = (
        card_text(card, name) + "".join(f"\n{in_markdown(reason)}\n" for reason in card["thresholds"])
        for name, card in cards.items()
    )
    write_atomically(
        out / "card.md", "\n".join([f"# {in_markdown(gate.scorer.identity)}\n", head + left + "\n", *texts])
    )
    return head + left


def _tokens(gate: ISRGate) -> int:
    """Tokens that a server has read so far; 0 for a scorer that does not count them."""
    return int(getattr(gate.scorer, "prompt_tokens", 0))


def _head(gate: ISRGate, rows: Sequence[Mapping[str, Any]], out: Path, highest: float) -> str:
    seconds, passes, tokens = (
        float(np.mean(values))
        for values in ([r["seconds"] for r in rows], [len(r["q"]) for r in rows], [r["tokens"] for r in rows])
    )
    cost = f"{len(rows)} items; {seconds:.3g} s and {passes:.3g} orderings a decision, in batches of {BATCH}"
    if tokens:
        cost += f"; 1,000 decisions send {1000 * tokens:,.0f} tokens and get {1000 * passes:,.0f} back"
    if highest <= 0.0:
        return f"{cost}.\nIt ranks too badly to answer anything at any h*: there is no gate to build."
    lowest = lowest_target(highest)
    target = "" if lowest <= 0.05 else f", h_star={lowest:g}"
    return f'{cost}. It reaches h* down to {lowest:g}.\nISRGate.load("{out}"{target})'


def compare_readers(folders: Sequence[Path], out: Path | None = None, *, resamples: int = 1000) -> str:
    """Put calibrated readers side by side, on the items that all of them scored.

    Coverage at a risk is the largest share of items answered of which at most so many are wrong, with the threshold
    chosen on these very items, which flatters every reader alike. Intervals: 95%, percentile bootstrap over groups, the
    same resamples for all readers.

    Args:
        folders: of `calibrate_reader`, two at least; a reader is called by the name of its folder.
        out: folder for `compare.md` and `compare.png`; None: nothing is written.
        resamples: bootstrap resamples.

    Returns:
        A table in Markdown.

    Raises:
        ModelNotFoundError: if a folder lacks a file.
        CalibrationCorruptError: if a file was altered.
        CalibrationError: if readers have no items in common, or differ in an item's label.
    """
    by_reader = {folder.name or str(folder): _scores_of(folder) for folder in folders}
    if len(by_reader) < len(folders):
        raise CalibrationError("two of these folders have the same name, and could not be told apart")
    common = set.intersection(*(set(rows) for rows in by_reader.values()))
    if not common:
        raise CalibrationError("these readers have no labelled item in common")
    heads = " | ".join(f"coverage at {risk:.0%} risk" for risk in RISKS)
    lines = [f"| reader | predicate | items | AUROC | {heads} | s a decision |", "|---" * (len(RISKS) + 5) + "|"]
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for predicate in sorted({name for name, _ in common}):
        keys = sorted(key for key in common if key[0] == predicate)
        first = next(iter(by_reader.values()))
        labels = np.array([first[key]["label"] == 1 for key in keys])
        _, owner = np.unique([first[key]["group"] for key in keys], return_inverse=True)
        members = [np.flatnonzero(owner == group) for group in range(owner.max() + 1)]
        rng = np.random.default_rng(0)
        drawn = [
            np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))]) for _ in range(resamples)
        ]
        for name, rows in by_reader.items():
            if any((rows[key]["label"] == 1) != label for key, label in zip(keys, labels, strict=True)):
                raise CalibrationError("these readers were calibrated on items with different labels")
            scores = np.array([rows[key]["score"] for key in keys])
            spread = np.nanpercentile([_figures(scores[some], labels[some]) for some in drawn], [2.5, 97.5], axis=0)
            figures = np.vstack([_figures(scores, labels), spread])
            found.setdefault(predicate, {})[name] = figures[:, 1:]
            cells = " | ".join(f"{best:.3f} [{low:.3f}, {high:.3f}]" for best, low, high in figures.T)
            seconds = np.mean([rows[key]["seconds"] for key in keys])
            lines.append(f"| {in_markdown(name)} | {predicate} | {len(keys)} | {cells} | {seconds:.3g} |")
    table = "\n".join(lines) + "\n"
    if out is not None:
        write_atomically(out / "compare.png", _plot(found))
        write_atomically(out / "compare.md", f"{table}\n![Coverage at equal risk](compare.png)\n")
    return table


def _scores_of(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    reader, _ = Reader.load(folder)
    path = folder / SCORES
    if not path.is_file() or sha256_of(path) != reader.scores:
        raise CalibrationCorruptError(f"{path} is missing or was altered: make it anew with `isr-rag calibrate`")
    rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    return {(row["predicate"], row["id"]): row for row in rows}


def _figures(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> list[float]:
    """AUROC, and the coverage at each of `RISKS`; ties are answered together. NaN where a class is missing."""
    if labels.all() or not labels.any():
        return [np.nan] * (1 + len(RISKS))
    above = scores[labels][:, None] - scores[~labels]
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0.0, True))
    risk = np.cumsum(~labels[order])[ends] / (ends + 1)
    covered = (ends + 1) / len(scores)
    return [float((np.sign(above).mean() + 1.0) / 2.0), *(float(max(covered[risk <= r], default=0.0)) for r in RISKS)]


def _plot(found: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> bytes:
    with fitting_libraries():
        from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(found) + 1.2, 3.8), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(found), sharey=True))
    for axes, (predicate, readers) in zip(panels, found.items(), strict=True):
        for n, (name, (best, low, high)) in enumerate(readers.items()):
            x = np.arange(len(RISKS)) + 0.7 * ((n + 0.5) / len(readers) - 0.5)
            spread = np.maximum([best - low, high - best], 0.0)
            axes.errorbar(x, best, yerr=spread, fmt="osD^vPX"[n % 7], capsize=2.5, label=name)
        axes.set_xticks(range(len(RISKS)), [f"{risk:.0%}" for risk in RISKS])
        axes.set(title=predicate, xlabel="share wrong among the answered", ylim=(-0.02, 1.02))
        axes.grid(True, axis="y", color="#DDDDDD")
    panels[0].set_ylabel("coverage: share of items answered")
    panels[-1].legend(loc="upper left", fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    return buffer.getvalue()
