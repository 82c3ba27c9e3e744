"""`isr-rag check`: one item or a file of them, in this process, through servers, or on a Ray cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import Progress

from isr_rag.cli.options import AdjudicatorOption, Model, Servers, Tokenizer, check_scorer_options, words
from isr_rag.cli.terminal import EXIT_ABSTAIN, EXIT_LINES, columns, console, say

if TYPE_CHECKING:
    from isr_rag.items.cluster import MakeGate


def check(
    question: Annotated[
        str | None, typer.Option(help="With --answer: is the answer supported? Alone: does the evidence suffice?")
    ] = None,
    answer: Annotated[str | None, typer.Option(help="A drafted answer to the question.")] = None,
    claim: Annotated[str | None, typer.Option(help="Instead of a question: is this claim supported?")] = None,
    evidence: Annotated[
        list[str] | None,
        typer.Option("--evidence", "-e", help="Text file, JSONL, directory, or - for standard input; repeatable."),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            "--items",
            "--jsonl",
            help='Decide about a file, .parquet or a line each: {"id", "question"?, "answer"?, "claim"?, "evidence"}.',
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output of --items: JSONL, or .parquet.")] = None,
    force: Annotated[
        bool, typer.Option(help="Replace a finished output, and drop what a run with other settings had begun.")
    ] = False,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Where --items is decided: in this process, or on Ray workers.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers of the engine ray. Default: one a GPU, else one a CPU.")
    ] = None,
    h_star: Annotated[float, typer.Option(help="Target hallucination rate.")] = 0.05,
    m: Annotated[int, typer.Option("--m", help="Number of orderings.")] = 6,
    orderings: Annotated[str, typer.Option(help="auto, uniform, banded, exhaustive, latin or antithetic.")] = "auto",
    convention: Annotated[str, typer.Option(help="safe, or paper (the paper's literal rule).")] = "safe",
    cascade: Annotated[bool, typer.Option(help="Start with 3 orderings, go on near the boundary.")] = False,
    focus: Annotated[str, typer.Option(help="Words of evidence to read: a number, auto, or none.")] = "auto",
    adjudicator: AdjudicatorOption = None,
    model: Model = None,
    server: Servers = None,
    tokenizer: Tokenizer = None,
    calibration: Annotated[Path | None, typer.Option(help="Calibration that belongs to the model.")] = None,
    p_ref: Annotated[float | None, typer.Option(help="An oracle's probability that the predicate holds.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory that remembers every score.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Decide about one item, or about every line of a file.

    Exit codes: 0 answered, or a whole file decided; 3 abstained; 4 a file decided without some bad lines. Nothing was
    decided: 1 bad input, 2 bad options. 5 the scorer, the network or a disk failed, 130 interrupted: what is done of a
    file is kept, and the same command goes on.
    """
    if (items is None) == (evidence is None) or (items is None) != (out is None):
        raise typer.BadParameter("give --evidence for one decision, or --items (or --jsonl) together with --out")
    if engine == "ray" and items is None:
        raise typer.BadParameter("--engine ray decides about a file: give --items and --out")
    if workers is not None and engine != "ray":
        raise typer.BadParameter("--workers are those of --engine ray")
    if calibration is not None and p_ref is not None:
        raise typer.BadParameter("give --calibration or --p-ref, not both")
    check_scorer_options(model=model, servers=server, tokenizer=tokenizer, adjudicator=adjudicator)
    from isr_rag.factory import build_gate

    make_gate = partial(
        build_gate,
        adjudicator=adjudicator,
        model=model,
        servers=server or [],
        tokenizer=tokenizer,
        calibration=calibration,
        p_ref=p_ref,
        cache=cache,
        alike=items is not None,
        h_star=h_star,
        m=m,
        orderings=orderings,
        convention=convention,
        cascade=cascade,
        focus=words(focus),
    )
    if items is not None and out is not None:
        gpus = model is not None and not server
        raise typer.Exit(_check_file(make_gate, items, out, engine=engine, workers=workers, gpus=gpus, force=force))
    from isr_rag.sources import read_evidence

    decision = make_gate().decide(read_evidence(evidence or []), question=question, answer=answer, claim=claim)
    say(decision.to_json() if as_json else decision)
    raise typer.Exit(0 if decision.answered else EXIT_ABSTAIN)


def _check_file(
    make_gate: MakeGate, source: Path, target: Path, *, engine: str, workers: int | None, gpus: bool, force: bool
) -> int:
    from isr_rag.items import check_file, check_file_on_ray

    with Progress(*columns("deciding"), console=console) as bar:
        task = bar.add_task("", total=None)

        def progress(done: int, items: int) -> None:
            bar.update(task, completed=done, total=items)

        if engine == "ray":
            summary = check_file_on_ray(
                make_gate, source, target, workers=workers, gpus=gpus, progress=progress, force=force
            )
        else:
            summary = check_file(make_gate(), source, target, progress=progress, force=force)
    console.print(f"{summary.decided} decided ({summary.resumed} lines done before), {summary.bad} bad")
    if summary.bad:
        console.print(f"bad lines with their errors: {target}.errors.jsonl", style="yellow")
    return EXIT_LINES if summary.bad else 0
