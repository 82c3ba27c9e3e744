"""How plots look: axes with grid, colours that every kind of colour vision tells apart, PNG bytes."""

from __future__ import annotations

import io
from typing import Any

BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#6E6E6E",
)  # fmt: skip
"""The Okabe-Ito palette: apart for every kind of colour vision, and by lightness in a grey print."""
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY)
MARKERS = "osD^vPX"
DPI = 160


def new_figure(width: float, height: float) -> Any:
    """A figure of its own canvas, in inches, so that no global state of matplotlib is touched."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def style(axes: Any) -> None:
    """Left and lower spine, a faint grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)


def png(figure: Any) -> bytes:
    """The figure as PNG, the same bytes for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()
