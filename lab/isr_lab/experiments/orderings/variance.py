"""How much of the dispersion is order, how much is wording: variance components of the log-odds.

Every item is asked under every template, label map and ordering, once each: a balanced design in which templates and
label maps cross the items and an item's orderings are its own. Components are the method-of-moments estimates that
set the mean squares of the analysis of variance equal to their expectations under random effects. The numerical noise
comes from the same prompt and ordering scored again in other company.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_lab import plots
from isr_lab.experiments.orderings.parts import Figured, bootstrapped, percent_interval
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.sections import Cell, Figure, Section, Table
from isr_lab.experiments.trials import ScoredTrial
from isr_lab.metrics import MetricError

Floats = NDArray[np.float64]

ITEM, TEMPLATE, LABEL, ORDER = range(4)
"""Axes of the design."""

_SOURCES: tuple[tuple[int, ...], ...] = (
    (),
    (ITEM,),
    (TEMPLATE,),
    (LABEL,),
    (TEMPLATE, LABEL),
    (ITEM, TEMPLATE),
    (ITEM, LABEL),
    (ITEM, TEMPLATE, LABEL),
    (ITEM, ORDER),
    (ITEM, TEMPLATE, ORDER),
    (ITEM, LABEL, ORDER),
    (ITEM, TEMPLATE, LABEL, ORDER),
)  # orderings are nested in items, so no source has an ordering without its item

PARTS: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "template": ((TEMPLATE,), (ITEM, TEMPLATE)),
    "label map": ((LABEL,), (ITEM, LABEL)),
    "template x label map": ((TEMPLATE, LABEL), (ITEM, TEMPLATE, LABEL)),
    "ordering": ((ITEM, ORDER),),
    "ordering x template": ((ITEM, TEMPLATE, ORDER),),
    "ordering x label map": ((ITEM, LABEL, ORDER),),
    "ordering x both": ((ITEM, TEMPLATE, LABEL, ORDER),),
}
"""What an item's log-odds vary by, and the sources of the analysis of variance that belong to it."""


_NOTHING = 1e-20  # a variance of log-odds below this is rounding


def mean_squares(z: Floats) -> dict[tuple[int, ...], tuple[float, int]]:
    """Mean square and degrees of freedom of every source but the mean.

    Args:
        z: log-odds, shape (items, templates, label maps, orderings), two of each at least.
    """
    effects: dict[tuple[int, ...], Floats] = {}
    degrees: dict[tuple[int, ...], int] = {}
    result: dict[tuple[int, ...], tuple[float, int]] = {}
    for source in _SOURCES:
        others = tuple(axis for axis in range(z.ndim) if axis not in source)
        inner = [other for other in effects if set(other) < set(source)]
        effects[source] = z.mean(axis=others, keepdims=True) - sum(effects[other] for other in inner)
        degrees[source] = math.prod(z.shape[axis] for axis in source) - sum(degrees[other] for other in inner)
        if source:
            squares = float(np.sum(effects[source] ** 2)) * math.prod(z.shape[axis] for axis in others)
            result[source] = squares / degrees[source], degrees[source]
    return result


def components(z: Floats) -> dict[tuple[int, ...], float]:
    """Variance of every source, from the expected mean squares; below zero by chance where there is little.

    The expected mean square of a source is the sum, over the sources that contain it, of their variances times the
    number of observations that share one of their effects. The finest source holds the noise as well.

    Args:
        z: as for `mean_squares`.
    """
    squares = mean_squares(z)
    found: dict[tuple[int, ...], float] = {}

    def times(source: tuple[int, ...]) -> int:
        return math.prod(z.shape[axis] for axis in range(z.ndim) if axis not in source)

    for source in sorted(squares, key=len, reverse=True):
        above = sum(times(other) * variance for other, variance in found.items() if set(source) < set(other))
        found[source] = (squares[source][0] - above) / times(source)
    return found


def noise_variance(copies: Floats) -> float:
    """Variance of the same prompt's log-odds when it is scored again, shape (items, copies)."""
    return float(np.mean(np.var(copies, axis=1, ddof=1)))


def within_item(z: Floats, copies: Floats) -> dict[str, float]:
    """Variances of an item's log-odds by what they vary by, none below zero; the noise apart."""
    found, noise = components(z), noise_variance(copies)
    found[(ITEM, TEMPLATE, LABEL, ORDER)] -= noise
    parts = {name: sum(max(0.0, found[source]) for source in sources) for name, sources in PARTS.items()}
    return {name: 0.0 if value < _NOTHING else value for name, value in {**parts, "noise": noise}.items()}


