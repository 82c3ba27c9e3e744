"""Which orderings to draw: how far the mean over a few of a family's draws lies from the mean over all orderings.

The truth of an item is the mean of q over every permutation where n is small enough, else the mean over many uniform
orderings that no family drew; the variance of such a truth is subtracted from the squared errors measured against it.
A family is drawn the way the gate draws it: seeded, distinct, the retriever's own order first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_lab import plots
from isr_lab.designs import Design, draw_design
from isr_lab.experiments.orderings.parts import FEWEST, Figured, bootstrapped
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.sections import Cell, Figure, Section, Table
from isr_lab.experiments.trials import ScoredTrial
from isr_rag.core.prompt import Ordering

COMPARED: tuple[Design, ...] = ("banded", "uniform", "latin", "antithetic")
TODAY: Design = "uniform"
"""What the gate's `auto` draws where it cannot take all permutations."""

_TRUTH_SEED = 1_000_003  # away from the seeds of the families, whose uniform draws it would repeat
_EACH = 1.0 - 0.05 / (len(COMPARED) - 1)  # confidence of one comparison with the best family
_DUST = 1e-18  # squared errors below this are rounding

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Draws:
    """What is scored of an item with n chunks, and who drew it.

    Attributes:
        orderings: what is scored.
        truth: indices of the orderings whose mean is the truth.
        enumerated: whether these are all permutations.
        families: for each family, for each seed, the indices of its draws in their order.
    """

    orderings: tuple[Ordering, ...]
    truth: Indices
    enumerated: bool
    families: Mapping[str, Sequence[Indices]]


@dataclass(frozen=True, slots=True)
class Drawing:
    """How orderings are drawn for the comparison.

    Attributes:
        sizes: numbers of orderings m to compare at, ascending.
        seeds: draws of each family where all permutations are scored, where they cost nothing.
        sampled_seeds: draws of each family elsewhere.
        enumerate_up_to: all permutations are scored up to this n.
        truth_draws: uniform orderings that make the truth above it.
    """

    sizes: tuple[int, ...]
    seeds: int
    sampled_seeds: int
    enumerate_up_to: int
    truth_draws: int

    def draws(self, n: int) -> Draws:
        """What to score of n chunks."""
        enumerated = n <= self.enumerate_up_to
        seeds, most = self.seeds if enumerated else self.sampled_seeds, max(self.sizes)
        drawn = {f: [draw_design(n, most, family=f, seed=seed) for seed in range(seeds)] for f in COMPARED}
        if enumerated:
            orderings = tuple(itertools.permutations(range(n)))
            truth = np.arange(len(orderings))
        else:
            own = dict.fromkeys(o for lists in drawn.values() for one in lists for o in one)
            wanted = self.truth_draws + len(own)
            more = draw_design(n, wanted, family="uniform", seed=_TRUTH_SEED, identity_first=False)
            others = [ordering for ordering in more if ordering not in own][: self.truth_draws]
            orderings = (*own, *others)
            truth = np.arange(len(own), len(orderings))
        at = {ordering: k for k, ordering in enumerate(orderings)}
        families: dict[str, Sequence[Indices]] = {
            family: [np.array([at[ordering] for ordering in one]) for one in lists] for family, lists in drawn.items()
        }
        return Draws(orderings, truth, enumerated, families)


def squared_errors(q: Floats, draws: Draws, sizes: Sequence[int]) -> Floats:
    """Mean squared error of the mean over m draws, over seeds, shape (sizes, families).

    The variance of a sampled truth is subtracted, so an entry may fall below zero by chance; where a family has
    fewer members than m all of them are taken.
    """
    seen = q[draws.truth]
    variance, total = 0.0, math.factorial(len(draws.orderings[0]))
    if not draws.enumerated:
        variance = float(np.var(seen, ddof=1)) / len(seen) * (1.0 - len(seen) / total)
    errors = np.array(
        [
            [np.mean([(q[one[:m]].mean() - seen.mean()) ** 2 for one in draws.families[family]]) for family in COMPARED]
            for m in sizes
        ]
    )
    return np.where(np.abs(errors - variance) < _DUST, 0.0, errors - variance)


def rmse(squared: Floats) -> float:
    """Root of the mean squared error; zero where the correction takes it below zero by chance."""
    return math.sqrt(max(0.0, float(np.mean(squared))))


