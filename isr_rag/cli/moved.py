"""Commands that moved to `isr-lab` in 0.2: they say where they went for one release."""

from __future__ import annotations

from collections.abc import Callable

import typer

from isr_rag.cli.terminal import EXIT_USAGE, console

MOVED = ("slice", "mix", "train", "ship", "experiment")


def register(app: typer.Typer) -> None:
    """Add a hidden command per moved one."""
    for name in MOVED:
        app.command(name, hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
            _moved(name)
        )


def _moved(name: str) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        console.print(
            f"isr-rag {name} moved to the laboratory: run isr-lab {name} {' '.join(context.args)}".rstrip(),
            style="red",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(EXIT_USAGE)

    command.__doc__ = f"Moved: use isr-lab {name}."
    return command
