"""What the cascade loses: its decisions and passes beside those of all orderings, from the same probabilities."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isr_lab import plots
from isr_lab.experiments.orderings.parts import Figured, percent, share
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.sections import Cell, Figure, Section, Table
from isr_lab.experiments.trials import ScoredTrial
from isr_rag.calibration.calibrators import VennAbers
from isr_rag.core.bounds import far_from_boundary, hopeless, stages, weigh
from isr_rag.core.scorer import ORDERED
from isr_rag.core.settings import Settings
from isr_rag.errors import CalibrationError, CalibrationWarning

WANTED = 0.6
"""Share of the passes of fixed m that the cascade is meant to stay within."""


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one item.

    Attributes:
        answers: whether the gate answers.
        passes: orderings scored.
        exact: whether no further ordering could have changed the action.
    """

    answers: bool
    passes: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Trust:
    """A reference as the gate sees it: p_ref for the probabilities scored so far, and whether it depends on them."""

    p_ref: Callable[[Sequence[float]], float]
    needs_scores: bool


def oracle(label: int) -> Trust:
    """The gold label."""
    return Trust(lambda q: float(label), needs_scores=False)


def mixture(calibration: VennAbers) -> Trust:
    """The calibrated mean over the orderings, its lower probability."""
    return Trust(lambda q: calibration.lower(math.fsum(q) / len(q)), needs_scores=True)


def run(q: Sequence[float], trust: Trust, settings: Settings, *, cascade: bool = True) -> Run:
    """What the gate does with these probabilities (`ISRGate(orderings=Orderings(cascade=...))`).

    Args:
        q: probability of g = 1 of every ordering drawn, in the order of the draw.
        trust: the reference.
        settings: h* and the rule.
        cascade: stop early where the gate would.
    """
    drawn = len(q)
    for stage in stages(drawn, cascade):
        seen = q[:stage]
        p_ref = trust.p_ref(seen)
        verdict = weigh(seen, p_ref, settings)
        ceiling = trust.p_ref([*seen, *[1.0] * (drawn - stage)]) if trust.needs_scores else None
        exact = stage == drawn or hopeless(seen, drawn, p_ref, ceiling, settings)
        if exact or (not trust.needs_scores and far_from_boundary(seen, verdict, settings)):
            return Run(verdict.answers, stage, exact)
    raise AssertionError("the last stage has every ordering")


@dataclass(frozen=True, slots=True)
class Judged:
    """One item under one reference: with all orderings, and with the cascade."""

    n: int
    fixed: Run
    staged: Run


def halves(outcomes: Sequence[ScoredTrial]) -> list[int]:
    """Which half each item belongs to, 0 or 1: whole groups, evenly over the labels."""
    labels: dict[str, object] = {}
    for outcome in outcomes:
        labels.setdefault(str(outcome.facts["group"]), outcome.facts["label"])
    order = sorted(labels, key=lambda group: (str(labels[group]), hashlib.sha256(group.encode()).digest()))
    half = {group: k % 2 for k, group in enumerate(order)}
    return [half[str(outcome.facts["group"])] for outcome in outcomes]


def judge(outcomes: Sequence[ScoredTrial], settings: Settings) -> dict[str, list[Judged] | str]:
    """Every item under both references; instead of the mixture's, why it cannot be fitted.

    Each half of the items is judged by the mixture that is calibrated on the other one. Where the scorer cannot see
    the order, the gate draws one ordering and so does this.
    """
    q = [[float(p) for p in (o.q if o.facts["layout"] in ORDERED else o.q[:1])] for o in outcomes]
    labels, sides = [int(o.facts["label"] or 0) for o in outcomes], halves(outcomes)
    found: dict[str, list[Judged] | str] = {
        "oracle": [_judged(o, one, oracle(y), settings) for o, one, y in zip(outcomes, q, labels, strict=True)]
    }
    try:
        fitted: list[VennAbers] = []
        for side in (0, 1):
            rows = [k for k, half in enumerate(sides) if half != side]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)  # how many items there were is reported
                fitted.append(VennAbers.fit([math.fsum(q[k]) / len(q[k]) for k in rows], [labels[k] for k in rows]))
        found["calibrated mixture"] = [
            _judged(o, one, mixture(fitted[side]), settings) for o, one, side in zip(outcomes, q, sides, strict=True)
        ]
    except CalibrationError as error:
        found["calibrated mixture"] = str(error)
    return found


def _judged(outcome: ScoredTrial, q: Sequence[float], trust: Trust, settings: Settings) -> Judged:
    return Judged(int(outcome.facts["n"] or 0), run(q, trust, settings, cascade=False), run(q, trust, settings))


