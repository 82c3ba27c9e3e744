"""From a trained adapter to what the package ships: description, calibration, figures, model card."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from isr_lab.loops import LoopRecord, with_loops
from isr_lab.slice.asking import predicate
from isr_lab.slice.reading import read_items
from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_lab.training.card import table, write_card
from isr_lab.training.evaluate import ScoredItem, evaluate, summary
from isr_lab.training.network import write_description
from isr_lab.training.trust import TARGETS, gate_figures, training_hashes, trust_parts
from isr_rag import __version__
from isr_rag._util.files import write_json
from isr_rag.calibration import (
    CalibrationArtefact,
    CalibrationRecord,
    Fingerprint,
    FitSettings,
    TrainingHashes,
    fit_artefact,
)
from isr_rag.core.scorer import Layout, Scorer
from isr_rag.gate.labelled import item_key
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.scorers.embedded import FOCUS_WORDS, embedded_scorer, model_directory
from isr_rag.scorers.local.adapter import CONFIG, WEIGHTS
from isr_rag.scorers.local.obtaining import ShowLine

DELTA = 0.1
"""Probability that a Learn-then-Test threshold may fail with."""
TRAINED = "trained.u64"
"""File of the hashes of what an adapter was trained on."""
FEW, MANY = 3, 20
"""Chunks that the same support is among when distractor drift is measured."""


@dataclass(frozen=True, slots=True)
class Held:
    """Files of items that training has not seen.

    Attributes:
        validation: what the calibration is fitted on.
        test: the slice's test split.
        unseen: items of sources that training never saw.
        each: most validation items of every task and source.
        tested: most items of the test split; half as many of the unseen sources.
    """

    validation: tuple[Path, ...]
    test: tuple[Path, ...]
    unseen: tuple[Path, ...] = ()
    each: int = 150
    tested: int = 1600


def ship(
    run: Path,
    held: Held,
    work: Path,
    *,
    trained_on: Sequence[Path] = (),
    notes: Sequence[str] = (),
    out: Path | None = None,
    report: ShowLine = lambda line: None,
) -> Path:
    """Copy a run's adapter into the package, calibrate it, measure it and write its model card.

    Scores are kept in `work`, so a stopped call resumes; they belong to one adapter, and another
    run needs another folder.

    Args:
        run: folder of the training run.
        held: what to calibrate and to test on.
        work: folder for scores and figures.
        trained_on: the training files, for the card's table of licences.
        notes: further paragraphs of the card.
        out: where the package keeps its adapter; another folder to try one out with `embedded_scorer(folder)`.
        report: told each step in words.

    Returns:
        The card's path.

    Raises:
        InvalidInputError: for a line that is not an item.
        CalibrationError: if the validation items do not suffice for a calibration.
    """
    out = out if out is not None else STANDARD.directory
    layout: Layout = json.loads((run / "settings.json").read_text("utf-8"))["layout"]
    describe(run / "adapter", out, layout, model_directory())
    scorer = embedded_scorer(out)
    scored = scored_by(scorer, list(read_items(*held.validation)), work / "validation.jsonl", each=held.each)
    report(f"scored {len(scored.scores)} validation items")
    training = training_hashes(trained_on)
    training.save(out / TRAINED)
    fitted = calibrate(scored, scorer.identity, out, training=training)
    test = scored_by(scorer, list(read_items(*held.test)), work / "test.jsonl", most=held.tested)
    report(f"scored {len(test.scores)} test items")
    tested = {"Test split of the Factuality Slice": test}
    if held.unseen:
        unseen = scored_by(scorer, list(read_items(*held.unseen)), work / "unseen.jsonl", most=held.tested // 2)
        tested["Sources that training never saw"] = unseen
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name, part in tested.items():
        results[name] = summary(part.scores)
        results[f"{name}, calibrated"] = summary(part.calibrated(fitted))
    drift = distractor_drift(scorer, test.items, work)
    report("measured distractor drift")
    gate = {name: gate_figures(part.records(), fitted) for name, part in tested.items()}
    write_json(work / "figures.json", {"results": results, "drift": drift, "gate": gate})
    parts = [
        *trust_parts(fitted, gate),
        *_drift_part(drift),
        *notes,
        *_licences_part(trained_on),
    ]
    card = write_card(run, results, parts)
    for name in ("README.md", "curve.png"):
        shutil.copyfile(card.parent / name, out / name)
    return out / "README.md"


def describe(trained: Path, out: Path, layout: Layout, base: Path) -> None:
    """Copy an adapter's two files and write the description that ties them to their base model.

    Args:
        trained: folder of the adapter, as training wrote it.
        out: folder the package ships.
        layout: how the adapter sees the evidence.
        base: folder of the converted base model.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in (WEIGHTS, CONFIG):
        shutil.copyfile(trained / name, out / name)
    config = json.loads((out / CONFIG).read_text("utf-8"))
    config["base_model_name_or_path"] = base.name
    (out / CONFIG).write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    write_description(out, layout, base)


def chosen(items: Iterable[SliceItem], *, each: int | None = None, most: int | None = None) -> list[SliceItem]:
    """Up to about `each` items of every task and source, `most` in all; whole groups, drawn by a fixed seed.

    Items of one group mostly ask about the same evidence, which a scorer computes once where they are together.
    """
    groups: dict[str, list[SliceItem]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.id):
        groups[item.group].append(item)
    names = sorted(groups)
    random.Random(0).shuffle(names)
    counts: Counter[tuple[str, str]] = Counter()
    drawn: list[SliceItem] = []
    for name in names:
        wanted = [item for item in groups[name] if each is None or counts[item.task, item.source] < each]
        counts.update((item.task, item.source) for item in wanted)
        drawn.extend(wanted)
        if most is not None and len(drawn) >= most:
            return drawn[:most]
    return drawn


