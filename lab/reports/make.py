"""The runs behind the reports of this folder; each resumes.

    isr-lab slice build --raw RAW --preset paper --out PAPER        # sets of 3 to 60 chunks
    isr-lab slice build --raw RAW --preset training --out SHORT     # sets of 1 to 20 chunks
    python reports/make.py adjudicator --paper PAPER --short SHORT
    python reports/make.py base --paper PAPER --short SHORT
    python reports/make.py twin --paper PAPER --short SHORT --adapter RUN/adapter

`adjudicator` is the model that is bundled, which cannot see the order: the control. `base` is the same model
without its adapter, `twin` the same recipe trained in the full-prompt layout. Only items of the splits val and test
are used, which are held out of training. The sizes keep a model that sees the order at about an hour of one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress

from isr_lab.cli.experiment import BASE, experiment_scorer
from isr_lab.experiments.audit import Audit
from isr_lab.experiments.dispersion import Dispersion
from isr_lab.experiments.dose import Dose
from isr_lab.experiments.orderings import OrderingStudy
from isr_lab.experiments.protocol import Experiment
from isr_lab.experiments.run import index_reports, run_experiment
from isr_lab.slice.reading import read_items
from isr_lab.slice.schema import SliceItem
from isr_rag.cli.terminal import columns, console
from isr_rag.scorers.local.scorer import LocalScorer

HERE = Path(__file__).parent
GRID = (3, 5, 7, 8, 10, 12, 16, 20, 30, 45, 60)


def experiments(model: str, noise: float | None) -> list[tuple[str, Experiment]]:
    """Which slice, and the experiment at the size that fits the model: one pass per item, or one an ordering."""
    if model == "adjudicator":
        return [
            ("short", Audit(limit=300, calibration_limit=400)),
            ("short", Dose(limit=120)),
            ("paper", Dispersion(grid=GRID, per_size=3)),
            ("short", OrderingStudy(noise_floor=noise)),
        ]
    return [
        ("paper", Dispersion(grid=GRID, per_size=2, m=8)),
        ("short", Dose(limit=30)),
        ("short", Audit(limit=40, calibration_limit=50, most_chunks=5)),
        (
            "short",
            OrderingStudy(
                # the families of orderings are compared on the model that both judges and sees the order
                family_items=((3, 6), (4, 12), (5, 4), (10, 1)) if model == "twin" else ((3, 6), (4, 4), (5, 1)),
                wording_items=((3, 3), (4, 1)),
                practice_items=((3, 20), (5, 8), (8, 2), (12, 1)),
                noise_floor=noise,
            ),
        ),
    ]


def run(model: str, scorer: LocalScorer, slices: dict[str, Sequence[SliceItem]], out: Path) -> None:
    """All experiments with one model."""
    noise = None if scorer.noise_floor is None else float(f"{scorer.noise_floor:.0e}")  # a digit that a rerun finds too
    for name, experiment in experiments(model, noise):
        with Progress(*columns(experiment.name), console=console) as bar:
            task = bar.add_task("")

            def show(done: int, trials: int, passes: int, bar: Progress = bar, task: object = task) -> None:
                bar.update(task, completed=done, total=trials)  # type: ignore[arg-type]

            command = f"python reports/make.py {model} --paper PAPER --short SHORT"
            folder = run_experiment(experiment, scorer, slices[name], out, progress=show, command=command)
        console.print(f"{experiment.name}: {folder / 'report.html'}", markup=False)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", choices=("adjudicator", "base", "twin"))
    parser.add_argument("--paper", type=Path, required=True, help="folder of the slice with sets of 3 to 60 chunks")
    parser.add_argument("--short", type=Path, required=True, help="folder of the slice with sets of 1 to 20 chunks")
    parser.add_argument("--adapter", type=Path, help="the twin's")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    if (given.adapter is None) == (given.model == "twin"):
        parser.error("--adapter goes with twin")
    scorer = experiment_scorer(model=BASE if given.model == "base" else None, adapter=given.adapter)
    assert isinstance(scorer, LocalScorer)
    slices = {
        name: [item for split in ("val", "test") for item in read_items(folder / f"{split}.jsonl")]
        for name, folder in (("paper", given.paper), ("short", given.short))
    }
    run(given.model, scorer, slices, given.out / given.model)
    index_reports(given.out)


if __name__ == "__main__":
    main()
