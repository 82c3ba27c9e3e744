"""The small sample of items that comes with the package."""

from __future__ import annotations

from importlib import resources

from isr_lab.slice.reading import parse_lines
from isr_lab.slice.schema import SliceItem


def load_sample() -> list[SliceItem]:
    """A few dozen items of every source and kind; `slice_sample.ATTRIBUTION.md` beside it says whose texts."""
    text = resources.files("isr_lab.data").joinpath("slice_sample.jsonl").read_text(encoding="utf-8")
    return list(parse_lines(text.split("\n"), "the packaged sample"))