def part_share(names: Sequence[str], z: Floats, copies: Floats) -> float:
    """Share of some parts together in the variance of an item's log-odds.

    Raises:
        MetricError: where nothing varies.
    """
    parts = within_item(z, copies)
    total = sum(parts.values())
    if total == 0.0:
        raise MetricError("the log-odds do not vary within an item")
    return sum(parts[name] for name in names) / total


@dataclass(frozen=True, slots=True)
class Design:
    """The log-odds of one balanced design.

    Attributes:
        z: shape (items, templates, label maps, orderings); the shipped template and label map first.
        copies: the shipped prompt in the retriever's order, scored more than once, shape (items, copies).
        groups: of the items.
        targets: the items' labels, shape (items,).
        templates: names.
        label_maps: names.
    """

    z: Floats
    copies: Floats
    groups: list[str]
    targets: NDArray[np.int64]
    templates: tuple[str, ...]
    label_maps: tuple[str, ...]

    @classmethod
    def of(cls, outcomes: Sequence[ScoredTrial], templates: Sequence[str], label_maps: Sequence[str]) -> Design:
        """Put outcomes in their places by the facts `item`, `template`, `label_map` and `copy`."""
        cells: dict[tuple[object, object, object], tuple[float, ...]] = {}
        again: dict[object, list[float]] = {}
        facts: dict[object, ScoredTrial] = {}
        for outcome in outcomes:
            item = outcome.facts["item"]
            facts.setdefault(item, outcome)
            if outcome.facts["copy"]:
                again.setdefault(item, []).append(outcome.log_odds[-1])
            else:
                cells[item, outcome.facts["template"], outcome.facts["label_map"]] = outcome.log_odds
        z = np.array([[[cells[item, t, name] for name in label_maps] for t in templates] for item in facts])
        copies = np.array([[z[i, 0, 0, 0], *again[item]] for i, item in enumerate(facts)])
        groups = [str(outcome.facts["group"]) for outcome in facts.values()]
        targets = np.array([int(outcome.facts["label"] or 0) for outcome in facts.values()])
        return cls(z, copies, groups, targets, tuple(templates), tuple(label_maps))


def analyse_variance(design: Design, resamples: int, noise_floor: float | None = None) -> Analysis:
    """Components, their shares, and what each wording does.

    Args:
        design: two items at least.
        resamples: of the bootstrap over items.
        noise_floor: what the scorer says of its own noise, in log-odds; None where it says nothing.
    """
    z, copies = design.z, design.copies
    parts, found = within_item(z, copies), components(z)
    shares = {name: _share([name], design, resamples) for name in parts}
    of_order = _share([name for name in parts if name.startswith("ordering")], design, resamples)
    figures: dict[str, Any] = {
        "items": z.shape[ITEM],
        "templates": list(design.templates),
        "label_maps": list(design.label_maps),
        "orderings": z.shape[ORDER],
        "copies": copies.shape[1],
        "between_items_variance": found[(ITEM,)],
        "variance": parts,
        "share_of_all_ordering": of_order.plain,
        "share_within_item": {name: figured.plain for name, figured in shares.items()},
        "estimates": {_name(source): variance for source, variance in found.items()},
        "mean_squares": {_name(s): {"value": ms, "degrees_of_freedom": df} for s, (ms, df) in mean_squares(z).items()},
        "noise": {
            "sd": math.sqrt(parts["noise"]),
            "largest_difference": float(np.ptp(copies, axis=1).max()),
            "stated_by_scorer": noise_floor,
        },
        "wordings": _wordings(design),
    }
    shown: list[str | Table | Figure] = [
        _text(design, noise_floor),
        _component_table(parts, shares, found),
        _wording_table(design),
    ]
    if shares["ordering"].value is not None:
        shown.append(_plot(shares))
    return Analysis(figures, [_sentence(shares, of_order, figures)], [Section("Order or wording", shown)])


def _share(names: Sequence[str], design: Design, resamples: int) -> Figured:
    statistic = partial(part_share, names)
    return bootstrapped(statistic, design.z, design.copies, groups=design.groups, resamples=resamples)


