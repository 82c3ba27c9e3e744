"""Reports for people: one self-contained HTML page, and a Markdown twin with its pictures beside it."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from isr_lab.experiments.sections import Cell, Figure, Section, Table
from isr_lab.plots import DPI
from isr_lab.tables import markdown_table
from isr_rag._util.files import write_atomically
from isr_rag._util.text import in_markdown
from isr_rag.errors import InvalidInputError

NONE = "—"
"""What is in a table where a figure is undefined."""

_CSS_DPI = 96


@dataclass(frozen=True, slots=True)
class Report:
    """What a report says.

    Attributes:
        title: heading.
        question: what was asked, one sentence; may be empty.
        summary: plain sentences: what came out.
        sections: the rest, in order.
    """

    title: str
    question: str
    summary: Sequence[str]
    sections: Sequence[Section]


@dataclass(frozen=True, slots=True)
class Entry:
    """A report in an index.

    Attributes:
        folder: where it lies, relative to the index, with `/`.
        title: of the report.
        about: model, slice and cost in one line.
        summary: of the report.
    """

    folder: str
    title: str
    about: str
    summary: Sequence[str]


def write_report(report: Report, folder: Path) -> None:
    """Write `report.html`, `report.md` and `figures/*.png`, each atomically.

    Pictures of an earlier report that this one does not have are removed.

    Raises:
        InvalidInputError: if two figures have the same name.
    """
    figures = [part for section in report.sections for part in section.parts if isinstance(part, Figure)]
    pictures = {f"{figure.name}.png": figure.png for figure in figures}
    if len(pictures) < len(figures):
        raise InvalidInputError(f"figures of one report need names of their own: {[f.name for f in figures]}")
    page = html(report)
    for name, picture in pictures.items():
        write_atomically(folder / "figures" / name, picture)
    for old in (folder / "figures").glob("*.png"):
        if old.name not in pictures:
            old.unlink()
    write_atomically(folder / "report.md", markdown(report))
    write_atomically(folder / "report.html", page)


def write_index(title: str, entries: Sequence[Entry], folder: Path) -> None:
    """Write `index.html` and `index.md`: the summary of every report, with a link."""
    lines = [f"# {in_markdown(title)}"]
    for entry in entries:
        lines += [
            "",
            f"## [{in_markdown(entry.title)}]({quote(entry.folder)}/report.md)",
            "",
            in_markdown(entry.about),
            "",
        ]
        lines += [f"- {in_markdown(sentence)}" for sentence in entry.summary]
    write_atomically(folder / "index.html", _template("experiment_index.html").render(title=title, entries=entries))
    write_atomically(folder / "index.md", "\n".join(lines) + "\n")


def html(report: Report) -> str:
    """The page: style and pictures inside, no scripts, nothing loaded from elsewhere."""
    tables, figures = count(1), count(1)
    sections = [
        {"title": section.title, "parts": [_for_page(part, tables, figures) for part in section.parts]}
        for section in report.sections
    ]
    return str(_template("experiment_report.html").render(report=report, sections=sections))


def markdown(report: Report) -> str:
    """The same content in Markdown; pictures are expected under `figures/`."""
    tables, figures = count(1), count(1)
    lines = [f"# {in_markdown(report.title)}", ""]
    if report.question:
        lines += [f"*{in_markdown(report.question)}*", ""]
    lines += ["## Summary", "", *(f"- {in_markdown(sentence)}" for sentence in report.summary)]
    for section in report.sections:
        lines += ["", f"## {in_markdown(section.title)}"]
        for part in section.parts:
            lines += ["", *_in_markdown(part, tables, figures)]
    return "\n".join(lines) + "\n"


def cell_text(value: Cell) -> str:
    """A cell as text: numbers to four significant digits, whole numbers as they are, a dash for None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    rounded = float(f"{value:.4g}")
    return f"{rounded:.0f}" if 1e4 <= abs(rounded) < 1e15 else f"{rounded + 0.0:.4g}"


def _for_page(part: str | Table | Figure, tables: Iterator[int], figures: Iterator[int]) -> Mapping[str, Any]:
    """What the template shows of a part."""
    if isinstance(part, str):
        return {"text": part}
    if isinstance(part, Figure):
        wide, high = struct.unpack(">II", part.png[16:24])  # the first chunk of every PNG begins with its size
        return {
            "src": "data:image/png;base64," + base64.b64encode(part.png).decode(),
            "width": round(wide * _CSS_DPI / DPI),
            "height": round(high * _CSS_DPI / DPI),
            "caption": part.caption,
            "number": next(figures),
        }
    return {
        "caption": part.caption,
        "header": part.header,
        "rows": [[cell_text(cell) for cell in row] for row in part.rows],
        "numeric": _numeric(part),
        "note": part.note,
        "number": next(tables),
    }


def _in_markdown(part: str | Table | Figure, tables: Iterator[int], figures: Iterator[int]) -> list[str]:
    if isinstance(part, str):
        return [in_markdown(part)]
    if isinstance(part, Figure):
        caption = in_markdown(part.caption)
        return [
            f"![{caption}](figures/{quote(part.name)}.png)",
            "",
            f"**Figure {next(figures)}.** {caption}",
        ]
    lines = [
        f"**Table {next(tables)}.** {in_markdown(part.caption)}",
        "",
        *markdown_table(
            [in_markdown(name) for name in part.header],
            [[in_markdown(cell_text(cell)) for cell in row] for row in part.rows],
            numeric=[column for column, numbers in enumerate(_numeric(part)) if numbers],
        ).splitlines(),
    ]
    return [*lines, "", in_markdown(part.note)] if part.note else lines


def _numeric(table: Table) -> list[bool]:
    """For each column whether it holds numbers only.

    Raises:
        InvalidInputError: for a row that is longer or shorter than the header.
    """
    if any(len(row) != len(table.header) for row in table.rows):
        raise InvalidInputError(f"a row of the table {table.caption!r} has more or fewer cells than its header")
    return [
        bool(table.rows) and all(row[k] is None or isinstance(row[k], (int, float)) for row in table.rows)
        for k in range(len(table.header))
    ]


@cache
def _template(name: str) -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("isr_lab", "data"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(name)
