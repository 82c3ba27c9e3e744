"""The audit's figures as sentences, tables and plots, the paper's beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from isr_lab import plots
from isr_lab.experiments.audit import paper
from isr_lab.experiments.audit.baselines import NAMES
from isr_lab.experiments.sections import Cell, Figure, Section, Table
from isr_lab.metrics import reliability_bins, risk_coverage_curve, wilson_interval

_READING = {
    "label": "gold label, g = the likelier label is right",
    "supported": "gold label, g = supported",
    "calibrated": "calibrated mixture, g = supported",
}
_RULE = {"paper": "paper's literal rule", "safe": "this package's rule"}
_RATES = ("alignment", "hallucination", "abstention", "accuracy_on_attempts")
_STYLES = (
    ("one ordering", "one ordering's q", plots.ORANGE, "--", 4.0),
    ("mean", "mean q", plots.BLUE, "-", 2.6),
    ("lowest", "lowest q", plots.GREEN, "-.", 1.4),
    ("majority", "majority", plots.PINK, ":", 2.0),
    ("ablation", "mean q less q without evidence", plots.GREY, (0, (6, 1, 1, 1, 1, 1)), 1.6),
)


def _percent(triple: Sequence[float] | None) -> str | None:
    return None if triple is None else f"{triple[0]:.1%} [{triple[1]:.1%}, {triple[2]:.1%}]"


def _number(triple: Sequence[float] | None) -> str | None:
    return None if triple is None else f"{triple[0]:z.3f} [{triple[1]:z.3f}, {triple[2]:z.3f}]"


# -- sentences ---------------------------------------------------------------------------------------------------


def summary(figures: dict[str, Any]) -> list[str]:
    """What came out, beside what the paper reports."""
    boundary, gap = figures["boundary"], figures["jensen_gap"]
    literal, own = boundary["label"]["paper"], boundary["label"]["safe"]
    said = [
        f"Boundary alignment on {figures['items']} held-out items, their evidence cut to at most "
        f"{figures['most_chunks']} chunks, gold-label reference and the paper's literal rule: "
        f"{_percent(literal['alignment'])}; with the one-sided rule of this package: {_percent(own['alignment'])} "
        f"(always or never answering: {literal['alignment_of_a_constant_rule']:.1%}; paper: {paper.ALIGNMENT[0]:.1%}). "
        "The 96.2% "
        + ("is reached under at least one" if _reaches(boundary) else "does not reproduce under any")
        + " of the readings that could miss it.",
        "With the gold label as reference the decision is computed from the label it is judged by: "
        f"{figures['tied']['paper']:.1%} (literal rule) and {figures['tied']['safe']:.1%} (this package's) of the "
        "decisions follow from the mean probability of the gold label alone. And with g = the likelier label is right, "
        "hallucination rate and accuracy on attempts are tied: they sum to 1.",
    ]
    said += [_oracle(boundary["supported"]["safe"]), _deployable(figures)]
    said.append(
        f"Mean Jensen gap of the gold label: {gap['gold_label_clipped']:.4f} nats (paper: {paper.JENSEN_GAP}). "
        + _flips(gap, figures["items"])
    )
    said.append(_selectors(figures["selectors"]))
    said.append(paper.contradictions()[0])
    return said


def _oracle(found: dict[str, Any]) -> str:
    """The reading in which the paper's hallucination rate holds by construction."""
    accuracy = _percent(found["accuracy_on_attempts"])
    return (
        "An oracle of gold labels for g = supported with this package's rule gives alignment "
        f"{found['alignment'][0]:.1%} and no hallucination"
        + (f" beside an accuracy on attempts of {accuracy}" if accuracy else "")
        + ". The oracle refuses whatever is not supported: no wrong answer can occur, and only "
        "supported items that are refused lower the alignment."
    )


def _reaches(boundary: dict[str, Any]) -> bool:
    """Whether some interval reaches the paper's alignment; the reading that cannot answer wrongly does not count."""
    cells = [
        rule["alignment"]
        for reading, by_rule in boundary.items()
        if by_rule is not None
        for name, rule in by_rule.items()
        if (reading, name) != ("supported", "safe")
    ]
    return any(high >= paper.ALIGNMENT[0] for _, _, high in cells)


