"""Data and training: the Factuality Slice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import Progress, TaskID

from isr_rag.cli.terminal import columns, console

slice_app = typer.Typer(no_args_is_help=True, help="The Factuality Slice: real items with evidence and labels.")


@slice_app.command()
def build(
    out: Annotated[Path, typer.Option(help="Folder to write: train, val and test, a data card, a report.")],
    raw: Annotated[
        Path | None, typer.Option(help="Folder with the raw files. Without it the originals are downloaded.")
    ] = None,
    layout: Annotated[
        Literal["sentences", "passages"], typer.Option(help="Chunks of 48 tokens, or passages of 100 to 300.")
    ] = "sentences",
    preset: Annotated[
        Literal["paper", "training"], typer.Option(help="The paper's caps and sizes, or all items in small sets.")
    ] = "paper",
    seed: Annotated[int, typer.Option(help="Everything drawn depends on it.")] = 42,
) -> None:
    """Build the slice; the same raw files and settings give the same bytes."""
    from isr_rag.evaluation.slice import build_slice, paper_config, training_config

    config = (paper_config if preset == "paper" else training_config)(layout=layout, seed=seed)
    with Progress(*columns("{task.description}"), console=console) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(step)
            bar.update(tasks[step], total=total, completed=done)

        report = build_slice(raw, out, config, progress)
    console.print(str(report), markup=False)
