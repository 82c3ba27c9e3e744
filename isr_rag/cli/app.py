"""The commands of `isr-rag`, put together."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from isr_rag import __version__
from isr_rag.cli import deciding, preparing
from isr_rag.errors import MissingDependencyError

EXIT_CODES = (
    "Exit codes: 0 answered, or done; 3 abstained; 4 a file decided except for its bad lines; 1 bad input; 2 bad "
    "options; 5 a model, server, disk or network failed; 130 stopped with Ctrl-C."
)

app = typer.Typer(name="isr-rag", no_args_is_help=True, rich_markup_mode="rich", epilog=EXIT_CODES)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"isr-rag {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Decide whether retrieved evidence carries an answer, in whatever order it is retrieved."""


def _examples(lines: tuple[str, ...], exit_codes: str = "") -> str:
    return "\n\n".join([f"[bold]Example{'s' if len(lines) > 1 else ''}[/bold]", *lines, exit_codes]).strip()


app.command(epilog=_examples(deciding.CHECK_EXAMPLES, EXIT_CODES))(deciding.check)
app.command(epilog=_examples(deciding.BATCH_EXAMPLES, EXIT_CODES))(deciding.batch)
app.command(epilog=_examples(deciding.AUDIT_EXAMPLES, EXIT_CODES))(deciding.audit)
calibrating = typer.Typer(rich_markup_mode="rich", epilog=_examples(preparing.CALIBRATE_EXAMPLES))
calibrating.callback(invoke_without_command=True)(preparing.calibrate)
app.add_typer(calibrating, name="calibrate")
app.command(epilog=_examples(preparing.SETUP_EXAMPLES))(preparing.setup)
app.command(epilog=_examples(preparing.DEMO_EXAMPLES))(preparing.demo)
app.command(epilog=_examples(preparing.DOCTOR_EXAMPLES, preparing.DOCTOR_EXIT_CODES))(preparing.doctor)

COMMANDS = "isr_rag.commands"
"""Group of entry points by which other distributions add commands; each is called with `app` and `calibrating`."""
ELSEWHERE = {"": ("serve", "mcp", "report", "compare", "ray"), "calibrate ": ("collect", "next", "label", "report")}
"""The commands that isr-rag-server adds."""


def _say_what_to_install(group: typer.Typer, prefix: str, name: str) -> None:
    @group.command(name, hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def say() -> None:  # pyright: ignore[reportUnusedFunction]
        raise MissingDependencyError(f"isr-rag {prefix}{name}", "isr_rag_server", None, "isr-rag-server")


for _found in sorted(entry_points(group=COMMANDS)):
    _found.load()(app, calibrating)
for _prefix, _names in ELSEWHERE.items():
    _group = calibrating if _prefix else app
    _there = {one.name or getattr(one.callback, "__name__", "") for one in _group.registered_commands}
    for _name in _names:
        if _name not in _there:
            _say_what_to_install(_group, _prefix, _name)
