"""Every experiment from scoring to report with a small random model, in both kinds of layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from lab.tests.experiments.test_dose import long_items
from tests.scorers import tiny

from isr_lab.experiments.audit import Audit
from isr_lab.experiments.dispersion import Dispersion
from isr_lab.experiments.dose import Dose
from isr_lab.experiments.orderings import OrderingStudy
from isr_lab.experiments.orderings.wordings import LABEL_MAPS
from isr_lab.experiments.protocol import Experiment
from isr_lab.experiments.run import run_experiment
from isr_lab.slice.sample import load_sample
from isr_lab.slice.schema import SliceItem
from isr_rag.core.scorer import Layout

pytestmark = pytest.mark.slow


def split_items() -> list[SliceItem]:
    return [item.model_copy(update={"split": ("test", "val")[k % 2]}) for k, item in enumerate(load_sample())]


EXPERIMENTS: dict[str, tuple[Experiment, Callable[[], list[SliceItem]]]] = {
    "dispersion": (Dispersion(limit=8, m=4, sizes=(3, 9), permutations=20, resamples=20), load_sample),
    "dose": (Dose(limit=4, m=3, resamples=20), lambda: long_items(2)),
    "audit": (Audit(limit=8, calibration_limit=8, most_chunks=4, resamples=20), split_items),
    "orderings": (
        OrderingStudy(
            family_items=((3, 2), (4, 2)),
            wording_items=((3, 3),),
            practice_items=((3, 4), (5, 4)),
            label_maps=LABEL_MAPS[:2],  # the tiny tokenizer has no single token for words
            family_seeds=4,
            resamples=20,
        ),
        load_sample,
    ),
}


@pytest.mark.parametrize("layout", ["full", "late"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_to_its_report_and_is_not_scored_twice(name: str, layout: Layout, tmp_path: Path) -> None:
    experiment, items = EXPERIMENTS[name]
    scorer = tiny.scorer("qwen2", layout=layout)
    folder = run_experiment(experiment, scorer, items(), tmp_path)
    first = json.loads((folder / "result.json").read_text("utf-8"))
    assert first["counts"]["forward_passes"] == first["counts"]["orderings" if layout == "full" else "requests"]
    page = (folder / "report.html").read_text("utf-8")
    assert all(sentence.split(".")[0][:30] in page for sentence in first["summary"][:1])
    spent: list[int] = []
    run_experiment(experiment, scorer, items(), tmp_path, progress=lambda done, trials, passes: spent.append(passes))
    assert set(spent) == {0}
    assert json.loads((folder / "result.json").read_text("utf-8"))["figures"] == first["figures"]
