"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from isr_rag.adjudicators import DEFAULT, AdjudicatorName

Model = Annotated[
    str | None,
    typer.Option(
        help="A model of transformers: Hub name, folder or .gguf file. Default: an adjudicator of this package. "
        "With --server: the name it is served under."
    ),
]
Servers = Annotated[
    list[str] | None,
    typer.Option("--server", help="URL of an OpenAI-compatible server; repeatable for replicas of one model."),
]
Tokenizer = Annotated[
    str | None, typer.Option(help="Tokenizer of the served model, to render prompts here: Hub name or folder.")
]


AdjudicatorOption = Annotated[
    AdjudicatorName | None,
    typer.Option("--adjudicator", help=f"The model of this package that judges. Default: {DEFAULT}."),
]


def check_scorer_options(
    *,
    model: str | None = None,
    servers: list[str] | None = None,
    tokenizer: str | None = None,
    adapter: Path | None = None,
    adjudicator: str | None = None,
) -> None:
    """Whether the options of a scorer go together.

    Raises:
        typer.BadParameter: if they do not.
    """
    if tokenizer is not None and not servers:
        raise typer.BadParameter("--tokenizer is that of a served model: give --server too")
    if adapter is not None and (servers or model is not None):
        raise typer.BadParameter("--adapter is one of an adjudicator: give neither --model nor --server")
    if adjudicator is not None and (servers or model is not None):
        raise typer.BadParameter("--adjudicator names a model of this package: give neither --model nor --server")


def words(text: str) -> int | Literal["auto"] | None:
    """The option `--focus`: a number of words, `auto`, or None for `none`.

    Raises:
        typer.BadParameter: for anything else.
    """
    if text == "auto":
        return "auto"
    if text == "none":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"--focus takes a number of words, auto or none, not {text!r}") from error
