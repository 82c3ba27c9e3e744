"""A first-order positional fit, and the bounds of QMV that follow from it (Section 2.2, Appendix A.2).

The first-order model is logit q_pi = a(x) + sum_i w_i psi(rank of chunk i). From a few orderings the weights of single
chunks cannot be told apart, nor can the scale of psi be told from that of the weights. What can be estimated, pooled
over the items with marked support, is the potential that the support is under:

    z_pi - mean z = psi(mean over support chunks) - its mean over the orderings + error,

with z the log-odds of the gold label, so supported and refuted items pull the same way. Weights that all other
chunks of an item share alike only rescale psi (they fill the ranks that the support leaves). Effects of single
distractors are left in the error, whose share 1 - R2 says how far the bounds can be trusted: they bound the fitted
part only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from isr_lab.bounds import first_order_bound, qmv_bound, qmv_bound_total_variation
from isr_lab.experiments.dispersion.scaling import NOISE, VIOLATION, Floats, Permuted, distinct_pairs

_ALPHAS = np.arange(0.02, 4.001, 0.02)
_FEWEST = 3
_MOST = 0.5  # independent draws from [0, 1] differ by no more on average: a larger bound says nothing


@dataclass(frozen=True, slots=True)
class Design:
    """The centred regression of log-odds on the ranks of the support.

    Attributes:
        x: share of the support at each rank, less its mean over the item's orderings; shape (rows, ranks).
        z: log-odds of the gold label, centred within the item; shape (rows,).
        item: index of the item; shape (rows,).
        items: how many items there are.
    """

    x: Floats
    z: Floats
    item: Floats
    items: int


def design(items: Sequence[Permuted]) -> Design | None:
    """The regression of the items that have support which moves; None if there are none, or nothing disperses."""
    ranks = max((item.n for item in items), default=0)
    x: list[Floats] = []
    z: list[Floats] = []
    index: list[Floats] = []
    for item in items:
        if not item.ranks.size:
            continue
        shares = np.stack([(item.ranks == rank).mean(axis=1) for rank in range(1, ranks + 1)], axis=1)
        if not np.ptp(shares, axis=0).any():
            continue
        towards = item.z if item.label == 1 else -item.z
        index.append(np.full(len(towards), float(len(z))))
        x.append(shares - shares.mean(axis=0))
        z.append(towards - towards.mean())
    if all(float(np.ptp(centred)) <= NOISE for centred in z):
        return None
    return Design(np.concatenate(x), np.concatenate(z), np.concatenate(index), len(z))


def potential(data: Design) -> dict[str, Any]:
    """Least squares for psi, with standard errors clustered by item.

    Returns:
        `steps`: for each rank r the step psi(r + 1) - psi(r) with its standard error, None where the data do not
        identify it; `psi`: their running sum from psi(1) = 0, up to the first gap, and
        their `total_variation`; `r2` within items, and
        `r2_adjusted` for the item means and the ranks fitted; `significant`: share of the steps that lie further
        than 1.96 standard errors from 0.
    """
    import statsmodels.api as sm

    ranks = data.x.shape[1]
    _, values, rows = np.linalg.svd(data.x, full_matrices=False)
    seen = rows[values > 1e-9 * values[0]]  # the directions in which ranks vary: a constant potential is none of them
    groups: dict[str, Any] = {"cov_type": "cluster", "cov_kwds": {"groups": data.item}} if data.items > 1 else {}
    fit = sm.OLS(data.z, data.x @ seen.T).fit(**groups)
    contrasts = np.diff(np.eye(ranks), axis=0)
    known_as = contrasts @ seen.T
    identified = np.linalg.norm(contrasts - known_as @ seen, axis=1) < 1e-7
    values, errors = known_as @ fit.params, np.sqrt(np.diag(known_as @ fit.cov_params() @ known_as.T).clip(0.0))
    steps: list[dict[str, Any]] = [
        {"rank": r + 1, "step": float(values[r]), "se": float(errors[r])}
        if identified[r]
        else {"rank": r + 1, "step": None, "se": None}
        for r in range(ranks - 1)
    ]
    residual, total = float(fit.ssr), float(data.z @ data.z)
    free = len(data.z) - data.items
    left = free - len(seen)
    known = [step for step in steps if step["step"] is not None]
    psi = _running(steps)
    return {
        "items": data.items,
        "rows": len(data.z),
        "parameters": len(seen),
        "r2": 1.0 - residual / total,
        "r2_adjusted": 1.0 - (residual / left) / (total / free) if left > 0 else None,
        "steps": steps,
        "psi": psi,
        "total_variation": float(np.abs(np.diff(psi)).sum()),
        "identified": len(known),
        "significant": float(np.mean([abs(s["step"]) > 1.96 * s["se"] for s in known])) if known else None,
    }


def _running(steps: Sequence[dict[str, Any]]) -> list[float]:
    psi = [0.0]
    for step in steps:
        if step["step"] is None:
            break
        psi.append(psi[-1] + float(step["step"]))
    return psi


def decay_of_steps(steps: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Log-log regression |psi(r + 1) - psi(r)| ~ C r^-alpha.

    Returns:
        `alpha` with its 95% interval, `c_fit` from the intercept, `c` the least C with every step at most
        C r^-alpha (so that the fitted potential is (alpha, C)-regular), and `r2`. None with fewer than three steps
        that are not 0.
    """
    known = [(s["rank"], abs(s["step"])) for s in steps if s["step"] is not None and abs(s["step"]) > NOISE]
    if len(known) < _FEWEST:
        return None
    r, size = np.array(known, dtype=np.float64).T
    import statsmodels.api as sm

    fit = sm.OLS(np.log(size), sm.add_constant(np.log(r))).fit()
    alpha, (low, high) = -float(fit.params[1]), fit.conf_int()[1]
    total = float(np.var(np.log(size)))
    return {
        "alpha": alpha,
        "alpha_low": -float(high),
        "alpha_high": -float(low),
        "c": float(np.max(size * r**alpha)),
        "c_fit": float(np.exp(fit.params[0])),
        "r2": float(fit.rsquared) if total > 0.0 else None,
        "steps": len(known),
    }


