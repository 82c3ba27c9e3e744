"""What a calibration is worth on items that nothing was chosen on: coverage and risk, as a card shows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from isr_lab.metrics import wilson_interval
from isr_lab.training.card import table
from isr_rag.calibration import CalibrationArtefact, CalibrationRecord, Guarantee, PredicateCalibration, TrainingHashes
from isr_rag.gate.labelled import item_key

GUARANTEES: tuple[Guarantee, ...] = ("selective", "pointwise")
_BINS = ((1, 1), (2, 2), (3, 6), (7, 12), (13, 20), (21, 10_000))
TARGETS = (0.05, 0.1, 0.2)
"""Target rates that risk and coverage are reported for."""
SHARES = (0.1, 0.3, 0.5, 0.7)
"""Shares of supported cases that they are reported at."""
TASKS = {"supported-claim/1": "claim", "supported-answer/1": "draft", "sufficient/1": "sufficiency"}

Row = dict[str, float]


def p_refs(artefact: CalibrationArtefact, records: Sequence[CalibrationRecord], guarantee: Guarantee) -> list[float]:
    """p_ref of each record as the shipped reference gives it; 0 outside of the calibrated numbers of chunks."""
    known: dict[tuple[str, int], Callable[[float], float]] = {}
    found: list[float] = []
    for record in records:
        fitted = artefact.predicates[record.predicate]
        part = fitted.bin(record.chunks or 1)
        if part is None:
            found.append(0.0)
            continue
        key = (record.predicate, part.first)
        if key not in known:
            known[key] = part.tail.steps().at if guarantee == "selective" else part.calibrator.lower
        found.append(known[key](fitted.score(record.q_bar, record.alone)))
    return found


def answered_and_wrong(p_ref: Sequence[float], labels: Sequence[int], h_star: float) -> Row:
    """Counts, coverage of the supported, risk among the answered with its 95% Wilson interval."""
    y = np.asarray(labels)
    answered = np.asarray(p_ref) >= 1.0 - h_star - 1e-9
    count, wrong = int(answered.sum()), int((answered & (y == 0)).sum())
    supported = int(y.sum())
    found: Row = {"items": float(len(y)), "answered": float(count), "wrong": float(wrong)}
    if supported:
        found["coverage"] = float((answered & (y == 1)).sum() / supported)
    if supported < len(y):
        found["false_answered"] = float(wrong / (len(y) - supported))
    if count:
        risk = wilson_interval(wrong, count)
        found |= {"risk": risk.estimate, "low": risk.lower, "high": risk.upper}
    return found


def gate_figures(
    records: Sequence[CalibrationRecord], artefact: CalibrationArtefact
) -> dict[str, dict[str, dict[str, Row]]]:
    """What the gate with its calibration does on labelled items.

    The layout is invariant to order, so the gate answers where p_ref reaches `1 - h_star`.

    Returns:
        part -> guarantee -> h_star -> counts, coverage of supported items, risk and its Wilson interval. Parts are
        tasks, tasks by source, and tasks by number of chunks.
    """
    parts: dict[str, list[int]] = {}
    for row, record in enumerate(records):
        task = TASKS.get(record.predicate, record.predicate)
        low, high = next(bounds for bounds in _BINS if bounds[0] <= (record.chunks or 1) <= bounds[1])
        for name in (task, f"{task}, {record.source}", f"{task}, {_range(low, high)} chunks"):
            parts.setdefault(name, []).append(row)
    labels = np.array([record.label for record in records])
    found: dict[str, dict[str, dict[str, Row]]] = {name: {} for name in sorted(parts)}
    for guarantee in GUARANTEES:
        values = np.asarray(p_refs(artefact, records, guarantee))
        for name, rows in parts.items():
            found[name][guarantee] = {
                f"{h_star:g}": answered_and_wrong(values[rows].tolist(), labels[rows].tolist(), h_star)
                for h_star in TARGETS
            }
    return found


def trust_parts(
    artefact: CalibrationArtefact, tested: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Row]]]]
) -> list[str]:
    """Paragraphs of a card: what was fitted, what it answers on new items, and what another base rate changes.

    Args:
        artefact: the calibration.
        tested: `gate_figures` of each set of items, by the set's name.
    """
    return [
        "## Calibration",
        "One score per case; p_ref by predicate and number of chunks. `selective`: on average over calibrations, of "
        "what is answered at most h* is wrong, a calibration that answers nothing counting as never wrong. "
        "`pointwise`: of cases about as sure as each answered one 1 - h* must hold. Outside of these numbers of "
        f"chunks, and in other languages than {', '.join(artefact.fingerprint.languages) or 'any known'}, the gate "
        "abstains.",
        _fitted_table(artefact),
        "Thresholds on the score (`selective`):",
        _cuts_table(artefact),
        "## The gate on items that nothing was chosen on",
        *(part for name, figures in tested.items() for part in (f"### {name}", _gate_table(figures))),
        "## Other base rates",
        "With the shipped thresholds (`selective`), by the share of supported cases among those to decide; one error "
        "is counted beyond those seen. State your own share as `prevalence=`, and the thresholds move with it.",
        _share_table(artefact),
    ]


def training_hashes(paths: Iterable[Path]) -> TrainingHashes:
    """Hashes of ids and of judged texts with their evidence, of all items in these files."""
    return TrainingHashes.of(text for path in paths for text in _identities(path))


def _identities(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            item = json.loads(line)
            query = item.get("claim") or " ".join(part for part in (item["question"], item.get("answer")) if part)
            yield item["id"]
            yield item_key(query, [chunk["text"] for chunk in item["chunks"]])


def _range(low: int, high: int | None) -> str:
    return str(low) if low == high else f"{low} to {high}" if high is not None and high < 10_000 else f"{low} or more"


def _fitted_table(artefact: CalibrationArtefact) -> str:
    rows: list[tuple[str, ...]] = [
        ("predicate", "chunks", "supported", "not", "lowest h* reached: selective", "pointwise")
    ]
    for name, fitted in artefact.predicates.items():
        for part in fitted.bins:
            counts = (str(len(part.tail.true)), str(len(part.tail.false)))
            selective, pointwise = 1.0 - part.tail.steps().ceiling, 1.0 - part.calibrator.lower(1.0)
            rows.append((name, _range(part.first, part.last), *counts, f"{selective:.3f}", f"{pointwise:.3f}"))
        for loop in fitted.loops:
            kind = f"loop of {loop.rounds} rounds ({loop.retriever})"
            rows.append((name, kind, str(loop.cases), "", f"{1.0 - loop.steps.ceiling:.3f}", ""))
    return table(rows)


_AT = (0.05, 0.1, 0.2)


def _cuts_table(artefact: CalibrationArtefact) -> str:
    rows: list[tuple[str, ...]] = [("predicate", "chunks", "h* = 0.05", "h* = 0.1", "h* = 0.2")]
    for name, fitted in artefact.predicates.items():
        for part in fitted.bins:
            steps = part.tail.steps()
            rows.append((name, _range(part.first, part.last), *(_shown(steps.threshold(1.0 - h)) for h in _AT)))
    return table(rows)


def _shown(threshold: float | None) -> str:
    return "none" if threshold is None else f"{threshold:.4f}"


def _gate_table(figures: Mapping[str, Mapping[str, Mapping[str, Row]]]) -> str:
    rows: list[tuple[str, ...]] = [
        ("part", "guarantee", "h*", "items", "answered", "wrong", "supported answered", "risk (95% Wilson)")
    ]
    for name, guarantees in figures.items():
        for guarantee, targets in guarantees.items():
            if guarantee == "pointwise" and "," in name:
                continue
            for h_star, found in targets.items():
                risk = f"{found['risk']:.3f} ({found['low']:.3f} to {found['high']:.3f})" if "risk" in found else ""
                coverage = f"{found['coverage']:.3f}" if "coverage" in found else ""
                counts = tuple(f"{found[key]:.0f}" for key in ("items", "answered", "wrong"))
                rows.append((name, guarantee, h_star, *counts, coverage, risk))
    return table(rows)


def _share_table(artefact: CalibrationArtefact) -> str:
    rows: list[tuple[str, ...]] = [("predicate", "h*", *(f"{share:.0%} supported" for share in SHARES))]
    for name, fitted in artefact.predicates.items():
        for h_star in TARGETS:
            found = [risk_and_coverage(fitted, h_star, share) for share in SHARES]
            told = ("-" if one is None else f"risk {one[0]:.3f}, answered {one[1]:.3f}" for one in found)
            rows.append((name, f"{h_star:g}", *told))
    return table(rows)


def risk_and_coverage(fitted: PredicateCalibration, h_star: float, share: float) -> tuple[float, float] | None:
    """Risk and coverage at h* where the share of supported cases is not that of the labelled items.

    Args:
        fitted: the calibration of a predicate.
        h_star: target rate.
        share: the true share of supported cases, in (0, 1).

    Returns:
        Share of errors among the answered, with one error counted beyond those seen, and the share of all cases
        answered; None if no score is answered.
    """
    true = false = 0
    for part in fitted.bins:
        threshold = part.tail.steps().threshold(1.0 - h_star)
        if threshold is not None:
            above = part.tail.counts(threshold)
            true, false = true + int(above[0]), false + int(above[1])
    if not true + false:
        return None
    right, wrong = share * true / fitted.n_true, (1.0 - share) * (false + 1) / (fitted.n_false + 1)
    return wrong / (right + wrong), share * true / fitted.n_true + (1.0 - share) * false / fitted.n_false
