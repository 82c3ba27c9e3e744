"""`isr-rag check` decides about one item, `isr-rag batch` about every line of a file."""

from __future__ import annotations

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
    "isr-rag batch in.jsonl --out out.jsonl --ray --workers 8",
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
