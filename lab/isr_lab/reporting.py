"""A calibration report for people: figures with intervals, a reliability diagram, a risk-coverage plot."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedGroupKFold

from isr_lab import metrics
from isr_lab.metrics import RISKS, Interval, reliability_bins, risk_coverage_curve, wilson_interval
from isr_lab.plots import BLUE, GREY, ORANGE, new_figure, png, style
from isr_rag._util.files import write_atomically, write_json
from isr_rag._util.text import in_markdown
from isr_rag.calibration import CalibrationError, CalibrationRecord, CalibrationWarning, VennAbers
from isr_rag.calibration.checks import enough_of_each_class
from isr_rag.calibration.records import groups_of

Floats = NDArray[np.float64]
FOLDS = 5


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

    Writes `report.json`, `report.md`, `reliability.png` and `risk_coverage.png` into `out_dir`, each atomically. Give
    it held-out scores: a calibrator judged on its own fit looks perfect.

    Args:
        scores: probabilities in [0, 1] that the predicate holds, shape (n,).
        labels: 0 or 1, shape (n,).
        out_dir: folder, created if needed.
        groups: shape (n,); items that are not independent share one, and intervals resample whole groups.
        title: heading.
        resamples: bootstrap resamples.
        seed: their seed.

    Returns:
        Metric name -> estimate with its 95% interval.

    Raises:
        CalibrationError: for bad scores or labels, or one class only.

    Examples:
        >>> from isr_lab.reporting import calibration_report
        >>> figures = calibration_report([0.1, 0.9] * 60, [0, 1] * 60, "report")  # doctest: +SKIP
    """
    s, y = metrics.scored_labels(scores, labels)
    counts = {"items": len(y), "true": int(y.sum()), "false": int(len(y) - y.sum())}
    enough_of_each_class(counts["true"], counts["false"], least=1)
    summary = metrics.summarise(s, y, groups=groups, resamples=resamples, seed=seed)
    if groups is not None:
        counts["groups"] = len(set(groups))
    rows = [
        f"| {metrics.STATISTICS[name][0]} | {i.estimate:.4f} | {i.lower:.4f} to {i.upper:.4f} |"
        for name, i in summary.items()
    ]
    unit = "items" if groups is None else f"{counts['groups']} groups"
    text = _TEXT.format(**counts, title=in_markdown(title), unit=unit, resamples=resamples, rows="\n".join(rows))
    folder = Path(out_dir)
    plain = {"title": title, "counts": counts, "resamples": resamples, "seed": seed}
    write_atomically(folder / "reliability.png", _reliability(s, y, summary["ece_mass"].estimate))
    write_atomically(folder / "risk_coverage.png", _risk_coverage(s, y, summary["aurc"].estimate))
    write_json(folder / "report.json", plain | {"metrics": {name: asdict(i) for name, i in summary.items()}})
    write_atomically(folder / "report.md", text)
    return summary


_TEXT = """# {title}

{items} labelled items: {true} for which the predicate holds, {false} for which it does not.
Intervals: 95%, percentile bootstrap over {unit}, {resamples} resamples.

| figure | estimate | interval |
|---|---|---|
{rows}

Risk is the share of wrong items among those answered, coverage the share answered. Coverage at a risk is read off
these very items, so it flatters: only Learn-then-Test bounds the risk on new ones. ECE is biased upwards on few items,
and its bootstrap interval more so.

![Reliability diagram](reliability.png)

![Risk-coverage curve](risk_coverage.png)
"""


def _wilson_band(shares: Any, counts: Any) -> tuple[Any, Any]:
    """Ends of the 95% Wilson interval of each share of so many items, shape (k,) each."""
    found = [wilson_interval(round(share * n), int(n)) for share, n in zip(shares, counts, strict=True)]
    return np.array([one.lower for one in found]), np.array([one.upper for one in found])


