"""The method's quantities: exact tables, and what must hold for every input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from isr_rag.core import bounds
from isr_rag.errors import InvalidInputError, ISRError

probabilities = st.floats(0.0, 1.0)
inner = st.floats(1e-6, 1.0 - 1e-6)
draws = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=16)
inner_draws = st.lists(inner, min_size=1, max_size=16)


def kl(p: float, q: float) -> float:
    return float(bounds._kl(np.asarray(p), np.asarray(q), 0.0))


class TestTables:
    @pytest.mark.parametrize(("q_lo", "b2t"), [(0.02, 3.519), (0.10, 1.994), (0.30, 0.963)])
    def test_b3_bits_to_trust(self, q_lo: float, b2t: float) -> None:
        assert float(bounds.bits_to_trust(0.95, q_lo)) == pytest.approx(b2t, abs=5e-4)

    @pytest.mark.parametrize(("budget", "p"), [(0.5, 0.495), (1.0, 0.689), (2.0, 0.951), (3.0, 1.000)])
    def test_b3_p_max(self, budget: float, p: float) -> None:
        assert float(bounds.p_max(budget, 0.10)) == pytest.approx(p, abs=5e-4)

    def test_b3_ratios(self) -> None:
        needed = bounds.bits_to_trust(0.95, [0.10, 0.02])
        ratios = bounds.information_sufficiency_ratio(2.0, needed)
        assert ratios == pytest.approx([1.00, 0.57], abs=5e-3)
        assert ratios[0] >= 1.0 > ratios[1]

    @pytest.mark.parametrize(
        ("budget", "b2t", "isr"),
        [
            (0.83, 5.29, 0.16),
            (1.91, 3.78, 0.51),
            (2.64, 2.48, 1.06),
            (2.74, 1.61, 1.70),
            (2.81, 0.98, 2.87),
            (2.85, 0.51, 5.59),
            (2.89, 0.20, 14.45),
        ],
    )
    def test_appendix_f_identity(self, budget: float, b2t: float, isr: float) -> None:
        """The table prints two decimals: the ratio of the printed numbers must allow the printed ratio."""
        half = 0.005
        assert (budget - half) / (b2t + half) - half <= isr <= (budget + half) / (b2t - half) + half
        assert float(bounds.information_sufficiency_ratio(budget, b2t)) == budget / b2t

    def test_appendix_f_first_row_contradicts_itself(self) -> None:
        """A mean q printed as 0.000 lies below .0005, and the lowest q does not exceed it."""
        assert float(bounds.bits_to_trust(0.95, 0.0005)) > 7.0 > 5.29
        assert float(bounds.bits_to_trust(0.95, 0.0031)) == pytest.approx(5.29, abs=0.02)

    def test_appendix_f_last_row_needs_the_one_sided_bits_to_trust(self) -> None:
        assert float(bounds.bits_to_trust(0.95, 1.0)) == 0.0
        assert float(bounds.bits_to_trust(0.95, 1.0, one_sided=False)) > 0.8
        assert float(bounds.information_sufficiency_ratio(2.95, 0.0)) == np.inf

    def test_literal_rule_stops_answering_above_its_threshold(self) -> None:
        """For p_ref = 1 without clip: literal ISR >= 1 iff q <= sigmoid(H(h*) / h*)."""
        h = 0.05
        entropy = -(h * np.log(h) + (1 - h) * np.log1p(-h))
        threshold = 1.0 / (1.0 + np.exp(-entropy / h))
        assert threshold == pytest.approx(0.98148, abs=5e-6)
        for q, answers in ((threshold - 1e-6, True), (threshold + 1e-6, False)):
            ratio = kl(1.0, q) / float(bounds.bits_to_trust(1 - h, q, one_sided=False))
            assert (ratio >= 1.0) is answers


class TestDivergence:
    @given(probabilities, probabilities)
    def test_is_never_negative_and_finite_when_smoothed(self, p: float, q: float) -> None:
        value = float(bounds.bits_to_trust(p, q, one_sided=False))
        assert 0.0 <= value < 21.0

    @given(probabilities)
    def test_is_zero_at_equality(self, p: float) -> None:
        assert kl(p, p) == 0.0

    @given(inner, inner, inner)
    def test_grows_away_from_q(self, p: float, q: float, t: float) -> None:
        between = q + t * (p - q)
        assert kl(between, q) <= kl(p, q) * (1 + 1e-12) + 1e-300

    @given(inner, inner, inner)
    def test_grows_away_from_p(self, p: float, q: float, t: float) -> None:
        between = p + t * (q - p)
        assert kl(p, between) <= kl(p, q) * (1 + 1e-12) + 1e-300

    def test_limits(self) -> None:
        assert kl(0.5, 0.0) == np.inf and kl(0.5, 1.0) == np.inf
        assert kl(1.0, 0.0) == np.inf and kl(0.0, 0.0) == 0.0 and kl(1.0, 1.0) == 0.0
        assert kl(1.0, 0.25) == pytest.approx(np.log(4.0), abs=1e-15)
        assert kl(0.0, 0.25) == pytest.approx(-np.log(0.75), abs=1e-15)

    @given(inner, st.floats(-1e-5, 1e-5))
    def test_keeps_its_precision_near_equality(self, q: float, step: float) -> None:
        """Near p = q the divergence is step^2 / (2 q (1 - q)) to first order: no cancellation may eat that."""
        assume(1e-3 < q < 1 - 1e-3 and abs(step) > 1e-9)
        p = q + step
        step = p - q
        second = step * step / (2 * q * (1 - q))
        third = abs(step) / (q * (1 - q))
        assert kl(p, q) == pytest.approx(second, rel=2 * third + 1e-5)

    @given(inner, inner)
    def test_pinsker(self, p: float, q: float) -> None:
        assert abs(p - q) <= np.sqrt(0.5 * kl(p, q)) * (1 + 1e-9)


class TestEDFL:
    @given(inner, inner)
    def test_p_max_inverts_the_divergence(self, a: float, b: float) -> None:
        q, p = min(a, b), max(a, b)
        assert float(bounds.p_max(kl(p, q), q)) == pytest.approx(p, abs=1e-12)

    @given(st.floats(0.0, 40.0), inner)
    def test_the_divergence_at_p_max_is_the_budget(self, budget: float, q: float) -> None:
        p = float(bounds.p_max(budget, q))
        assert q <= p <= 1.0
        if budget >= -np.log(q):
            assert p == 1.0
        else:
            assert kl(p, q) <= budget + 1e-13
            above = min(1.0, p + 1e-12)
            assert above == 1.0 or kl(above, q) > budget

    @given(st.floats(1e-18, 1e-9), inner)
    def test_p_max_is_exact_for_tiny_budgets(self, budget: float, q: float) -> None:
        assume(1e-3 < q < 1 - 1e-3)
        assert float(bounds.p_max(budget, q)) - q == pytest.approx(
            np.sqrt(2 * budget * q * (1 - q)), rel=1e-1, abs=1e-12
        )

    @given(st.floats(0, 20), st.floats(0, 20), inner, inner)
    def test_p_max_rises_with_budget_and_prior(self, b1: float, b2: float, q1: float, q2: float) -> None:
        low, high = sorted((b1, b2))
        assert float(bounds.p_max(low, q1)) <= float(bounds.p_max(high, q1)) + 1e-12
        small, large = sorted((q1, q2))
        assert float(bounds.p_max(low, small)) <= float(bounds.p_max(low, large)) + 1e-12

    def test_p_max_limits(self) -> None:
        assert float(bounds.p_max(0.0, 0.3)) == 0.3
        assert float(bounds.p_max(np.inf, 0.3)) == 1.0
        assert float(bounds.p_max(6.0, 0.0)) == 0.0
        assert float(bounds.p_max(0.0, 1.0)) == 1.0
        assert float(bounds.p_max(-np.log(0.1), 0.1)) == 1.0
        assert float(bounds.risk_of_hallucination(0.0, 0.3)) == pytest.approx(0.7)

    @given(probabilities, draws)
    def test_mean_divergence_is_at_least_that_of_the_mean(self, p: float, q: list[float]) -> None:
        terms, whole = (bounds.bits_to_trust(p, low, one_sided=False) for low in (q, np.mean(q)))
        assert float(np.mean(terms)) >= float(whole) - 1e-8  # the smoothing is not convex by about EPS

    @given(inner, inner_draws)
    def test_budget_implies_the_reference_is_reachable(self, p: float, q: list[float]) -> None:
        """EDFL through its inverse: with no clip, p_max(budget, q_bar) >= p_ref."""
        budget = float(bounds.budget(p, q, clip=1e9))
        assert float(bounds.p_max(budget, np.mean(q))) >= p - 1e-9

    @given(
        st.lists(st.floats(0.01, 1.0), min_size=2, max_size=8),
        st.data(),
        st.floats(0.01, 0.99),
    )
    def test_the_exponential_tilt_attains_it(self, weights: list[float], data: st.DataObject, p: float) -> None:
        s = np.asarray(weights) / np.sum(weights)
        g = np.asarray(data.draw(st.lists(st.sampled_from([0, 1]), min_size=len(s), max_size=len(s))))
        assume(0 < g.sum() < len(g))
        mass = float(s @ g)
        tilted = s * np.exp(g * (np.log(p / (1.0 - p)) - np.log(mass / (1.0 - mass))))
        tilted /= tilted.sum()
        assert float(tilted @ g) == pytest.approx(p)
        divergence = float(np.sum(tilted * np.log(tilted / s)))
        assert divergence == pytest.approx(kl(p, float(s @ g)), abs=1e-9)

    @given(
        st.lists(st.floats(0.01, 1.0), min_size=2, max_size=8), st.lists(st.floats(0.01, 1.0), min_size=8, max_size=8)
    )
    def test_no_distribution_needs_less_than_the_bernoulli_bound(
        self, weights: list[float], other: list[float]
    ) -> None:
        s = np.asarray(weights) / np.sum(weights)
        target = np.asarray(other[: len(s)]) / np.sum(other[: len(s)])
        g = np.arange(len(s)) % 2
        assert float(np.sum(target * np.log(target / s))) >= kl(float(target @ g), float(s @ g)) - 1e-12


class TestBudget:
    @given(probabilities, draws, st.floats(0.1, 20.0))
    def test_terms_lie_between_zero_and_the_clip(self, p: float, q: list[float], clip: float) -> None:
        terms = bounds.budget_terms(p, q, clip=clip)
        assert terms.shape == (len(q),)
        assert np.all((terms >= 0.0) & (terms <= clip))
        assert float(bounds.budget(p, q, clip=clip)) == pytest.approx(float(terms.mean()))

    @given(inner, inner)
    def test_bits_to_trust_fall_as_q_lo_rises_and_end_at_the_target(self, a: float, b: float) -> None:
        low, high = sorted((a, b))
        assert float(bounds.bits_to_trust(0.95, low)) >= float(bounds.bits_to_trust(0.95, high)) - 1e-15
        if low >= 0.95:
            assert float(bounds.bits_to_trust(0.95, low)) == 0.0

    @given(inner, inner, inner)
    def test_bits_to_trust_rise_with_the_target(self, a: float, b: float, q: float) -> None:
        low, high = sorted((a, b))
        assert float(bounds.bits_to_trust(low, q)) <= float(bounds.bits_to_trust(high, q)) + 1e-15

    def test_bits_to_trust_limits(self) -> None:
        assert float(bounds.bits_to_trust(0.95, 0.0)) == pytest.approx(kl(0.95, 1e-9))
        assert float(bounds.bits_to_trust(0.95, 0.95)) == 0.0
        assert float(bounds.bits_to_trust(0.95, 0.95 - 1e-12)) == 0.0  # an exact tie, rounded

    def test_functions_broadcast(self) -> None:
        q = np.linspace(0.05, 0.95, 24).reshape(2, 3, 4)
        p = np.full((2, 3), 0.9)
        assert bounds.budget(p, q).shape == (2, 3)
        assert bounds.p_max(bounds.budget(p, q), q.mean(-1)).shape == (2, 3)
        for reduce in (bounds.js_certificate,):
            assert reduce(q).shape == (2, 3)
            assert float(reduce(q[0, 0])) == pytest.approx(float(reduce(q)[0, 0]))


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounds.bits_to_trust(1.5, 0.5),
        lambda: bounds.bits_to_trust(0.5, float("nan")),
        lambda: bounds.p_max(-0.1, 0.5),
        lambda: bounds.p_max(float("nan"), 0.5),
        lambda: bounds.p_max(1.0, -0.5),
        lambda: bounds.budget_terms(0.5, []),
        lambda: bounds.budget_terms(0.5, 0.5),
        lambda: bounds.budget_terms(0.5, [0.5], clip=0.0),
        lambda: bounds.budget_terms(float("nan"), [0.5]),
        lambda: bounds.information_sufficiency_ratio(-1.0, 1.0),
    ],
)
def test_bad_numbers_are_refused(call: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call()  # type: ignore[operator]
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, ISRError)


def test_the_certificate_stays_finite_where_the_mean_underflows() -> None:
    assert np.isfinite(float(bounds.js_certificate([5e-324, 0.0, 0.0])))
