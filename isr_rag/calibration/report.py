"""A calibration report for people: figures with intervals, a reliability diagram, a risk-coverage plot."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag.calibration.checks import enough_of_each_class
from isr_rag.calibration.errors import CalibrationError, fitting_libraries
from isr_rag.calibration.plots import BLUE, GREY, ORANGE, new_figure, png, style
from isr_rag.errors import MissingDependencyError
from isr_rag.files import write_atomically
from isr_rag.printable import printable

Floats = NDArray[np.float64]

if TYPE_CHECKING:
    from isr_rag.calibration.metrics import Interval


def calibration_report(
    scores: ArrayLike,
    labels: ArrayLike,
    out_dir: str | Path,
    groups: Sequence[object] | None = None,
    *,
    title: str = "Calibration report",
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """Judge probabilities against labels and write the report.

    Writes `report.json`, `report.md`, `reliability.png` and `risk_coverage.png` into `out_dir`, each
    atomically. Give it held-out scores: a calibrator judged on its own fit looks perfect.

    Args:
        scores: probabilities in [0, 1] that the predicate holds, shape (n,).
        labels: 0 or 1, shape (n,).
        out_dir: folder, made if needed.
        groups: shape (n,); items that are not independent share one, and intervals resample whole groups.
        title: heading.
        resamples: bootstrap resamples.
        seed: their seed.

    Returns:
        Metric name -> estimate with its 95% interval.

    Raises:
        CalibrationError: for bad scores or labels, or one class only.
        MissingDependencyError: if scipy or matplotlib is not installed.
    """
    with fitting_libraries():
        import matplotlib as _  # noqa: F401  # missing: say so before the figures are computed

        from isr_rag.calibration.metrics import MetricError, scored_labels
        from isr_rag.calibration.summary import summarise
    try:
        s, y = scored_labels(scores, labels)
    except MetricError as error:
        raise CalibrationError(str(error)) from error
    positive = int(y.sum())
    enough_of_each_class(positive, len(y) - positive, least=1)
    summary = summarise(s, y, groups=groups, resamples=resamples, seed=seed)
    counts = {"items": len(y), "true": positive, "false": len(y) - positive}
    if groups is not None:
        counts["groups"] = len(set(groups))
    folder = Path(out_dir)
    data: dict[str, Any] = {"title": title, "counts": counts, "resamples": resamples, "seed": seed}
    data["metrics"] = {name: asdict(interval) for name, interval in summary.items()}
    write_atomically(folder / "reliability.png", _reliability(s, y, summary))
    write_atomically(folder / "risk_coverage.png", _risk_coverage(s, y, summary))
    write_atomically(folder / "report.json", json.dumps(data, indent=1, allow_nan=False) + "\n")
    write_atomically(folder / "report.md", _markdown(title, counts, summary, resamples))
    return summary


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Collection[int] = ()) -> str:
    """A table as Markdown, with pipes in its cells escaped.

    Args:
        header: names of the columns.
        rows: cells, as many per row as the header has.
        numeric: columns that are aligned to the right.

    Raises:
        MissingDependencyError: if tabulate is not installed.
    """
    try:
        from tabulate import tabulate
    except ImportError as error:
        raise MissingDependencyError("a report", "tabulate", "calibrate") from error
    cells = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in [header, *rows]]
    sides = ["right" if column in numeric else "left" for column in range(len(header))]
    return tabulate(cells[1:], cells[0], tablefmt="pipe", colalign=sides, disable_numparse=True)


def in_markdown(text: str) -> str:
    """A text on one line, in which nothing is markup: no tag, no link, no picture and no emphasis."""
    folded = " ".join(printable(text, None).split())
    return re.sub(r"([\\`*<\[\]])|(?<!\w)_|_(?!\w)", lambda found: "\\" + found.group(), folded)


def _markdown(title: str, counts: Mapping[str, int], summary: Mapping[str, Interval], resamples: int) -> str:
    from isr_rag.calibration.summary import NAMES

    unit = f"{counts['groups']} groups" if "groups" in counts else "items"
    rows = [(NAMES[name], f"{i.estimate:.4f}", f"{i.lower:.4f} to {i.upper:.4f}") for name, i in summary.items()]
    return "\n".join(
        [
            f"# {in_markdown(title)}",
            "",
            f"{counts['items']} labelled items: {counts['true']} for which the predicate holds, {counts['false']} for "
            f"which it does not. Intervals: 95%, percentile bootstrap over {unit}, {resamples} resamples.",
            "",
            markdown_table(("figure", "estimate", "interval"), rows),
            "",
            "Risk is the share of wrong items among those answered, coverage the share answered. Coverage at a risk is "
            "read off these very items, so it flatters: only a Learn-then-Test cut bounds the risk on new ones. ECE is "
            "biased upwards on few items, and its bootstrap interval more so.",
            "",
            "![Reliability diagram](reliability.png)",
            "",
            "![Risk-coverage curve](risk_coverage.png)",
            "",
        ]
    )


def _reliability(scores: Floats, labels: NDArray[np.int64], summary: Mapping[str, Interval]) -> bytes:
    from isr_rag.calibration.metrics import reliability_bins, wilson_interval

    bins = reliability_bins(scores, labels, bins=min(15, max(2, len(labels) // 20)))
    true = np.rint(bins.frequency * bins.count).astype(int)
    bars = [wilson_interval(int(k), int(n)) for k, n in zip(true, bins.count, strict=True)]
    below = bins.frequency - np.array([bar.lower for bar in bars])
    above = np.array([bar.upper for bar in bars]) - bins.frequency
    figure = new_figure(5.2, 6.2)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    top.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2, label="perfectly calibrated")
    spread = np.maximum([below, above], 0.0)
    top.errorbar(
        bins.confidence, bins.frequency, yerr=spread, color=BLUE, marker="o", markersize=5, linewidth=1.4, capsize=2.5,
        label="observed, 95% Wilson interval",
    )  # fmt: skip
    top.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share for which the predicate holds")
    top.set_title(f"Reliability (bins of equal mass), ECE {summary['ece_mass'].estimate:.3f}", fontsize=11)
    top.legend(loc="upper left", frameon=False)
    steps = np.linspace(0.0, 1.0, 21)
    bottom.hist(
        [scores[labels == 1], scores[labels == 0]], bins=steps.tolist(), stacked=True, color=[BLUE, ORANGE],
        label=["holds", "does not"],
    )  # fmt: skip
    bottom.set(xlabel="probability given to the predicate", ylabel="items")
    bottom.legend(loc="upper center", frameon=False, ncols=2, fontsize=8)
    style(top)
    style(bottom)
    return png(figure)


def _risk_coverage(scores: Floats, labels: NDArray[np.int64], summary: Mapping[str, Interval]) -> bytes:
    from isr_rag.calibration.metrics import risk_coverage_curve, wilson_interval
    from isr_rag.calibration.summary import RISKS

    curve = risk_coverage_curve(scores, labels)
    shown = np.unique(np.linspace(0, len(curve.risk) - 1, 300).astype(int))  # enough for the eye
    answered = curve.answered[shown]
    wrong = np.rint(curve.risk[shown] * answered).astype(int)
    band = [wilson_interval(int(k), int(n)) for k, n in zip(wrong, answered, strict=True)]
    figure = new_figure(6.0, 4.2)
    axes = figure.subplots()
    axes.fill_between(
        curve.coverage[shown], [b.lower for b in band], [b.upper for b in band], color=BLUE, alpha=0.18, linewidth=0,
        label="95% Wilson interval, point by point",
    )  # fmt: skip
    axes.plot(curve.coverage, curve.risk, color=BLUE, linewidth=1.8, label="risk among the answered")
    base = float(curve.risk[-1])
    axes.axhline(base, color=GREY, linestyle="--", linewidth=1.2, label=f"answering at random ({base:.2f})")
    ceiling = min(1.0, 1.25 * max(base, float(curve.risk.max()), 0.2))
    for risk in RISKS:
        axes.axhline(risk, color="black", linestyle=":", linewidth=0.9)
        axes.annotate(f"{risk:.0%}", (1.0, risk), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set(xlim=(0, 1), ylim=(0, ceiling), xlabel="coverage: share of items answered")
    axes.set_ylabel("risk: share wrong among the answered")
    axes.set_title(f"Risk and coverage, AURC {summary['aurc'].estimate:.3f}", fontsize=11)
    axes.legend(loc="best", frameon=False, fontsize=8)
    style(axes)
    return png(figure)
