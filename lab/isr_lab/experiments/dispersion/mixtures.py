"""What averaging over orderings gains: cross-entropies of mixtures, accuracy, and how much the ordering tells.

Cross-entropies are of a label fixed once per item, the argmax under the identity ordering (Section 4.2, Appendix C), in
nats. Mixture weights are shared by the items of one n, whose k-th orderings are the same permutation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from isr_lab.experiments.dispersion.scaling import Floats, Permuted
from isr_lab.metrics import Interval, bootstrap_intervals
from isr_rag.core.bounds import EPS

_STEPS = 20_000
_GAP = 1e-6
_ROUNDING = 1e-12


def canonical(items: Sequence[Permuted]) -> Floats:
    """Probability of each item's canonical label under each ordering, kept above 1e-9; shape (items, m)."""
    z = np.stack([item.z for item in items])
    yes = 1.0 / (1.0 + np.exp(-z[:, :1])) >= 0.5  # by the rounded probability, as the Jensen gap goes
    signed = np.where(yes, z, -z)
    return np.asarray(np.clip(1.0 / (1.0 + np.exp(-signed)), EPS, 1.0 - EPS), dtype=np.float64)


def optimal_weights(s: Floats) -> tuple[Floats, float]:
    """Convex weights w that minimise the mean of -log(s w), by exponentiated gradient.

    Args:
        s: probability of the label under each ordering, shape (items, m), above 0.

    Returns:
        The weights, shape (m,), and by how much at most their cross-entropy exceeds the least one, in nats: the
        duality gap max_k g_k - 1 of the gradient -g, which bounds it because the objective is convex.
    """
    w = np.full(s.shape[1], 1.0 / s.shape[1])
    rate, loss = 1.0, _loss(s, w)
    for _ in range(_STEPS):
        gradient = (s / (s @ w)[:, None]).mean(axis=0)
        gap = float(gradient.max()) - 1.0
        if gap <= _GAP:
            break
        step = w * np.exp(np.clip(rate * (gradient - 1.0), -30.0, 30.0))
        step /= step.sum()
        new = _loss(s, step)
        if new <= loss:
            w, loss, rate = step, new, rate * 1.5
        else:
            rate *= 0.5
    gradient = (s / (s @ w)[:, None]).mean(axis=0)
    return w, max(float(gradient.max()) - 1.0, 0.0)


def _loss(s: Floats, w: Floats) -> float:
    return float(-np.log(s @ w).mean())


def by_orderings(items: Sequence[Permuted]) -> dict[int, list[Permuted]]:
    """Items that share their orderings: those of one n."""
    groups: dict[int, list[Permuted]] = defaultdict(list)
    for item in items:
        groups[item.n].append(item)
    return dict(groups)


def cross_entropies(items: Sequence[Permuted]) -> dict[str, Any]:
    """Cross-entropies of the canonical label, means over all items, in nats.

    `single`: mean over single orderings. `uniform`: the uniform mixture. `optimised`: the best convex mixture of
    each n, on the items that chose it, with `identity_weight` on the identity ordering. `best_shared`: the best
    single ordering of each n. `best_per_item`: the best single ordering of each item, a lower bound of all of them.
    `optimality_gap` is uniform less optimised, at most `certified` larger than stated; for
    `optimality_gap_held_out` every other item chooses and the rest are scored (None where every n has one item).
    """
    totals: dict[str, float] = defaultdict(float)
    weights: dict[str, list[float]] = {}
    certified, halves = 0.0, 0
    for n, group in by_orderings(items).items():
        s = canonical(group)
        count, losses = len(group), -np.log(s)
        w, gap = optimal_weights(s)
        weights[str(n)] = [float(value) for value in w]
        certified += count * gap
        totals["identity_weight"] += count * float(w[0])
        totals["single"] += float(losses.mean(axis=1).sum())
        totals["uniform"] += float(-np.log(s.mean(axis=1)).sum())
        totals["optimised"] += count * _loss(s, w)
        totals["best_shared"] += count * float(losses.mean(axis=0).min())
        totals["best_per_item"] += float(losses.min(axis=1).sum())
        if count > 1:
            halves += count
            totals["held_out"] += _held_out(s)
            totals["uniform_held_out"] += float(-np.log(s.mean(axis=1)).sum())
    total = len(items)
    names = ("single", "uniform", "optimised", "best_shared", "best_per_item", "identity_weight")
    means: dict[str, Any] = {name: totals[name] / total for name in names}
    return {
        **means,
        "jensen_gap": _settled(means["single"] - means["uniform"]),
        "optimality_gap": _settled(means["uniform"] - means["optimised"]),
        "certified": certified / total,
        "optimality_gap_held_out": _settled((totals["uniform_held_out"] - totals["held_out"]) / halves)
        if halves
        else None,
        "weights": weights,
    }


def _settled(difference: float) -> float:
    """A difference of entropies, 0 where it is only rounding."""
    return difference if abs(difference) > _ROUNDING else 0.0


def _held_out(s: Floats) -> float:
    """Summed cross-entropy of each half under the weights of the other."""
    halves = s[0::2], s[1::2]
    return sum(len(b) * _loss(b, optimal_weights(a)[0]) for a, b in (halves, halves[::-1]))


