"""Families of orderings that only the experiments compare."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from isr_lab.designs import draw_design, orderings_from_seeds
from isr_rag.core.orderings import draw_orderings


def test_the_audits_seeds_draw_one_each() -> None:
    drawn = orderings_from_seeds(24, range(6), family="banded")
    assert len(drawn) == 6
    assert drawn == tuple(
        draw_orderings(24, 1, family="banded", seed=seed, identity_first=False)[0] for seed in range(6)
    )
    assert orderings_from_seeds(6, range(6), family="banded") == (tuple(range(6)),)


class TestLatin:
    @given(st.integers(3, 20), st.integers(0, 999), st.booleans())
    def test_each_chunk_stands_at_each_rank_once(self, n: int, seed: int, first: bool) -> None:
        square = np.array(draw_design(n, n, family="latin", seed=seed, identity_first=first))
        everything = list(range(n))
        assert all(sorted(column) == everything for column in square.T)

    @given(st.integers(3, 20), st.integers(1, 19), st.integers(0, 999))
    def test_fewer_rows_hold_each_chunk_at_a_rank_at_most_once(self, n: int, m: int, seed: int) -> None:
        rows = np.array(draw_design(n, min(m, n), family="latin", seed=seed))
        assert all(len(set(column)) == len(column) for column in rows.T)

    @given(st.integers(3, 12), st.integers(0, 99), st.randoms(use_true_random=False))
    def test_the_mean_logit_of_a_first_order_model_is_exact(self, n: int, seed: int, random: object) -> None:
        rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
        weights, potential = rng.dirichlet(np.ones(n)), rng.normal(size=n)
        ranks = np.argsort(np.array(draw_design(n, n, family="latin", seed=seed)), axis=1)
        assert float((potential[ranks] @ weights).mean()) == pytest.approx(float(potential.mean()))


@given(st.integers(3, 20), st.integers(1, 8), st.integers(0, 999), st.booleans())
def test_antithetic_orderings_come_with_their_reverse(n: int, pairs: int, seed: int, first: bool) -> None:
    drawn = draw_design(n, min(2 * pairs, math.factorial(n) - 2), family="antithetic", seed=seed, identity_first=first)
    assert all(b == a[::-1] for a, b in zip(drawn[::2], drawn[1::2], strict=True))
