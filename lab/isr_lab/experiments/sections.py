"""What a report is made of: text, tables and figures, in sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table; numbers are printed to four significant digits, None as a dash.

    Attributes:
        caption: what it shows, with units.
        header: column names.
        rows: one sequence of cells per row.
        note: what to mind when reading it.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot.

    Attributes:
        name: file name without suffix; unique in the report.
        caption: what it shows; it is also the text alternative of the picture.
        png: the picture.
    """

    name: str
    caption: str
    png: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: a heading and what follows it, in order.

    Attributes:
        title: the heading.
        parts: paragraphs (plain text), tables and figures.
    """

    title: str
    parts: Sequence[str | Table | Figure]
