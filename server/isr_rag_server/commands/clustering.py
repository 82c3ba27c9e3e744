"""`isr-rag ray`: what `isr-rag batch` does, on a Ray cluster."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from isr_rag.cli.deciding import Cascade, ConventionOption
from isr_rag.cli.options import STDIO, Force, GateOptions, input_file, output_file, with_option_groups
from isr_rag.cli.terminal import note, over_file
from isr_rag.core.settings import Rule

EXAMPLES = """[bold]Example[/bold]

isr-rag ray in.jsonl --out out.jsonl --workers 8"""


@with_option_groups
def ray(
    *,
    items: Annotated[Path, typer.Argument(callback=input_file, help="JSONL, as for isr-rag batch.")],
    out: Annotated[Path, typer.Option(callback=output_file, help="JSONL.")],
    force: Force = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of gates. Default: one per GPU, else one per CPU.")
    ] = None,
    options: GateOptions,
    convention: ConventionOption = "safe",
    cascade: Cascade = False,
) -> None:
    """Decide about every line of a file on a Ray cluster; isr-rag batch may go on with it, and the other way round.

    What is done of a file is kept when a run stops, and the same command goes on from there.
    """
    if STDIO in (items, out):
        raise typer.BadParameter("isr-rag ray reads and writes files")
    from isr_rag.gate.reader import Reader
    from isr_rag_server.cluster import check_file_on_ray, on_gpus

    folder = options.calibration if options.calibration is not None and options.calibration.is_dir() else None
    make_gate = options.gate_maker(rule=Rule(convention=convention), cascade=cascade, keep_states=False)
    gpus = on_gpus(**(asdict(options) if folder is None else Reader.load(folder)[0].scorer))
    code = over_file(
        "deciding",
        lambda progress: check_file_on_ray(
            make_gate, items, out, workers=workers, gpus=gpus, progress=progress, force=force
        ),
        after="run the same command to resume",
    )
    if code:
        note(f"bad lines with their errors: {out}.errors.jsonl")
    raise typer.Exit(code)
