"""`isr-lab answers`: audits of labelled answers, the calibration that comes of them, and what they get right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from isr_rag.cli.terminal import columns, console


def answers(
    data: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder with the data sets.")],
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for rows, audit.json, answers.json and answers.md.")
    ],
    limit: Annotated[int | None, typer.Option(min=3, help="Most answers of a source. Default: all.")] = None,
    only: Annotated[list[str] | None, typer.Option("--only", help="Score only this source now; repeatable.")] = None,
    ragtruth: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Folder of RAGTruth's response.jsonl and source_info.jsonl."),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Measure with this audit.json instead of fitting one on the sources for that.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where the judge reads: cpu, cuda, cuda:1, ...")] = "cpu",
) -> None:
    """Audit labelled answers, fit the audit calibration, and measure it on sources that it was not fitted on.

    What was scored is kept in the folder, and the same command goes on from there.
    """
    from isr_lab.answers.fitting import fit
    from isr_lab.answers.readers import SOURCES, Source, ragtruth as read_ragtruth
    from isr_lab.answers.report import measure, report
    from isr_lab.answers.scoring import drawn, read, score
    from isr_rag import ISRGate
    from isr_rag._util.files import write_atomically, write_json
    from isr_rag.audit import AuditCalibration
    from isr_rag.gate.defaults import default_reference
    from isr_rag.scorers.load import load_scorer

    sources = [*SOURCES]
    if ragtruth is not None:
        sources.append(Source("ragtruth", str(ragtruth.resolve()), read_ragtruth, "test"))
    if unknown := sorted(set(only or ()) - {source.name for source in sources}):
        raise typer.BadParameter(f"no source {unknown}; there are {[source.name for source in sources]}")
    gate = ISRGate(load_scorer(device=device), default_reference())
    rows = out / "rows"
    for source in sources:
        if (only and source.name not in only) or not (data / source.file).exists():
            continue
        labelled = drawn(source.read(data / source.file), limit)
        cited = any(one.gold is not None for answer in labelled for one in answer.labels)
        with Progress(*columns(source.name), console=console) as bar:
            task = bar.add_task("", total=len(labelled))

            def progress(done: int, task: object = task, bar: Progress = bar) -> None:
                bar.update(task, completed=done)  # type: ignore[arg-type]

            path = rows / f"{source.name}.jsonl"
            score(gate, source.name, source.use, labelled, path, citations=cited, progress=progress)
    found = [
        one
        for source in sources
        for one in read(rows / f"{source.name}.jsonl")
        if (one.scorer, one.focus) == (gate.scorer.identity, gate.settings.max_words)
    ]
    fitted = fit(found) if calibration is None else AuditCalibration.load(calibration)
    figures = measure(found, fitted)
    told = report(figures, fitted)
    if calibration is None:
        fitted.save(out / "audit.json")
    write_json(out / "answers.json", json.loads(json.dumps(figures)))
    write_atomically(out / "answers.md", told)
    print(told)
