"""The figures are the textbook's: equal to scikit-learn, to brute force, and to worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn import metrics as sk

from isr_lab import metrics as m
from isr_rag.errors import CalibrationError

ITEMS = st.lists(
    st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])), st.integers(0, 1)),
    min_size=2,
    max_size=40,
)
BOTH = ITEMS.filter(lambda items: 0 < sum(y for _, y in items) < len(items))


def columns(items: list[tuple[float, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([s for s, _ in items]), np.array([y for _, y in items])


@given(BOTH)
def test_figures_equal_scikit_learn(items: list[tuple[float, int]]) -> None:
    s, y = columns(items)
    assert m.auroc(s, y) == pytest.approx(sk.roc_auc_score(y, s), abs=1e-12)
    assert m.brier(s, y) == pytest.approx(sk.brier_score_loss(y, s), abs=1e-12)


@given(BOTH, st.randoms(use_true_random=False))
def test_no_figure_depends_on_the_order_of_items(items: list[tuple[float, int]], rng) -> None:
    shuffled = list(items)
    rng.shuffle(shuffled)
    for metric in (m.auroc, m.brier, m.expected_calibration_error, m.aurc):
        assert metric(*columns(items)) == pytest.approx(metric(*columns(shuffled)), abs=1e-12)


@given(ITEMS)
def test_risk_coverage_curve_equals_answering_item_by_item(items: list[tuple[float, int]]) -> None:
    s, y = columns(items)
    curve = m.risk_coverage_curve(s, y)
    assert np.all(np.diff(curve.thresholds) < 0) and curve.coverage[-1] == 1.0
    for t, coverage, risk, answered in zip(curve.thresholds, curve.coverage, curve.risk, curve.answered, strict=True):
        chosen = s >= t
        assert answered == chosen.sum() and coverage == pytest.approx(chosen.mean())
        assert risk == pytest.approx(1 - y[chosen].mean(), abs=1e-12)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([0.1, 0.5, 0.9]), st.integers(0, 1)), min_size=1, max_size=12))
def test_aurc_with_ties_is_the_mean_over_random_orders(items: list[tuple[float, int]]) -> None:
    s, y = columns(items)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(1000):
        order = np.lexsort((rng.random(len(s)), -s))
        draws.append(np.mean(np.cumsum(1 - y[order]) / np.arange(1, len(s) + 1)))
    assert m.aurc(s, y) == pytest.approx(np.mean(draws), abs=5 * np.std(draws) / np.sqrt(1000) + 1e-9)


def test_aurc_of_a_worked_example() -> None:
    assert m.aurc([0.9, 0.8, 0.7], [1, 0, 1]) == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)


def test_errors_among_the_surest_count_ties_in_expectation() -> None:
    s, y = np.linspace(0, 1, 10), np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    assert m.risk_coverage_curve(s, y).errors([1, 2]) == pytest.approx([0.0, 1.0])
    assert m.risk_coverage_curve(np.full(10, 0.5), y).errors([2]) == pytest.approx([1.8])


def test_coverage_at_risk_takes_the_largest_and_never_splits_a_tie() -> None:
    assert m.coverage_at_risk([0.9, 0.8, 0.8, 0.1], [1, 1, 0, 1], 0.25) == 1.0
    assert m.coverage_at_risk([0.9, 0.8, 0.8, 0.1], [1, 1, 0, 0], 0.25) == 0.25
    assert m.coverage_at_risk([0.9, 0.1], [0, 1], 0.05) == 0.0


def test_coverage_at_a_risk_met_exactly_counts() -> None:
    assert m.coverage_at_risk(np.linspace(1, 0.5, 20), [1] * 19 + [0], 0.05) == 1.0


def test_ece_of_perfect_and_worst_scores() -> None:
    s, y = np.repeat([0.25, 0.75], 100), np.r_[np.repeat([1, 0], [25, 75]), np.repeat([1, 0], [75, 25])]
    assert m.expected_calibration_error(s, y, bins=10) == pytest.approx(0.0, abs=1e-12)
    assert m.expected_calibration_error([0.0, 1.0], [1, 0]) == 1.0


@given(ITEMS, st.integers(1, 20))
def test_bins_hold_every_item_once(items: list[tuple[float, int]], bins: int) -> None:
    s, y = columns(items)
    table = m.reliability_bins(s, y, bins=bins)
    assert table.count.sum() == len(s) and np.all(table.count > 0) and len(table.count) <= bins
    assert np.dot(table.confidence, table.count) == pytest.approx(s.sum(), abs=1e-9)
    assert np.dot(table.frequency, table.count) == pytest.approx(y.sum(), abs=1e-9)


def test_wilson_gives_published_values() -> None:
    wilson = m.wilson_interval(5, 100)
    assert (round(wilson.lower, 4), round(wilson.upper, 4)) == (0.0215, 0.1118)


def test_bootstrap_repeats_with_its_seed_and_covers_the_mean() -> None:
    covered = 0
    for trial in range(100):
        x = np.random.default_rng(trial).random(60)
        interval = m.bootstrap_interval(lambda v: float(v.mean()), x, resamples=200, seed=trial)
        covered += interval.lower <= 0.5 <= interval.upper
    assert 86 <= covered <= 100
    again = m.bootstrap_interval(lambda v: float(v.mean()), x, resamples=200, seed=99)
    assert again == interval


def test_group_bootstrap_is_wider_when_groups_repeat_the_same_item() -> None:
    rng = np.random.default_rng(0)
    x = np.repeat(rng.random(40), 10)
    groups = [str(i // 10) for i in range(400)]
    alone = m.bootstrap_interval(lambda v: float(v.mean()), x, resamples=300)
    grouped = m.bootstrap_interval(lambda v: float(v.mean()), x, groups=groups, resamples=300)
    assert grouped.upper - grouped.lower > 2 * (alone.upper - alone.lower)


def test_a_statistic_undefined_on_most_resamples_is_refused() -> None:
    with pytest.raises(m.MetricError, match="undefined on"):
        m.bootstrap_interval(m.auroc, [0.2, 0.8], [0, 1], groups=["a", "b"], resamples=200, seed=3)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([], [], "no items"),
        ([0.5], [1, 0], "equal length"),
        ([np.nan, 0.5], [0, 1], "NaN"),
        ([1.5, 0.5], [0, 1], "outside"),
        ([0.1, 0.5], [0, 2], "labels must be 0 or 1"),
        ([0.1, 0.5], [1, 1], "both classes"),
    ],
)
def test_bad_input_is_named(scores: list[float], labels: list[int], message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        m.auroc(scores, labels)
    with pytest.raises(m.MetricError, match="successes"):
        m.wilson_interval(3, 2)
