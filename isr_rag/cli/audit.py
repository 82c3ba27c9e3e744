"""`isr-rag audit`: a whole answer, or a file of them, statement by statement."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isr_rag.cli.options import (
    STDIO,
    AdjudicatorOption,
    Cache,
    CalibrationFile,
    Focus,
    Model,
    Orderings,
    Servers,
    Tokenizer,
    check_scorer_options,
    input_file,
    output_file,
    words,
)
from isr_rag.cli.terminal import EXIT_ABSTAIN, EXIT_LINES, console, note, over_file, say, tell
from isr_rag.errors import InvalidInputError

if TYPE_CHECKING:
    from isr_rag.gate import ISRGate

EXAMPLES = """[bold]Examples[/bold]

isr-rag audit --answer answer.md --evidence notes/ --question "What is known about the Seine?" --html report.html

isr-rag audit --answer - -e report.pdf --json < answer.md

isr-rag audit --jsonl answers.jsonl --out audits.jsonl"""


def audit(
    answer: Annotated[
        Path | None,
        typer.Option(callback=input_file, help="The answer: a text or Markdown file, or - for standard input."),
    ] = None,
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            "--evidence",
            "-e",
            help="Text, Markdown, HTML, PDF, JSON or JSONL, or a directory; repeatable. Its order is what [1] means.",
        ),
    ] = None,
    question: Annotated[str | None, typer.Option(help="The question that it answers.")] = None,
    answers: Annotated[
        Path | None,
        typer.Option(
            "--jsonl",
            callback=input_file,
            help='Audit every line of a file: {"id", "answer", "question"?, "evidence"}.',
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(callback=output_file, help="Output of --jsonl.")] = None,
    force: Annotated[
        bool, typer.Option(help="Replace a finished output, and drop what a run with other settings had begun.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(callback=output_file, help="Write the report to this file, to be opened in a browser."),
    ] = None,
    effects: Annotated[
        bool, typer.Option(help="Also ask what each chunk, and their order, does to each statement.")
    ] = False,
    h_star: Annotated[float, typer.Option(help="Error budget of a whole answer.")] = 0.05,
    m: Orderings = 6,
    focus: Focus = "auto",
    adjudicator: AdjudicatorOption = None,
    model: Model = None,
    server: Servers = None,
    tokenizer: Tokenizer = None,
    calibration: CalibrationFile = None,
    cache: Cache = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the audit as JSON.")] = False,
) -> None:
    """Judge a whole answer, statement by statement: what holds, on what evidence, and what may go out.

    What is done of a file is kept when a run stops, and the same command goes on from there.
    """
    if (answers is None) == (answer is None) or (answers is None) != (out is None):
        raise typer.BadParameter("give --answer for one audit, or --jsonl together with --out")
    if answer is not None and not evidence:
        raise typer.BadParameter("--answer is judged against evidence: give --evidence")
    if answers is not None and (evidence or question is not None):
        raise typer.BadParameter("with --jsonl each line has its evidence and question: give neither here")
    if answers is not None and (html is not None or as_json):
        raise typer.BadParameter("--html and --json are for one answer; the output of --jsonl is JSON already")
    if STDIO in (answers, out, html):
        raise typer.BadParameter("only --answer can be - (standard input)")
    if force and answers is None:
        raise typer.BadParameter("--force replaces the output of --jsonl")
    if answer == STDIO and "-" in (evidence or []):
        raise typer.BadParameter("standard input is either the answer or the evidence")
    check_scorer_options(model=model, servers=server, tokenizer=tokenizer, adjudicator=adjudicator)
    from isr_rag.factory import build_gate

    def make_gate() -> ISRGate:
        return build_gate(
            adjudicator=adjudicator,
            model=model,
            servers=server or [],
            tokenizer=tokenizer,
            calibration=calibration,
            cache=cache,
            h_star=h_star,
            m=m,
            focus=words(focus),
        )

    if answers is not None and out is not None:
        raise typer.Exit(_audit_file(make_gate(), answers, out, effects=effects, force=force))
    assert answer is not None
    from isr_rag.sources import read_evidence

    with console.status("reading the evidence") as status:
        text = _read_answer(answer)
        chunks = read_evidence(evidence or [], note=note)
        status.update("loading the model")
        gate = make_gate()
        status.update("auditing")
        found = gate.audit(answer=text, question=question, evidence=chunks, effects=effects)
    released = found.releasable()
    if html is not None:
        found.to_html(html)
        note(f"report: {html}")
    say(found.to_json() if as_json else f"{found}\n\nWhat may go out: {released.note}\n\n{released}")
    raise typer.Exit(0 if found.action == "answer" else EXIT_ABSTAIN)


def _read_answer(path: Path) -> str:
    """The answer's text, from a file or from standard input.

    Raises:
        InvalidInputError: if it is not UTF-8 text.
    """
    try:
        return (sys.stdin.buffer.read() if path == STDIO else path.read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _audit_file(gate: ISRGate, source: Path, target: Path, *, effects: bool, force: bool) -> int:
    from isr_rag.items import audit_file

    summary, seconds = over_file(
        "auditing",
        lambda progress: audit_file(gate, source, target, effects=effects, progress=progress, force=force),
        after="run the same command to resume",
    )
    before = f" ({summary.resumed} of them by an earlier run)" if summary.resumed else ""
    tell(
        f"{summary.decided + summary.bad} answers in {seconds:.1f} s{before}: {summary.answered} may "
        f"go out whole, {summary.abstained.get('trim', 0)} in part, {summary.abstained.get('abstain', 0)} not, "
        f"{summary.bad} bad lines"
    )
    if summary.bad:
        note(f"bad lines with their errors: {target}.errors.jsonl")
    return EXIT_LINES if summary.bad else 0
