"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from isr_rag.adjudicators import DEFAULT, AdjudicatorName
from isr_rag.printable import printable

STDIO = Path("-")
"""Standard input or output in place of a file."""


def input_file(path: Path | None) -> Path | None:
    """An input that is there, or `STDIO`.

    Raises:
        typer.BadParameter: if it is not a file.
    """
    if path is not None and path != STDIO and not _is(path, Path.is_file):
        raise typer.BadParameter(f"{_shown(path)} is a folder" if _is(path, Path.is_dir) else f"no file {_shown(path)}")
    return path


def output_file(path: Path | None) -> Path | None:
    """An output that can be there, or `STDIO`.

    Raises:
        typer.BadParameter: if it is a folder, or its own folder is missing.
    """
    if path is None or path == STDIO:
        return path
    if _is(path, Path.is_dir):
        raise typer.BadParameter(f"{_shown(path)} is a folder: name a file in it")
    if not _is(path.parent, Path.is_dir) or (path.is_symlink() and not _is(path, Path.is_file)):
        raise typer.BadParameter(f"{_shown(path)} cannot be written: there is no folder {_shown(path.parent)}")
    return path


def folder(path: Path | None) -> Path | None:
    """A folder that is there or can be made.

    Raises:
        typer.BadParameter: if a file is in its place.
    """
    if path is None:
        return None
    try:
        first = next(place for place in (path, *path.parents) if place.exists() or place.is_symlink())
    except OSError as error:
        raise typer.BadParameter(f"{_shown(path)}: {error.strerror}") from error
    if not _is(first, Path.is_dir):
        raise typer.BadParameter(f"{_shown(first)} is not a folder")
    return path


def _is(path: Path, kind: Callable[[Path], bool]) -> bool:
    try:
        return kind(path)
    except OSError:  # such as a name that is too long
        return False


def _shown(path: Path) -> str:
    return printable(str(path), 200)


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

CalibrationFile = Annotated[
    Path | None,
    typer.Option("--calibration", callback=input_file, help="Calibration that belongs to the model."),
]

PRef = Annotated[float | None, typer.Option("--p-ref", help="An oracle's probability that the predicate holds.")]

Orderings = Annotated[int, typer.Option("--m", help="Number of orderings.")]

Focus = Annotated[str, typer.Option("--focus", help="Words of evidence to read: a number, auto, or none.")]

Cache = Annotated[Path | None, typer.Option("--cache", file_okay=False, help="Directory that remembers every score.")]


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