def _deployable(figures: dict[str, Any]) -> str:
    own = figures["boundary"]["calibrated"]
    if own is None:
        return str(figures["reference_missing"])
    parts: list[str] = []
    for name in ("safe", "paper"):
        found = own[name]
        if found["answered"]:
            parts.append(
                f"{_RULE[name]} answers {found['answered']} of {found['items']} items, of which "
                f"{_percent(found['hallucination'])} are not supported"
            )
        else:
            parts.append(f"{_RULE[name]} answers none of {found['items']} items")
    return "With the deployable reference (calibrated mixture) " + "; ".join(parts) + "."


def _flips(gap: dict[str, Any], items: int) -> str:
    if gap["gold_label_clipped"] < 1e-9 and gap["share_that_flips"] == 0.0:
        return "This scorer's answers do not depend on the order: the control, with no gap and no dispersion."
    flipped = round(gap["share_that_flips"] * items)
    share = wilson_interval(flipped, items)
    told = _percent((share.estimate, share.lower, share.upper))
    return f"The likelier label depends on the ordering in {flipped} of {items} items, {told}."


def _selectors(selectors: dict[str, Any]) -> str:
    interval = selectors["less_mean"]["one ordering"]["AURC"]
    if interval is None:
        return "Whether the mean over the orderings ranks better than one ordering is undefined on these items."
    difference, low, high = interval
    if difference == low == high == 0.0:
        verdict = "the gain of the mean is nil: both rank the items alike"
    elif low <= 0.0 <= high:
        verdict = "no gain of the mean is to be seen"
    else:
        verdict = "the mean ranks better" if difference > 0.0 else "the mean ranks worse"
    return f"AURC of one ordering less that of the mean: {_number(interval)}; {verdict}."


# -- tables ------------------------------------------------------------------------------------------------------


def sections(figures: dict[str, Any]) -> list[Section]:
    """The report's sections."""
    return [
        Section("The boundary ISR = 1", [_definitions(figures), _rates_table(figures), _gap_table(figures)]),
        Section("Sensitivity to m and B", [_sweep_table(figures["sweep"])]),
        Section("Other selectors at equal coverage", _selector_parts(figures["selectors"])),
        Section("Calibration of the deployable reference", _calibration_parts(figures)),
        Section("What cannot all hold in the paper's figures", paper.contradictions()),
    ]


def _definitions(figures: dict[str, Any]) -> str:
    tied = figures["tied"]
    return (
        f"{figures['items']} test items of {figures['groups']} groups, {figures['supported']:.1%} of them supported; "
        f"the mixture's likelier label is right on {figures['accuracy_of_all']:.1%}. On average "
        f"{figures['mean_distinct_orderings']:.1f} distinct orderings an item. Boundary alignment: answered where g = "
        "1, not answered where g = 0. Hallucination rate: g = 0 among the answered. Accuracy on attempts: the "
        "mixture's likelier label is the gold one, among the answered. Where no ordering differs, P_ref = 1 makes the "
        f"literal rule answer exactly the items whose gold label has a probability between {tied['from']:.4f} and "
        f"{tied['to']:.4f}, a confidently wrong item as much as an unsure right one, and not a surely right one; the "
        "one-sided rule drops the upper end only. With P_ref = gold label of g = supported and the rule of this "
        "package, no unsupported item can be answered: that row's zero is no finding."
    )


def _rates_table(figures: dict[str, Any]) -> Table:
    rows: list[list[Cell]] = [
        [
            "paper",
            "paper's literal rule (Section 4.4)",
            _percent(paper.ALIGNMENT),
            f"{paper.HALLUCINATION[0]:.1%} to {paper.HALLUCINATION[1]:.1%}",
            _percent(paper.ABSTENTION),
            _percent(paper.ACCURACY),
            None,
        ]
    ]
    for reading, by_rule in figures["boundary"].items():
        for name, found in (by_rule or {}).items():
            cells = [_percent(found[rate]) for rate in _RATES]
            rows.append([_READING[reading], _RULE[name], *cells, f"{found['alignment_of_a_constant_rule']:.1%}"])
    missing = figures["reference_missing"]
    return Table(
        "Decisions at ISR = 1 with 95% Wilson intervals over items (shares of items).",
        ["reference", "rule", "alignment", "hallucination", "abstention", "accuracy on attempts", "constant rule"],
        rows,
        "A dash: nothing was answered. Constant rule: alignment of always or never answering, whichever is better. "
        "Wilson intervals take items as independent, also those of one group." + (f" {missing}" if missing else ""),
    )


