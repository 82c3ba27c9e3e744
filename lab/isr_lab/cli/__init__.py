"""`isr-lab`: building data, training adjudicators, and the paper's experiments."""

from __future__ import annotations

import typer

from isr_lab.cli.answers import answers
from isr_lab.cli.contrast import contrast
from isr_lab.cli.data import documents, mix_app, ship, slice_app, train
from isr_lab.cli.experiment import experiment_app
from isr_rag.cli.terminal import run_app

app = typer.Typer(
    name="isr-lab",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Build data, train adjudicators, and rerun the paper's experiments.",
)
for command in (documents, train, ship, contrast, answers):
    app.command()(command)
app.add_typer(slice_app, name="slice")
app.add_typer(mix_app, name="mix")
app.add_typer(experiment_app, name="experiment")


def main() -> None:
    """Entry point: errors of these packages become one line and exit code 1."""
    run_app(app)