def analyse_families(outcomes: Sequence[ScoredTrial], drawing: Drawing, resamples: int) -> Analysis:
    """Errors by family, n and m, and who wins at each m.

    Args:
        outcomes: of trials with the fact `n` that scored `drawing.draws(n).orderings`.
        drawing: how they were drawn.
        resamples: of the bootstrap over items.
    """
    by_n = {n: drawing.draws(n) for n in sorted({_n(outcome) for outcome in outcomes})}
    items = sorted(outcomes, key=_n)
    squared = np.stack([squared_errors(outcome.q, by_n[_n(outcome)], drawing.sizes) for outcome in items])
    ns, groups = np.array([_n(outcome) for outcome in items]), [str(outcome.facts["group"]) for outcome in items]

    def inside(rows: NDArray[np.bool_]) -> list[str]:
        return [group for group, there in zip(groups, rows, strict=True) if there]

    def cell(rows: NDArray[np.bool_], m: int) -> dict[str, Figured]:
        k = drawing.sizes.index(m)
        return {
            family: bootstrapped(rmse, squared[rows, k, f], groups=inside(rows), resamples=resamples)
            for f, family in enumerate(COMPARED)
        }

    table = {(n, m): cell(ns == n, m) for n in by_n for m in drawing.sizes if math.factorial(n) > m}
    unsettled = {m: np.array([math.factorial(n) > m for n in ns]) for m in drawing.sizes}
    pooled = {m: cell(rows, m) for m, rows in unsettled.items() if rows.any()}
    verdicts = {
        m: winner(squared[unsettled[m], drawing.sizes.index(m)], inside(unsettled[m]), resamples) for m in pooled
    }
    counts = {n: int(np.sum(ns == n)) for n in by_n}
    figures: dict[str, Any] = {
        "items": {str(n): count for n, count in counts.items()},
        "truth": {str(n): "enumeration" if d.enumerated else f"{len(d.truth)} uniform draws" for n, d in by_n.items()},
        "seeds": {str(n): len(d.families[TODAY]) for n, d in by_n.items()},
        "rmse": [
            {"n": n, "m": m, **{family: figured.plain for family, figured in cells.items()}}
            for (n, m), cells in table.items()
        ],
        "pooled": [{"m": m, **{f: figured.plain for f, figured in cells.items()}} for m, cells in pooled.items()],
        "winner": [{"m": m, **verdict.plain} for m, verdict in verdicts.items()],
    }
    parts = _parts(by_n, counts, table, pooled, verdicts)
    return Analysis(figures, [_sentence(pooled, verdicts)], [Section("Which orderings to draw", parts)])


def _sentence(pooled: Mapping[int, Mapping[str, Figured]], verdicts: Mapping[int, FamilyRanking]) -> str:
    if not verdicts:
        return "Which orderings to draw: not settled, every item has no more orderings than were drawn."
    told: list[str] = []
    for m, verdict in verdicts.items():
        named = dict.fromkeys((verdict.lowest, TODAY))
        errors = ", ".join(f"{family} {pooled[m][family]}" for family in named)
        told.append(f"m = {m}: {verdict.sentence} (RMSE {errors})")
    return f"Which orderings to draw ({TODAY} is what auto draws): {'; '.join(told)}."


def _n(outcome: ScoredTrial) -> int:
    n = outcome.facts["n"]
    assert isinstance(n, int)
    return n


@dataclass(frozen=True, slots=True)
class FamilyRanking:
    """Who has the lowest error at one m.

    Attributes:
        lowest: the family with the lowest pooled error.
        behind: families whose error is higher beyond the interval of the paired difference.
        level: families whose error cannot be told from the lowest.
        differences: squared error of each family less that of the lowest.
    """

    lowest: str
    behind: tuple[str, ...]
    level: tuple[str, ...]
    differences: Mapping[str, Figured]

    @property
    def winner(self) -> str | None:
        """The family that beats every other; None where there is none."""
        return None if self.level else self.lowest

    @property
    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "winner": self.winner,
            "lowest": self.lowest,
            "behind": list(self.behind),
            "no_difference_to": list(self.level),
            "squared_error_above_lowest": {family: d.plain for family, d in self.differences.items()},
        }

    @property
    def sentence(self) -> str:
        """In words."""
        if self.winner is not None:
            return f"{self.lowest} wins, its error below every other family's beyond the interval"
        together = ", ".join(sorted((self.lowest, *self.level)))
        if not any(d.value for d in self.differences.values()):
            return f"no difference: {together} give the same mean"
        if all(d.lower is None for d in self.differences.values()):
            return f"{self.lowest} has the lowest error, on too few items for an interval"
        if not self.behind:
            return f"no difference beyond the interval between {together}"
        return (
            f"no winner: no difference beyond the interval between {together}, and behind them {', '.join(self.behind)}"
        )