def _gap_table(figures: dict[str, Any]) -> Table:
    gap = figures["jensen_gap"]
    return Table(
        "Jensen gap of the mixture, means over items in nats.",
        ["quantity", "paper", "here"],
        [
            ["gold label, probabilities kept above exp(-B)", paper.JENSEN_GAP, gap["gold_label_clipped"]],
            ["canonical label, not clipped", None, gap["canonical_label"]],
            [
                "share of items whose orderings disagree",
                f"at least {gap['share_that_must_flip']:.1%}",
                f"{gap['share_that_flips']:.1%}",
            ],
        ],
        "The paper does not say whose label its audit's gap is of. At least: what its gap implies, see below.",
    )


def _sweep_table(sweep: list[dict[str, Any]]) -> Table:
    keys = [(reading, rule) for reading in _READING for rule in _RULE]
    rows: list[list[Cell]] = []
    for row in sweep:
        m, clip = row["m"], row["clip"]
        reported = (paper.BY_M.get(m) if clip == 6.0 else None) or (paper.BY_CLIP.get(clip) if m == 6 else None)
        found = [(row[reading] or {}).get(rule) for reading, rule in keys]
        rows.append(
            [
                m,
                f"{clip:g}",
                f"{reported[0]:.1%}" if reported else None,
                *[f"{one['alignment'][0]:.1%}" if one else None for one in found],
                reported[1] if reported else None,
                row["jensen_gap"],
            ]
        )
    return Table(
        "Boundary alignment by number of orderings and clip (share of items), and mean Jensen gap of the gold label "
        "(nats).",
        [
            "m",
            "B (nats)",
            "paper (Appendix E)",
            *[f"{reading}, {'literal' if rule == 'paper' else 'ours'}" for reading, rule in keys],
            "gap, paper",
            "gap here",
        ],
        rows,
        "Label: gold label, g = the likelier label is right. Supported: gold label, g = supported. Calibrated: the "
        "deployable reference, fitted anew for every m. m counts seeds; equal orderings count once.",
    )


def _selector_parts(selectors: dict[str, Any]) -> list[str | Table | Figure]:
    statistics = list(selectors["own"]["mean"])
    own = [[NAMES[name], *[_number(found[s]) for s in statistics]] for name, found in selectors["own"].items()]
    less = [[NAMES[name], *[_number(found[s]) for s in statistics]] for name, found in selectors["less_mean"].items()]
    at = [[NAMES[name], *risks] for name, risks in selectors["risk_at_coverage"].items()]
    header = [f"{coverage:.1%}" for coverage in selectors["coverages"]]
    answers = "safe" in selectors["operating_points"]
    return [
        Table(
            "Selectors by themselves, with 95% bootstrap intervals over groups (AURC: lower is better).",
            ["selector", *statistics],
            own,
            "Thresholds of the coverages are chosen on the items they are judged on, which flatters all alike. AURC is "
            "at least what the share of unsupported items enforces. A dash: undefined, as AUROC with one class.",
        ),
        Table(
            "Each selector less the mean q, paired, with 95% bootstrap intervals over groups.",
            ["selector", *statistics],
            less,
            "A positive difference in AURC, a negative one elsewhere, speaks for the mean.",
        ),
        Table(
            "Risk (share not supported among the answered) at equal coverage.",
            ["selector", *header],
            at,
            "The first coverage is that of the gate with the deployable reference." if answers else "",
        ),
        _risk_coverage_figure(selectors),
    ]


