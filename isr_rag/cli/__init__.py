"""`isr-rag`: every command is one call into the library."""

from __future__ import annotations

from isr_rag.errors import MissingDependencyError

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("the command line", error.name or "typer", "cli") from error

from isr_rag.cli import check, deciding, doctor, moved
from isr_rag.cli.terminal import run_app

app = typer.Typer(
    name="isr-rag",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Decide whether retrieved evidence carries an answer, in whatever order it is retrieved.",
)
for command in (check.check, deciding.calibrate, deciding.setup, deciding.demo, doctor.doctor):
    app.command()(command)
moved.register(app)


def main() -> None:
    """Entry point: errors of this package become one line and exit code 1."""
    run_app(app)
