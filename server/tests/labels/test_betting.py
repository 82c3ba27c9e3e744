"""How many labels release a cut, and that a bad one is released no oftener than delta, however often it is checked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import binom

from isr_rag.errors import CalibrationError
from isr_rag_server.labels.betting import log_wealth, right_answers_needed, wager


def test_how_many_labels_release_at_five_percent() -> None:
    needed = [right_answers_needed(0.05, 0.1, wrong=wrong) + wrong for wrong in range(4)]
    assert needed == [59, 108, 143, 177]
    assert right_answers_needed(0.1, 0.1) == 29


def test_a_test_of_a_fixed_number_needs_fewer_but_may_be_looked_at_once() -> None:
    """45, 77 and 105 labels with 0, 1 and 2 errors are one test each, of a number of labels fixed beforehand."""
    for wrong, labels in ((0, 45), (1, 77), (2, 105)):
        assert binom.cdf(wrong, labels, 0.05) <= 0.1 < binom.cdf(wrong, labels - 1, 0.05)
    draws = np.cumsum(np.random.default_rng(0).random((20_000, 105)) < 0.05, axis=1)
    at_any = (draws[:, 44] == 0) | (draws[:, 76] <= 1) | (draws[:, 104] <= 2)
    assert 0.165 < at_any.mean() < 0.19  # looked at one after the other they fail in 18% of cases, not 10%


@given(st.integers(0, 300), st.integers(0, 40), st.floats(0.01, 0.5))
def test_wealth_does_not_grow_in_expectation_where_the_rate_is_reached(right: int, wrong: int, h_star: float) -> None:
    now = log_wealth(right, wrong, h_star)
    after_right, after_wrong = log_wealth(right + 1, wrong, h_star), log_wealth(right, wrong + 1, h_star)
    expected = (1 - h_star) * math.exp(after_right - now) + h_star * math.exp(after_wrong - now)
    assert expected == pytest.approx(1.0, abs=1e-9)
    assert after_wrong < now < after_right


def test_the_number_needed_is_the_number_that_releases() -> None:
    assert wager([True] * 59, 0.05, 0.1).released_at == 59
    assert wager([True] * 58, 0.05, 0.1).released_at is None
    done = wager([True] * 70 + [False] * 5, 0.05, 0.1)
    assert (done.released_at, done.right, done.wrong) == (59, 70, 5)
    assert done.highest > math.log(10) > done.log_wealth


@pytest.mark.parametrize(("h_star", "delta"), [(0.0, 0.1), (1.0, 0.1), (0.05, 0.0), (0.05, float("nan"))])
def test_targets_out_of_range_are_refused(h_star: float, delta: float) -> None:
    with pytest.raises(CalibrationError, match="must lie strictly between 0 and 1"):
        wager([True], h_star, delta)
