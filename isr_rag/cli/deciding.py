"""`isr-rag check` decides about one item, `audit` judges a whole answer, and `batch` does so line by line."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isr_rag.cli.options import STDIO, Force, GateOptions, input_file, output_file, with_option_groups
from isr_rag.cli.terminal import EXIT_ABSTAIN, console, note, over_file, say
from isr_rag.core.settings import Convention, Rule

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
    "isr-rag batch answers.jsonl --out audits.jsonl --audit",
)

AUDIT_EXAMPLES = (
    'isr-rag audit --answer answer.md --evidence notes/ --question "What is known about the Seine?" --html report.html',
    "isr-rag audit --answer - -e report.pdf --json < answer.md",
)

Evidence = Annotated[
    list[str],
    typer.Option(
        "--evidence",
        "-e",
        help="Text, Markdown, HTML, PDF, JSON or JSONL, a directory of them, or - for standard input; repeatable. "
        "In an audited answer, [1] is the first.",
    ),
]
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
    evidence: Evidence,
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
    out: Annotated[
        Path,
        typer.Option(callback=lambda out: out if out == STDIO else output_file(out), help="JSONL, or - for stdout."),
    ] = STDIO,
    force: Force = False,
    audit: Annotated[
        bool, typer.Option("--audit", help='Audit the answer of each line: {"id", "answer", "question"?, "evidence"}.')
    ] = False,
    options: GateOptions,
    convention: ConventionOption = "safe",
    cascade: Cascade = False,
) -> None:
    """Decide about every line of a file.

    What is done of a file is kept when a run stops, and the same command goes on from there.
    """
    with tempfile.TemporaryDirectory(prefix="isr-rag-") as folder:
        source, target = items, out
        if items == STDIO:  # a run reads its input more than once
            source = Path(folder) / "items.jsonl"
            source.write_bytes(sys.stdin.buffer.read())
        if out == STDIO:
            target = Path(folder) / "decisions.jsonl"

        def run(progress: Callable[[int, int], None]) -> Summary:
            from isr_rag.io import audit_file, check_file

            gate = options.gate(rule=Rule(convention=convention), cascade=cascade, keep_states=audit)
            return (audit_file if audit else check_file)(gate, source, target, progress=progress, force=force)

        after = "nothing was written" if out == STDIO else "run the same command to resume"
        code = over_file("auditing" if audit else "deciding", run, after=after)
        errors = Path(f"{target}.errors.jsonl")
        if out == STDIO:
            with target.open("rb") as decisions:
                shutil.copyfileobj(decisions, sys.stdout.buffer)  # JSON is UTF-8, whatever the locale says
            sys.stdout.flush()
        if code:
            note(errors.read_text("utf-8").rstrip() if out == STDIO else f"bad lines with their errors: {errors}")
    raise typer.Exit(code)


@with_option_groups
def audit(
    *,
    answer: Annotated[Path, typer.Option(callback=input_file, help="The answer, text or Markdown; - for stdin.")],
    evidence: Evidence,
    question: Annotated[str | None, typer.Option(help="The question that it answers.")] = None,
    html: Annotated[
        Path | None, typer.Option(callback=output_file, help="Write the report to this file, to open in a browser.")
    ] = None,
    options: GateOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print the audit as JSON.")] = False,
) -> None:
    """Judge a whole answer, statement by statement: what holds, on what evidence, and what may go out.

    --h-star is the error budget of the whole answer. For a file of answers: isr-rag batch --audit.
    """
    own = html and Path(os.path.realpath(html))
    if own and any(own.is_relative_to(os.path.realpath(one)) for one in (STDIO, answer, *map(Path, evidence))):
        raise typer.BadParameter("--html names a file of its own, outside of the evidence")
    if answer == STDIO and "-" in evidence:
        raise typer.BadParameter("standard input is either the answer or the evidence")
    from isr_rag.io.sources import read_evidence, read_text

    with console.status("reading the evidence") as status:
        text = read_text(answer)
        chunks = read_evidence(evidence, note=note)
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
