"""What the commands share: the console for messages, progress columns, exit codes."""

from __future__ import annotations

import sys

import typer

from isr_rag.errors import ISRError, MissingDependencyError

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
except ImportError as error:
    raise MissingDependencyError("the command line", error.name or "rich", "cli") from error

EXIT_BAD, EXIT_USAGE, EXIT_ABSTAIN = 1, 2, 3
console = Console(stderr=True)


def columns(doing: str) -> tuple[ProgressColumn, ...]:
    """A progress bar that says what is being done."""
    return TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()


def run_app(app: typer.Typer) -> None:
    """Run a command line: errors of this package become one line and exit code 1."""
    try:
        app()
    except ISRError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        for note in getattr(error, "__notes__", []):
            console.print(f"  {note}", markup=False, highlight=False)
        sys.exit(EXIT_BAD)
