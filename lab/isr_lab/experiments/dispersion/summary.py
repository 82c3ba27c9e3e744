"""What came out of Experiment 1, in plain sentences beside the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INFORMATION = (0.0032, 0.71)
"""Appendix E: mutual information in nats and its p-value."""
STEEPEST = 0.274
"""The largest slope on log n that residuals of probabilities, which lie in [0, 1/2], can have over n = 3 to 60."""

Figures = Mapping[str, Any]


def short(value: float | None) -> str:
    """Three significant digits, or `undefined`."""
    return "undefined" if value is None else f"{value:.3g}"


def interval(fit: Mapping[str, float] | None, estimate: str = "slope") -> str:
    """An estimate with its interval."""
    return "undefined" if fit is None else f"{fit[estimate]:.3g} ({fit['low']:.3g}, {fit['high']:.3g})"


def summary(figures: Figures) -> list[str]:
    """What came out, in plain sentences."""
    families: dict[str, Any] = figures["families"]
    one = next(iter(families.values()))["dispersion"]
    sizes = [row["n"] for row in one["by_n"]]
    said = [
        f"{one['items']} items at {len(sizes)} numbers of chunks (n = {sizes[0]} to {sizes[-1]}), up to "
        f"{figures['settings']['m']} orderings each in the families {' and '.join(families)}; "
        f"{figures['passes']} forward passes."
    ]
    for name, family in families.items():
        said.append(_of_dispersion(name, family))
    if any(not family["dispersion"]["invariant"] for family in families.values()):
        said.append(
            f"The paper's slope of 0.377 for Qwen2-7B cannot be one of probabilities on the natural log n: residuals "
            f"of probabilities lie in [0, 0.5], which allows {STEEPEST} at most over n = 3 to 60."
        )
    said.append(" ".join(_of_mixture(name, family) for name, family in families.items()))
    said.append(
        "The paper's oracle single cross-entropy (0.3707 and 0.29331 nats) equals its uniform cross-entropy plus its "
        "Jensen gap to the last digit: it is the mean over single orderings. No best single ordering of a label can "
        "have a mean above that; the tables give all three readings."
    )
    violations = sum(family["dispersion"]["certificate"]["violations"] for family in families.values())
    checked = sum(family["dispersion"]["certificate"]["items"] for family in families.values())
    said.append(f"The Jensen-Shannon certificate is violated for {violations} of {checked} measured dispersions.")
    said.append(" ".join(_of_order(name, family) for name, family in families.items()))
    return said


def _of_dispersion(name: str, family: Figures) -> str:
    figures = family["dispersion"]
    if figures["most_orderings"] == 1:
        return f"There is one {name} ordering of so few chunks: nothing can disperse, slopes and ratios are undefined."
    if figures["invariant"]:
        return (
            f"Under {name} orderings no prediction moves with the order of the evidence (largest range of the "
            f"log-odds {figures['largest_log_odds_range']:.1g}): the dispersion is zero, as it is for a scorer that "
            f"cannot see the order, and slopes and ratios are undefined."
        )
    told = (
        f"Under {name} orderings the mean absolute residual is {short(figures['residual'])} in probability and "
        f"{short(figures['residual_log_odds'])} in log-odds."
    )
    for space, unit in (("probability", "probability"), ("log_odds", "log-odds")):
        fits = figures["laws"][space]
        if fits is None:
            return f"{told} There are too few numbers of chunks to fit a law: three at least are needed."
        told += (
            f" In {unit} its slope on log n is {interval(fits['log'])} with R2 {short(fits['log']['r2'])}; "
            f"{_preferred(fits)}."
        )
    return told


def _preferred(fits: Mapping[str, Any]) -> str:
    """Which law AIC prefers, where it does by the customary difference of 2."""
    first, second, _ = sorted(fits["aic"].values())
    if second - first < 2.0:
        return f"AIC puts the {fits['best']} law first, by less than 2, which decides nothing"
    return f"of the log, square-root and constant laws AIC prefers the {fits['best']} one"


def _of_mixture(name: str, family: Figures) -> str:
    mixture, gold = family["mixtures"], family["gold"]
    if family["dispersion"]["invariant"]:
        return f"Under {name} orderings the mixture is what every single ordering is, and gains nothing."
    told = (
        f"Under {name} orderings the mean Jensen gap is {short(mixture['jensen_gap'])} nats (the paper: 0.1041 and "
        f"0.00982), and the best convex mixture improves on the uniform one by {short(mixture['optimality_gap'])} nats "
        f"on the items that chose it (on others: {short(mixture['optimality_gap_held_out'])})."
    )
    gains = gold["gains"]
    if gains is None:
        return told
    gain = gains["accuracy_over_single"]
    nil = " (nil: the interval holds 0)" if gain["low"] <= 0.0 <= gain["high"] else ""
    return f"{told} Over one ordering the mixture gains {interval(gain, 'estimate')} in accuracy{nil}."


def _under(bound: Mapping[str, Any]) -> str:
    if not bound["items"]:
        return "the data do not identify enough of the potential for a bound on E_pair"
    return (
        f"the bound that its total variation puts on E_pair holds for {bound['items_under']:.0%} of the items and says "
        f"something (lies below 0.5) for {bound['informative']:.0%}"
    )


def _of_order(name: str, family: Figures) -> str:
    information, fit = family["information"], family["positional"]
    told = f"Under {name} orderings"
    if fit is None:
        told += " there is no positional effect of the support to fit;"
    else:
        told += (
            f" the rank of the support explains {short(fit['r2_adjusted'])} of the variance of the log-odds within "
            f"items (adjusted R2); {_under(fit['bounds']['total_variation'])};"
        )
    if information is None:
        return told + " the mutual information of ordering and outcome is undefined (no item has all m orderings)."
    return told + (
        f" ordering and correctness share {short(information['nats'])} nats, p = {short(information['p'])} (the "
        f"paper: {INFORMATION[0]} nats, p = {INFORMATION[1]})."
    )
