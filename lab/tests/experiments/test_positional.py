from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from isr_lab.bounds import first_order_bound, qmv_bound
from isr_lab.experiments.dispersion import positional
from isr_lab.experiments.dispersion.scaling import Permuted, distinct_pairs
from isr_rag.core.orderings import Family, draw_orderings


def potential(ranks: int, c: float, alpha: float) -> np.ndarray:
    return -c * np.concatenate([[0.0], np.cumsum(np.arange(1.0, ranks) ** -alpha)])


def planted(
    psi: np.ndarray,
    sizes: Sequence[int],
    *,
    noise: float = 0.0,
    family: Family = "uniform",
    per_size: int = 6,
    bands: int = 6,
    share: float = 1.0,
) -> list[Permuted]:
    """Items that follow the model: the support shares one weight, all other chunks the rest, each a base of its own."""
    rng = np.random.default_rng(7)
    items = []
    for n in sizes:
        orderings = draw_orderings(n, 16, family=family, bands=bands)
        for k in range(per_size):
            support = sorted(rng.choice(n, size=1 + k % 2, replace=False).tolist())
            ranks = np.array([[o.index(i) + 1 for i in support] for o in orderings])
            weights = np.full(n, (1.0 - share) / (n - len(support)))
            weights[support] = share / len(support)
            z = np.array([sum(weights[i] * psi[o.index(i)] for i in range(n)) for o in orderings])
            z = rng.normal(0, 1) + z + rng.normal(0, noise, len(z))
            label = int(rng.integers(0, 2))
            items.append(Permuted(f"{n}-{k}", f"{n}-{k}", n, label, z if label else -z, ranks))
    return items


@pytest.mark.parametrize(("c", "alpha"), [(0.8, 1.0), (0.5, 0.5), (2.0, 1.5)])
def test_a_planted_potential_is_recovered_whichever_way_the_label_points(c: float, alpha: float) -> None:
    psi = potential(15, c, alpha)
    found = positional.analyse(planted(psi, range(5, 16)), resamples=20, seed=0)
    assert found is not None
    np.testing.assert_allclose(found["psi"], psi, atol=1e-8)
    assert found["r2"] == pytest.approx(1) and found["total_variation"] == pytest.approx(psi[0] - psi[-1])
    for decay in found["decay"].values():
        assert [decay["alpha"], decay["c"]] == pytest.approx([alpha, c], abs=1e-6)
    assert found["decay"]["profile"]["alpha_low"] == pytest.approx(alpha)


def test_noise_flattens_the_logarithms_of_steps_but_not_the_two_parameter_fit() -> None:
    items = planted(potential(40, 0.8, 1.0), range(5, 41), noise=0.6, per_size=8)
    found = positional.analyse(items, resamples=200, seed=0)
    assert found is not None
    profile, steps = found["decay"]["profile"], found["decay"]["steps"]
    assert profile["alpha_low"] <= 1.0 <= profile["alpha_high"] and profile["c"] == pytest.approx(0.8, abs=0.15)
    assert steps["alpha"] < 0.7
    assert 0.1 < found["r2_adjusted"] < found["r2"] < 0.9
    assert found["total_variation"] > 1.2 * 0.8 * sum(1 / t for t in range(1, 40))


def test_weight_that_the_other_chunks_share_alike_only_rescales_the_potential() -> None:
    psi = potential(9, 1.0, 1.0)
    lone = [item for item in planted(psi, [9], share=0.6, per_size=8) if item.ranks.shape[1] == 1]
    found = positional.analyse(lone, resamples=0, seed=0)
    assert found is not None and found["r2"] == pytest.approx(1.0)
    np.testing.assert_allclose(found["psi"], (0.6 - 0.4 / 8) * psi, atol=1e-8)


