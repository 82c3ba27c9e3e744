"""From a trained adapter to what the package ships: description, calibration, figures, model card."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isr_rag import __version__
from isr_rag.calibration import BelongsTo, CalibrationRecord, FittedCalibration, fit_artefact
from isr_rag.evaluation.slice.schema import SliceItem
from isr_rag.scorers.adapter import CONFIG, WEIGHTS
from isr_rag.scorers.protocol import Layout
from isr_rag.training.evaluate import ScoredItem, evaluate
from isr_rag.training.network import write_description


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


def chosen(items: Sequence[SliceItem], each: int, seed: int = 0) -> list[SliceItem]:
    """Up to about ``each`` items of every task and source, whole groups drawn by seed, a group's items together.

    Items of one group mostly ask about the same evidence, which a scorer computes once where they stand together.
    """
    groups: dict[str, list[SliceItem]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.id):
        groups[item.group].append(item)
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    counts: Counter[tuple[str, str]] = Counter()
    drawn: list[SliceItem] = []
    for name in names:
        wanted = [item for item in groups[name] if counts[item.task, item.source] < each]
        counts.update((item.task, item.source) for item in wanted)
        drawn.extend(wanted)
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
                id=item.id, predicate=score.template, q_bar=score.q, label=score.label, group=item.group, q=(score.q,)
            )
            for item, score in zip(self.items, self.scores, strict=True)
        ]


def score(items: Sequence[SliceItem], out: Path) -> Scored:
    """Score items with the embedded model as it is shipped; goes on where an earlier call stopped."""
    from isr_rag.scorers.embedded import embedded_scorer

    return Scored(tuple(items), tuple(evaluate(embedded_scorer(), items, out)))


def calibrate_shipped(scored: Scored, out: Path) -> FittedCalibration:
    """Fit and save the calibration that ``ISRGate()`` uses: one calibrator a predicate, for any m (one pass decides).

    Args:
        scored: validation items, which training has not seen.
        out: the folder the package ships.
    """
    from isr_rag.scorers.embedded import FOCUS_WORDS, embedded_scorer

    fitted = fit_artefact(
        scored.records(),
        belongs_to=BelongsTo(embedded_scorer().identity, orderings=None, m=None, focus=FOCUS_WORDS),
        created_by=f"isr-rag {__version__}",
        targets=(),
    )
    fitted.artefact.save(out / "calibration.json")
    return fitted
