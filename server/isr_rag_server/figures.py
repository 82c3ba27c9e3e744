"""What the reports share: intervals of shares, bins of equal mass, and how plots look."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#6E6E6E"
"""Of the Okabe-Ito palette: apart for every kind of colour vision, and by lightness in a grey print."""


def wilson_interval(count: int, of: int) -> tuple[float, float]:
    """Ends of the 95% Wilson score interval of a share, of one item at least."""
    from scipy.stats import binomtest

    low, high = binomtest(count, of).proportion_ci(0.95, method="wilson")
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Bins:
    """A reliability diagram without empty bins: mean score, share of label 1, and items; shape (k,) each."""

    confidence: NDArray[np.float64]
    frequency: NDArray[np.float64]
    count: NDArray[np.int64]


def reliability_bins(scores: NDArray[np.float64], labels: NDArray[np.int64], bins: int) -> Bins:
    """Mean score and observed frequency in at most `bins` bins of equal mass; equal scores share a bin."""
    edges = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, bins + 1)))
    index = np.searchsorted(edges[1:-1], scores, side="right")
    count = np.bincount(index)
    used = count > 0
    mean, rate = (np.bincount(index, weights=values)[used] / count[used] for values in (scores, labels))
    return Bins(mean, rate, count[used].astype(np.int64))


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
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()