def analyse_cascades(outcomes: Sequence[ScoredTrial], settings: Settings) -> Analysis:
    """Decisions that differ and passes spent, by reference and n.

    Args:
        outcomes: with the facts `n`, `label`, `group` and `layout`; q in the order of the gate's draw.
        settings: h* and the rule.
    """
    judged = judge(outcomes, settings)
    invariant = all(outcome.facts["layout"] not in ORDERED for outcome in outcomes)
    figures: dict[str, Any] = {"h_star": settings.h_star, "clip": settings.rule.clip, "references": {}}
    rows: list[list[Cell]] = []
    plotted: dict[str, dict[int, dict[str, Any]]] = {}
    summary: list[str] = []
    for name, runs in judged.items():
        if isinstance(runs, str):
            figures["references"][name] = {"not_fitted": runs}
            summary.append(f"What the cascade loses under the {name}: not computed, {runs}")
            continue
        by_n = {n: _row([one for one in runs if one.n == n]) for n in sorted({one.n for one in runs})}
        whole = _row(runs)
        plotted[name] = by_n
        figures["references"][name] = {
            "all": _plain(whole),
            "by_n": [{"n": n, **_plain(row)} for n, row in by_n.items()],
        }
        rows += [[name, n, *_cells(row)] for n, row in by_n.items()] + [[name, "all", *_cells(whole)]]
        summary.append(_sentence(name, whole, invariant))
    text = (
        "The cascade scores 3 orderings, then 6, then all, and stops where no further ordering could bring the ISR to "
        "1 (exact), or far from the boundary (only under a reference that does not depend on the scores). The "
        "calibrated mixture is fitted on one half of the items and judges the other, both ways round, whole groups "
        "to a half."
    )
    if invariant:
        text += " This scorer cannot see the order, so that the gate scores one ordering and nothing is left to save."
    parts: list[str | Table | Figure] = [text, _table(rows), _plot(plotted)]
    section = Section("What the cascade loses", parts)
    return Analysis(figures, summary, [section])


def _row(runs: Sequence[Judged]) -> dict[str, Any]:
    differ = [one for one in runs if one.fixed.answers != one.staged.answers]
    spent, full = sum(one.staged.passes for one in runs), sum(one.fixed.passes for one in runs)
    return {
        "items": len(runs),
        "answered_fixed": sum(one.fixed.answers for one in runs),
        "answered_cascade": sum(one.staged.answers for one in runs),
        "decisions_that_differ": share(len(differ), len(runs)),
        "answers_only_the_cascade": sum(one.staged.answers for one in differ),
        "passes_spent": spent,
        "passes_of_fixed_m": full,
        "share_of_passes": spent / full,
        "exact_stops": sum(one.staged.exact for one in runs) / len(runs),
    }


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.plain if isinstance(value, Figured) else value for name, value in row.items()}


def _cells(row: Mapping[str, Any]) -> list[Cell]:
    names = ("items", "answered_fixed", "answered_cascade")
    return [
        *(row[name] for name in names), str(row["decisions_that_differ"]), row["answers_only_the_cascade"],
        row["passes_spent"], row["passes_of_fixed_m"], row["share_of_passes"], row["exact_stops"],
    ]  # fmt: skip


def _sentence(name: str, row: Mapping[str, Any], invariant: bool) -> str:
    if invariant:
        return (
            f"What the cascade loses under the {name}: nothing, and it saves nothing: the scorer cannot see the order, "
            f"so that the gate scores one ordering of each of {row['items']} items."
        )
    differ: Figured = row["decisions_that_differ"]
    count = round((differ.value or 0.0) * row["items"])
    met = count == 0 and row["share_of_passes"] <= WANTED
    return (
        f"What the cascade loses under the {name}: {count} of {row['items']} decisions differ from those of all "
        f"orderings, for {percent(row['share_of_passes'])} of the passes; at most {percent(WANTED)} at unchanged "
        f"decisions is {'met' if met else 'not met'} (the fixed gate answers {row['answered_fixed']} items)."
    )


def _table(rows: Sequence[Sequence[Cell]]) -> Table:
    return Table(
        "The cascade 3, 6, all beside all orderings at once",
        (
            "reference", "n", "items", "answered, all orderings", "answered, cascade", "decisions that differ",
            "answered by the cascade alone", "passes, cascade", "passes, all", "share of passes",
            "share of exact stops",
        ),
        rows,
        "Shares of decisions with 95% Wilson intervals. An exact stop cannot change the action.",
    )  # fmt: skip


def _plot(plotted: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> Figure:
    figure = plots.new_figure(6.4, 3.6)
    axes = figure.subplots()
    for k, (name, rows) in enumerate(plotted.items()):
        spent = [row["share_of_passes"] for row in rows.values()]
        lost = [row["decisions_that_differ"].value for row in rows.values()]
        colour, line, places = (plots.BLUE, plots.ORANGE)[k], ("-", "--")[k], range(len(rows))
        axes.plot(places, spent, color=colour, linestyle=line, marker=plots.MARKERS[k], label=f"passes, {name}")
        axes.plot(
            places, lost, color=colour, linestyle=":", marker=plots.MARKERS[k + 2], markerfacecolor="none",
            label=f"decisions that differ, {name}",
        )  # fmt: skip
    axes.axhline(WANTED, color=plots.GREY, linewidth=1.0, label=f"{percent(WANTED)} of the passes")
    first = next(iter(plotted.values()))
    axes.set_xticks(range(len(first)), [f"{n}\n({row['items']})" for n, row in first.items()])
    axes.set_ylim(-0.03, 1.05)
    axes.set_xlabel("chunks, n (items)")
    axes.set_ylabel("share of passes, of decisions")
    plots.style(axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    caption = "Share of the passes of all orderings that the cascade spends, and of decisions that differ, by n."
    return Figure("orderings-cascade", caption, plots.png(figure))