def decay_by_profile(data: Design, *, resamples: int, seed: int) -> dict[str, Any] | None:
    """Least squares for psi(r) = -+ C sum of t^-alpha for t < r at once: two parameters instead of one per rank.

    The steps of a free fit are noisy, and logarithms of noisy steps flatten every decay; this fit is not so biased. Its
    intervals are percentiles over resampled items.

    Returns:
        `alpha` (from a grid, 0.02 to 4), `c` >= 0, `direction` (-1: later is worse for the gold label), `r2`
        within items, intervals of alpha and c, and `at_edge` where the grid's end fits best. None where the support
        is at one rank only.
    """
    starts = np.flatnonzero(np.diff(data.item, prepend=-1.0))
    powers = np.arange(1, data.x.shape[1])[None, :] ** -_ALPHAS[:, None]
    curves = np.concatenate([np.zeros((len(_ALPHAS), 1)), np.cumsum(powers, axis=1)], axis=1)
    columns = data.x @ curves.T
    xx = np.add.reduceat(columns**2, starts, axis=0)
    xz = np.add.reduceat(columns * data.z[:, None], starts, axis=0)
    if not xx.sum(axis=0).all():
        return None
    best, slope = _profile(xx.sum(axis=0), xz.sum(axis=0))
    explained = float(xz.sum(axis=0)[best] ** 2 / xx.sum(axis=0)[best])
    found: dict[str, Any] = {
        "alpha": float(_ALPHAS[best]),
        "c": abs(slope),
        "direction": int(np.sign(slope)),
        "r2": explained / float(data.z @ data.z),
        "at_edge": best in (0, len(_ALPHAS) - 1),
    }
    return {**found, **_intervals(xx, xz, resamples, seed)}


def _profile(xx: Floats, xz: Floats) -> tuple[int, float]:
    best = int(np.argmax(xz**2 / xx))
    return best, float(xz[best] / xx[best])


