"""The runs behind the reports of this folder; each resumes.

    isr-lab slice build --raw RAW --preset paper --out PAPER        # sets of 3 to 60 chunks
    isr-lab slice build --raw RAW --preset training --out SHORT     # sets of 1 to 20 chunks
    python reports/make.py standard --short SHORT                   # --paper PAPER: experiment 1 up to 60 chunks
    python reports/make.py permuted --short SHORT
    python reports/make.py base --short SHORT

`standard` is the model that is bundled, which cannot see the order: the control. `permuted` is the same model, reading
the chunks in a row; `base` is its base model without an adapter. Only items of the splits val and test are used, which
are held out of training. `--only audit` runs one experiment; models can run side by side.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress, TaskID

from isr_lab.cli.experiment import experiment_scorer, stated_noise
from isr_lab.experiments.audit import Audit
from isr_lab.experiments.dispersion import Dispersion
from isr_lab.experiments.dose import Dose
from isr_lab.experiments.orderings import OrderingStudy
from isr_lab.experiments.protocol import Experiment
from isr_lab.experiments.run import KINDS, run_experiment
from isr_lab.slice.reading import read_items
from isr_lab.slice.schema import SliceItem
from isr_rag.cli.terminal import columns, console
from isr_rag.core.scorer import Scorer
from isr_rag.scorers.adjudicators import BASE, DEFAULT, PERMUTED

HERE = Path(__file__).parent
MODELS = (DEFAULT, PERMUTED, BASE)
GRID = (3, 5, 7, 8, 10, 12, 16, 20)
LONG_GRID = (3, 5, 8, 12, 20, 30, 45, 60)


def experiments(model: str, noise: float | None, *, long: bool) -> list[Experiment]:
    """The experiments, with as many orderings as the model sees differences between."""
    return [
        Dispersion(grid=LONG_GRID if long else GRID, per_size=19, m=8),
        Dose(limit=120),
        Audit(limit=300, calibration_limit=400 if model == DEFAULT else 200, most_chunks=20),
        OrderingStudy(family_items=((3, 6), (4, 4), (5, 1)), noise_floor=noise),
    ]


def run(model: str, scorer: Scorer, slices: dict[str, Sequence[SliceItem]], out: Path, only: str | None) -> None:
    """The experiments with one model."""
    for experiment in experiments(model, stated_noise(scorer), long="paper" in slices):
        if only not in (None, experiment.name):
            continue
        items = slices["paper" if experiment.name == "dispersion" and "paper" in slices else "short"]
        with Progress(*columns(experiment.name), console=console) as bar:
            task = bar.add_task("")

            def show(done: int, trials: int, passes: int, bar: Progress = bar, task: TaskID = task) -> None:
                bar.update(task, completed=done, total=trials)

            command = f"python reports/make.py {model} --short SHORT{' --paper PAPER' * ('paper' in slices)}"
            folder = run_experiment(experiment, scorer, items, out, progress=show, command=command)
        console.print(f"{experiment.name}: {folder / 'report.html'}", markup=False)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--short", type=Path, required=True, help="folder of the slice with sets of 1 to 20 chunks")
    parser.add_argument("--paper", type=Path, help="folder of the slice with sets of 3 to 60 chunks, for experiment 1")
    parser.add_argument("--adapter", type=Path, help="instead of the bundled one")
    parser.add_argument("--only", choices=tuple(KINDS), help="one experiment instead of all")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    if given.adapter is not None and given.model == BASE:
        parser.error("the base model has no adapter")
    scorer = experiment_scorer(model=given.model, adapter=given.adapter)
    slices = {
        name: [item for split in ("val", "test") for item in read_items(folder / f"{split}.jsonl")]
        for name, folder in (("short", given.short), ("paper", given.paper))
        if folder is not None
    }
    run(given.model, scorer, slices, given.out / given.model, given.only)


if __name__ == "__main__":
    main()