def _name(source: tuple[int, ...]) -> str:
    names = ("item", "template", "label map", "ordering")
    return " x ".join(names[axis] for axis in source)


def _sentence(shares: Mapping[str, Figured], of_order: Figured, figures: Mapping[str, Any]) -> str:
    if of_order.value is None:
        return "Order or wording: the log-odds of an item do not vary at all, so that there is nothing to share out."
    said = {name: percent_interval(figured) for name, figured in shares.items()}
    sd, noise = figures["wordings"][0]["sd_over_orderings"], figures["noise"]["sd"]
    return (
        "Order or wording: of the variance of an item's log-odds, all that depends on the ordering "
        f"makes {percent_interval(of_order)} (what it does alike under every wording {said['ordering']}); the label "
        f"map makes {said['label map']}, the template {said['template']}, the two together "
        f"{said['template x label map']}, numerical noise {said['noise']}. Under the first wording alone the "
        f"orderings have an sd of {sd:.2g} in log-odds, the noise {noise:.2g}."
    )


def _text(design: Design, noise_floor: float | None) -> str:
    items, templates, maps, orderings = design.z.shape
    stated = "no noise floor" if noise_floor is None else f"a noise floor of {noise_floor:.3g} in log-odds"
    return (
        f"{items} items, each asked under {templates} templates, {maps} label maps and {orderings} orderings, once "
        f"each; the shipped prompt in the retriever's order was scored {design.copies.shape[1]} times in different "
        f"company, which gives the noise. The scorer states {stated}. Components follow from the expected mean squares "
        "of the balanced analysis of variance with random effects; estimates below zero count as zero in the shares."
    )


def _component_table(
    parts: Mapping[str, float], shares: Mapping[str, Figured], found: Mapping[tuple[int, ...], float]
) -> Table:
    rows: list[list[Cell]] = [
        [name, variance, math.sqrt(variance), str(shares[name])] for name, variance in parts.items()
    ]
    between = found[(ITEM,)]
    return Table(
        "Variance components of the log-odds",
        ("component", "variance (log-odds squared)", "sd (log-odds)", "share within an item"),
        [*rows, ["between items", between, math.sqrt(max(0.0, between)), "–"]],
        "95% bootstrap intervals over items; templates and label maps are those named here, not a sample of all. "
        "The ordering's own part moves the log-odds of yes alike under every wording; what moves those of a label's "
        "string, whatever it means, turns its sign with the labels and is found under ordering x label map.",
    )


def _wordings(design: Design) -> list[dict[str, Any]]:
    right = (design.z >= 0.0) == (design.targets == 1)[:, None, None, None]
    return [
        {
            "template": template,
            "label_map": labels,
            "mean_log_odds": float(design.z[:, t, k].mean()),
            "accuracy": float(right[:, t, k].mean()),
            "sd_over_orderings": float(np.sqrt(np.var(design.z[:, t, k], axis=1, ddof=1).mean())),
        }
        for t, template in enumerate(design.templates)
        for k, labels in enumerate(design.label_maps)
    ]


def _wording_table(design: Design) -> Table:
    rows = [
        [w["template"], w["label_map"], w["mean_log_odds"], w["sd_over_orderings"], w["accuracy"]]
        for w in _wordings(design)
    ]
    return Table(
        "What each wording does, all items and orderings",
        ("template", "yes / no", "mean log-odds", "sd over orderings (log-odds)", "accuracy at 0.5"),
        rows,
    )


def _plot(shares: Mapping[str, Figured]) -> Figure:
    figure = plots.new_figure(6.4, 3.2)
    axes = figure.subplots()
    names = list(shares)
    values = [shares[name].value or 0.0 for name in names]
    bars = np.array([shares[name].errors for name in names]).T
    colours = [plots.BLUE if "ordering" in name else plots.GREY if name == "noise" else plots.ORANGE for name in names]
    hatches = ["" if "ordering" in name else ".." if name == "noise" else "//" for name in names]
    drawn = axes.barh(names, values, xerr=bars, color=colours, edgecolor="white", capsize=3)
    for bar, hatch in zip(drawn, hatches, strict=True):
        bar.set_hatch(hatch)
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("share of the variance of an item's log-odds")
    plots.style(axes)
    caption = "What an item's log-odds vary by, as shares of their variance, with 95% bootstrap intervals over items."
    return Figure("orderings-variance", caption, plots.png(figure))