def test_the_free_fit_is_the_regression_with_a_mean_for_every_item() -> None:
    items = planted(potential(10, 0.8, 1.0), range(5, 11), noise=0.5)
    data = positional.design(items)
    assert data is not None
    found = positional.potential(data)
    rows, z = [], []
    for k, item in enumerate(items):
        for rank, value in zip(item.ranks, item.z, strict=True):
            shares = [np.mean(rank == r) for r in range(2, 11)]  # psi(1) = 0 is left out
            rows.append([*shares, *np.eye(len(items))[k]])
            z.append(value if item.label else -value)
    solution, residual, *_ = np.linalg.lstsq(np.array(rows), np.array(z), rcond=None)
    np.testing.assert_allclose(found["psi"][1:], solution[:9], atol=1e-8)
    centred = np.concatenate([item.z - item.z.mean() for item in items])
    assert found["r2"] == pytest.approx(1 - residual[0] / (centred @ centred))
    free = len(z) - len(items)
    adjusted = 1 - (residual[0] / (free - 9)) / (centred @ centred / free)
    assert found["r2_adjusted"] == pytest.approx(adjusted) and found["parameters"] == 9


def test_standard_errors_cover_the_true_steps() -> None:
    psi = potential(8, 0.8, 1.0)
    found = positional.analyse(planted(psi, [6, 7, 8], noise=0.5, per_size=60), resamples=0, seed=0)
    assert found is not None
    distances = [(step["step"] - true) / step["se"] for step, true in zip(found["steps"], np.diff(psi), strict=True)]
    assert np.mean(np.abs(distances) < 2.5) == 1.0 and np.mean(np.square(distances)) > 0.1


def test_steps_between_bands_are_not_identified() -> None:
    items = planted(potential(12, 1.0, 1.0), [12], family="banded", bands=2, noise=0.1)
    found = positional.analyse(items, resamples=0, seed=0)
    assert found is not None
    assert [step["rank"] for step in found["steps"] if step["step"] is None] == [6]
    assert len(found["psi"]) == 6 and found["bounds"]["total_variation"]["items"] == 0
    assert found["bounds"]["total_variation"]["items_under"] is None
    assert found["bounds"]["qmv_profile"]["items"] == len(items)


def test_bounds_are_exact_sums_and_shares_are_counted() -> None:
    items = planted(potential(12, 1.5, 1.0), [4, 8, 12])
    found = positional.analyse(items, resamples=0, seed=0)
    assert found is not None
    assert found["bounds"]["qmv_profile"]["by_n"]["12"] == pytest.approx(qmv_bound(12, 1.5, 1.0))
    assert found["bounds"]["first_order_profile"]["by_n"]["8"] == pytest.approx(first_order_bound(8, 1.5, 1.0))
    psi = potential(8, 1.5, 1.0)
    exact = np.mean([abs(a - b) for a in psi for b in psi]) / 4
    assert found["bounds"]["uniform_ranks"]["by_n"]["8"] == pytest.approx(exact)
    half = {n: float(np.median([distinct_pairs(i.q) for i in items if i.n == n])) for n in (4, 8, 12)}
    fake = {"psi": [0.0], "steps": []}
    flat = positional.bounds(items, fake, {"steps": None, "profile": {"c": 0.0, "alpha": 1.0}})
    moving = np.mean([distinct_pairs(item.q) <= 1e-9 for item in items])
    assert flat["qmv_profile"]["items_under"] == pytest.approx(moving) and flat["qmv_steps"]["items_under"] is None
    assert flat["qmv_profile"]["measured_to_bound"] is None and min(half.values()) > 0


def test_nothing_is_fitted_where_no_support_moves_or_nothing_disperses() -> None:
    still = planted(np.zeros(8), [5, 8])
    assert positional.analyse(still, resamples=10, seed=0) is None
    banded = planted(potential(6, 1.0, 1.0), [4, 6], family="banded", noise=1.0)
    assert positional.analyse(banded, resamples=10, seed=0) is None
    unmarked = [
        Permuted(i.item, i.group, i.n, i.label, i.z, i.ranks[:, :0]) for i in planted(potential(8, 1.0, 1.0), [8])
    ]
    assert positional.analyse(unmarked, resamples=10, seed=0) is None


def test_two_ranks_give_no_decay_but_a_potential() -> None:
    found = positional.analyse(planted(np.array([0.0, -1.0]), [2], per_size=1), resamples=10, seed=0)
    assert found is not None and found["psi"] == pytest.approx([0.0, -1.0])
    assert found["decay"]["steps"] is None and found["bounds"]["qmv_steps"]["items"] == 0
