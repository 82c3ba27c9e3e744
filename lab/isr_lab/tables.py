"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tabulate import tabulate


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Collection[int] = ()) -> str:
    """A table as Markdown, with pipes in its cells escaped.

    Args:
        header: names of the columns.
        rows: cells, as many per row as the header has.
        numeric: columns that are aligned to the right.
    """
    cells = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in [header, *rows]]
    sides = ["right" if column in numeric else "left" for column in range(len(header))]
    return tabulate(cells[1:], cells[0], tablefmt="pipe", colalign=sides, disable_numparse=True)
