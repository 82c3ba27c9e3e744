"""The report of Experiment 1: the paper's figures beside ours, in sentences and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from isr_lab.experiments.dispersion import plots
from isr_lab.experiments.dispersion.scaling import Permuted
from isr_lab.experiments.dispersion.summary import INFORMATION, STEEPEST, interval, short, summary
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.sections import Cell, Section, Table

MODELS = ("Qwen2-7B", "Llama-3.1-8B")
"""The models of Section 4.2, both over 3,059 items, 16 banded orderings and n = 3 to 60."""
SLOPE = ("0.377 (0.319, 0.435)", "0.147 (0.109, 0.184)")
R2 = (0.742, 0.515)
JENSEN_GAP = (0.1041, 0.00982)
OPTIMALITY_GAP = ("< 1e-4", "<= 5.3e-5")
"""Section 4.2, Table 2."""
RESIDUAL_TO_PAIR = 0.69
"""Section 4.2: mean absolute residual over E_pair at n = 60, both models."""
GAP_RANGE = ("0 to 0.2923", "0 to 0.03774")
POSITIVE_SIZES = "54 of 58"
CROSS_ENTROPY: dict[str, tuple[Cell, Cell]] = {
    "uniform": (0.2666, 0.28349),
    "optimised": (0.2666, 0.28344),
    "oracle": (0.3707, 0.29331),
}
"""Appendix C, nats."""
BREADTH: tuple[tuple[Cell, ...], ...] = (
    ("Qwen2-7B", "banded", 0.377, 0.742, None, None),
    ("Llama-3.1-8B", "banded", 0.147, 0.515, None, None),
    ("Llama-3.3-70B", "banded", 0.0047, 0.648, 0.244, 0.878),
    ("gpt-4.1-mini", "banded", 0.0082, 0.839, 0.183, 0.866),
    ("gpt-4.1-mini", "uniform", 0.0049, 0.928, None, None),
    ("DeepSeek-V3.2 (MoE)", "banded", 0.0035, 0.754, None, None),
)
"""Appendix C.3: model, family, slope and R2 in probability, slope and R2 in log-odds."""

Figures = Mapping[str, Any]


def report(figures: dict[str, Any], families: Mapping[str, Sequence[Permuted]]) -> Analysis:
    """Summary, tables and plots of the figures that `Dispersion.analyse` computes."""
    found: dict[str, Any] = figures["families"]
    sections = [
        Section(
            "Dispersion and n",
            (plots.dispersion(found), _laws(found), _comparison(found), _ratios(found), _breadth(found)),
        ),
        Section("What the mixture gains", (plots.jensen(found), _gaps(found), _entropies(found), _gold(found))),
        Section("Bounds", _bounds(found, families)),
        Section("Does the ordering tell the outcome?", (_information(found),)),
        Section("All n", tuple(_sizes(name, family) for name, family in found.items())),
    ]
    return Analysis(figures, summary(figures), sections)


def _log(family: Figures, space: str) -> dict[str, float] | None:
    fits = family["dispersion"]["laws"].get(space)
    return None if fits is None else fits["log"]


# -- tables ------------------------------------------------------------------------------------------------------


def _beside(
    caption: str, rows: Sequence[tuple[Cell, Cell, Cell, Callable[[Figures], Cell]]], found: Figures, note: str = ""
) -> Table:
    """A table with the paper's two models beside each family here."""
    header = ("", *(f"paper: {model}" for model in MODELS), *(f"here: {name}" for name in found))
    cells = [(name, one, two, *(value(family) for family in found.values())) for name, one, two, value in rows]
    return Table(caption, header, cells, note)


