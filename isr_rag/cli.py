"""``isr-rag``: every command one call into the library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from isr_rag.errors import ISRError, MissingDependencyError

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
except ImportError as error:
    raise MissingDependencyError("the command line", error.name or "typer", "cli") from error

app = typer.Typer(
    name="isr-rag",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Decide whether retrieved evidence carries an answer, whatever order it stands in.",
)
console = Console(stderr=True)
EXIT_ABSTAIN, EXIT_BAD = 3, 1


@app.command()
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
    jsonl: Annotated[
        Path | None,
        typer.Option(help='Decide about a file: {"id", "question"?, "answer"?, "claim"?, "evidence": [...]} a line.'),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output of --jsonl.")] = None,
    h_star: Annotated[float, typer.Option(help="Target hallucination rate.")] = 0.05,
    m: Annotated[int, typer.Option("--m", help="Number of orderings.")] = 6,
    orderings: Annotated[str, typer.Option(help="auto, uniform, banded, exhaustive, latin or antithetic.")] = "auto",
    convention: Annotated[str, typer.Option(help="safe, or paper (the paper's literal rule).")] = "safe",
    cascade: Annotated[bool, typer.Option(help="Start with 3 orderings, go on near the boundary.")] = False,
    focus: Annotated[str, typer.Option(help="Words of evidence to read: a number, auto, or none.")] = "auto",
    model: Annotated[
        str | None,
        typer.Option(help="A model of transformers: Hub name, folder or .gguf file. Default: the embedded one."),
    ] = None,
    calibration: Annotated[Path | None, typer.Option(help="Calibration that belongs to the model.")] = None,
    p_ref: Annotated[float | None, typer.Option(help="An oracle's probability that the predicate holds.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory that remembers every score.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Decide about one item, or about every line of a JSONL file.

    Exit code of one decision: 0 answer, 3 abstain. With --jsonl: 1 if a line was bad, else 0.
    """
    if (jsonl is None) == (evidence is None) or (jsonl is None) != (out is None):
        raise typer.BadParameter("give --evidence for one decision, or --jsonl together with --out")
    gate = _gate(
        model=model,
        calibration=calibration,
        p_ref=p_ref,
        cache=cache,
        h_star=h_star,
        m=m,
        orderings=orderings,
        convention=convention,
        cascade=cascade,
        focus=None if focus == "none" else "auto" if focus == "auto" else _number(focus, "--focus"),
    )
    if jsonl is not None and out is not None:
        raise typer.Exit(_check_file(gate, jsonl, out))
    from isr_rag.sources import read_evidence

    decision = gate.decide(read_evidence(evidence or []), question=question, answer=answer, claim=claim)
    print(decision.to_json() if as_json else decision)
    raise typer.Exit(0 if decision.answered else EXIT_ABSTAIN)


def _check_file(gate: Any, source: Path, target: Path) -> int:
    from isr_rag.jsonl import check_jsonl, count_lines

    columns = (TextColumn("deciding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=count_lines(source) if source.is_file() else None)
        summary = check_jsonl(gate, source, target, progress=lambda done: bar.update(task, completed=done))
    console.print(f"{summary.decided} decided ({summary.resumed} lines done before), {summary.bad} bad")
    if summary.bad:
        console.print(f"bad lines with their errors: {target}.errors.jsonl", style="yellow")
    return EXIT_BAD if summary.bad else 0


def _gate(
    *, model: str | None, calibration: Path | None, p_ref: float | None, cache: Path | None, **settings: Any
) -> Any:
    from isr_rag.gate import ISRGate
    from isr_rag.references import CalibratedMixture, Oracle

    if calibration is not None and p_ref is not None:
        raise typer.BadParameter("give --calibration or --p-ref, not both")
    reference: Any = None
    if calibration is not None:
        from isr_rag.calibration import CalibrationArtefact

        reference = CalibratedMixture(CalibrationArtefact.load(calibration))
    elif p_ref is not None:
        reference = Oracle(p_ref)
    scorer: Any = None
    if model is not None:
        from isr_rag.scorers.transformers import TransformersScorer

        scorer = TransformersScorer(model)
    elif cache is not None:
        from isr_rag.scorers.embedded import default_reference, embedded_scorer

        scorer, reference = embedded_scorer(), reference or default_reference()
    if cache is not None:
        from isr_rag.scorers.cache import CachedScorer

        scorer = CachedScorer(scorer, cache)
    return ISRGate(scorer=scorer, reference=reference, **settings)


def _number(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} takes a number of words, auto or none, not {text!r}") from error


@app.command()
def setup() -> None:
    """Fetch, check and convert the embedded model, once."""
    from isr_rag.scorers.embedded import setup as set_up

    set_up(report=console.print)


@app.command()
def demo() -> None:
    """Watch the gate answer, abstain and fetch more evidence, over the documents that come with Python."""
    from isr_rag.demo import run

    run()


@app.command()
def doctor() -> None:
    """Say what is installed, what is missing and how to get it, and how exact this machine is."""
    from isr_rag.doctor import diagnose

    healthy = True
    for line in diagnose():
        print(line.text)
        healthy &= line.healthy
    raise typer.Exit(0 if healthy else EXIT_BAD)


def main() -> None:
    """Entry point: errors of this package become one line and exit code 1."""
    try:
        app()
    except ISRError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        for note in getattr(error, "__notes__", []):
            console.print(f"  {note}", markup=False, highlight=False)
        sys.exit(EXIT_BAD)
