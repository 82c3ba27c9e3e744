"""Reading built items, and the small sample that comes with the package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from isr_rag.errors import InvalidInputError
from isr_rag.evaluation.slice.schema import SliceItem


def read_items(path: Path) -> Iterator[SliceItem]:
    """The items of one built file.

    Raises:
        InvalidInputError: if there is no such file, or at the first line that is no item, with its number and what is
            wrong with it.
    """
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}: make items with isr-rag slice build")
    with path.open(encoding="utf-8", newline="\n") as lines:
        yield from _parsed(lines, str(path))


def load_sample() -> list[SliceItem]:
    """A few dozen items of every source and kind; ``slice_sample.ATTRIBUTION.md`` beside it says whose texts."""
    text = resources.files("isr_rag.data").joinpath("slice_sample.jsonl").read_text(encoding="utf-8")
    return list(_parsed(text.split("\n"), "the packaged sample"))


def _parsed(lines: Iterator[str] | list[str], name: str) -> Iterator[SliceItem]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield SliceItem.model_validate_json(line)
            except ValidationError as error:
                raise InvalidInputError(f"{name}, line {number} is no item of the slice: {error}") from error
