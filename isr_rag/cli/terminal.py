"""The console for messages, progress bars, and exit codes."""

from __future__ import annotations

import errno
import io
import sqlite3
import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from isr_rag._util.text import printable
from isr_rag.errors import ConfigurationError, ISRError, ReferenceFailedError, ScorerError

if TYPE_CHECKING:
    from isr_rag.io import Summary

_T = TypeVar("_T")
EXIT_BAD, EXIT_USAGE, EXIT_ABSTAIN = 1, 2, 3
EXIT_LINES = 4  # a file was decided, without some bad lines
EXIT_STOPPED = 5  # the scorer, the reference, a disk or the network failed; the same command goes on from there
EXIT_INTERRUPTED = 130  # stopped from the keyboard, as shells count it

_WRONG_PATH = (errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENAMETOOLONG)


class _PlainConsole(Console):
    """Prints text from outside, such as file names and servers' messages, without terminal control characters."""

    def print(self, *objects: Any, **settings: Any) -> None:
        """As rich's own."""
        super().print(*(printable(o, None) if isinstance(o, str) else o for o in objects), **settings)


console = _PlainConsole(stderr=True)


def say(text: object) -> None:
    """Print a result, without terminal control characters."""
    print(printable(str(text), None))


def tell(line: str, style: str | None = None) -> None:
    """Print a message beside the result, as it is and unwrapped."""
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def note(line: str) -> None:
    """Print a message that should be noticed."""
    tell(line, "yellow")


def columns(doing: str) -> tuple[ProgressColumn, ...]:
    """A progress bar that says what is being done."""
    return TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()


def behind_a_bar(doing: str, run: Callable[[Callable[[int, int], None]], _T], *, after: str) -> _T:
    """What `run` returns, which gets a function to call with the number done and of all, for a progress bar.

    Where nobody watches (a log), a line a minute stands for the bar. `after` says what follows Ctrl-C.
    """
    bar, told = Progress(*columns(doing), console=console), perf_counter()
    task = bar.add_task("", total=None)

    def update(done: int, total: int) -> None:
        nonlocal told
        bar.update(task, completed=done, total=total)
        if not console.is_terminal and perf_counter() - told > 60:
            told = perf_counter()
            tell(f"{doing}: {done} of {total}")

    try:
        with bar:
            return run(update)
    except KeyboardInterrupt:
        note(f"stopped at {bar.tasks[0].completed:.0f} of {bar.tasks[0].total or 0:.0f}; {after}")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def over_file(doing: str, run: Callable[[Callable[[int, int], None]], Summary], *, after: str) -> int:
    """Work through the lines of a file as `behind_a_bar`, print a summary, and return the exit code."""
    begun, summary = perf_counter(), behind_a_bar(doing, run, after=after)
    seconds, lines = perf_counter() - begun, summary.decided + summary.bad
    before = f" ({summary.resumed} of them by an earlier run)" if summary.resumed else ""
    counted = sorted(summary.abstained.items(), key=lambda one: (-one[1], one[0]))
    held = f"{sum(summary.abstained.values())} held back"
    if reasons := ", ".join(f"{count} {reason}" for reason, count in counted):
        held += f" ({reasons})"
    tell(f"{lines} lines in {seconds:.1f} s{before}: {summary.answered} answered, {held}, {summary.bad} bad")
    return EXIT_LINES if summary.bad else 0


def run_app(app: typer.Typer) -> None:
    """Run a command line: warnings and expected errors become one line, and errors an exit code for their kind."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # where the locale lacks a character
    try:
        code = app(standalone_mode=False, prog_name=app.info.name)
    except typer.Abort:
        _complain("stopped")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        sys.exit(EXIT_BAD)
    except (ISRError, OSError, sqlite3.Error) as error:
        _complain(f"error: {error}", error)
        sys.exit(_exit_code(error))
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


def _exit_code(error: Exception) -> int:
    if isinstance(error, (ScorerError, ReferenceFailedError)):
        return EXIT_STOPPED
    if isinstance(error, ISRError):  # some are OSErrors as well, such as that of a model that is not there
        return EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_BAD
    return EXIT_BAD if getattr(error, "errno", None) in _WRONG_PATH else EXIT_STOPPED


def _complain(text: str, error: BaseException | None = None) -> None:
    for line in (text, *(f"  {added}" for added in getattr(error, "__notes__", []))):
        tell(line, "red")
