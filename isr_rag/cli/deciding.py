"""`isr-rag check` and `batch` decide about one item or a file of them; `audit` judges whole answers."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from isr_rag.cli.options import STDIO, Force, GateOptions, input_file, output_file, with_option_groups
from isr_rag.cli.terminal import EXIT_ABSTAIN, console, note, over_file, say
from isr_rag.core.settings import Convention, Rule
from isr_rag.errors import InvalidInputError

if TYPE_CHECKING:
    from isr_rag.io import Summary

CHECK_EXAMPLES = (
    'isr-rag check --claim "The Seine flows through Paris." --evidence notes/',
    'isr-rag check --question "Which river flows through Paris?" --answer "The Seine" -e report.pdf -e page.html',
    'curl -s https://example.org/page.txt | isr-rag check --claim "..." -e - --json',
)
BATCH_EXAMPLES = (
    "isr-rag batch in.jsonl --out out.jsonl",
    "isr-rag batch - < in.jsonl > out.jsonl",
    "isr-rag batch in.jsonl --out out.jsonl --ray --workers 8",
)

AUDIT_EXAMPLES = (
    'isr-rag audit --answer answer.md --evidence notes/ --question "What is known about the Seine?" --html report.html',
    "isr-rag audit --answer - -e report.pdf --json < answer.md",
    "isr-rag audit --jsonl answers.jsonl --out audits.jsonl",
)

ConventionOption = Annotated[Convention, typer.Option(help="safe, or paper (the paper's literal rule).")]
Cascade = Annotated[bool, typer.Option(help="Start with 3 orderings, go on near the boundary.")]


@with_option_groups
def check(
    *,
    question: Annotated[
        str | None, typer.Option(help="With --answer: is the answer supported? Alone: does the evidence suffice?")
    ] = None,
    answer: Annotated[str | None, typer.Option(help="A drafted answer to the question.")] = None,
    claim: Annotated[str | None, typer.Option(help="Instead of a question: is this claim supported?")] = None,
    evidence: Annotated[
        list[str],
        typer.Option(
            "--evidence",
            "-e",
            help="Text, Markdown, HTML, PDF, JSON or JSONL, a directory of them, or - for standard input; repeatable.",
        ),
    ],
    options: GateOptions,
    convention: ConventionOption = "safe",
    cascade: Cascade = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Decide whether the evidence carries an answer or a claim. For a file of items: isr-rag batch."""
    from isr_rag.io.sources import read_evidence

    with console.status("reading the evidence") as status:
        chunks = read_evidence(evidence, note=note)
        status.update("loading the model")
        gate = options.gate(rule=Rule(convention=convention), cascade=cascade)
        status.update("deciding")
        decision = gate.decide(chunks, question=question, answer=answer, claim=claim)
    say(decision.to_json() if as_json else decision.at_shell(chunks))
    raise typer.Exit(0 if decision.answered else EXIT_ABSTAIN)


@with_option_groups
def batch(
    *,
    items: Annotated[
        Path,
        typer.Argument(
            callback=input_file,
            help='JSONL, or - for standard input; a line is {"id", "question"?, "answer"?, "claim"?, "evidence"}.',
        ),
    ],
    out: Annotated[Path, typer.Option(callback=output_file, help="JSONL, or - for standard output.")] = STDIO,
    force: Force = False,
    ray: Annotated[bool, typer.Option("--ray", help="Decide on a Ray cluster instead of in this process.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers of --ray. Default: one per GPU, else one per CPU.")
    ] = None,
    options: GateOptions,
    convention: ConventionOption = "safe",
    cascade: Cascade = False,
) -> None:
    """Decide about every line of a file.

    What is done of a file is kept when a run stops, and the same command goes on from there.
    """
    if workers is not None and not ray:
        raise typer.BadParameter("--workers are those of --ray")
    make_gate = options.gate_maker(rule=Rule(convention=convention), cascade=cascade, keep_states=False)
    with tempfile.TemporaryDirectory(prefix="isr-rag-") as folder:
        source, target = items, out
        if items == STDIO:  # a run reads its input more than once
            source = Path(folder) / "items.jsonl"
            source.write_bytes(sys.stdin.buffer.read())
        if out == STDIO:
            target = Path(folder) / "decisions.jsonl"

        def run(progress: Callable[[int, int], None]) -> Summary:
            from isr_rag.io import check_file, check_file_on_ray

            if not ray:
                return check_file(make_gate(), source, target, progress=progress, force=force)
            gpus = options.model is not None and options.server is None
            return check_file_on_ray(
                make_gate, source, target, workers=workers, gpus=gpus, progress=progress, force=force
            )

        after = "nothing was written" if out == STDIO else "run the same command to resume"
        code = over_file("deciding", run, _describe, after=after)
        errors = Path(f"{target}.errors.jsonl")
        if out == STDIO:
            with target.open(encoding="utf-8") as decisions:
                shutil.copyfileobj(decisions, sys.stdout)
            sys.stdout.flush()
        if code:
            note(errors.read_text("utf-8").rstrip() if out == STDIO else f"bad lines with their errors: {errors}")
    raise typer.Exit(code)


