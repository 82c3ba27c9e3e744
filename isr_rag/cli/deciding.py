"""Around deciding: calibrating, setting up, a demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from isr_rag.adjudicators import DEFAULT, AdjudicatorName
from isr_rag.cli.options import (
    AdjudicatorOption,
    Cache,
    Focus,
    Model,
    Orderings,
    Servers,
    Tokenizer,
    check_scorer_options,
    folder,
    input_file,
    words,
)
from isr_rag.cli.terminal import columns, console, tell

CALIBRATE_EXAMPLES = """[bold]Examples[/bold]

isr-rag calibrate --labelled labelled.jsonl --out calibration/

isr-rag calibrate --labelled labelled.jsonl --out calibration/ --model Qwen/Qwen2.5-7B-Instruct --h-star 0.1

isr-rag check --jsonl in.jsonl --out out.jsonl --calibration calibration/calibration.json"""

SETUP_EXAMPLES = """[bold]Example[/bold]

isr-rag setup"""

DEMO_EXAMPLES = """[bold]Example[/bold]

isr-rag setup && isr-rag demo"""


def calibrate(
    context: typer.Context,
    labelled: Annotated[
        Path | None,
        typer.Option(
            callback=input_file,
            help='Labelled items: {"id", "label", "claim"?, "question"?, "answer"?, "evidence"} per line.',
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(callback=folder, help="Folder for calibration.json and a report for each predicate.")
    ] = None,
    h_star: Annotated[float, typer.Option(help="Target hallucination rate of the cut.")] = 0.05,
    delta: Annotated[float, typer.Option(help="Probability that the cut fails to keep to it.")] = 0.1,
    m: Orderings = 6,
    orderings: Annotated[str, typer.Option(help="Family of orderings.")] = "auto",
    focus: Focus = "auto",
    adjudicator: AdjudicatorOption = None,
    model: Model = None,
    server: Servers = None,
    tokenizer: Tokenizer = None,
    cache: Cache = None,
) -> None:
    """Calibrate a model on labelled items of your own (--labelled, --out), or get there with few labels (commands).

    With labelled items: a calibration, and a cut with a finite-sample guarantee where there is one. Without: collect
    traffic, label would-be answers that are drawn at random, and get a cut as soon as the labels allow it.
    """
    if context.invoked_subcommand is not None:
        return
    if labelled is None or out is None:
        raise typer.BadParameter("give --labelled and --out, or a command: collect, next, label, report")
    check_scorer_options(model=model, servers=server, tokenizer=tokenizer, adjudicator=adjudicator)
    from isr_rag.calibration import calibration_report
    from isr_rag.factory import build_scorer
    from isr_rag.gate import ISRGate
    from isr_rag.labelled import calibrate as fit
    from isr_rag.labelled import read_labelled, score_labelled
    from isr_rag.orderings import Family

    scorer = build_scorer(model=model, servers=server, tokenizer=tokenizer, cache=cache, adjudicator=adjudicator)
    gate = ISRGate(scorer=scorer, m=m, orderings=cast(Family, orderings), focus=words(focus))
    items = read_labelled(labelled)
    with Progress(*columns("scoring"), console=console) as bar:
        task = bar.add_task("", total=len(items))
        records = score_labelled(gate, items, progress=lambda scored: bar.update(task, completed=scored))
    fitted = fit(gate, records, targets=[(h_star, delta)])
    fitted.artefact.save(out / "calibration.json")
    for predicate, held_out in fitted.held_out.items():
        folder = out / predicate.replace("/", "-")
        calibration_report(held_out.mean, held_out.labels, folder, groups=held_out.groups, title=predicate)
        part = fitted.artefact.predicates[predicate]
        weighed = "" if part.combination is None else ", the wording is weighed as well"
        tell(f"{predicate}: {len(held_out.labels)} items held out{weighed}, report in {folder}")
        highest = part.ceiling("rate")
        tell(f"  rate among the answered: h* down to {1.0 - highest:.3f} can be reached")
        for own in part.bins:
            tell(f"  {own.first} to {own.last or 'more'} chunks:")
            for cut in own.cuts:
                tell(f"    {cut.scope}: {cut.reason}")
    tell(f"calibration: {out / 'calibration.json'}")


def setup(
    adjudicator: Annotated[
        Literal["small", "standard", "all"] | None, typer.Option(help=f"Which one, or all. Default: {DEFAULT}.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="The GGUF file of its base model, where you have it already.")
    ] = None,
) -> None:
    """Fetch, check and convert the model of an adjudicator, once."""
    from isr_rag.scorers.embedded import setup as set_up

    names: list[AdjudicatorName | None]
    if adjudicator == "all":
        if file is not None:
            raise typer.BadParameter("--file is the base model of one adjudicator: name it")
        names = list(get_args(AdjudicatorName))
    else:
        names = [adjudicator]
    bars: dict[str, TaskID] = {}
    shown = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*shown, console=console) as progress:

        def show_progress(doing: str, done: int, total: int) -> None:
            if doing not in bars:
                bars[doing] = progress.add_task(doing, total=total)
            progress.update(bars[doing], completed=done)

        for name in names:
            set_up(
                tell,
                adjudicator=name,
                file=file,
                show_progress=show_progress,
            )


def demo(adjudicator: AdjudicatorOption = None) -> None:
    """Watch the gate answer a draft, refuse a near-miss, and fetch more evidence, in under a minute."""
    from isr_rag.demo import run

    run(adjudicator)
