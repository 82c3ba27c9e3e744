"""The method's quantities: exact tables, and what must hold for every input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from isr_lab import bounds as own
from isr_rag.core import bounds
from isr_rag.errors import InvalidInputError

probabilities = st.floats(0.0, 1.0)
inner = st.floats(1e-6, 1.0 - 1e-6)
draws = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=16)
inner_draws = st.lists(inner, min_size=1, max_size=16)


def kl(p: float, q: float) -> float:
    return float(bounds._kl(np.asarray(p), np.asarray(q), 0.0))


class TestDispersion:
    @given(draws)
    def test_js_certificate_bounds_the_residual(self, q: list[float]) -> None:
        residual = float(own.mean_absolute_residual(q))
        assert residual <= float(bounds.js_certificate(q)) * (1 + 1e-9) + 1e-15

    @given(inner, st.floats(1e-12, 1e-7))
    def test_js_certificate_holds_for_tiny_dispersion(self, q: float, step: float) -> None:
        pair = [q, min(q + step, 1.0)]
        assert float(own.mean_absolute_residual(pair)) <= float(bounds.js_certificate(pair)) * (1 + 1e-3) + 2e-16

    @given(draws)
    def test_residual_lies_below_the_pairwise_difference(self, q: list[float]) -> None:
        pairs = np.abs(np.subtract.outer(q, q)).mean()
        assert float(own.pairwise_difference(q)) == pytest.approx(float(pairs), abs=1e-12)
        assert float(own.mean_absolute_residual(q)) <= pairs + 1e-12

    @given(draws)
    def test_jensen_gap_is_never_negative(self, q: list[float]) -> None:
        for label in (0, 1, None):
            assert float(own.jensen_gap(q, label)) >= 0.0
        assert float(own.jensen_gap([q[0]] * 3)) == pytest.approx(0.0, abs=1e-12)

    def test_jensen_gap_takes_the_first_orderings_label(self) -> None:
        q = [0.4, 0.9, 0.8]
        assert float(own.jensen_gap(q)) == float(own.jensen_gap(q, 0))
        expected = -np.mean(np.log(np.subtract(1, q))) + np.log(1 - np.mean(q))
        assert float(own.jensen_gap(q)) == pytest.approx(expected)

    @given(
        st.integers(2, 6),
        st.floats(0.0, 8.0),
        st.sampled_from([0.5, 1.0, 1.7]),
        st.floats(-3, 3),
        st.randoms(use_true_random=False),
    )
    def test_qmv_bounds_hold_on_planted_first_order_models(
        self, n: int, c: float, alpha: float, intercept: float, random: object
    ) -> None:
        """Every permutation enumerated: E|R| <= E_pair <= first-order bound <= C_tot / 4 times the partial sum."""
        rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
        weights = rng.dirichlet(np.ones(n))
        steps = c * np.arange(1, n, dtype=float) ** -alpha * rng.uniform(-1, 1, n - 1)
        potential = np.concatenate([[0.0], np.cumsum(steps)])
        orders = np.array(list(itertools.permutations(range(n))))
        q = 1.0 / (1.0 + np.exp(-(intercept + potential[orders] @ weights)))
        residual, pair = float(own.mean_absolute_residual(q)), float(own.pairwise_difference(q))
        variation = float(np.sum(weights[:, None] * np.abs(steps)[None, :]))
        assert residual <= pair + 1e-12
        assert pair <= float(own.qmv_bound_total_variation(variation)) + 1e-12
        assert pair <= own.first_order_bound(n, c, alpha) + 1e-12
        assert own.first_order_bound(n, c, alpha) <= own.qmv_bound(n, c, alpha) + 1e-12

    def test_first_order_bound_is_an_expectation_over_two_ranks(self) -> None:
        n, alpha = 7, 1.0
        by_hand = np.mean([own.partial_sum(abs(u - v) + 1, alpha) for u in range(n) for v in range(n)])
        assert own.first_order_bound(n, 4.0, alpha) == pytest.approx(by_hand)

    def test_harmonic_sums_have_the_plus_gamma(self) -> None:
        gamma = 0.5772156649015329
        assert own.partial_sum(10_001, 1.0) == pytest.approx(np.log(10_000) + gamma, abs=1e-4)
        assert own.first_order_bound(10_000, 4.0) == pytest.approx(np.log(10_000) + gamma - 1.5, abs=2e-3)

    def test_exact_sums_stand_where_the_papers_form_fails(self) -> None:
        """n = 2, alpha = 1/2: the sum is 1; (n^(1-alpha) - 1) / (1 - alpha) gives 0.83, below it."""
        assert own.partial_sum(2, 0.5) == 1.0 > (2**0.5 - 1) / 0.5
        assert own.partial_sum(1, 0.5) == 0.0 and own.qmv_bound(1, 5.0) == 0.0
        assert own.partial_sum(2000, 2.0) < np.pi**2 / 6


@pytest.mark.parametrize(
    "call",
    [
        lambda: own.jensen_gap([0.5], 0.5),
        lambda: own.partial_sum(0, 1.0),
        lambda: own.partial_sum(3, 0.0),
        lambda: own.partial_sum(3, float("nan")),
        lambda: own.qmv_bound(3, -1.0),
    ],
)
def test_bad_numbers_are_refused(call: object) -> None:
    with pytest.raises(InvalidInputError):
        call()  # type: ignore[operator]
