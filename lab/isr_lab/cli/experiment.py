"""`isr-lab experiment`: the paper's experiments on any model and slice."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.progress import Progress, TaskID, TextColumn

from isr_rag.cli.options import ScorerOptions, with_option_groups
from isr_rag.cli.terminal import EXIT_BAD, columns, console
from isr_rag.errors import InvalidInputError
from isr_rag.scorers.adjudicators import NAMES

if TYPE_CHECKING:
    from isr_lab.experiments.cluster import MakeScorer
    from isr_lab.experiments.outcomes import OutcomesFormat
    from isr_lab.experiments.trials import TrialProgress, TrialScorer
    from isr_lab.slice.schema import SliceItem
    from isr_rag.core.scorer import Scorer

HELP = {
    "dispersion": "Experiment 1: how far order moves the answer, and what averaging over orders gains.",
    "dose": "Experiment 2: what each further chunk of support does at fixed length of the evidence.",
    "audit": "Experiment 3: the gate on held-out items (splits val and test), beside simpler rules.",
    "orderings": "Which orderings to draw, how much of the dispersion is order, and whether it changes decisions.",
    "all": "All four one after the other, and an index page.",
}

experiment_app = typer.Typer(
    no_args_is_help=True,
    help="Rerun the paper's experiments on any model and slice. A run is registered before its first score, goes on "
    "where it was stopped, and ends in a report.",
)

Slices = Annotated[
    list[Path] | None,
    typer.Option(
        "--slice", help="Items, JSONL or .parquet; repeatable. Default: the packaged sample, a demonstration."
    ),
]
Adapter = Annotated[
    Path | None, typer.Option(help="Folder of an adapter of the embedded model, instead of the one that is bundled.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Most items. Default: the experiment's own.")]
Seed = Annotated[int | None, typer.Option(help="Everything drawn depends on it. Default: the experiment's own.")]
Orderings = Annotated[int | None, typer.Option("--m", min=1, help="Orderings. Default: the experiment's own.")]
Out = Annotated[Path, typer.Option(help="Folder of this model's runs on this slice; they share their scores.")]
Outcomes = Annotated[
    Literal["jsonl", "parquet"] | None,
    typer.Option(help="Also write one row per trial, for analyses of your own, to outcomes.jsonl or outcomes.parquet."),
]
EngineName = Annotated[
    Literal["local", "ray"], typer.Option("--engine", help="Where to score: in this process, or on Ray workers.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Workers of the engine ray. Default: one a GPU, else one a CPU.")
]


def _command(names: list[str]) -> Callable[..., None]:
    """A command that runs some experiments; all commands take the same options."""

    @with_option_groups
    def run(
        *,
        slices: Slices = None,
        options: ScorerOptions,
        adapter: Adapter = None,
        limit: Limit = None,
        seed: Seed = None,
        m: Orderings = None,
        out: Out = Path("experiments"),
        outcomes: Outcomes = None,
        engine: EngineName = "local",
        workers: Workers = None,
    ) -> None:
        if workers is not None and engine != "ray":
            raise typer.BadParameter("--workers are those of --engine ray")
        others = (options.server, options.cross_encoder, options.decisions)
        if adapter is not None and (options.model not in (None, *NAMES) or any(others)):
            raise typer.BadParameter(f"--adapter goes with --model {' or '.join(NAMES)}, and with no other reader")
        make_scorer = partial(experiment_scorer, adapter=adapter, **asdict(options))
        settings = {name: value for name, value in {"limit": limit, "seed": seed, "m": m}.items() if value is not None}
        items = _items(slices or [])
        with _engine(make_scorer, on_ray=engine == "ray", workers=workers, options=options) as scorer:
            run_one = partial(_run, scorer=scorer, items=items, out=out, outcomes=outcomes, alone=len(names) == 1)
            failed = [name for name in names if not run_one(name, settings)]
        if len(names) > 1:
            from isr_lab.experiments.run import index_reports

            console.print(f"index: {index_reports(out)}", markup=False, soft_wrap=True)
        raise typer.Exit(EXIT_BAD if failed else 0)

    return run


for _name, _help in HELP.items():
    experiment_app.command(_name, help=_help)(
        _command([name for name in HELP if name != "all" and _name in (name, "all")])
    )


def experiment_scorer(*, model: str | None, adapter: Path | None = None, **options: Any) -> Scorer:
    """The scorer that the options describe; nothing is kept from one request to the next.

    Raises:
        ModelNotFoundError: if the embedded model is wanted and not set up.
    """
    from isr_rag.scorers.load import load_scorer

    return load_scorer(model, adapter=adapter, keep_states=False, **options)


def _items(slices: list[Path]) -> list[SliceItem]:
    from isr_lab.slice.reading import read_items
    from isr_lab.slice.sample import load_sample

    if slices:
        return list(read_items(*slices))
    sample = load_sample()
    console.print(
        f"no --slice: the {len(sample)} items of the packaged sample, for a demonstration. Their figures say little "
        "about a model; build a slice with isr-lab slice build",
        style="yellow",
    )
    return sample


@contextmanager
def _engine(
    make_scorer: MakeScorer, *, on_ray: bool, workers: int | None, options: ScorerOptions
) -> Generator[Scorer | TrialScorer]:
    if not on_ray:
        yield make_scorer()
        return
    from isr_lab.experiments.cluster import RayEngine
    from isr_rag_server.cluster import on_gpus

    with RayEngine(make_scorer, workers=workers, gpus=on_gpus(**asdict(options))) as engine:
        yield engine


def _run(
    name: str,
    settings: dict[str, int],
    *,
    scorer: Scorer | TrialScorer,
    items: list[SliceItem],
    out: Path,
    outcomes: OutcomesFormat | None,
    alone: bool,
) -> bool:
    """Run one experiment; False, and told why, where the slice lacks what it needs and others follow."""
    from isr_lab.experiments.run import experiment_type, run_experiment

    experiment = experiment_type(name)(**settings)
    if any(field.name == "noise_floor" for field in fields(experiment)):
        experiment = replace(experiment, noise_floor=stated_noise(scorer))
    command = shlex.join(["isr-lab", *sys.argv[1:]])
    try:
        with Progress(*columns("{task.description}"), TextColumn("{task.fields[rate]}"), console=console) as bar:
            shown = _shown(bar, name)
            folder = run_experiment(experiment, scorer, items, out, progress=shown, outcomes=outcomes, command=command)
    except InvalidInputError as error:
        if alone:
            raise
        console.print(f"{name} was not run: {error}", style="yellow", markup=False)
        return False
    console.print(f"{name}: {folder / 'report.html'}", markup=False, soft_wrap=True)
    return True


def stated_noise(scorer: Scorer | TrialScorer) -> float | None:
    """What the scorer says of its numerical noise in log-odds, if it does; one digit, which a machine reproduces."""
    noise = getattr(scorer, "noise_floor", None)
    return None if noise is None else float(f"{noise:.0e}")


def _shown(bar: Progress, name: str) -> TrialProgress:
    """Shows trials done and forward passes per second."""
    task: TaskID | None = None
    began = 0.0

    def progress(done: int, trials: int, passes: int) -> None:
        nonlocal task, began
        if task is None:  # what an earlier run has done must not count for the speed
            began, task = time.monotonic(), bar.add_task(name, completed=done, total=trials, rate="")
        else:
            bar.update(task, completed=done, rate=f"{passes / (time.monotonic() - began):.1f} passes/s")

    return progress