# -- against the gold label --------------------------------------------------------------------------------------


def _log_loss(z: Floats) -> Floats:
    """-log sigmoid(z), kept at most -log(1e-9)."""
    return np.asarray(np.minimum(np.logaddexp(0.0, -z), -np.log(EPS)), dtype=np.float64)


def against_gold(items: Sequence[Permuted], *, resamples: int, seed: int) -> dict[str, Any]:
    """Accuracy and log loss (nats) against the gold label: single orderings on average, the identity, the mixture.

    Returns:
        `estimates`, and `gains` of the mixture over one ordering with bootstrap intervals over groups of items
        (None where `resamples` is 0 or there are fewer than two groups).
    """
    rows: dict[str, list[float]] = defaultdict(list)
    for item in items:
        towards = item.z if item.label == 1 else -item.z
        right = (item.z >= 0.0) == (item.label == 1)
        mixed = float(item.q.mean())
        of_gold = mixed if item.label == 1 else float((1.0 - item.q).mean())
        loss = _log_loss(towards)
        rows["accuracy_single"].append(float(right.mean()))
        rows["accuracy_identity"].append(float(right[0]))
        rows["accuracy_mixture"].append(float((mixed >= 0.5) == (item.label == 1)))
        rows["log_loss_single"].append(float(loss.mean()))
        rows["log_loss_identity"].append(float(loss[0]))
        rows["log_loss_mixture"].append(float(-np.log(max(of_gold, EPS))))
    values = {name: np.array(column) for name, column in rows.items()}
    return {
        "estimates": {name: float(value.mean()) for name, value in values.items()},
        "gains": _gains(values, [item.group for item in items], resamples, seed),
    }


def _gains(
    values: dict[str, Floats], groups: list[str], resamples: int, seed: int
) -> dict[str, dict[str, float]] | None:
    if not resamples or len(set(groups)) < 2:
        return None

    def mean(column: int) -> Any:
        return lambda table: float(table[:, column].mean())

    columns = {
        f"{metric}_over_{single}": values[f"{metric}_mixture"] - values[f"{metric}_{single}"]
        for metric in ("accuracy", "log_loss")
        for single in ("single", "identity")
    }
    statistics = {name: mean(column) for column, name in enumerate(columns)}
    table = np.stack(list(columns.values()), axis=1)
    table[np.abs(table) <= _ROUNDING] = 0.0
    found = bootstrap_intervals(statistics, table, groups=groups, resamples=resamples, seed=seed)
    return {name: _plain(interval) for name, interval in found.items()}


def _plain(interval: Interval) -> dict[str, float]:
    return {"estimate": interval.estimate, "low": interval.lower, "high": interval.upper}


# -- what the ordering tells -------------------------------------------------------------------------------------


def mutual_information(counts: NDArray[np.int64], items: int) -> float:
    """Plug-in mutual information in nats between the ordering's index and a binary outcome.

    Args:
        counts: how many items have outcome 1 under each ordering, shape (m,).
        items: how many items there are.
    """
    shares = counts / items
    return max(0.0, _settled(float(_entropy(shares.mean()) - _entropy(shares).mean())))


def _entropy(p: ArrayLike) -> Floats:
    xlogy = cast(Any, special).xlogy
    one = np.asarray(p, dtype=np.float64)
    return np.asarray(-xlogy(one, one) - xlogy(1.0 - one, 1.0 - one), dtype=np.float64)


def ordering_information(items: Sequence[Permuted], *, m: int, permutations: int, seed: int) -> dict[str, Any] | None:
    """Mutual information of ordering index and correctness, with its permutation test (Appendix E).

    Correct means that the argmax under that ordering is the gold label. Under the hypothesis that the index tells
    nothing, an item's outcomes are exchangeable, so they are permuted within each item.

    Args:
        items: of one family; those with fewer than m orderings are left out, they lack the later indices.
        m: orderings.
        permutations: how many to draw.
        seed: of the draws.

    Returns:
        `nats`, `p` (with the observed one counted among the draws), the `null_mean` under permutation, the number
        of `items` and of those whose outcome `varies`; None where no item has m >= 2 orderings.
    """
    z = [item for item in items if len(item.z) == m]
    if not z or m < 2:
        return None
    right = np.array([(item.z >= 0.0) == (item.label == 1) for item in z], dtype=np.int64)
    observed = mutual_information(right.sum(axis=0), len(z))
    fixed = right.sum(axis=1) % m == 0  # permuting an item whose outcomes are all equal changes nothing
    always, varying = right[fixed].sum(axis=0), right[~fixed]
    rng = np.random.default_rng(seed)
    null = np.array(
        [mutual_information(always + rng.permuted(varying, axis=1).sum(axis=0), len(z)) for _ in range(permutations)]
    )
    exceeding = int(np.sum(null >= observed - 1e-12))
    return {
        "nats": observed,
        "p": (1 + exceeding) / (1 + permutations),
        "null_mean": float(null.mean()) if permutations else None,
        "items": len(z),
        "varies": len(varying),
        "permutations": permutations,
    }
