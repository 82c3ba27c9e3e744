"""The error level and the power of the comparison, by simulation and by arithmetic."""

from __future__ import annotations

import math
import random

import pytest

from pytest_isr_rag.betting import highest_wealth, needed, wealth
from pytest_isr_rag.plugin import compare


def test_the_wealth_is_a_fair_game_while_nothing_got_worse() -> None:
    for worse in range(6):
        for better in range(6):
            after = (wealth(worse + 1, better) + wealth(worse, better + 1)) / 2
            assert after == pytest.approx(wealth(worse, better))
    assert wealth(0, 0) == 1.0 and wealth(10, 0) > 100 and wealth(0, 10) < 0.2


def test_the_highest_wealth_is_that_of_some_step_also_among_thousands_of_changes() -> None:
    changes = [1, 1, 0, -1, 1, 1, 1, -1, -1, -1, 1]
    steps = [changes[: i + 1] for i in range(len(changes))]
    expected = max(wealth(step.count(1), step.count(-1)) for step in steps)
    assert highest_wealth(changes) == pytest.approx(expected)
    assert highest_wealth([1] * 5000) == math.inf and highest_wealth([-1, 1] * 2500) == 1.0
    (reason,) = compare({str(i): "right" for i in range(300)}, {str(i): "wrong" for i in range(300)})
    assert "(e-value 1.35e+88, 40 needed)" in reason


@pytest.mark.parametrize(("size", "churn"), [(100, 0.05), (400, 0.2), (1000, 0.4)])
def test_a_pipeline_that_is_no_worse_fails_in_at_most_one_run_in_twenty(size: int, churn: float) -> None:
    chance = random.Random(7)
    failed = 0
    for _ in range(2000):
        before = {str(i): chance.choice(("right", "wrong", "abstained")) for i in range(size)}
        others = ("right", "wrong", "abstained")
        now = {key: chance.choice(others) if chance.random() < churn else was for key, was in before.items()}
        failed += bool(compare(before, now))
    assert failed <= 0.05 * 2000 + 20  # two standard deviations of a share of 5%


@pytest.mark.parametrize("share", [0.02, 0.05, 0.2])
def test_the_number_of_questions_named_beforehand_suffices(share: float) -> None:
    size, chance = needed(share, 0.025), random.Random(11)
    noticed = sum(highest_wealth([int(chance.random() < share) for _ in range(size)]) >= 40 for _ in range(1000))
    assert 0.76 <= noticed / 1000 <= 0.88