def _reliability(scores: Any, labels: Any, ece: float) -> bytes:
    bins = reliability_bins(scores, labels, bins=min(15, max(2, len(labels) // 20)))
    low, high = _wilson_band(bins.frequency, bins.count)
    spread = np.maximum([bins.frequency - low, high - bins.frequency], 0.0)
    figure = new_figure(5.2, 6.2)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    top.plot([0, 1], [0, 1], color=GREY, linestyle="--", label="perfectly calibrated")
    top.errorbar(
        bins.confidence, bins.frequency, yerr=spread, color=BLUE, marker="o", capsize=2.5,
        label="observed, 95% Wilson interval",
    )  # fmt: skip
    top.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share for which the predicate holds")
    top.set_title(f"Reliability (bins of equal mass), ECE {ece:.3f}", fontsize=11)
    top.legend(loc="upper left", frameon=False)
    classes = [scores[labels == 1], scores[labels == 0]]
    bottom.hist(classes, bins=20, range=(0, 1), stacked=True, color=[BLUE, ORANGE], label=["holds", "does not"])
    bottom.set(xlabel="probability given to the predicate", ylabel="items")
    bottom.legend(loc="upper center", frameon=False, ncols=2, fontsize=8)
    style(top)
    style(bottom)
    return png(figure)


def _risk_coverage(scores: Any, labels: Any, aurc: float) -> bytes:
    curve = risk_coverage_curve(scores, labels)
    shown = np.unique(np.linspace(0, len(curve.risk) - 1, 300).astype(int))  # as many points as the eye can see
    low, high = _wilson_band(curve.risk[shown], curve.answered[shown])
    figure = new_figure(6.0, 4.2)
    axes = figure.subplots()
    axes.fill_between(
        curve.coverage[shown], low, high, color=BLUE, alpha=0.18, linewidth=0, label="95% Wilson interval, by point"
    )
    axes.plot(curve.coverage, curve.risk, color=BLUE, label="risk among the answered")
    base = float(curve.risk[-1])
    axes.axhline(base, color=GREY, linestyle="--", label=f"answering at random ({base:.2f})")
    for risk in RISKS:
        axes.axhline(risk, color="black", linestyle=":", linewidth=0.9)
    axes.set(xlim=(0, 1), ylim=(0, min(1.0, 1.25 * max(float(curve.risk.max()), 0.2))))
    axes.set(xlabel="coverage: share of items answered", ylabel="risk: share wrong among the answered")
    axes.set_title(f"Risk and coverage, AURC {aurc:.3f}", fontsize=11)
    axes.legend(loc="best", frameon=False, fontsize=8)
    style(axes)
    return png(figure)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Calibrated probabilities of items, from a calibrator that had not seen them; shape (n,) each.

    Attributes:
        scores: what was calibrated.
        lower: Venn-Abers lower probabilities.
        mean: one calibrated probability each.
        labels: 0 or 1.
        groups: the items' groups.
    """

    scores: Floats
    lower: Floats
    mean: Floats
    labels: NDArray[np.int64]
    groups: tuple[str, ...]


def cross_validate(records: Sequence[CalibrationRecord], scores: Sequence[float], *, seed: int = 0) -> HeldOut:
    """Calibrate the scores of records of one predicate, each fold of groups with the others.

    Raises:
        CalibrationError: if there are fewer groups than folds.
    """
    s = np.array(scores, dtype=np.float64)
    labels = np.array([record.label for record in records], dtype=np.int64)
    lower, mean = np.empty_like(s), np.empty_like(s)
    for seen, unseen in _folds(records, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # the fit on all items has warned already
            calibrator = VennAbers.fit(s[seen], labels[seen])
        lower[unseen], upper = calibrator.apply_many(s[unseen])
        mean[unseen] = upper / (1.0 - lower[unseen] + upper)  # which minimises the worst log loss
    return HeldOut(s, lower, mean, labels, tuple(groups_of(records)))


def _folds(records: Sequence[CalibrationRecord], seed: int) -> list[tuple[list[int], list[int]]]:
    """Rows seen and unseen in each of `FOLDS` folds; classes spread evenly, groups kept together."""
    groups = groups_of(records)
    if len(set(groups)) < FOLDS:
        raise CalibrationError(f"{len(set(groups))} groups do not make {FOLDS} folds; label items from more sources")
    splitter = StratifiedGroupKFold(n_splits=FOLDS, shuffle=True, random_state=seed)
    labels = [record.label for record in records]
    return [(seen.tolist(), unseen.tolist()) for seen, unseen in splitter.split(np.zeros(len(labels)), labels, groups)]