def _intervals(xx: Floats, xz: Floats, resamples: int, seed: int) -> dict[str, float | None]:
    items, names = len(xx), ("alpha_low", "alpha_high", "c_low", "c_high")
    if resamples == 0 or items < _FEWEST:
        return dict.fromkeys(names)
    draws = np.random.default_rng(seed).multinomial(items, np.full(items, 1.0 / items), size=resamples)
    fits = [_profile(w @ xx, w @ xz) for w in draws.astype(np.float64) if (w @ xx).all()]
    alphas, sizes = _ALPHAS[[best for best, _ in fits]], np.abs([slope for _, slope in fits])
    ends = [*np.percentile(alphas, [2.5, 97.5]), *np.percentile(sizes, [2.5, 97.5])]
    return {name: float(end) for name, end in zip(names, ends, strict=True)}


def bounds(items: Sequence[Permuted], fitted: dict[str, Any], decays: dict[str, Any]) -> dict[str, Any]:
    """How the measured E_pair compares with the bounds that the fit implies.

    `total_variation`: a quarter of psi's total variation over ranks 1 to n. `uniform_ranks`: a quarter of the mean
    |psi(U) - psi(V)| for independent uniform ranks, the step of A.2's proof before a decay is put in. `qmv` and
    `first_order`: Theorems 1 and 2 with exact partial sums, for each decay with alpha > 0. E_pair is the mean over
    pairs of different orderings, of the items that have more than one.

    Returns:
        For each bound its value at each n (`by_n`); the share of items, and of the means per n, that lie at or under
        it; the share of items for which it is `informative`, less than the 1/2 that no E_pair exceeds; its mean, and
        mean E_pair over that. None where it is undefined.
    """
    psi = np.asarray(fitted["psi"])
    permuted = [item for item in items if len(item.z) > 1]
    sizes = sorted({item.n for item in permuted})
    measured = {n: np.array([distinct_pairs(item.q) for item in permuted if item.n == n]) for n in sizes}
    reached = [n for n in measured if n <= len(psi)]
    rules: dict[str, dict[int, float]] = {
        "total_variation": {n: float(qmv_bound_total_variation(np.abs(np.diff(psi[:n])).sum())) for n in reached},
        "uniform_ranks": {n: 0.25 * float(np.abs(psi[:n, None] - psi[:n]).mean()) for n in reached},
    }
    for name, decay in decays.items():
        if decay is not None and decay["alpha"] > 0.0:
            c, alpha = decay["c"], decay["alpha"]
            rules[f"qmv_{name}"] = {n: qmv_bound(n, c, alpha) for n in measured}
            rules[f"first_order_{name}"] = {n: first_order_bound(n, c, alpha) for n in measured}
        else:
            rules[f"qmv_{name}"] = rules[f"first_order_{name}"] = {}
    return {name: _held(rule, measured) for name, rule in rules.items()}


def _held(rule: dict[int, float], measured: dict[int, Floats]) -> dict[str, Any]:
    by_n = {str(n): bound for n, bound in rule.items()}
    if not rule:
        undefined = ("items_under", "sizes_under", "informative", "mean_bound", "measured_to_bound")
        return {"items": 0, **dict.fromkeys(undefined), "by_n": by_n}
    pairs = np.concatenate([measured[n] for n in rule])
    limits = np.concatenate([np.full(len(measured[n]), bound) for n, bound in rule.items()])
    mean = float(limits.mean())
    return {
        "items": len(pairs),
        "items_under": float(np.mean(pairs <= limits + VIOLATION)),
        "sizes_under": float(np.mean([measured[n].mean() <= bound + VIOLATION for n, bound in rule.items()])),
        "informative": float(np.mean(limits < _MOST)),
        "mean_bound": mean,
        "measured_to_bound": float(pairs.mean()) / mean if mean > 0.0 else None,
        "by_n": by_n,
    }


def analyse(items: Sequence[Permuted], *, resamples: int, seed: int) -> dict[str, Any] | None:
    """The potential, its decay read both ways, and the bounds; None where no support moves or nothing disperses."""
    data = design(items)
    if data is None:
        return None
    fitted = potential(data)
    decays = {
        "steps": decay_of_steps(fitted["steps"]),
        "profile": decay_by_profile(data, resamples=resamples, seed=seed),
    }
    return cast(dict[str, Any], {**fitted, "decay": decays, "bounds": bounds(items, fitted, decays)})
