"""`isr-rag report`: what a gate did, from its log. `isr-rag compare`: calibrated readers side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isr_rag.cli.options import input_file, output_file
from isr_rag.cli.terminal import note, say, tell

EXAMPLES = """[bold]Examples[/bold]

isr-rag serve --log decisions.jsonl

isr-rag report decisions.jsonl --out report.html

isr-rag report decisions.jsonl --labels labels.jsonl --out report.json"""
COMPARE_EXAMPLES = """[bold]Examples[/bold]

isr-rag calibrate --model bm25 --out bm25/ && isr-rag calibrate --model overlap --out overlap/

isr-rag compare bm25/ overlap/ --out comparison/"""


def report(
    log: Annotated[
        Path,
        typer.Argument(callback=input_file, help="Log of isr-rag serve, or output of isr-rag batch: JSONL."),
    ],
    out: Annotated[
        list[Path], typer.Option(help="The report: a page, or JSON where the name ends in .json; repeatable.")
    ],
    labels: Annotated[
        Path | None,
        typer.Option(callback=input_file, help='What is known since: {"id", "label"} per line; 1 where it holds.'),
    ] = None,
    windows: Annotated[int, typer.Option(min=1, max=200, help="Windows of time at most.")] = 24,
) -> None:
    """Report what a gate did: answers, reasons, wrong answers where labels came back, shift, and cost."""
    from isr_rag_server.traffic import read_log, report_of
    from isr_rag_server.traffic.page import write_report

    for path in out:
        output_file(path)
        not_an_input(path, log, labels)
    read = read_log(log, labels)
    found = report_of(read, windows=windows)
    for path in out:
        write_report(found, path)
    for line in read.complaints:
        note(line)
    answered = found.answered
    tell(f"{found.decisions:,} decisions, {answered.count:,} answered; {found.bad_lines} bad lines")


def not_an_input(out: Path | None, *inputs: Path | None) -> None:
    """Refuse an output that would overwrite what is read; a typer.BadParameter."""
    for given in inputs:
        if out is not None and given is not None and out.exists() and given.exists() and out.samefile(given):
            raise typer.BadParameter(f"--out {out} is what is read itself: name another file")


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of `isr-rag calibrate`, two at least.")],
    out: Annotated[Path | None, typer.Option(file_okay=False, help="Folder for compare.md and compare.png.")] = None,
) -> None:
    """Put calibrated readers side by side: ranking, coverage at equal risk, time."""
    from isr_rag_server.comparing import compare_readers

    say(compare_readers(folders, out))
