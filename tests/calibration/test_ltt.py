"""Learn-then-Test finds thresholds where there are any, and says what is missing where there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("scipy", reason="fitting needs the 'calibrate' extra")

from isr_rag.calibration import LearnThenTest
from isr_rag.errors import CalibrationError

GRID = np.linspace(0.98, 0.0, 50)


def falls(score: np.ndarray) -> np.ndarray:
    """P(g = 0 | score) of a useful scorer: 1% among the surest, 60% among the least sure."""
    return 0.01 + 0.59 * (1 - score) ** 2


def risk_at(threshold: float, wrong: object = falls) -> float:
    """True P(g = 0 | score >= value), for scores uniform on [0, 1]."""
    return float(np.mean(wrong(np.linspace(threshold, 1, 20_001))))  # type: ignore[operator]


def draw(rng: np.random.Generator, n: int, wrong: object = falls) -> tuple[np.ndarray, np.ndarray]:
    scores = rng.random(n)
    return scores, (rng.random(n) >= wrong(scores)).astype(int)  # type: ignore[operator]


def test_the_bound_is_on_the_items_that_the_gate_answers_too() -> None:
    """A rule that picks the wrong ones among high scores must not borrow the bound of the score alone."""
    rng = np.random.default_rng(5)
    test = LearnThenTest(0.1, 0.1)
    scores, labels = draw(rng, 4000)
    unlucky = (labels == 0) | (rng.random(4000) < 0.05)
    assert test.fit(scores, labels, thresholds=GRID).value is not None
    threshold = test.fit(scores, labels, thresholds=GRID, answerable=unlucky)
    assert threshold.value is None and threshold.scope == "gate"


@pytest.mark.parametrize(("h_star", "delta"), [(0.05, 0.1), (0.05, 0.05), (0.1, 0.1), (0.5, 0.5)])
def test_fewest_is_the_smallest_sample_without_an_error_that_passes(h_star: float, delta: float) -> None:
    test = LearnThenTest(h_star, delta)
    n = test.fewest
    assert (1 - h_star) ** n <= delta < (1 - h_star) ** (n - 1)
    assert test.fit(np.ones(n), np.ones(n), thresholds=[0.5]).value == 0.5
    refused = test.fit(np.ones(max(n - 1, 1)), np.ones(max(n - 1, 1)), thresholds=[0.5])
    assert (refused.value is None) == (n > 1)


def test_no_valid_cut_says_why_and_how_many_labels_it_would_take() -> None:
    test = LearnThenTest(0.05, 0.1)
    few = test.fit(np.r_[np.full(30, 0.9), np.full(70, 0.1)], np.r_[np.ones(30), np.zeros(70)], thresholds=[0.5])
    assert few.value is None and not few.allows(1.0)
    assert few.needed == math.ceil(test.fewest * 100 / 30)
    assert "no valid threshold" in str(few) and f"about {few.needed} independent labelled items" in str(few)
    poor = test.fit(np.full(100, 0.9), np.r_[np.ones(90), np.zeros(10)], thresholds=[0.5])
    assert poor.value is None and poor.needed is None and "more labels would not help" in str(poor)
    nothing = test.fit(np.full(100, 0.2), np.ones(100), thresholds=[0.5])
    assert nothing.value is None and "no item was answered" in str(nothing)


def test_the_labels_it_asks_for_are_enough_at_the_rates_seen() -> None:
    test = LearnThenTest(0.05, 0.1)
    seen = test.fit(np.full(100, 0.9), np.r_[np.ones(97), np.zeros(3)], thresholds=[0.5])
    assert seen.value is None and seen.needed is not None
    errors = math.ceil(seen.needed * 0.03)
    again = test.fit(
        np.full(seen.needed, 0.9), np.r_[np.ones(seen.needed - errors), np.zeros(errors)], thresholds=[0.5]
    )
    assert again.value == 0.5


def test_the_sequence_stops_at_the_first_threshold_that_fails() -> None:
    scores = np.r_[np.full(100, 0.9), np.full(100, 0.7), np.full(1000, 0.5)]
    labels = np.r_[np.ones(100), np.tile([0, 1], 50), np.ones(1000)]  # the middle is bad, the end would pass again
    threshold = LearnThenTest(0.05, 0.1).fit(scores, labels, thresholds=[0.8, 0.6, 0.4])
    assert (threshold.value, threshold.tested, threshold.answered, threshold.errors) == (0.8, 2, 100, 0)
    assert threshold.allows(0.8) and not threshold.allows(0.79)


def test_plan_rounds_at_the_pilot_only_and_begins_where_passing_is_likely() -> None:
    test = LearnThenTest(0.05, 0.1)
    thresholds = test.plan(*draw(np.random.default_rng(6), 2000), items=2000)
    assert np.all(np.diff(thresholds) < 0) and len(thresholds) <= 100
    assert risk_at(float(thresholds[0])) < 0.05 and (1 - thresholds[0]) * 2000 > test.fewest
    hopeless = test.plan([0.1, 0.9], [0, 1], items=10)
    assert len(hopeless) >= 1
    assert test.plan([0.1, 0.9], [0, 1], items=10, answerable=[False, False]).tolist() == [1.0]


def test_bad_settings_and_input_are_named() -> None:
    for h_star, delta in ((0.0, 0.1), (1.0, 0.1), (0.1, 0.0), (0.1, math.nan)):
        with pytest.raises(CalibrationError, match="strictly between 0 and 1"):
            LearnThenTest(h_star, delta)
    test = LearnThenTest(0.1, 0.1)
    for thresholds in ([], [0.1, 0.5], [0.5, 0.5], [math.nan]):
        with pytest.raises(CalibrationError, match="strictly descending"):
            test.fit([0.5], [1], thresholds=thresholds)
    with pytest.raises(CalibrationError, match="NaN"):
        test.fit([math.nan], [1], thresholds=[0.5])
    with pytest.raises(CalibrationError, match="equal length"):
        test.fit([0.5, 0.6], [1], thresholds=[0.5])
    with pytest.raises(CalibrationError, match="3 groups for 2 items"):
        test.fit([0.5, 0.6], [1, 0], thresholds=[0.5], groups=["a", "b", "c"])
