"""Does the order matter in practice: decisions that flip under some ordering, and what the mean over them gains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_lab import plots
from isr_lab.experiments.orderings.parts import Figured, bootstrapped, percent_interval, share
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.sections import Cell, Figure, Section, Table
from isr_lab.experiments.trials import ScoredTrial
from isr_lab.metrics import (
    MetricError,
    Statistic,
    auroc,
    bootstrap_interval,
    brier,
    coverage_at_risk,
)

Floats = NDArray[np.float64]

RISK = 0.05
"""Risk at which the coverage is compared."""


def _coverage(scores: Floats, labels: Floats) -> float:
    return coverage_at_risk(scores, labels, RISK)


def _brier_saved(scores: Floats, labels: Floats) -> float:
    return -brier(scores, labels)


METRICS: Mapping[str, Statistic] = {"AUROC": auroc, "Brier": _brier_saved, "coverage at 5% risk": _coverage}
"""Higher is better in each: the Brier score with its sign turned."""


def flips(q: Floats, threshold: float) -> bool:
    """Whether some ordering decides otherwise than another when q >= threshold decides."""
    yes = q >= threshold
    return bool(yes.any() and not yes.all())


def against_mean(q: Floats, threshold: float) -> float:
    """Share of the orderings that alone decide otherwise than their mean does."""
    return float(np.mean((q >= threshold) != (q.mean() >= threshold)))


def gain_over_first(
    metric: Statistic, q: Sequence[Floats], labels: Floats, groups: Sequence[str], resamples: int
) -> Figured:
    """Metric of the mean over the orderings less that of the retriever's own order, paired over items."""
    mean, first = [one.mean() for one in q], [one[0] for one in q]

    def difference(a: Floats, b: Floats, y: Floats) -> float:
        return metric(a, y) - metric(b, y)

    try:
        return Figured.of(bootstrap_interval(difference, mean, first, labels, groups=groups, resamples=resamples))
    except MetricError:
        return bootstrapped(difference, mean, first, labels, groups=groups, resamples=resamples)


