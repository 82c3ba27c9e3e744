"""`isr-rag check`: one item or a file of them, in this process, through servers, or on a Ray cluster."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from isr_rag.cli.options import (
    STDIO,
    AdjudicatorOption,
    Cache,
    CalibrationFile,
    Focus,
    Model,
    Orderings,
    PRef,
    Servers,
    Tokenizer,
    check_scorer_options,
    input_file,
    output_file,
    words,
)
from isr_rag.cli.terminal import EXIT_ABSTAIN, EXIT_LINES, console, note, over_file, say, tell

if TYPE_CHECKING:
    from isr_rag.items import Summary
    from isr_rag.items.cluster import MakeGate

EXAMPLES = """[bold]Examples[/bold]

isr-rag check --claim "The Seine flows through Paris." --evidence notes/

isr-rag check --question "Which river flows through Paris?" --answer "The Seine" -e report.pdf -e page.html

curl -s https://example.org/page.txt | isr-rag check --claim "..." -e - --json

isr-rag check --jsonl in.jsonl --out out.jsonl

isr-rag check --jsonl - --out - < in.jsonl > out.jsonl"""


def check(
    question: Annotated[
        str | None, typer.Option(help="With --answer: is the answer supported? Alone: does the evidence suffice?")
    ] = None,
    answer: Annotated[str | None, typer.Option(help="A drafted answer to the question.")] = None,
    claim: Annotated[str | None, typer.Option(help="Instead of a question: is this claim supported?")] = None,
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            "--evidence",
            "-e",
            help="Text, Markdown, HTML, PDF, JSON or JSONL, a directory of them, or - for standard input; repeatable.",
        ),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            "--items",
            "--jsonl",
            callback=input_file,
            help="Decide about every line of a file (JSONL, .parquet, or - for JSONL from standard input): "
            '{"id", "question"?, "answer"?, "claim"?, "evidence"}.',
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(callback=output_file, help="Output of --items: JSONL, .parquet, or - for standard output."),
    ] = None,
    force: Annotated[
        bool, typer.Option(help="Replace a finished output, and drop what a run with other settings had begun.")
    ] = False,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Where --items is decided: in this process, or on Ray workers.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers of the engine ray. Default: one per GPU, else one per CPU.")
    ] = None,
    h_star: Annotated[float, typer.Option(help="Target hallucination rate.")] = 0.05,
    m: Orderings = 6,
    orderings: Annotated[str, typer.Option(help="auto, uniform, banded, exhaustive, latin or antithetic.")] = "auto",
    convention: Annotated[str, typer.Option(help="safe, or paper (the paper's literal rule).")] = "safe",
    cascade: Annotated[bool, typer.Option(help="Start with 3 orderings, go on near the boundary.")] = False,
    focus: Focus = "auto",
    adjudicator: AdjudicatorOption = None,
    model: Model = None,
    server: Servers = None,
    tokenizer: Tokenizer = None,
    calibration: CalibrationFile = None,
    p_ref: PRef = None,
    cache: Cache = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Decide about one item, or about every line of a file.

    What is done of a file is kept when a run stops, and the same command goes on from there.
    """
    if (items is None) == (evidence is None) or (items is None) != (out is None):
        raise typer.BadParameter("give --evidence for one decision, or --items (or --jsonl) together with --out")
    if items is not None and (question is not None or answer is not None or claim is not None):
        raise typer.BadParameter("with --items each line says what is asked: give no --question, --answer or --claim")
    if items is not None and as_json:
        raise typer.BadParameter("--json prints one decision; the output of --items is JSON already")
    if force and items is None:
        raise typer.BadParameter("--force replaces the output of --items")
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
        with tempfile.TemporaryDirectory(prefix="isr-rag-") as folder:
            source, target = items, out
            if items == STDIO:  # spooled, since a run reads its input more than once
                source = Path(folder) / "items.jsonl"
                source.write_bytes(sys.stdin.buffer.read())
            if out == STDIO:
                target = Path(folder) / "decisions.jsonl"
            code = _check_file(
                make_gate,
                source,
                target,
                engine=engine,
                workers=workers,
                gpus=gpus,
                force=force,
                shown=out == STDIO,
            )
        raise typer.Exit(code)
    from isr_rag.sources import read_evidence

    with console.status("reading the evidence") as status:
        chunks = read_evidence(evidence or [], note=note)
        status.update("loading the model")
        gate = make_gate()
        status.update("deciding")
        decision = gate.decide(chunks, question=question, answer=answer, claim=claim)
    say(decision.to_json() if as_json else decision.at_shell(chunks))
    raise typer.Exit(0 if decision.answered else EXIT_ABSTAIN)


def _check_file(
    make_gate: MakeGate,
    source: Path,
    target: Path,
    *,
    engine: str,
    workers: int | None,
    gpus: bool,
    force: bool,
    shown: bool,
) -> int:
    """Decide about a file; where `shown`, the target is a temporary one that is shown in the end."""
    from isr_rag.items import check_file, check_file_on_ray

    def run(progress: Callable[[int, int], None]) -> Summary:
        if engine == "ray":
            return check_file_on_ray(
                make_gate, source, target, workers=workers, gpus=gpus, progress=progress, force=force
            )
        return check_file(make_gate(), source, target, progress=progress, force=force)

    after = "nothing was written" if shown else "run the same command to resume"
    summary, seconds = over_file("deciding", run, after=after)
    errors = Path(f"{target}.errors.jsonl")
    if shown:
        sys.stdout.write(target.read_text("utf-8"))
        sys.stdout.flush()
    _tell_summary(summary, seconds)
    if summary.bad:
        note(errors.read_text("utf-8").rstrip() if shown else f"bad lines with their errors: {errors}")
    return EXIT_LINES if summary.bad else 0


def _tell_summary(summary: Summary, seconds: float) -> None:
    """How many lines were answered, abstained from and why, and bad."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(summary.abstained.items(), key=_most_first))
    abstained = sum(summary.abstained.values())
    before = f" ({summary.resumed} of them by an earlier run)" if summary.resumed else ""
    tell(
        f"{summary.decided + summary.bad} lines in {seconds:.1f} s{before}: {summary.answered} answered, "
        f"{abstained} abstained{f' ({reasons})' if reasons else ''}, {summary.bad} bad"
    )


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]
