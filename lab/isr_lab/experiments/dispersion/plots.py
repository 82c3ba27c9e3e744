"""The plots of Experiment 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isr_lab.bounds import mean_absolute_residual
from isr_lab.experiments.dispersion.scaling import Permuted
from isr_lab.experiments.sections import Figure
from isr_lab.plots import COLOURS, GREY, MARKERS, new_figure, png, style
from isr_rag.core.bounds import js_certificate

Figures = Mapping[str, Any]

_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
_TICKS = (1, 2, 3, 5, 10, 20, 40, 60)


def _round(position: int) -> dict[str, Any]:
    """Colour and marker of a family; filled or open, so a grey print tells them apart too."""
    colour = COLOURS[position % 6]  # without grey
    face = colour if position % 2 == 0 else "white"
    return {"color": colour, "marker": MARKERS[position % len(MARKERS)], "markerfacecolor": face, "markersize": 4.5}


def _log_axis(axes: Any, sizes: Sequence[int]) -> None:
    axes.set_xscale("log")
    ticks = [tick for tick in _TICKS if min(sizes) <= tick <= max(sizes)] or sorted(set(sizes))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)


def _room(axes: Any) -> tuple[float, float]:
    """Limits that show points at 0 whole and leave room above for the legend."""
    top = float(axes.get_ylim()[1])
    return -0.03 * top, 1.2 * top


def _means(axes: Any, family: Figures, figure: str, name: str, position: int) -> None:
    rows = family["dispersion"]["by_n"]
    error = [row[f"{figure}_se"] or 0.0 for row in rows]
    axes.errorbar(
        [row["n"] for row in rows], [row[figure] for row in rows], yerr=error, linestyle="none", elinewidth=0.7,
        label=name, **_round(position),
    )  # fmt: skip


def dispersion(found: Figures) -> Figure:
    """Mean absolute residual against n, in probability and in log-odds, with the fits on log n."""
    figure = new_figure(8.4, 3.5)
    spaces = (("probability", "residual", "probability"), ("log_odds", "residual_log_odds", "log-odds"))
    for axes, (space, column, unit) in zip(figure.subplots(1, 2), spaces, strict=True):
        sizes: list[int] = []
        for position, (name, family) in enumerate(found.items()):
            _means(axes, family, column, name, position)
            sizes += [row["n"] for row in family["dispersion"]["by_n"]]
            fits = family["dispersion"]["laws"][space]
            if fits is not None:
                line, grid = fits["log"], np.geomspace(min(sizes), max(sizes), 50)
                text = f"{name}: b = {line['slope']:.3g}, R² = {line['r2']:.2f}"
                fitted = line["intercept"] + line["slope"] * np.log(grid)
                axes.plot(
                    grid, fitted, color=_round(position)["color"], linestyle=_LINES[position % 6], label=text, zorder=3
                )
        _log_axis(axes, sizes)
        axes.set_xlabel("number of chunks n (log scale)")
        axes.set_ylabel(f"mean absolute residual ({unit})")
        axes.set_ylim(*_room(axes))
        axes.legend(frameon=False, fontsize=7.5, loc="upper left")
        style(axes)
    caption = (
        "Mean absolute residual over orderings against the number of chunks, in probability (left) and log-odds "
        "(right): means per n with standard errors over items, and the least-squares line on log n."
    )
    return Figure("dispersion-by-n", caption, png(figure))


def jensen(found: Figures) -> Figure:
    """Mean Jensen gap against n."""
    figure = new_figure(6.0, 3.3)
    axes = figure.subplots()
    sizes: list[int] = []
    for position, (name, family) in enumerate(found.items()):
        _means(axes, family, "jensen_gap", name, position)
        sizes += [row["n"] for row in family["dispersion"]["by_n"]]
    _log_axis(axes, sizes)
    axes.set_xlabel("number of chunks n (log scale)")
    axes.set_ylabel("mean Jensen gap (nats)")
    axes.set_ylim(*_room(axes))
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    style(axes)
    caption = (
        "Mean Jensen gap of the label that the identity ordering prefers against the number of chunks: means per n "
        "with standard errors over items, nats."
    )
    return Figure("jensen-gap-by-n", caption, png(figure))


def certificate(families: Mapping[str, Sequence[Permuted]]) -> Figure:
    """The certificate of every item against its measured dispersion."""
    figure = new_figure(4.4, 4.0)
    axes = figure.subplots()
    most = 0.0
    for position, (name, items) in enumerate(families.items()):
        measured = [float(mean_absolute_residual(item.q)) for item in items]
        bound = [float(js_certificate(item.q)) for item in items]
        most = max(most, *measured, *bound)
        round_number = {**_round(position), "markersize": 3.0, "markerfacecolor": "none"}
        axes.plot(measured, bound, linestyle="none", label=name, alpha=0.5, **round_number)
    most = most or 1.0
    axes.plot([0.0, most], [0.0, most], color=GREY, linestyle="--", label="certificate = measured")
    axes.set_xlim(-0.02 * most, 1.05 * most)
    axes.set_ylim(-0.02 * most, 1.05 * most)
    axes.set_xlabel("mean absolute residual (probability)")
    axes.set_ylabel("certificate sqrt(JSD / 2) (probability)")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    style(axes)
    caption = (
        "Jensen-Shannon certificate against the measured dispersion, one point an item and family. The certificate "
        "holds where a point lies on or above the dashed line."
    )
    return Figure("certificate", caption, png(figure))


def potential(fitted: Figures) -> Figure:
    """The support's potential by rank, and its steps on logarithmic axes with the fitted decays."""
    figure = new_figure(8.4, 3.5)
    left, right = figure.subplots(1, 2)
    ranks, sizes = 1, 0
    for position, (name, fit) in enumerate(fitted.items()):
        round_number, line = _round(position), _LINES[position % 6]
        psi = fit["psi"]
        left.plot(range(1, len(psi) + 1), psi, linestyle="none", label=f"{name}: by rank", **round_number)
        profile = fit["decay"]["profile"]
        known = [(s["rank"], abs(s["step"]), s["se"]) for s in fit["steps"] if s["step"]]
        ranks, sizes = max(ranks, len(fit["steps"]) + 1), sizes + len(known)
        if known:
            r, step, error = np.array(known).T
            lower = np.minimum(error, 0.9 * step)
            right.errorbar(r, step, yerr=[lower, error], linestyle="none", elinewidth=0.6, label=name, **round_number)
        if profile is not None:
            r = np.arange(1, len(fit["steps"]) + 1)
            steps = profile["c"] * r ** -profile["alpha"]
            curve = np.concatenate([[0.0], np.cumsum(profile["direction"] * steps)])
            text = f"{name}: C = {profile['c']:.2g}, α = {profile['alpha']:.2g}"
            left.plot(range(1, len(curve) + 1), curve, color=round_number["color"], linestyle=line, label=text)
            right.plot(r, steps, color=round_number["color"], linestyle=line)
    left.set_xlabel("rank r of the support")
    left.set_ylabel("potential ψ(r) - ψ(1) (log-odds)")
    if sizes:
        _log_axis(right, range(1, ranks))
        right.set_yscale("log")
    right.set_xlabel("rank r (log scale)")
    right.set_ylabel("|ψ(r + 1) - ψ(r)| (log-odds, log scale)")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=7.5)
        style(axes)
    caption = (
        "Potential of the support by its rank (left; log-odds of the gold label, up to the first rank that the data do "
        "not connect) and its steps with standard errors (right), with the two-parameter fit C r^-α as lines."
    )
    return Figure("potential-by-rank", caption, png(figure))
