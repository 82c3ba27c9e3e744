"""Files of labels, of traffic and of scores take time and memory in proportion to their lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from server.tests.labels.test_shadow import CLAIM, World
from tests.complexity.growth import faults

from isr_rag import ISRGate
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.errors import ISRError
from isr_rag.io.calibrating import calibrate_reader
from isr_rag.testing import FixedScorer
from isr_rag_server.commands.labelling import _read_labels
from isr_rag_server.comparing import compare_readers
from isr_rag_server.labels import ShadowLog, assess, collect, plan_cuts, shadow_report

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

LINES = 2_000 // (1 if os.environ.get("ISR_RAG_CHAOS") == "long" else 5)


def mark(size: int) -> str:
    """A text that stands for so many lines."""
    return "a" * size


@pytest.mark.parametrize("line", ['{"id": "c%d", "label": 1}', '{"id": "c%d"}', '{"id": "x%d", "label": null}', "{%d"])
def test_labels_from_elsewhere_are_read_in_proportion_to_their_number(line: str, tmp_path: Path) -> None:
    world = World(2 * LINES)
    log = ShadowLog.for_gate(world.gate(), tmp_path / "t.sqlite3")
    collect(world.gate(), world.items, log)

    def step(text: str) -> object:
        file = tmp_path / "labels.jsonl"
        file.write_text("".join(line % number + "\n" for number in range(len(text))))
        try:
            return log.label(_read_labels(file))
        except ISRError as error:
            return error

    assert not faults(step, mark, LINES, most=60.0)


def test_traffic_is_collected_labelled_and_reported_in_proportion_to_its_length(tmp_path: Path) -> None:
    made = iter(range(1000))

    def step(text: str) -> object:
        world, name = World(len(text)), str(next(made))
        log = ShadowLog.for_gate(world.gate(), tmp_path / f"{name}.sqlite3")
        collect(world.gate(), world.items, log)
        plan = plan_cuts(log, CLAIM)
        log.label(world.labels(assess(log, plan, count=50).next))
        return shadow_report(log, plan).write(tmp_path / name)

    assert not faults(step, mark, LINES, most=60.0)


@pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")
def test_readers_are_compared_in_proportion_to_their_items(tmp_path: Path) -> None:
    def q(prompt: Prompt, ordering: Ordering) -> float:
        return 0.5 + len(prompt.suffix) * 37 % 100 / 250

    def folders(count: int) -> list[Path]:
        items = [
            {"id": number, "label": number % 2, "claim": f"c{number % 97 * 'a'} {number}.", "evidence": [f"{number}"]}
            for number in range(count)
        ]
        found = [tmp_path / f"{count}" / name for name in ("one", "two")]
        for folder in found:
            calibrate_reader(ISRGate(scorer=FixedScorer(q)), {}, items, folder)
        return found

    made = {size: folders(size) for size in (LINES, 2 * LINES)}
    assert not faults(lambda text: compare_readers(made[len(text)], resamples=50), mark, LINES, most=60.0)