def winner(squared: Floats, groups: Sequence[object], resamples: int) -> FamilyRanking:
    """Compare the families on the same items; the intervals of the comparisons hold together at 95%.

    Args:
        squared: squared errors, shape (items, families).
        groups: of the items, for the bootstrap.
        resamples: of the bootstrap.
    """
    best = int(np.argmin(squared.mean(axis=0)))
    differences: dict[str, Figured] = {
        family: bootstrapped(
            np.mean, squared[:, f] - squared[:, best], groups=groups, resamples=resamples, confidence=_EACH
        )
        for f, family in enumerate(COMPARED)
        if f != best
    }
    behind = tuple(family for family, d in differences.items() if d.apart_from_zero)
    level = tuple(family for family in differences if family not in behind)
    return FamilyRanking(COMPARED[best], behind, level, differences)


def _parts(
    by_n: Mapping[int, Draws],
    counts: Mapping[int, int],
    table: Mapping[tuple[int, int], Mapping[str, Figured]],
    pooled: Mapping[int, Mapping[str, Figured]],
    verdicts: Mapping[int, FamilyRanking],
) -> list[str | Table | Figure]:
    truths = [
        f"n = {n}: {counts[n]} items, truth from {'all ' if d.enumerated else ''}{len(d.truth)} orderings, "
        f"{len(d.families[TODAY])} {'draws' if len(d.families[TODAY]) > 1 else 'draw'} of each family"
        for n, d in by_n.items()
    ]
    text = (
        "The error is that of the mean q over m orderings of a family, the retriever's own order first, against the "
        f"mean over all orderings. {'; '.join(truths)}. The banded family has a single member up to n = 6, so that it "
        "cannot come nearer to the truth there."
    )
    rows: list[list[Cell]] = []
    for (n, m), cells in sorted(table.items()):
        rows.append([n, m, *(str(cells[family]) for family in COMPARED)])
    for m, cells in pooled.items():
        rows.append(["pooled", m, *(str(cells[family]) for family in COMPARED)])
    errors = Table(
        "Root mean squared error of the mean q (probability), with 95% bootstrap intervals over items",
        ("n", "m", *COMPARED),
        rows,
        "Cells with n! <= m are left out: every family but the banded one then has all orderings. "
        f"The variance of a sampled truth is subtracted. No interval under {FEWEST} items.",
    )
    winners = Table(
        "Squared error above that of the best family (probability squared), paired over items",
        ("m", "lowest", *(f"{family} – lowest" for family in COMPARED), "verdict"),
        [
            [m, v.lowest, *(str(v.differences[f]) if f in v.differences else "–" for f in COMPARED), v.sentence]
            for m, v in verdicts.items()
        ],
        f"All n with n! > m together. Bootstrap intervals over items at {100 * _EACH:.3g}% each, which makes 95% for "
        f"the {len(COMPARED) - 1} comparisons together (Bonferroni). The draws of a seed are the same for every item.",
    )
    return [text, errors, winners, *([_plot(pooled)] if pooled else [])]


def _plot(pooled: Mapping[int, Mapping[str, Figured]]) -> Figure:
    figure = plots.new_figure(6.4, 3.8)
    axes = figure.subplots()
    colours = (plots.ORANGE, plots.BLUE, plots.GREEN, plots.PINK)
    for f, family in enumerate(COMPARED):
        cells = [pooled[m][family] for m in pooled]
        places = [k + 0.09 * (f - 1.5) for k in range(len(pooled))]
        values = [cell.value or 0.0 for cell in cells]
        bars = np.array([cell.errors for cell in cells]).T
        axes.errorbar(
            places, values, yerr=bars, fmt=plots.MARKERS[f], color=colours[f], capsize=3, label=family,
            linestyle=("--", "-", ":", "-.")[f], linewidth=1.2,
        )  # fmt: skip
    axes.set_xticks(range(len(pooled)), [str(m) for m in pooled])
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("orderings drawn, m")
    axes.set_ylabel("RMSE of the mean q (probability)")
    plots.style(axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(COMPARED), frameon=False)
    caption = (
        "Root mean squared error of the mean q over m orderings of each family, items with n! > m pooled, "
        "with 95% bootstrap intervals over items."
    )
    return Figure("orderings-families", caption, plots.png(figure))
