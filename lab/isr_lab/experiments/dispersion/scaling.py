"""How far predictions move with the order of the evidence, and by which law that grows with n (Section 4.2).

Residuals are taken in probability, |q_pi - q_bar|, and in log-odds, |z_pi - z_bar|. Means over n are means over the
items of that n; laws are fitted to those means by ordinary least squares, one point an n, as the paper does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isr_lab.bounds import jensen_gap, mean_absolute_residual, pairwise_difference
from isr_lab.experiments.trials import ScoredTrial
from isr_rag.core.bounds import js_certificate

Floats = NDArray[np.float64]

NOISE = 1e-6
"""Log-odds that differ by less are taken for equal: single precision cannot tell them apart."""
VIOLATION = 1e-9
"""By how much the certificate must be exceeded to count as violated: more than rounding."""
_LAWS: dict[str, Callable[[Floats], Floats]] = {"log": np.log, "sqrt": np.sqrt}
_FEWEST = 3  # points through which a line leaves anything to estimate its error from


@dataclass(frozen=True, slots=True)
class Permuted:
    """One item under the orderings of one family.

    Attributes:
        item: its identifier.
        group: items of a group are not independent.
        n: number of chunks.
        label: gold label, 0 or 1.
        z: log-odds of g = 1, shape (m,), the identity ordering first.
        ranks: rank (from 1) of each support chunk under each ordering, shape (m, support chunks).
    """

    item: str
    group: str
    n: int
    label: int
    z: Floats
    ranks: NDArray[np.int64]

    @property
    def q(self) -> Floats:
        """Probability of g = 1, shape (m,)."""
        return 1.0 / (1.0 + np.exp(-self.z))


def read(outcomes: Sequence[ScoredTrial]) -> dict[str, list[Permuted]]:
    """The outcomes by family of orderings, in ascending n."""
    families: dict[str, list[Permuted]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: int(outcome.facts["n"] or 0)):
        facts = outcome.facts
        z = np.asarray(outcome.log_odds, dtype=np.float64)
        ranks = np.asarray(json.loads(str(facts["ranks"])), dtype=np.int64).reshape(len(z), -1)
        item = Permuted(
            str(facts["item"]), str(facts["group"]), int(facts["n"] or 0), int(facts["label"] or 0), z, ranks
        )
        families.setdefault(str(facts["family"]), []).append(item)
    return families


def moves(items: Sequence[Permuted]) -> bool:
    """Whether any prediction depends on the ordering by more than `NOISE`."""
    return any(float(np.ptp(item.z)) > NOISE for item in items)


def log_odds_residual(z: Floats) -> float:
    """E|z_pi - z_bar| over the orderings, log-odds."""
    return float(np.abs(z - z.mean()).mean())


def distinct_pairs(q: Floats) -> float:
    """Mean of |q_pi - q_pi'| over pairs of different orderings; 0 where there is only one.

    The mean over all m^2 pairs holds m of an ordering with itself and so lies below the expectation over independent
    orderings by the factor 1 - 1/m; this one does not.
    """
    m = len(q)
    return float(pairwise_difference(q)) * m / (m - 1) if m > 1 else 0.0


def per_item(items: Sequence[Permuted]) -> dict[str, Floats]:
    """Each item's figures, shape (items,) each: what `by_size` averages. All are 0 where nothing moves."""

    def over(statistic: Callable[[Permuted], object]) -> Floats:
        return np.array([float(cast(Any, statistic(item))) if np.ptp(item.z) > NOISE else 0.0 for item in items])

    return {
        "n": np.array([float(item.n) for item in items]),
        "residual": over(lambda item: mean_absolute_residual(item.q)),
        "residual_log_odds": over(lambda item: log_odds_residual(item.z)),
        "pair": over(lambda item: pairwise_difference(item.q)),
        "pair_distinct": over(lambda item: distinct_pairs(item.q)),
        "jensen_gap": over(lambda item: jensen_gap(item.q)),
        "certificate": over(lambda item: js_certificate(item.q)),
    }


def by_size(items: Sequence[Permuted], values: dict[str, Floats]) -> list[dict[str, Any]]:
    """One row an n: how many items and orderings, and mean and standard error of every figure."""
    rows: list[dict[str, Any]] = []
    for n in sorted({item.n for item in items}):
        of_n = values["n"] == n
        count = int(of_n.sum())
        row: dict[str, Any] = {"n": n, "items": count, "orderings": next(len(i.z) for i in items if i.n == n)}
        for name, value in values.items():
            if name == "n":
                continue
            row[name] = float(value[of_n].mean())
            row[f"{name}_se"] = float(value[of_n].std(ddof=1) / np.sqrt(count)) if count > 1 else None
        rows.append(row)
    return rows


