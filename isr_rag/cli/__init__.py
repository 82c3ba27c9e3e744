"""``isr-rag``: every command one call into the library."""

from __future__ import annotations

import sys

from isr_rag.errors import ISRError, MissingDependencyError

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("the command line", error.name or "typer", "cli") from error

from isr_rag.cli import check, deciding, doctor
from isr_rag.cli.data import mix_app, ship, slice_app, train
from isr_rag.cli.experiment import experiment_app
from isr_rag.cli.terminal import EXIT_BAD, console

app = typer.Typer(
    name="isr-rag",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Decide whether retrieved evidence carries an answer, whatever order it stands in.",
)
for command in (check.check, deciding.calibrate, deciding.setup, deciding.demo, doctor.doctor, train, ship):
    app.command()(command)
app.add_typer(slice_app, name="slice")
app.add_typer(mix_app, name="mix")
app.add_typer(experiment_app, name="experiment")


def main() -> None:
    """Entry point: errors of this package become one line and exit code 1."""
    try:
        app()
    except ISRError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        for note in getattr(error, "__notes__", []):
            console.print(f"  {note}", markup=False, highlight=False)
        sys.exit(EXIT_BAD)