def _calibration_parts(figures: dict[str, Any]) -> list[str | Table | Figure]:
    found, by_source = figures["calibration"], figures["by_source"]
    if found is None:
        return [str(figures["reference_missing"])]
    rows: list[list[Cell]] = []
    for source, one in by_source.items():
        rates = one["rates"]
        cells = [_percent(rates[rate]) for rate in ("hallucination", "abstention", "alignment")]
        rows.append([source, one["items"], f"{one['supported']:.1%}", rates["answered"], *cells])
    return [
        f"{figures['reference']}.",
        Table(
            "Calibration on the test items.",
            ["score", "Brier score", "expected calibration error"],
            [[name, found[name]["brier"], found[name]["ece"]] for name in ("mean q", "calibrated mean")],
        ),
        _reliability_figure(found),
        Table(
            "The gate with the deployable reference, this package's rule, by benchmark (95% Wilson intervals).",
            ["source", "items", "supported", "answered", "hallucination", "abstention", "alignment"],
            rows,
        ),
    ]


# -- plots -------------------------------------------------------------------------------------------------------


def _risk_coverage_figure(selectors: dict[str, Any]) -> Figure:
    figure = plots.new_figure(6.4, 4.8)
    axes = figure.subplots()
    plots.style(axes)
    labels = np.array(selectors["labels"])
    for name, label, colour, line, width in _STYLES:
        if name in selectors["scores"]:
            curve = risk_coverage_curve(selectors["scores"][name], labels)
            axes.plot(curve.coverage, curve.risk, color=colour, linestyle=line, linewidth=width, label=label)
    for name, marker in (("safe", "o"), ("paper", "X")):
        point = selectors["operating_points"].get(name)
        if point:
            axes.errorbar(
                point["coverage"][0],
                point["risk"][0],
                xerr=_reach(point["coverage"]),
                yerr=_reach(point["risk"]),
                marker=marker,
                color="black",
                markersize=8,
                elinewidth=0.8,
                capsize=2,
                linestyle="none",
                fillstyle="none" if marker == "o" else "full",
                label=f"gate, {_RULE[name]}",
            )
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(-0.02, None)
    axes.set_xlabel("coverage (share of items answered)")
    axes.set_ylabel("risk (share of the answered not supported)")
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return Figure(
        "audit-risk-coverage",
        "Risk against coverage of each selector, and the gate with the deployable reference at ISR = 1 (95% Wilson "
        "intervals). Where curves coincide the wider lies below.",
        plots.png(figure),
    )


def _reach(interval: Sequence[float]) -> list[list[float]]:
    """Lengths of the two error bars of [estimate, lower, upper]."""
    estimate, lower, upper = interval
    return [[max(0.0, estimate - lower)], [max(0.0, upper - estimate)]]


def _reliability_figure(found: dict[str, Any]) -> Figure:
    figure = plots.new_figure(4.6, 4.4)
    axes = figure.subplots()
    plots.style(axes)
    axes.plot([0, 1], [0, 1], color=plots.GREY, linewidth=1.0, linestyle=":", label="perfectly calibrated")
    series = (("mean q", plots.ORANGE, "s", "--"), ("calibrated mean", plots.BLUE, "o", "-"))
    for name, colour, marker, line in series:
        bins = reliability_bins(found[name]["scores"], found["labels"], bins=found["bins"])
        counts = [(round(float(f) * int(c)), int(c)) for f, c in zip(bins.frequency, bins.count, strict=True)]
        ends = [wilson_interval(k, n) for k, n in counts]
        errors = [
            [max(0.0, e.estimate - e.lower) for e in ends],
            [max(0.0, e.upper - e.estimate) for e in ends],
        ]
        axes.errorbar(
            bins.confidence,
            bins.frequency,
            yerr=errors,
            color=colour,
            marker=marker,
            markersize=5,
            linestyle=line,
            linewidth=1.2,
            elinewidth=0.8,
            capsize=2,
            label=name,
        )
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("probability given (mean of the bin)")
    axes.set_ylabel("share of items supported")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return Figure(
        "audit-reliability",
        "Reliability on the test items in bins of equal size, 95% Wilson intervals: the mean q as it is, and after the "
        "calibration fitted on the val items.",
        plots.png(figure),
    )
