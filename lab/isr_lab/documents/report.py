"""What the calibrations that ship answer, and how much of it is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_lab.documents.shipping import SEARCH, TASKS, Scored, loop_records
from isr_lab.documents.traffic import EMBEDDED_ID
from isr_lab.loops import with_loops
from isr_lab.metrics import auroc, bootstrap_intervals
from isr_lab.tables import markdown_table
from isr_rag.calibration import CalibrationArtefact, CalibrationRecord, FitSettings, fit_artefact
from isr_rag.calibration.artefact import MIN_ERRORS
from isr_rag.calibration.card import H_STARS, calibration_card, card_text
from isr_rag.core.bounds import TOLERANCE


def p_refs(records: Sequence[CalibrationRecord], artefact: CalibrationArtefact) -> NDArray[np.float64]:
    """p_ref of each record as the gate's reference gives it, shape (n,); 0 outside of what was calibrated."""
    steps = {
        (predicate, part.first): part.tail.steps().at_most(fitted.ceiling(min_errors=MIN_ERRORS))
        for predicate, fitted in artefact.predicates.items()
        for part in fitted.bins
    }
    found = np.zeros(len(records))
    for place, record in enumerate(records):
        fitted = artefact.predicates[record.predicate]
        if (part := fitted.bin(record.chunks or 1)) is not None:
            found[place] = steps[record.predicate, part.first].at(fitted.score(record.q_bar, record.alone))
    return found


def left_out(records: Sequence[CalibrationRecord], artefact: CalibrationArtefact) -> NDArray[np.float64]:
    """p_ref of each record by a calibration with the other sources, shape (n,)."""
    source = np.array([record.source for record in records])
    found = np.zeros(len(records))
    for name in np.unique(source):
        rows = np.flatnonzero(source == name)
        found[rows] = p_refs([records[int(row)] for row in rows], _without(name, records, artefact))
    return found


def _without(source: str, records: Sequence[CalibrationRecord], artefact: CalibrationArtefact) -> CalibrationArtefact:
    """A calibration with the other sources, for the gate of the given one."""
    others = [record for record in records if record.source != source]
    plain = FitSettings(targets=())
    return fit_artefact(others, fingerprint=artefact.fingerprint, created_by="", settings=plain)


def report(scored: Mapping[str, Scored], fitted: Mapping[str, CalibrationArtefact]) -> str:
    """What the calibrations answer and how much of it is wrong, in Markdown."""
    parts = [
        "# The shipped calibrations",
        "What the calibrations that come with the judge are worth on the items that they are fitted on "
        "(`scores.jsonl.gz`). In the tables right under `calibration` and `adversarial` each collection is judged by a "
        "calibration with the others; no weight, threshold or setting was chosen on those of `test`. "
        "Brackets: 95% bootstrap over passages.",
    ]
    for name in ("calibration", "adversarial"):
        own, artefact = scored[name], fitted[name]
        p_ref = left_out(own.records, artefact)
        parts += [f"## {name}", *_answered(own, artefact, p_ref)]
        if name == "calibration":
            parts.append(_by("search", _searches(own.records), own.records, p_ref))
        for predicate in TASKS:
            some = [record for record in own.records if record.predicate == predicate]
            scores = _scores(some, artefact)
            parts.append(
                "#" + card_text(calibration_card(some, scores, kinds=own.kinds), f"{name}: {TASKS[predicate]}")
            )
    own, artefact = scored["test"], fitted["calibration"]
    parts += ["## loops", *_loops(scored["calibration"].records, scored["loops"].records, artefact)]
    p_ref = p_refs(own.records, artefact)
    parts += ["## test", *_answered(own, artefact, p_ref)]
    parts.append(_by("search", _searches(own.records), own.records, p_ref))
    parts.append(_by("collection", [record.source or "" for record in own.records], own.records, p_ref))
    parts += ["## checklist", *_checklist(scored["checklist"], fitted["calibration"])]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _answered(own: Scored, artefact: CalibrationArtefact, p_ref: NDArray[np.float64]) -> Iterator[str]:
    """Coverage, wrong answers and ranking of each task, and of each kind of false case."""
    kind = np.array([own.kinds[record.id] for record in own.records])
    answered, ranked = [], []
    for predicate, task in TASKS.items():
        rows = np.array([record.predicate == predicate for record in own.records])
        some = [record for record in own.records if record.predicate == predicate]
        label, group = np.array([record.label for record in some]), [record.group for record in some]
        for h_star in H_STARS:
            out = p_ref[rows] >= 1 - h_star - TOLERANCE
            wrong, right = int((out & (label == 0)).sum()), int((out & (label == 1)).sum())
            rate = "none"
            if out.any():
                names = [name for name, goes in zip(group, out, strict=True) if goes]
                mean = bootstrap_intervals({"rate": _mean}, 1 - label[out], groups=names)["rate"]
                rate = f"{wrong} ({mean.lower:.0%} to {mean.upper:.0%})"
            counts = f"{wrong + right:,} of {len(some):,}"
            answered.append((task, f"{h_star:g}", counts, rate, f"{right / label.sum():.0%}"))
        scores = np.array(_scores(some, artefact))
        for one in ("all", *sorted(set(kind[rows][label == 0].tolist()))):
            false = (label == 0) & ((kind[rows] == one) | (one == "all"))
            against = false | (label == 1)
            wrong_by = [str(int((p_ref[rows][false] >= 1 - h_star - TOLERANCE).sum())) for h_star in H_STARS]
            area = f"{auroc(scores[against], label[against]):.3f}"
            ranked.append((task, one, str(int(false.sum())), area, " / ".join(wrong_by)))
    yield markdown_table(["asked", "h\\*", "answered", "of these wrong", "of supported answered"], answered)
    heads = " / ".join(f"{h_star:g}" for h_star in H_STARS)
    yield markdown_table(["asked", "false cases", "items", "AUROC against true ones", f"answered at {heads}"], ranked)


