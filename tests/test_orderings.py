"""Orderings: as many as asked for or as exist, distinct, seeded, and what each family promises."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, strategies as st

from isr_rag.core.orderings import FAMILIES, Family, count_orderings, draw_orderings
from isr_rag.errors import ConfigurationError

drawable: list[Family] = ["auto", "uniform", "banded"]


@given(st.integers(1, 30), st.integers(1, 24), st.sampled_from(drawable), st.integers(0, 2**40), st.booleans())
def test_are_distinct_permutations_as_many_as_exist(n: int, m: int, family: Family, seed: int, first: bool) -> None:
    drawn = draw_orderings(n, m, family=family, seed=seed, identity_first=first)
    assert len(drawn) == len(set(drawn)) == min(m, count_orderings(n, family=family))
    assert all(sorted(ordering) == list(range(n)) for ordering in drawn)
    assert all(type(i) is int for ordering in drawn for i in ordering)
    assert drawn == draw_orderings(n, m, family=family, seed=seed, identity_first=first)
    if first:
        assert drawn[0] == tuple(range(n))


def test_every_small_case_ends_with_all_that_exist() -> None:
    for family in drawable:
        for n in range(1, 6):
            for m in range(1, math.factorial(n) + 2):
                for first in (True, False):
                    drawn = draw_orderings(n, m, family=family, identity_first=first)
                    assert len(set(drawn)) == min(m, count_orderings(n, family=family)), (family, n, m, first)


@pytest.mark.parametrize("family", drawable)
@pytest.mark.parametrize("m", [1, 2, 3, 12, 179, 180, 500, 718, 719, 720, 721])
def test_six_chunks_end_with_all_that_exist(family: Family, m: int) -> None:
    assert len(set(draw_orderings(6, m, family=family))) == min(m, count_orderings(6, family=family))


def test_sixty_chunks_are_fast() -> None:
    draw_orderings(60, 16)
    for family in drawable:
        started = time.perf_counter()
        for seed in range(20):
            assert len(draw_orderings(60, 16, family=family, seed=seed)) == 16
        assert (time.perf_counter() - started) / 20 < 0.05, family


def test_a_few_of_very_many_cost_no_listing() -> None:
    started = time.perf_counter()
    for n in (7, 8, 9, 10):
        draw_orderings(n, 6, family="uniform")
    assert time.perf_counter() - started < 0.05


def test_seeds_draw_differently_and_the_number_of_chunks_too() -> None:
    assert len({draw_orderings(12, 6, family="uniform", seed=seed) for seed in range(20)}) == 20


def test_uniform_draws_every_ordering_equally_often() -> None:
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    draws = 600
    for seed in range(draws):
        for ordering in draw_orderings(4, 4, family="uniform", seed=seed, identity_first=False):
            counts[ordering] += 1
    expected = draws * 4 / 24
    assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in counts.values())


class TestAuto:
    @pytest.mark.parametrize(("n", "m"), [(1, 6), (2, 6), (3, 6), (4, 24), (3, 100)])
    def test_takes_all_when_they_fit(self, n: int, m: int) -> None:
        assert set(draw_orderings(n, m)) == set(itertools.permutations(range(n)))

    def test_else_draws_as_uniform(self) -> None:
        assert draw_orderings(5, 6, seed=3) == draw_orderings(5, 6, family="uniform", seed=3)

    def test_exhaustive_is_refused_when_it_does_not_fit(self) -> None:
        assert len(draw_orderings(4, 24, family="exhaustive")) == 24
        with pytest.raises(ConfigurationError, match="24 orderings, more than m=23"):
            draw_orderings(4, 23, family="exhaustive")


class TestBanded:
    @pytest.mark.parametrize(("n", "members"), [(1, 1), (5, 1), (6, 1), (7, 2), (8, 4), (9, 8), (10, 16), (12, 64)])
    def test_members_are_counted(self, n: int, members: int) -> None:
        assert count_orderings(n, family="banded") == members
        assert len(draw_orderings(n, 100, family="banded")) == members

    @given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 99))
    def test_chunks_stay_in_their_band(self, n: int, bands: int, seed: int) -> None:
        spans = [set(part.tolist()) for part in np.array_split(np.arange(n), min(bands, n))]
        for ordering in draw_orderings(n, 5, family="banded", bands=bands, seed=seed):
            start = 0
            for span in spans:
                assert set(ordering[start : start + len(span)]) == span
                start += len(span)

    def test_one_band_is_uniform_over_all(self) -> None:
        assert count_orderings(5, family="banded", bands=1) == 120


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": 0, "m": 1},
        {"n": 3, "m": 0},
        {"n": 3, "m": 2, "bands": 0},
        {"n": 3, "m": 2, "family": "sorted"},
        {"n": 9, "m": 2.5},
        {"n": 9, "m": float("nan")},
        {"n": 3, "m": 2, "seed": -1},
    ],
)
def test_bad_settings_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        draw_orderings(**arguments)  # type: ignore[arg-type]


def test_every_family_is_counted() -> None:
    assert all(count_orderings(4, family=family) in (1, 24) for family in FAMILIES)  # type: ignore[arg-type]


@given(st.integers(1, 12), st.integers(1, 30), st.integers(1, 30), st.sampled_from(drawable), st.integers(0, 99))
def test_fewer_orderings_are_the_first_of_more(n: int, a: int, b: int, family: Family, seed: int) -> None:
    fewer, more = sorted((a, b))
    drawn = draw_orderings(n, more, family=family, seed=seed)
    assert draw_orderings(n, fewer, family=family, seed=seed) == drawn[:fewer]