def _describe(summary: Summary) -> str:
    """How many lines were answered, and abstained from and why, the most frequent reason first."""
    counted = sorted(summary.abstained.items(), key=lambda one: (-one[1], one[0]))
    reasons = ", ".join(f"{count} {reason}" for reason, count in counted)
    abstained = sum(summary.abstained.values())
    return f"{summary.answered} answered, {abstained} abstained{f' ({reasons})' if reasons else ''}"


@with_option_groups
def audit(
    *,
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
    force: Force = False,
    html: Annotated[
        Path | None,
        typer.Option(callback=output_file, help="Write the report to this file, to be opened in a browser."),
    ] = None,
    options: GateOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print the audit as JSON.")] = False,
) -> None:
    """Judge a whole answer, statement by statement: what holds, on what evidence, and what may go out.

    --h-star is the error budget of the whole answer.
    What is done of a file is kept when a run stops, and the same command goes on from there.
    """
    for wrong, message in (
        (
            (answers is None) == (answer is None) or (answers is None) != (out is None),
            "give --answer for one audit, or --jsonl together with --out",
        ),
        (answer and not evidence, "--answer is judged against evidence: give --evidence"),
        (answers and (evidence or question), "with --jsonl each line has its evidence and question: give neither here"),
        (answers and (html or as_json), "--html and --json are for one answer; the output of --jsonl is JSON already"),
        (STDIO in (answers, out, html), "only --answer can be - (standard input)"),
        (force and not answers, "--force replaces the output of --jsonl"),
        (answer == STDIO and "-" in (evidence or []), "standard input is either the answer or the evidence"),
    ):
        if wrong:
            raise typer.BadParameter(message)
    if answers is not None and out is not None:
        _audit_file(options, answers, out, force=force)
    assert answer is not None
    from isr_rag.io.sources import read_evidence

    with console.status("reading the evidence") as status:
        text = _read_answer(answer)
        chunks = read_evidence(evidence or [], note=note)
        status.update("loading the model")
        gate = options.gate()
        status.update("auditing")
        found = gate.audit(answer=text, question=question, evidence=chunks)
    released = found.releasable()
    if html is not None:
        found.to_html(html)
        note(f"report: {html}")
    say(found.to_json() if as_json else f"{found}\n\nWhat may go out: {released.note}\n\n{released}")
    raise typer.Exit(0 if found.action == "answer" else EXIT_ABSTAIN)


def _read_answer(path: Path) -> str:
    try:
        return (sys.stdin.buffer.read() if path == STDIO else path.read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _audit_file(options: GateOptions, source: Path, target: Path, *, force: bool) -> NoReturn:
    from isr_rag.io import audit_file

    gate = options.gate()

    def run(progress: Callable[[int, int], None]) -> Summary:
        return audit_file(gate, source, target, progress=progress, force=force)

    def describe(summary: Summary) -> str:
        whole, some, none = summary.answered, summary.abstained.get("trim", 0), summary.abstained.get("abstain", 0)
        return f"{whole} may go out whole, {some} in part, {none} not"

    code = over_file("auditing", run, describe, after="run the same command to resume")
    if code:
        note(f"bad lines with their errors: {target}.errors.jsonl")
    raise typer.Exit(code)