def _laws(found: Figures) -> Table:
    def slope(space: str) -> Callable[[Figures], Cell]:
        return lambda family: interval(_log(family, space)) if space in family["dispersion"]["laws"] else None

    def r2(space: str) -> Callable[[Figures], Cell]:
        return lambda family: None if (fit := _log(family, space)) is None else fit["r2"]

    rows: list[tuple[Cell, Cell, Cell, Callable[[Figures], Cell]]] = [
        ("slope b, probability", *SLOPE, slope("probability")),
        ("R2, probability", *R2, r2("probability")),
        ("slope b, log-odds", None, None, slope("log_odds")),
        ("R2, log-odds", None, None, r2("log_odds")),
        ("slope b, probability, n above the bands", None, None, slope("probability_movable")),
        ("slope b, log-odds, n above the bands", None, None, slope("log_odds_movable")),
        ("largest slope possible in probability", STEEPEST, STEEPEST, _disp("steepest_possible_slope")),
        ("mean absolute residual, probability", None, None, _disp("residual")),
        ("mean absolute residual, log-odds", None, None, _disp("residual_log_odds")),
    ]
    return _beside(
        "Mean absolute residual per n on log n (natural), ordinary least squares with 95% intervals.",
        rows,
        found,
        "A banded family has one member up to n = bands, so that its dispersion is 0 there by construction and its "
        "room to move grows with n; the rows 'n above the bands' leave those n out.",
    )


def _disp(name: str) -> Callable[[Figures], Cell]:
    return lambda family: family["dispersion"][name]