def gain_over_any(
    metric: Statistic, q: Sequence[Floats], labels: Floats, groups: Sequence[str], resamples: int
) -> Figured:
    """Metric of the mean over the orderings less that of one ordering, averaged over which one; paired over items."""
    width = math.lcm(*(len(one) for one in q))
    every = np.stack([np.tile(one, width // len(one)) for one in q])  # an item's orderings all weigh the same

    def gain(rows: Floats, y: Floats) -> float:
        return metric(rows.mean(axis=1), y) - float(np.mean([metric(rows[:, k], y) for k in range(width)]))

    return bootstrapped(gain, every, labels, groups=groups, resamples=resamples)


def analyse_flips(outcomes: Sequence[ScoredTrial], threshold: float, resamples: int) -> Analysis:
    """Flips by n and gains over all items.

    Args:
        outcomes: with the facts `n`, `label` and `group`; the retriever's own order first in each.
        threshold: answer when q reaches it.
        resamples: of the bootstrap over items.
    """
    q, labels = [outcome.q for outcome in outcomes], np.array([float(o.facts["label"] or 0) for o in outcomes])
    groups, ns = [str(o.facts["group"]) for o in outcomes], [int(o.facts["n"] or 0) for o in outcomes]
    rows = {n: _row([one for one, k in zip(q, ns, strict=True) if k == n], threshold) for n in sorted(set(ns))}
    everything = _row(q, threshold)
    gains = {
        name: {
            "retriever_order": _mean_of(metric, [one[0] for one in q], labels),
            "mean": _mean_of(metric, [one.mean() for one in q], labels),
            "gain_over_retriever_order": gain_over_first(metric, q, labels, groups, resamples),
            "gain_over_any_ordering": gain_over_any(metric, q, labels, groups, resamples),
        }
        for name, metric in METRICS.items()
    }
    figures: dict[str, Any] = {
        "items": len(q),
        "threshold": threshold,
        "by_n": [{"n": n, **_plain(row)} for n, row in rows.items()],
        "all": _plain(everything),
        "gains": {name: _plain(gain) for name, gain in gains.items()},
    }
    tables: list[str | Table | Figure] = [_flip_table(rows, everything, threshold), _gain_table(gains, len(q))]
    section = Section("Does the order matter in practice", [*tables, _plot(rows, threshold)])
    return Analysis(figures, [_flip_sentence(everything, threshold), _gain_sentence(gains)], [section])


def _row(q: Sequence[Floats], threshold: float) -> dict[str, Any]:
    return {
        "items": len(q),
        "orderings": float(np.mean([len(one) for one in q])),
        "flips_at_half": share(sum(flips(one, 0.5) for one in q), len(q)),
        "flips_at_threshold": share(sum(flips(one, threshold) for one in q), len(q)),
        "one_against_mean": float(np.mean([against_mean(one, 0.5) for one in q])),
        "one_against_mean_at_threshold": float(np.mean([against_mean(one, threshold) for one in q])),
        "mean_range_of_q": float(np.mean([np.ptp(one) for one in q])),
    }


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.plain if isinstance(value, Figured) else value for name, value in row.items()}


def _mean_of(metric: Statistic, scores: Sequence[float], labels: Floats) -> float | None:
    try:
        return float(metric(scores, labels))
    except MetricError:
        return None


def _flip_sentence(row: Mapping[str, Any], threshold: float) -> str:
    half, cut = row["flips_at_half"], row["flips_at_threshold"]
    if not half.value and not cut.value:
        return f"Does the order matter: of {row['items']} items none decides otherwise under another ordering."
    return (
        f"Does the order matter: {percent_interval(half)} of {row['items']} items flip at q = 0.5 under some ordering, "
        f"and {percent_interval(cut)} at the answering threshold q = {threshold:g}; one ordering drawn at random "
        f"decides otherwise than the mean on {100 * row['one_against_mean']:.2g}% and "
        f"{100 * row['one_against_mean_at_threshold']:.2g}% of items."
    )


def _gain_sentence(gains: Mapping[str, Mapping[str, Any]]) -> str:
    told: list[str] = []
    for name, gain in gains.items():
        over: Figured = gain["gain_over_retriever_order"]
        if over.value is None:
            told.append(f"{name} is undefined (one class only)")
        elif over.apart_from_zero:
            told.append(f"{name} {'gains' if over.value > 0 else 'loses'} {over}")
        else:
            told.append(f"{name}: nil within the interval ({over})")
    return f"The mean over orderings against the retriever's own order: {'; '.join(told)}."


def _flip_table(rows: Mapping[int, Mapping[str, Any]], everything: Mapping[str, Any], threshold: float) -> Table:
    def cells(name: str | int, row: Mapping[str, Any]) -> list[Cell]:
        return [
            name, row["items"], row["orderings"], str(row["flips_at_half"]), str(row["flips_at_threshold"]),
            row["one_against_mean"], row["one_against_mean_at_threshold"], row["mean_range_of_q"],
        ]  # fmt: skip

    return Table(
        "Share of items whose decision flips under some ordering, with 95% Wilson intervals",
        (
            "n", "items", "orderings", "flips at q = 0.5", f"flips at q = {threshold:g}",
            "one ordering against the mean, 0.5", f"the same, {threshold:g}", "mean range of q (probability)",
        ),
        [*(cells(n, row) for n, row in rows.items()), cells("all", everything)],
        "More orderings find more flips: compare rows with equal numbers of them.",
    )  # fmt: skip


def _gain_table(gains: Mapping[str, Mapping[str, Any]], items: int) -> Table:
    return Table(
        f"What the mean over orderings gains, {items} items (Brier score with its sign turned: higher is better)",
        ("metric", "retriever's order", "mean", "gain", "gain over one ordering, averaged over which"),
        [
            [
                name, gain["retriever_order"], gain["mean"], str(gain["gain_over_retriever_order"]),
                str(gain["gain_over_any_ordering"]),
            ]
            for name, gain in gains.items()
        ],
        "Paired 95% bootstrap intervals over items. By Jensen's inequality the mean's Brier score is never worse than "
        "the single orderings' on average, so that the last gain in Brier cannot fall below zero.",
    )  # fmt: skip


def _plot(rows: Mapping[int, Mapping[str, Any]], threshold: float) -> Figure:
    figure = plots.new_figure(6.4, 3.6)
    axes = figure.subplots()
    series = (("flips_at_half", "q = 0.5", plots.BLUE), ("flips_at_threshold", f"q = {threshold:g}", plots.ORANGE))
    for k, (name, label, colour) in enumerate(series):
        cells = [row[name] for row in rows.values()]
        bars = np.array([cell.errors for cell in cells]).T
        axes.errorbar(
            [place + 0.12 * (k - 0.5) for place in range(len(cells))], [cell.value for cell in cells], yerr=bars,
            fmt=plots.MARKERS[k], color=colour, linestyle=("-", "--")[k], capsize=3, label=f"decision at {label}",
        )  # fmt: skip
    axes.set_xticks(range(len(rows)), [f"{n}\n({row['items']})" for n, row in rows.items()])
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("chunks, n (items)")
    axes.set_ylabel("share of items that flip")
    plots.style(axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    caption = "Share of items whose decision flips under some of the orderings drawn, by n, with 95% Wilson intervals."
    return Figure("orderings-flips", caption, plots.png(figure))
