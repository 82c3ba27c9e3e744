"""Pictures of a decision: a strip for notebooks and pages, and a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isr_rag.errors import InvalidInputError, MissingDependencyError
from isr_rag.explanation import headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isr_rag.decision import Decision

_WIDTH, _LEFT = 380.0, 10.0
_MOST_TICKS = 12


def strip(decision: Decision, colour: str) -> str:
    """An inline SVG on [0, 1]: one dot per ordering, p_ref as a triangle, and the target p* as a dashed line.

    Lines and words take the colour of the text around them, on light and on dark pages.
    """
    if not decision.q:
        return ""
    dots = "".join(f'<circle cx="{_x(q)}" cy="18" r="4" fill="{colour}" fill-opacity="0.5"/>' for q in decision.q)
    target = _x(decision.p_star)
    trusted = ""
    if decision.p_ref is not None:
        x = _LEFT + _WIDTH * decision.p_ref
        trusted = f'<path d="M{x:.1f} 12 l-5 -9 h10 z" fill="{colour}"/>'
    said = "one dot for every order" if decision.invariant else f"a dot for each of {len(decision.q)} orders"
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


def plot(decision: Decision, ax: Axes | None = None) -> Axes:
    """Plot the model's probability for each ordering beside what is trusted (p_ref) and what is needed (p*).

    Args:
        decision: what to draw.
        ax: matplotlib axes to draw on; a new figure by default.

    Raises:
        InvalidInputError: if nothing was scored.
        MissingDependencyError: if matplotlib is not installed.
    """
    if not decision.q:
        raise InvalidInputError("nothing was scored, so there is nothing to plot")
    try:
        from matplotlib import pyplot as plt
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise MissingDependencyError("Decision.plot", "matplotlib", "plot") from error
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    assert decision.q_bar is not None and decision.q_lo is not None
    ax.plot(range(len(decision.q)), decision.q, "o", color="#0072b2", label="model")
    if not decision.invariant:
        ax.axhline(decision.q_bar, color="#009e73", label=f"mean {decision.q_bar:.3f}")
        ax.axhline(decision.q_lo, color="#d55e00", linestyle=":", label=f"lowest {decision.q_lo:.3f}")
    if decision.p_ref is not None:
        ax.axhline(decision.p_ref, color="#cc79a7", linestyle="-.", label=f"trusted (p_ref) {decision.p_ref:.3f}")
    ax.axhline(decision.p_star, color="#767676", linestyle="--", label=f"needed (p*) {decision.p_star:.3g}")
    ax.set(ylabel="probability that it holds", ylim=(-0.03, 1.03))
    if decision.invariant:
        ax.set_xticks([0], ["every order, by construction"])
    else:
        ax.set_xlabel("order of the chunks (0 is the retriever's own)")
        ax.xaxis.set_major_locator(MaxNLocator(nbins=_MOST_TICKS, integer=True))
    ax.set_title(f"{decision.action.name}: {headline(decision)}", loc="left", fontsize=10)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return ax
