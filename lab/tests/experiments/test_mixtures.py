from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize
from sklearn.metrics import mutual_info_score

from isr_lab.bounds import jensen_gap
from isr_lab.experiments.dispersion import mixtures
from isr_lab.experiments.dispersion.scaling import Permuted

TABLES = st.tuples(st.integers(1, 8), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(-8, 8))
)


def items_of(z: np.ndarray, n: int = 8, labels: list[int] | None = None) -> list[Permuted]:
    ranks = np.zeros((z.shape[1], 0), dtype=np.int64)
    given_labels = labels or [1] * len(z)
    return [
        Permuted(f"i{k}", f"g{k}", n, label, row, ranks)
        for k, (row, label) in enumerate(zip(z, given_labels, strict=True))
    ]


def least_cross_entropy(s: np.ndarray) -> float:
    """By a constrained solver of scipy."""
    m = s.shape[1]
    found: Any = optimize.minimize(
        lambda w: -np.log(s @ w).mean(),
        np.full(m, 1 / m),
        jac=lambda w: -(s / (s @ w)[:, None]).mean(axis=0),
        bounds=[(0, 1)] * m,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(m)},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    return float(found.fun)


@settings(max_examples=25)
@given(z=TABLES)
def test_exponentiated_gradient_finds_the_best_convex_mixture(z: np.ndarray) -> None:
    s = 1 / (1 + np.exp(-z))
    w, gap = mixtures.optimal_weights(s)
    assert w.min() >= 0 and w.sum() == pytest.approx(1) and 0 <= gap <= 1e-4
    loss = -np.log(s @ w).mean()
    assert loss <= least_cross_entropy(s) + gap + 1e-7
    assert loss <= -np.log(s.mean(axis=1)).mean() + 1e-12


@settings(max_examples=30)
@given(z=TABLES)
def test_cross_entropies_agree_with_their_definitions_and_stand_in_order(z: np.ndarray) -> None:
    found = mixtures.cross_entropies(items_of(z))
    yes = 1 / (1 + np.exp(-z[:, 0])) >= 0.5
    of_label = [[1 / (1 + np.exp(-v if up else v)) for v in row] for row, up in zip(z, yes, strict=True)]
    logs = -np.log(of_label)
    assert found["single"] == pytest.approx(logs.mean())
    assert found["uniform"] == pytest.approx(np.mean([-np.log(np.mean(row)) for row in of_label]))
    assert found["best_shared"] == pytest.approx(min(logs[:, k].mean() for k in range(z.shape[1])))
    assert found["best_per_item"] == pytest.approx(np.mean([min(row) for row in logs]))
    gaps = [float(jensen_gap(1 / (1 + np.exp(-row)))) for row in z]
    assert found["jensen_gap"] == pytest.approx(np.mean(gaps), abs=1e-9)
    assert found["best_per_item"] <= found["best_shared"] + 1e-12 and found["best_shared"] <= found["single"] + 1e-12
    assert found["best_per_item"] <= found["optimised"] + 1e-9 <= found["uniform"] + 2e-9
    assert found["optimised"] <= found["best_shared"] + found["certified"] + 1e-9


def test_weights_are_shared_only_by_items_with_the_same_orderings() -> None:
    rng = np.random.default_rng(0)
    few, many = items_of(rng.normal(1, 1, (5, 2)), n=7), items_of(rng.normal(1, 1, (9, 16)), n=12)
    together, first, second = (mixtures.cross_entropies(items) for items in ([*few, *many], few, many))
    assert {n: len(w) for n, w in together["weights"].items()} == {"7": 2, "12": 16}
    for name in ("single", "uniform", "optimised", "best_shared", "best_per_item", "optimality_gap_held_out"):
        assert together[name] == pytest.approx((5 * first[name] + 9 * second[name]) / 14)