def _comparison(found: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, family in found.items():
        for space, unit in (("probability", "probability"), ("log_odds", "log-odds")):
            fits = family["dispersion"]["laws"][space]
            if fits is not None:
                aic = fits["aic"]
                rows.append((name, unit, fits["points"], aic["log"], aic["sqrt"], aic["constant"], fits["best"]))
    return Table(
        "Which law the means per n follow: Akaike's information criterion of a + b log n, a + b sqrt(n) and a constant "
        "(lower is better; differences under 2 decide nothing).",
        ("orderings", "space", "points", "log n", "sqrt(n)", "constant", "best"),
        rows,
        "" if rows else "Undefined: nothing disperses, or there are fewer than three numbers of chunks.",
    )


def _ratios(found: Figures) -> Table:
    def ratio(where: str, pairs: str) -> Callable[[Figures], Cell]:
        return lambda family: family["dispersion"][where][pairs]

    at_most, overall = "residual_to_pair_at_largest_n", "residual_to_pair"
    rows: list[tuple[Cell, Cell, Cell, Callable[[Figures], Cell]]] = [
        ("at the largest n, all pairs", RESIDUAL_TO_PAIR, RESIDUAL_TO_PAIR, ratio(at_most, "pair")),
        ("at the largest n, different orderings", None, None, ratio(at_most, "pair_distinct")),
        ("all items, all pairs", None, None, ratio(overall, "pair")),
        ("all items, different orderings", None, None, ratio(overall, "pair_distinct")),
    ]
    return _beside(
        "Mean absolute residual over E_pair, probability.",
        rows,
        found,
        "For normally distributed predictions and m = 16 the ratio is 0.730 over all pairs and 0.685 over pairs of "
        "different orderings, whatever n: the paper's 69% fits the latter and says nothing of position.",
    )


def _breadth(found: Figures) -> Table:
    rows: list[Sequence[Cell]] = [(f"paper: {row[0]}", *row[1:]) for row in BREADTH]
    for name, family in found.items():
        fits = [_log(family, space) for space in ("probability", "log_odds")]
        cells = [(None, None) if fit is None else (fit["slope"], fit["r2"]) for fit in fits]
        rows.append(("here", name, *cells[0], *cells[1]))
    header = ("model", "orderings", "b, probability", "R2", "b, log-odds", "R2")
    return Table("Slopes of the mean absolute residual on log n across models.", header, rows)


def _gaps(found: Figures) -> Table:
    def gap_range(family: Figures) -> Cell:
        low, high = family["dispersion"]["jensen_gap_range"]
        return f"{low:.4g} to {high:.4g}"

    def positive(family: Figures) -> Cell:
        return f"{family['dispersion']['sizes_with_positive_gap']} of {family['dispersion']['sizes']}"

    rows: list[tuple[Cell, Cell, Cell, Callable[[Figures], Cell]]] = [
        ("items", 3059, 3059, _disp("items")),
        ("mean Jensen gap", *JENSEN_GAP, _disp("jensen_gap")),
        ("range of the means per n", *GAP_RANGE, gap_range),
        ("n with a positive mean", POSITIVE_SIZES, POSITIVE_SIZES, positive),
    ]
    return _beside("Jensen gap of the label that the identity ordering prefers, nats.", rows, found)


def _entropies(found: Figures) -> Table:
    def entropy(name: str) -> Callable[[Figures], Cell]:
        return lambda family: family["mixtures"][name]

    rows: list[tuple[Cell, Cell, Cell, Callable[[Figures], Cell]]] = [
        ("uniform mixture", *CROSS_ENTROPY["uniform"], entropy("uniform")),
        ("best convex mixture, weights shared per n", *CROSS_ENTROPY["optimised"], entropy("optimised")),
        ("optimality gap", *OPTIMALITY_GAP, entropy("optimality_gap")),
        ("optimality gap, weights from other items", None, None, entropy("optimality_gap_held_out")),
        ("weight of the identity in the best mixture", None, None, entropy("identity_weight")),
        ("single orderings, mean", *CROSS_ENTROPY["oracle"], entropy("single")),
        ("best single ordering, shared per n", None, None, entropy("best_shared")),
        ("best single ordering of each item", None, None, entropy("best_per_item")),
    ]
    return _beside(
        "Cross-entropy of the label that the identity ordering prefers, nats.",
        rows,
        found,
        "The paper prints its figures of the row 'single orderings, mean' as those of the oracle best single "
        "ordering; they equal uniform plus Jensen gap to the last digit. The optimality gap is positive by "
        "construction where few items choose many weights, and because the label is the identity's own argmax, which "
        "favours the identity; weights from other items show how much of it is only fitting.",
    )


def _gold(found: Figures) -> Table:
    rows: list[Sequence[Cell]] = []
    for name, family in found.items():
        estimates, gains = family["gold"]["estimates"], family["gold"]["gains"]
        for metric, unit in (("accuracy", "accuracy"), ("log_loss", "log loss, nats")):
            values = [estimates[f"{metric}_{kind}"] for kind in ("single", "identity", "mixture")]
            gain = None if gains is None else interval(gains[f"{metric}_over_single"], "estimate")
            rows.append((name, unit, *values, gain))
    header = ("orderings", "measure", "single, mean", "identity", "mixture", "mixture less single")
    return Table(
        "Against the gold label, 95% bootstrap intervals over groups of items. The paper gives no figures here.",
        header,
        rows,
    )


def _bounds(found: Figures, families: Mapping[str, Sequence[Permuted]]) -> Sequence[Any]:
    certificates = Table(
        "Jensen-Shannon certificate sqrt(JSD / 2) against the mean absolute residual of each item, probability.",
        ("orderings", "items", "violations", "mean residual", "mean certificate", "residual / certificate"),
        [
            (name, c["items"], c["violations"], family["dispersion"]["residual"], c["mean_bound"], c["mean_tightness"])
            for name, family in found.items()
            for c in (family["dispersion"]["certificate"],)
        ],
    )
    parts: list[Any] = [plots.certificate(families), certificates]
    fitted = {name: family["positional"] for name, family in found.items() if family["positional"] is not None}
    if not fitted:
        return [*parts, "No positional potential could be fitted: no prediction moves with the rank of the support."]
    return [*parts, plots.potential(fitted), _potential(fitted), _held(fitted)]


def _potential(fitted: Figures) -> Table:
    rows: list[Sequence[Cell]] = []
    for name, fit in fitted.items():
        steps, profile = fit["decay"]["steps"], fit["decay"]["profile"]
        rows += [
            (name, "items with support that moves", fit["items"]),
            (name, "R2 within items", fit["r2"]),
            (name, "R2 adjusted for the parameters", fit["r2_adjusted"]),
            (name, "steps identified, of ranks less one", f"{fit['identified']} of {len(fit['steps'])}"),
            (name, "share of steps beyond 1.96 standard errors", fit["significant"]),
            (name, "total variation up to the first gap, log-odds", fit["total_variation"]),
        ]
        if steps is not None:
            rows += [
                (name, "alpha, log-log regression of the steps", _triple(steps, "alpha")),
                (name, "C, least that covers every step", steps["c"]),
            ]
        if profile is not None:
            rows += [
                (name, "alpha, two-parameter fit", _triple(profile, "alpha")),
                (name, "C, two-parameter fit", _triple(profile, "c")),
                (name, "R2 of the two-parameter fit", profile["r2"]),
            ]
    return Table(
        "First-order positional fit: the support's potential psi by rank, log-odds of the gold label.",
        ("orderings", "figure", "here"),
        rows,
        "Only the potential that the support chunks are under can be estimated from m orderings; single distractors' "
        "effects are left in the error. Noise in the steps adds to their total variation and flattens the decay of "
        "their logarithms; the two-parameter fit is free of that.",
    )


def _triple(fit: Mapping[str, Any], name: str) -> str:
    low, high = fit[f"{name}_low"], fit[f"{name}_high"]
    return short(fit[name]) if low is None else f"{fit[name]:.3g} ({low:.3g}, {high:.3g})"


def _held(fitted: Figures) -> Table:
    names = {
        "total_variation": "quarter of psi's total variation (Theorem 1)",
        "uniform_ranks": "quarter of mean |psi(U) - psi(V)| (A.2)",
        "qmv_steps": "Theorem 1, alpha and C from the steps",
        "first_order_steps": "Theorem 2, alpha and C from the steps",
        "qmv_profile": "Theorem 1, two-parameter fit",
        "first_order_profile": "Theorem 2, two-parameter fit",
    }
    columns = ("items", "items_under", "sizes_under", "mean_bound", "informative", "measured_to_bound")
    rows = [
        (name, text, *(fit["bounds"][rule][column] for column in columns))
        for name, fit in fitted.items()
        for rule, text in names.items()
    ]
    return Table(
        "How the measured E_pair (probability) compares with what the fit implies, exact partial sums.",
        (
            "orderings",
            "bound",
            "items",
            "items under",
            "means per n under",
            "mean bound",
            "below 0.5",
            "E_pair / bound",
        ),
        rows,
        "Shares, but for the number of items, the mean bound and the ratio of means. No E_pair exceeds 0.5, so that a "
        "bound above it says nothing. The theorems bound what the model disperses if it is first-order with the "
        "fitted potential; items above show effects outside it. A.2 and Theorem 2 take ranks as uniform, which "
        "banded orderings are not. A harmonic psi (alpha = 1) disperses by C / 4 at most, however large n, since the "
        "mean of |log U - log V| is at most 1: Theorem 2 permits growth with log n, it does not predict it. A dash: "
        "the steps do not decay, or the data do not identify them.",
    )


def _information(found: Figures) -> Table:
    rows: list[Sequence[Cell]] = [("paper", None, None, *INFORMATION, None)]
    for name, family in found.items():
        i = family["information"]
        rows.append(
            (f"here: {name}", *(None if i is None else i[key] for key in ("items", "varies", "nats", "p", "null_mean")))
        )
    return Table(
        "Mutual information between the index of the ordering and correctness, nats, with the permutation test.",
        ("orderings", "items", "items whose outcome varies", "nats", "p", "mean under permutation"),
        rows,
        "Estimated from counts, mutual information is positive even where there is none; the last column says by how "
        "much. Items of one n share their orderings, across n only the identity (index 0) is the same.",
    )


def _sizes(name: str, family: Figures) -> Table:
    columns = ("n", "items", "orderings", "residual", "residual_log_odds", "pair", "jensen_gap", "certificate")
    return Table(
        f"Means per n under {name} orderings: residual, E_pair and certificate in probability, Jensen gap in nats.",
        ("n", "items", "orderings", "residual", "residual, log-odds", "E_pair", "Jensen gap", "certificate"),
        [[row[column] for column in columns] for row in family["dispersion"]["by_n"]],
    )
