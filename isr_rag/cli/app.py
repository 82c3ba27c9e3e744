"""The commands of `isr-rag`, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from isr_rag import __version__
from isr_rag.cli import audit, check, deciding, doctor, labelling, moved, reporting, serving

EXIT_CODES = (
    "Exit codes: 0 answered, or done; 3 abstained; 4 a file decided except for its bad lines; 1 bad input; 2 bad "
    "options; 5 a model, server, disk or network failed; 130 stopped with Ctrl-C."
)

app = typer.Typer(
    name="isr-rag",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=EXIT_CODES,
)


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


app.command(epilog=f"{check.EXAMPLES}\n\n{EXIT_CODES}")(check.check)
app.command(epilog=f"{audit.EXAMPLES}\n\n{EXIT_CODES}")(audit.audit)
calibrating = typer.Typer(rich_markup_mode="rich", epilog=deciding.CALIBRATE_EXAMPLES)
calibrating.callback(invoke_without_command=True)(deciding.calibrate)
calibrating.command(epilog=labelling.COLLECT_EXAMPLES)(labelling.collect)
calibrating.command("next", epilog=labelling.NEXT_EXAMPLES)(labelling.draw)
calibrating.command(epilog=labelling.LABEL_EXAMPLES)(labelling.label)
calibrating.command(epilog=labelling.REPORT_EXAMPLES)(labelling.report)
app.add_typer(calibrating, name="calibrate")
app.command(epilog=deciding.SETUP_EXAMPLES)(deciding.setup)
app.command(epilog=deciding.DEMO_EXAMPLES)(deciding.demo)
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)
app.command(epilog=serving.SERVE_EXAMPLES)(serving.serve)
app.command(epilog=serving.MCP_EXAMPLES)(serving.mcp)
app.command(epilog=reporting.EXAMPLES)(reporting.report)
moved.register(app)
