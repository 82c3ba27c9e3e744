"""What the commands share: the console for messages, progress columns, exit codes."""

from __future__ import annotations

from isr_rag.errors import MissingDependencyError

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
except ImportError as error:
    raise MissingDependencyError("the command line", error.name or "rich", "cli") from error

EXIT_BAD, EXIT_ABSTAIN = 1, 3
console = Console(stderr=True)


def columns(doing: str) -> tuple[ProgressColumn, ...]:
    """A progress bar that says what is being done."""
    return TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