def test_a_mixture_fitted_to_few_items_loses_on_others() -> None:
    noise = items_of(1 + np.random.default_rng(1).normal(0, 1.0, (12, 16)))
    found = mixtures.cross_entropies(noise)
    assert found["optimality_gap"] > 0.02 and found["optimality_gap_held_out"] < found["optimality_gap"] / 2
    assert mixtures.cross_entropies(noise[:1])["optimality_gap_held_out"] is None


def test_accuracy_and_log_loss_are_those_of_the_gold_label() -> None:
    z = np.array([[1.0, -1.0, 2.0], [-0.5, -0.5, 3.0]])
    found = mixtures.against_gold(items_of(z, labels=[1, 0]), resamples=0, seed=0)
    q = 1 / (1 + np.exp(-z))
    gold = np.array([q[0], 1 - q[1]])
    estimates = found["estimates"]
    assert found["gains"] is None
    assert estimates["accuracy_single"] == pytest.approx(4 / 6) and estimates["accuracy_identity"] == 1.0
    # mean of q: 0.627 for the first, 0.569 for the second, whose gold label is 0
    assert estimates["accuracy_mixture"] == 0.5
    assert estimates["log_loss_single"] == pytest.approx(-np.log(gold).mean())
    assert estimates["log_loss_mixture"] == pytest.approx(-np.log(gold.mean(axis=1)).mean())


def test_the_mixture_s_gain_is_found_where_single_orderings_err_at_random() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200).tolist()
    z = np.where(np.array(labels)[:, None] == 1, 0.5, -0.5) + rng.normal(0, 1, (200, 16))
    gains = mixtures.against_gold(items_of(z, labels=labels), resamples=100, seed=0)["gains"]
    assert gains["accuracy_over_single"]["low"] > 0.1 and gains["log_loss_over_single"]["high"] < -0.05


@given(right=arrays(np.int64, st.tuples(st.integers(1, 12), st.integers(2, 6)), elements=st.integers(0, 1)))
def test_mutual_information_is_that_of_the_table(right: np.ndarray) -> None:
    index = np.tile(np.arange(right.shape[1]), len(right))
    expected = mutual_info_score(index, right.ravel())
    assert mixtures.mutual_information(right.sum(axis=0), len(right)) == pytest.approx(expected, abs=1e-12)


def test_the_permutation_test_sees_an_ordering_that_matters_and_no_other() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(0.3, 1, (150, 8))
    none = mixtures.ordering_information(items_of(z), m=8, permutations=300, seed=0)
    z[:, 3] -= 1.5
    some = mixtures.ordering_information(items_of(z), m=8, permutations=300, seed=0)
    assert none is not None and some is not None
    assert none["p"] > 0.05 and some["p"] == pytest.approx(1 / 301)
    assert some["nats"] > 5 * none["null_mean"] and 0 < none["varies"] <= none["items"] == 150
    again = mixtures.ordering_information(items_of(z), m=8, permutations=300, seed=0)
    assert again == some


def test_p_values_are_uniform_where_the_ordering_tells_nothing() -> None:
    rng = np.random.default_rng(5)
    tables = [rng.normal(0, 1, (30, 4)) for _ in range(80)]
    found = [mixtures.ordering_information(items_of(z), m=4, permutations=60, seed=1) for z in tables]
    p = np.array([one["p"] for one in found if one is not None])
    assert 0.38 < p.mean() < 0.64 and np.mean(p <= 0.1) < 0.2


def test_items_without_all_orderings_are_left_out_of_the_mutual_information() -> None:
    z = np.random.default_rng(0).normal(0, 1, (6, 4))
    mixed = [*items_of(z), *items_of(z[:, :2], n=3)]
    assert mixtures.ordering_information(mixed, m=4, permutations=20, seed=0) == mixtures.ordering_information(
        items_of(z), m=4, permutations=20, seed=0
    )
    assert mixtures.ordering_information(items_of(z), m=5, permutations=20, seed=0) is None