@dataclass(frozen=True, slots=True)
class Scored:
    """Items of one purpose with their scores."""

    items: tuple[SliceItem, ...]
    scores: tuple[ScoredItem, ...]

    def records(self) -> list[CalibrationRecord]:
        """As the calibration takes them."""
        return [
            CalibrationRecord(
                id=item.id,
                predicate=score.template,
                q_bar=score.q,
                label=score.label,
                group=item.group,
                text=item_key(predicate(item).query, [chunk.text for chunk in item.chunks]),
                q=(score.q,),
                source=item.source,
                chunks=score.n,
                language=" ".join(chunk.text for chunk in item.chunks),
                alone=score.alone,
            )
            for item, score in zip(self.items, self.scores, strict=True)
        ]

    def calibrated(self, artefact: CalibrationArtefact) -> list[ScoredItem]:
        """The scores with the calibrated mean probability in place of q."""
        found: list[ScoredItem] = []
        for score, record in zip(self.scores, self.records(), strict=True):
            fitted = artefact.predicates[record.predicate]
            part = fitted.bin(score.n)
            calibrator = (part or fitted.bins[-1]).calibrator
            mean = calibrator.mean([fitted.score(record.q_bar, record.alone)])
            found.append(replace(score, q=float(mean[0])))
        return found


def scored_by(
    scorer: Scorer, items: Iterable[SliceItem], out: Path, *, each: int | None = None, most: int | None = None
) -> Scored:
    """Score a choice of items; what `out` holds already is not scored again."""
    wanted = chosen(items, each=each, most=most)
    scores = evaluate(scorer, wanted, out, chunks=lambda item: len(item.chunks), alone=True)
    return Scored(tuple(wanted), tuple(scores))


def calibrate(
    scored: Scored,
    identity: str,
    out: Path,
    *,
    training: TrainingHashes | None = None,
    loops: Sequence[LoopRecord] = (),
    retriever: str = "",
) -> CalibrationArtefact:
    """Fit and save the calibration that `ISRGate()` uses: one calibrator a predicate, for any m (one pass decides).

    Args:
        scored: validation items, which training has not seen.
        identity: of the scorer.
        out: the folder the package ships.
        training: hashes of what the adapter was trained on; items among them are refused.
        loops: labelled loops of acquisition.
        retriever: how those retrieved, in words.
    """
    fitted = fit_artefact(
        scored.records(),
        fingerprint=Fingerprint(identity, orderings=None, m=None, max_words=FOCUS_WORDS),
        created_by=f"isr-rag {__version__}",
        settings=FitSettings(targets=tuple((h_star, DELTA) for h_star in TARGETS)),
        training=training,
    )
    fitted = with_loops(fitted, loops, retriever=retriever, training=training)
    fitted.save(out / "calibration.json")
    return fitted


def distractor_drift(scorer: Scorer, items: Sequence[SliceItem], work: Path, most: int = 100) -> dict[str, float]:
    """How q of supported items changes when the same support is among 20 chunks instead of 3.

    Returns:
        `items`, `mean` change and `mean_absolute` change of q.
    """
    supported = [item for item in items if item.label and any(chunk.is_support for chunk in item.chunks)][:most]
    strangers = [(item.group, chunk) for item in items for chunk in item.chunks if not chunk.is_support]
    padded = [_among(item, strangers, random.Random(item.id)) for item in supported]
    few = evaluate(scorer, padded, work / f"drift{FEW}.jsonl", chunks=lambda item: FEW)
    many = evaluate(scorer, padded, work / f"drift{MANY}.jsonl", chunks=lambda item: MANY)
    change = np.asarray([b.q - a.q for a, b in zip(few, many, strict=True)])
    return {
        "items": float(len(change)),
        "mean": float(change.mean()),
        "mean_absolute": float(np.abs(change).mean()),
    }


def _among(item: SliceItem, strangers: Sequence[tuple[str, SliceChunk]], rng: random.Random) -> SliceItem:
    """The item with chunks of unrelated items, up to `MANY` chunks in all."""
    chunks = list(item.chunks)
    while len(chunks) < MANY:
        group, chunk = rng.choice(strangers)
        if group != item.group:
            chunks.append(chunk)
    return item.model_copy(update={"chunks": tuple(chunks)})


def _drift_part(drift: Mapping[str, float]) -> list[str]:
    return [
        "## Distractors",
        f"The same support among {FEW} and among {MANY} chunks ({drift['items']:.0f} items): mean change of q "
        f"{drift['mean']:+.3f}, mean absolute change {drift['mean_absolute']:.3f}.",
    ]


def _licences_part(trained_on: Sequence[Path]) -> list[str]:
    """Data sets and licences of the training items; files are read by line, as they are large."""
    licences: set[tuple[str, str]] = set()
    for path in trained_on:
        with path.open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                provenance = json.loads(line)["provenance"]
                licences.add((provenance["dataset"], provenance["license"]))
    if not licences:
        return []
    return ["## Licences", "Trained on items of:", table([("data set", "licence"), *sorted(licences)])]
