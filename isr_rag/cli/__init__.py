"""`isr-rag`: every command is one call into the library."""

from __future__ import annotations

import sys

from isr_rag.errors import MissingDependencyError


def main() -> None:
    """Entry point: errors of this package become one line and an exit code that says their kind."""
    try:
        from isr_rag.cli.app import app
        from isr_rag.cli.terminal import run_app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"error: {MissingDependencyError('the command line', error.name, 'cli')}")
    run_app(app)
