"""Pictures of a decision: a strip for notebooks and pages, and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isr_rag.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_WIDTH, _LEFT = 380.0, 10.0
_MOST_TICKS = 12


def strip(q: Sequence[float], p_star: float, p_ref: float | None, colour: str) -> str:
    """An inline SVG on [0, 1]: one dot per ordering, p_ref as a triangle, and the target p* as a dashed line.

    Lines and words take the colour of the text around them, on light and on dark pages.
    """
    if not q:
        return ""
    dots = "".join(f'<circle cx="{_x(q)}" cy="18" r="4" fill="{colour}" fill-opacity="0.5"/>' for q in q)
    target = _x(p_star)
    trusted = ""
    if p_ref is not None:
        x = _LEFT + _WIDTH * p_ref
        trusted = f'<path d="M{x:.1f} 12 l-5 -9 h10 z" fill="{colour}"/>'
    said = "one dot for every order" if len(q) == 1 else f"a dot for each of {len(q)} orders"
    return (
        f'<svg width="400" height="44" role="img" aria-label="model and reference on a scale from 0 to 1, {said}">'
        f'<line x1="{_LEFT}" y1="18" x2="{_LEFT + _WIDTH}" y2="18" stroke="currentColor" stroke-opacity="0.4"/>'
        f'<line x1="{target}" y1="2" x2="{target}" y2="30" stroke="currentColor" stroke-dasharray="2 2"/>'
        f'{trusted}{dots}<text x="{_LEFT}" y="40" font-size="10" fill="currentColor">0: no. '
        f"&#9662; trusted, &#9679; model ({said})</text>"
        f'<text x="{target}" y="40" font-size="10" fill="currentColor" text-anchor="middle">needed</text></svg>'
    )


def _x(probability: float) -> str:
    return f"{_LEFT + _WIDTH * probability:.1f}"


def plot(
    q: Sequence[float], p_star: float, p_ref: float | None, title: str, *, invariant: bool, ax: Axes | None = None
) -> Axes:
    """Plot probabilities, one an ordering, beside p_ref and p* (see `Decision.plot`)."""
    try:
        from matplotlib import pyplot as plt
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise MissingDependencyError("Decision.plot", "matplotlib", "plot") from error
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    mean = sum(q) / len(q)
    ax.plot(range(len(q)), q, "o", color="#0072b2", label="model")
    if not invariant:
        ax.axhline(mean, color="#009e73", label=f"mean {mean:.3f}")
        ax.axhline(min(q), color="#d55e00", linestyle=":", label=f"lowest {min(q):.3f}")
    if p_ref is not None:
        ax.axhline(p_ref, color="#cc79a7", linestyle="-.", label=f"trusted (p_ref) {p_ref:.3f}")
    ax.axhline(p_star, color="#767676", linestyle="--", label=f"needed (p*) {p_star:.3g}")
    ax.set(ylabel="probability that it holds", ylim=(-0.03, 1.03))
    if invariant:
        ax.set_xticks([0], ["every order, by construction"])
    else:
        ax.set_xlabel("order of the chunks (0 is the retriever's own)")
        ax.xaxis.set_major_locator(MaxNLocator(nbins=_MOST_TICKS, integer=True))
    ax.set_title(title, loc="left", fontsize=10)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return ax