def _loops(
    singles: Sequence[CalibrationRecord], rounds: Sequence[CalibrationRecord], artefact: CalibrationArtefact
) -> Iterator[str]:
    """What loops of two rounds answer by a calibration of whole loops, and with h* split over the rounds."""
    source = {record.id.rpartition("@")[0]: record.source or "" for record in rounds}
    loops = loop_records(rounds)
    right: dict[tuple[str, float, str], list[int]] = {}  # the label of each round that answers
    for name in sorted({*source.values()}):
        single = _without(name, singles, artefact)
        whole = with_loops(single, [loop for loop in loops if source[loop.id] != name]).predicates
        own = [record for record in rounds if record.source == name]
        p_ref = dict(zip([record.id for record in own], p_refs(own, single).tolist(), strict=True))
        for loop in (loop for loop in loops if source[loop.id] == name):
            fitted = whole[loop.predicate]
            alone = [p_ref[f"{loop.id}@{n}"] for n in range(len(loop.labels))]
            joint = [
                min(p, calibrated.steps.at(fitted.score(q, close)))
                for p, q, close in zip(alone, loop.q_bar, loop.alone, strict=True)
                for calibrated in fitted.loops
            ]
            for h_star in H_STARS:
                for way, values, share in (("whole", joint, h_star), ("split", alone, h_star / len(alone))):
                    answers = right.setdefault((loop.predicate, h_star, way), [])
                    reached = [y for y, p in zip(loop.labels, values, strict=True) if p >= 1 - share - TOLERANCE]
                    answers += reached[:1]
    rows: list[tuple[str, ...]] = []
    for predicate, task in TASKS.items():
        labels = [loop.labels for loop in loops if loop.predicate == predicate]
        for h_star in H_STARS:
            out = [right[predicate, h_star, way] for way in ("whole", "split")]
            counts = (f"{len(one)}, {len(one) - sum(one)}" for one in out)
            rows.append((task, f"{h_star:g}", str(len(labels)), str(sum(map(any, labels))), *counts))
    yield f"Two rounds: {SEARCH}. Each collection is judged by a calibration with the others."
    ways = (f"{way}: answered, wrong" for way in ("calibrated whole", "h\\* split"))
    yield markdown_table(["asked", "h\\*", "loops", "carried by the end", *ways], rows)


def _searches(records: Sequence[CalibrationRecord]) -> list[str]:
    return ["embeddings" if record.id.endswith(EMBEDDED_ID) else "BM25" for record in records]


def _by(what: str, names: Sequence[str], records: Sequence[CalibrationRecord], p_ref: NDArray[np.float64]) -> str:
    """What is answered of the records of each name, all tasks together, and how much of it is wrong."""
    label = np.array([record.label for record in records])
    rows: list[tuple[str, ...]] = []
    for name in np.unique(names):
        own = np.array(names) == name
        out = [own & (p_ref >= 1 - h_star - TOLERANCE) for h_star in H_STARS]
        counts = (f"{some.sum()}, {(some & (label == 0)).sum()}" for some in out)
        rows.append((str(name), str(own.sum()), str(label[own].sum()), *counts))
    heads = (f"answered, wrong at h\\* {h_star:g}" for h_star in H_STARS)
    return markdown_table([what, "items", "supported", *heads], rows)


def _checklist(own: Scored, artefact: CalibrationArtefact) -> Iterator[str]:
    """Pairs ranked right by kind, and what the shipped calibration answers."""
    scores = dict(zip([r.id for r in own.records], _scores(own.records, artefact), strict=True))
    pairs: dict[str, dict[int, CalibrationRecord]] = {}
    for record in own.records:
        pairs.setdefault(record.group or record.id, {})[record.label] = record
    won: dict[str, list[float]] = {}
    for pair in pairs.values():
        kind, grade = own.kinds[pair[1].id].split("/")
        right = 0.5 + 0.5 * float(np.sign(scores[pair[1].id] - scores[pair[0].id]))
        for name in ("all", *(["the easiest"] if grade == "easy" else []), kind):
            won.setdefault(name, []).append(right)
    ranked = [(name, str(len(found)), f"{np.mean(found):.2f}") for name, found in sorted(won.items())]
    yield markdown_table(["pairs", "number", "true one ranked above the false one"], ranked)
    rows: list[tuple[str, ...]] = []
    for predicate in artefact.predicates:
        for label, name in ((1, "true"), (0, "false")):
            some = [record for record in own.records if record.predicate == predicate and record.label == label]
            p_ref = p_refs(some, artefact)
            counts = [str(sum(p >= 1 - h_star - TOLERANCE for p in p_ref)) for h_star in H_STARS]
            rows.append((TASKS[predicate], name, str(len(some)), *counts))
    yield markdown_table(["answered", "", "items", *(f"h\\* {h_star:g}" for h_star in H_STARS)], rows)


def _scores(records: Sequence[CalibrationRecord], artefact: CalibrationArtefact) -> list[float]:
    return [artefact.predicates[record.predicate].score(record.q_bar, record.alone) for record in records]


def _mean(values: Any) -> float:
    return float(np.mean(values))
