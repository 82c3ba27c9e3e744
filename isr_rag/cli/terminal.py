"""What the commands share: the console for messages, progress columns, exit codes."""

from __future__ import annotations

import errno
import sqlite3
import sys
from typing import Any

import typer

from isr_rag.errors import ConfigurationError, ISRError, MissingDependencyError, ReferenceFailedError, ScorerError
from isr_rag.printable import printable

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
except ImportError as error:
    raise MissingDependencyError("the command line", error.name or "rich", "cli") from error

EXIT_BAD, EXIT_USAGE, EXIT_ABSTAIN = 1, 2, 3
EXIT_LINES = 4
"""A file was decided, without some bad lines."""
EXIT_STOPPED = 5
"""The scorer, the reference, a disk or the network failed; the same command goes on from there."""
EXIT_INTERRUPTED = 130
"""Stopped from the keyboard, as shells count it."""

_WRONG_PATH = (
    errno.ENOENT,
    errno.EACCES,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


class _PlainConsole(Console):
    """Shows texts from outside, such as names of files and words of servers, without what would control a terminal."""

    def print(self, *objects: Any, **settings: Any) -> None:
        """As rich's own."""
        super().print(*(printable(o, None) if isinstance(o, str) else o for o in objects), **settings)


console = _PlainConsole(stderr=True)


def say(text: object) -> None:
    """Print a result, without what would control a terminal."""
    print(printable(str(text), None))


def columns(doing: str) -> tuple[ProgressColumn, ...]:
    """A progress bar that says what is being done."""
    return TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()


def run_app(app: typer.Typer) -> None:
    """Run a command line: every error that can be expected becomes one line and an exit code that says its kind."""
    try:
        code = app(standalone_mode=False, prog_name=app.info.name)
    except typer.Abort:
        _complain("stopped")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        sys.exit(EXIT_BAD)
    except (ScorerError, ReferenceFailedError) as error:
        _complain(f"error: {error}", error)
        sys.exit(EXIT_STOPPED)
    except ISRError as error:  # some are OSErrors as well, such as that of a model that is not there
        _complain(f"error: {error}", error)
        sys.exit(EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_BAD)
    except (OSError, sqlite3.Error) as error:
        _complain(f"error: {error}", error)
        sys.exit(EXIT_BAD if getattr(error, "errno", None) in _WRONG_PATH else EXIT_STOPPED)
    except Exception as error:
        usage = getattr(error, "format_message", None)  # of the command line itself: typer carries its own click
        if usage is None:
            raise
        _complain(f"error: {usage()}")
        context = getattr(error, "ctx", None)
        if context is not None:
            _complain(f"  {context.command_path} --help lists the options")
        sys.exit(getattr(error, "exit_code", EXIT_USAGE))
    sys.exit(code if isinstance(code, int) else 0)


def _complain(text: str, error: BaseException | None = None) -> None:
    for line in (text, *(f"  {note}" for note in getattr(error, "__notes__", []))):
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
