"""Plots of the support-dose experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from isr_lab.experiments.dose.findings import PAPER, POLICIES, Findings
from isr_lab.experiments.dose.statistics import CONVENTIONS, Policy
from isr_lab.metrics import Interval
from isr_lab.plots import BLUE, GREEN, GREY, ORANGE, RED, new_figure, png, style

_LINES: tuple[tuple[Policy, str, str, str, str], ...] = (
    ("paper", BLUE, "o", "-", BLUE),
    ("safe", ORANGE, "s", "-.", "none"),  # hollow: both rules may fall on the same points
)
_ASIDE = 0.05
"""Doses between the markers of two series, so their bars stay apart."""


def response_plot(found: Findings) -> bytes:
    """The paper's figure: change of hallucination against decrease of the budget, both from dose 0."""
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots()
    down = [found.arms[0].budget.estimate - arm.budget.estimate for arm in found.arms]
    furthest = max(1.3, 1.15 * max(down))
    reached = [0.0, -100 * PAPER["slope_per_nat"] * 1.3, PAPER["hallucination_pp"]]
    for policy, colour, marker, dash, face in _LINES:
        changes = [_change(found, policy, arm) for arm in range(len(found.arms))]
        reached += changes
        axes.plot(
            down, changes, color=colour, marker=marker, linestyle=":", linewidth=1.0, markersize=7, markerfacecolor=face
        )
        for x, y, arm in zip(down[1:], changes[1:], found.arms[1:], strict=True):
            axes.annotate(str(arm.dose), (x, y), xytext=(6, 5), textcoords="offset points", fontsize=8)
        net = found.changes[policy]["hallucination"]
        if net is not None:
            reached += [100 * net.lower, 100 * net.upper]
            axes.errorbar(
                [down[-1]], [100 * net.estimate], yerr=_reach([net], 100), xerr=_reach([found.decrease]),
                color=colour, marker=marker, markersize=8, markerfacecolor=face, capsize=3, linestyle="",
                label=f"dose 0 to 3, {POLICIES[policy]}",
            )  # fmt: skip
        slope = found.ols[policy]
        if slope is not None:
            label = f"OLS, {POLICIES[policy]}: {-100 * slope.estimate:+.1f} pp a nat"
            axes.plot([0, furthest], [0, -100 * slope.estimate * furthest], color=colour, linestyle=dash, label=label)
    axes.plot(
        [0, 1.3], [0, -100 * PAPER["slope_per_nat"] * 1.3], color=GREY, linestyle="--", linewidth=1.2,
        label=f"the paper's OLS: {-100 * PAPER['slope_per_nat']:+.1f} pp a nat",
    )  # fmt: skip
    axes.plot(
        [PAPER["budget_decrease_nats"]], [PAPER["hallucination_pp"]], color=GREY, marker="X", markersize=9,
        linestyle="", label="the paper's dose 0 to 3",
    )  # fmt: skip
    axes.axhline(0.0, color="black", linewidth=0.7)
    pad = 0.08 * (max(reached) - min(reached))  # steep lines may leave the frame; the points do not
    axes.set(ylim=(min(reached) - pad, max(reached) + pad))
    axes.set_xlabel("decrease of the mean budget since dose 0 (nats)")
    axes.set_ylabel("change of hallucination since dose 0 (pp)")
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    style(axes)
    return png(figure)


def _change(found: Findings, policy: Policy, arm: int) -> float:
    hallucinated = found.study.hallucinated(policy)
    return float(100.0 * (hallucinated[:, arm].mean() - hallucinated[:, 0].mean()))


def arms_plot(found: Findings) -> bytes:
    """Budget, probability cuts, and the shares of both rules, by dose, with 95% intervals."""
    figure = new_figure(8.4, 6.8)
    (budget, cuts), (paper, safe) = figure.subplots(2, 2, sharex=True)
    _series(budget, found, [arm.budget for arm in found.arms], BLUE, "o", "-", "mean budget", 0.0)
    budget.set(ylabel="mean budget (nats)", title="Budget, gold label as reference", ylim=(0, None))
    _series(cuts, found, [arm.likely for arm in found.arms], GREEN, "^", "-", "at least 0.5", -_ASIDE)
    _series(cuts, found, [arm.sure for arm in found.arms], RED, "D", "--", "at least 1 - h*", _ASIDE)
    cuts.set(ylabel="share of items", title="Without a reference: mean probability at least ...")
    for axes, policy in zip((paper, safe), CONVENTIONS, strict=True):
        rates = [arm.rates[policy] for arm in found.arms]
        _series(axes, found, [r["answer_rate"] for r in rates], BLUE, "o", "-", "answered", -_ASIDE)
        _series(axes, found, [r["accuracy_on_attempts"] for r in rates], GREEN, "^", "--", "right, of the answered", 0)
        _series(axes, found, [r["hallucination"] for r in rates], RED, "s", "-.", "answered and wrong, of all", _ASIDE)
        title = POLICIES[policy]
        axes.set(xlabel="support chunks of four", ylabel="share of items", title=title[0].upper() + title[1:])
    for axes in (cuts, paper, safe):
        axes.set(ylim=(-0.03, 1.03))
    for axes in (budget, cuts, paper, safe):
        axes.set_xticks([arm.dose for arm in found.arms])
        axes.title.set_fontsize(10)
        style(axes)
    cuts.legend(frameon=False, fontsize=8, loc="best")
    figure.legend(*paper.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return png(figure)


def _series(
    axes: Any,
    found: Findings,
    intervals: Sequence[Interval | None],
    colour: str,
    marker: str,
    line: str,
    label: str,
    aside: float,
) -> None:
    """One share or mean by dose; arms in which it is undefined are left out."""
    there = [(arm.dose, interval) for arm, interval in zip(found.arms, intervals, strict=True) if interval is not None]
    known = [interval for _, interval in there]
    axes.errorbar(
        [dose + aside for dose, _ in there], [i.estimate for i in known], yerr=_reach(known), color=colour,
        marker=marker, linestyle=line, elinewidth=1.0, capsize=3, markersize=5, label=label,
    )  # fmt: skip


def _reach(intervals: Sequence[Interval], factor: float = 1.0) -> Any:
    """Distances to the lower and upper ends, shape (2, intervals)."""
    ends = [[i.estimate - i.lower for i in intervals], [i.upper - i.estimate for i in intervals]]
    return factor * np.maximum(ends, 0.0)
