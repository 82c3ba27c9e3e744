"""Venn-Abers as applied equals its library, is monotone, and refuses what it cannot calibrate."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("venn_abers", reason="fitting needs the 'calibrate' extra")

from isr_rag.calibration import VennAbers
from isr_rag.calibration.calibrators import Steps
from isr_rag.errors import CalibrationError, CalibrationWarning

pytestmark = pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")

SCORE = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0 - 1e-9, 1.0]))
DATA = st.tuples(
    st.lists(SCORE, min_size=10, max_size=60), st.lists(SCORE, min_size=10, max_size=60)
)  # scores of the false, scores of the true


def columns(data: tuple[list[float], list[float]]) -> tuple[np.ndarray, np.ndarray]:
    false, true = data
    return np.array(false + true), np.repeat([0, 1], [len(false), len(true)])


def library(scores: np.ndarray, labels: np.ndarray, points: np.ndarray) -> np.ndarray:
    from venn_abers.venn_abers import VennAbers as Library

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = Library()
        fitted.fit(np.column_stack([1 - scores, scores]), labels.astype(float))
        return fitted.predict_proba(np.column_stack([1 - points, points]))[1]


@given(DATA, st.lists(SCORE, max_size=20))
def test_application_equals_the_library_on_ties_gaps_and_beyond_the_range(
    data: tuple[list[float], list[float]], extra: list[float]
) -> None:
    scores, labels = columns(data)
    fitted = VennAbers.fit(scores, labels)
    points = np.unique(np.r_[scores, extra, 0.0, 1.0, np.clip(np.nextafter(scores, 2), 0, 1)])
    lower, upper = fitted.apply_many(points)
    expected = library(scores, labels, points)
    np.testing.assert_allclose(lower, expected[:, 0], atol=2e-12)
    np.testing.assert_allclose(upper, expected[:, 1], atol=2e-12)


@settings(max_examples=30)
@given(DATA)
def test_application_equals_isotonic_regression_with_the_item_added(data: tuple[list[float], list[float]]) -> None:
    from sklearn.isotonic import IsotonicRegression

    scores, labels = columns(data)
    fitted = VennAbers.fit(scores, labels)
    for point in [0.0, 0.3, 1.0, *scores[:5]]:
        for label, (value,) in zip((0, 1), fitted.apply_many([point]), strict=True):
            ranks = np.unique(np.r_[scores, point], return_inverse=True)[1]  # scikit-learn joins scores that are close
            expected = IsotonicRegression().fit_transform(ranks, np.r_[labels, label])[-1]
            assert value == pytest.approx(expected, abs=1e-9)


@given(DATA, SCORE, SCORE)
def test_lower_never_falls_with_the_score_and_never_exceeds_upper(
    data: tuple[list[float], list[float]], a: float, b: float
) -> None:
    fitted = VennAbers.fit(*columns(data))
    (low_a, low_b), (high_a, high_b) = fitted.apply_many([min(a, b), max(a, b)])
    assert 0 <= low_a <= low_b <= 1 and 0 <= high_a <= high_b <= 1
    assert low_a <= high_a and low_b <= high_b


@given(DATA, st.integers(0, 2**32 - 1))
def test_fit_does_not_depend_on_the_order_of_items(data: tuple[list[float], list[float]], seed: int) -> None:
    scores, labels = columns(data)
    order = np.random.default_rng(seed).permutation(len(scores))
    assert VennAbers.fit(scores, labels) == VennAbers.fit(scores[order], labels[order])


def test_k_correct_items_at_the_top_give_k_over_k_plus_one() -> None:
    scores, labels = np.r_[np.full(60, 0.2), np.full(19, 0.9)], np.repeat([0, 1], [60, 19])
    assert VennAbers.fit(scores, labels).lower(0.95) == pytest.approx(0.95)


def test_the_mean_is_calibrated_and_the_interval_is_narrow_on_many_items() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random(8000)
    labels = (rng.random(8000) < truth).astype(int)
    scores = truth**3  # a score that is monotone, and badly calibrated
    fitted = VennAbers.fit(scores[:4000], labels[:4000])
    lower, upper = fitted.apply_many(scores[4000:])
    assert np.mean(upper - lower) < 0.05
    lower, upper = fitted.apply_many(scores[4000:])
    assert np.mean(np.abs(upper / (1.0 - lower + upper) - truth[4000:])) < 0.05
    assert len(json.dumps(asdict(fitted))) < 40_000


@pytest.mark.slow
def test_fitting_leaves_the_error_state_of_numpy_as_it_was() -> None:
    code = (
        "import numpy as np; before = np.geterr(); from isr_rag.calibration import VennAbers;"
        "VennAbers.fit([i / 200 for i in range(200)], [i % 2 for i in range(200)]);"
        "assert np.geterr() == before, np.geterr()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_applying_loads_numpy_and_nothing_heavier() -> None:
    code = (
        "import sys; from isr_rag.calibration import VennAbers, CalibrationArtefact, NoisyChannel, fit_artefact;"
        "from isr_rag.calibration.calibrators import Steps;"
        "VennAbers(Steps((0.5,), (0.1, 0.8)), Steps((0.4,), (0.2, 0.95))).lower(0.7);"
        "heavy = {'scipy', 'sklearn', 'pandas', 'venn_abers', 'matplotlib', 'torch'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.5] * 60, [1] * 60, "one class only"),
        ([0.5] * 60, [1] * 55 + [0] * 5, "fewer than 10 of a class"),
        ([float("nan")] + [0.5] * 59, [0, 1] * 30, "NaN or outside"),
        ([1.1] + [0.5] * 59, [0, 1] * 30, "position 0"),
        ([0.5] * 60, [0, 2] * 30, "labels must be 0 or 1"),
        ([0.5] * 59, [0, 1] * 30, "equal length"),
        (["high"] * 60, [0, 1] * 30, "must be numbers"),
    ],
)
def test_data_that_carries_no_bound_is_refused(scores: list[float], labels: list[int], message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        VennAbers.fit(scores, labels)


def test_fewer_than_fifty_of_a_class_is_said() -> None:
    with pytest.warns(CalibrationWarning, match="49 items with label 1 and 60 with label 0"):
        VennAbers.fit([0.5] * 109, [1] * 49 + [0] * 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VennAbers.fit([0.5] * 100, [1] * 50 + [0] * 50)


@pytest.mark.parametrize("score", [float("nan"), -0.01, 1.01, float("inf")])
def test_a_score_that_is_no_probability_gets_no_reference(score: float) -> None:
    fitted = VennAbers.fit([0.2] * 50 + [0.8] * 50, [0] * 50 + [1] * 50)
    with pytest.raises(CalibrationError, match=r"in \[0, 1\]"):
        fitted.lower(score)
    with pytest.raises(CalibrationError, match=r"in \[0, 1\]"):
        fitted.apply_many([0.5, score])


@pytest.mark.parametrize(
    "steps",
    [
        ((0.5,), (0.1,), (0.5,), (0.2, 0.9)),
        ((0.5,), (0.9, 0.1), (0.5,), (0.2, 0.9)),
        ((0.6, 0.5), (0.1, 0.2, 0.3), (0.5,), (0.2, 0.9)),
        ((0.5,), (0.1, 1.2), (0.5,), (0.2, 0.9)),
        ((0.5,), (0.3, 0.8), (0.5,), (0.2, 0.9)),
    ],
)
def test_steps_that_are_no_venn_abers_predictor_are_refused(steps: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(CalibrationError):
        VennAbers(Steps(*steps[:2]), Steps(*steps[2:]))