def dispersion(items: Sequence[Permuted], bands: int | None) -> dict[str, Any]:
    """Residuals, pairwise differences, Jensen gaps and the certificate of one family, per n and in all.

    Args:
        items: of one family.
        bands: of a banded family: up to that n it has one member, so its laws are fitted once more without.
    """
    values = per_item(items)
    rows = by_size(items, values)
    sizes = np.array([row["n"] for row in rows], dtype=np.float64)
    moving = moves(items)
    fits: dict[str, Any] = {}
    for space, name in (("probability", "residual"), ("log_odds", "residual_log_odds")):
        means = np.array([row[name] for row in rows])
        fits[space] = laws(sizes, means) if moving else None
        if bands is not None:
            free = sizes > bands
            fits[f"{space}_movable"] = laws(sizes[free], means[free]) if moving else None
    return {
        "items": len(items),
        "most_orderings": max(len(item.z) for item in items),
        "invariant": not moving,
        "largest_log_odds_range": max(float(np.ptp(item.z)) for item in items),
        "residual": float(values["residual"].mean()),
        "residual_log_odds": float(values["residual_log_odds"].mean()),
        "pair": float(values["pair"].mean()),
        "residual_to_pair": _ratios(values["residual"], values, moving),
        "residual_to_pair_at_largest_n": _ratios(values["residual"], values, moving, values["n"] == sizes.max()),
        "largest_n": int(sizes.max()),
        "laws": fits,
        "steepest_possible_slope": steepest_slope(sizes),
        "jensen_gap": float(values["jensen_gap"].mean()),
        "jensen_gap_range": [min(row["jensen_gap"] for row in rows), max(row["jensen_gap"] for row in rows)],
        "sizes": len(rows),
        "sizes_with_positive_gap": sum(row["jensen_gap"] > 1e-12 for row in rows),
        "certificate": certificate(values["residual"], values["certificate"]),
        "by_n": rows,
        "by_item": {
            "item": [item.item for item in items],
            "n": [item.n for item in items],
            **{name: [float(f"{x:.6g}") for x in value] for name, value in values.items() if name != "n"},
        },
    }


def _ratios(
    residual: Floats, values: dict[str, Floats], moving: bool, rows: NDArray[np.bool_] | None = None
) -> dict[str, float | None]:
    chosen = np.ones(len(residual), dtype=bool) if rows is None else rows
    ratios: dict[str, float | None] = {}
    for name in ("pair", "pair_distinct"):
        below = float(values[name][chosen].mean())
        ratios[name] = float(residual[chosen].mean()) / below if moving and below > 0.0 else None
    return ratios


def certificate(residual: Floats, bound: Floats) -> dict[str, Any]:
    """How the Jensen-Shannon certificate compares with the measured dispersion of each item."""
    positive = bound > NOISE
    return {
        "items": len(residual),
        "violations": int(np.sum(residual > bound + VIOLATION)),
        "largest_excess": float(np.max(residual - bound)),
        "mean_tightness": float(np.mean(residual[positive] / bound[positive])) if positive.any() else None,
        "mean_bound": float(bound.mean()),
    }


# -- laws --------------------------------------------------------------------------------------------------------


def laws(sizes: Floats, means: Floats) -> dict[str, Any] | None:
    """Fit means = a + b f(n) for f = log and square root, and a constant, and compare them by AIC.

    Returns:
        For `log` and `sqrt` the slope with its 95% interval, intercept and R2; AIC of all three, and the `best`
        by it. None with fewer than three sizes, or where all means are equal.
    """
    if len(sizes) < _FEWEST or float(np.ptp(means)) <= 1e-12:
        return None
    import statsmodels.api as sm

    found: dict[str, Any] = {"points": len(sizes)}
    aic: dict[str, float] = {"constant": float(sm.OLS(means, np.ones_like(means)).fit().aic)}
    for name, law in _LAWS.items():
        fit = sm.OLS(means, sm.add_constant(law(sizes))).fit()
        low, high = fit.conf_int()[1]
        found[name] = {
            "slope": float(fit.params[1]),
            "low": float(low),
            "high": float(high),
            "intercept": float(fit.params[0]),
            "r2": float(fit.rsquared),
        }
        aic[name] = float(fit.aic)
    return {**found, "aic": aic, "best": min(aic, key=lambda name: aic[name])}


def steepest_slope(sizes: Floats) -> float | None:
    """The largest slope on log n that mean absolute residuals of probabilities can have: they lie in [0, 1/2].

    The slope is linear in the residuals, so its maximum has 0 below the mean of log n and 1/2 above.
    """
    if len(sizes) < 2:
        return None
    deviation = np.log(sizes) - np.log(sizes).mean()
    return float(0.5 * np.clip(deviation, 0.0, None).sum() / (deviation @ deviation))
