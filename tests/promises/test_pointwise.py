"""`pointwise`: of the cases that look like this one, p_ref or more hold, on average over the cases (Venn-Abers)."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest

pytest.importorskip("venn_abers", reason="fitting needs the 'calibrate' extra")

from isr_rag.calibration import VennAbers
from isr_rag.errors import CalibrationError, CalibrationWarning
from tests.promises.worlds import World, at_most, draw, flat, useful

CALIBRATIONS = {100: 200, 1000: 60}
CASES = (np.arange(4000) + 0.5) / 4000
"""Every score that a new case may have."""


@cache
def fits(n: int, world: World, seed: int) -> list[VennAbers]:
    rng, found = np.random.default_rng(seed), list[VennAbers]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        for _ in range(CALIBRATIONS[n]):
            try:
                found.append(VennAbers.fit(*draw(rng, n, world)))
            except CalibrationError:  # fewer than 10 of a class: refused, so nothing is answered
                continue
    assert len(found) > CALIBRATIONS[n] / 2
    return found


@pytest.mark.parametrize("n", CALIBRATIONS)
@pytest.mark.parametrize("world", [useful, flat(0.2)], ids=["useful", "flat"])
def test_as_many_cases_hold_as_the_lower_probability_says(n: int, world: World) -> None:
    at_most([float(np.mean(one.apply_many(CASES)[0] - (1.0 - world(CASES)))) for one in fits(n, world, 1)], 0.0)


@pytest.mark.parametrize("n", CALIBRATIONS)
@pytest.mark.parametrize("target", [0.5, 0.8, 0.9])
def test_of_the_cases_that_reach_a_target_as_many_hold_as_is_said(n: int, target: float) -> None:
    lower = [one.apply_many(CASES)[0] for one in fits(n, useful, 1)]
    at_most([float(np.mean((p - 1.0 + useful(CASES)) * (p >= target))) for p in lower], 0.0)
    assert np.mean([np.mean(p >= target) for p in lower]) > 0.1


@pytest.mark.parametrize("n", CALIBRATIONS)
@pytest.mark.parametrize("h_star", [0.1, 0.15])
def test_where_scores_say_nothing_the_answers_are_wrong_no_more_often_than_h_star(n: int, h_star: float) -> None:
    """On average over calibrations, one that answers nothing counting as never wrong."""
    wrong = 0.2
    answers = [one.lower(1.0) >= 1.0 - h_star for one in fits(n, flat(wrong), 4)]
    at_most([wrong * some for some in answers], h_star)
    assert any(answers)


@pytest.mark.parametrize("n", CALIBRATIONS)
def test_at_each_score_the_lower_probability_lies_below_the_truth_on_average(n: int) -> None:
    """For a case of one score, over calibrations."""
    found = fits(n, useful, 1)
    for score in (0.3, 0.6, 0.8, 0.9, 0.97):
        at_most([calibration.lower(score) - (1.0 - float(useful(np.array([score]))[0])) for calibration in found], 0.0)


@pytest.mark.parametrize("n", CALIBRATIONS)
def test_one_of_the_two_probabilities_is_calibrated(n: int) -> None:
    """The share that holds lies between the means of both."""
    found = fits(n, useful, 1)
    holds = 1.0 - useful(CASES)
    both = [calibration.apply_many(CASES) for calibration in found]
    at_most([float(np.mean(lower - holds)) for lower, _ in both], 0.0)
    at_most([float(np.mean(holds - upper)) for _, upper in both], 0.0)
