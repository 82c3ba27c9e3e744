"""Commands that join `isr-rag` when this package is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def register(app: typer.Typer, calibrate: typer.Typer) -> None:
    """Add all commands, and to `calibrate` those that need a log (an entry point)."""
    from isr_rag_server.commands import clustering, labelling, reporting, serving

    app.command(epilog=serving.SERVE_EXAMPLES)(serving.serve)
    app.command(epilog=serving.MCP_EXAMPLES)(serving.mcp)
    app.command(epilog=reporting.EXAMPLES)(reporting.report)
    app.command(epilog=reporting.COMPARE_EXAMPLES)(reporting.compare)
    app.command(epilog=clustering.EXAMPLES)(clustering.ray)
    calibrate.command(epilog=labelling.COLLECT_EXAMPLES)(labelling.collect)
    calibrate.command("next", epilog=labelling.NEXT_EXAMPLES)(labelling.draw)
    calibrate.command(epilog=labelling.LABEL_EXAMPLES)(labelling.label)
    calibrate.command(epilog=labelling.REPORT_EXAMPLES)(labelling.report)
