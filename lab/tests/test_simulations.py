"""What calibrations promise holds where the truth is known; ``python -m isr_lab.simulations`` draws more often."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("scipy", reason="Learn-then-Test needs the 'calibrate' extra")

from isr_lab.simulations import (
    WORLDS,
    simulate_delta,
    simulate_loop,
    simulate_rate,
    simulate_shipped,
    simulate_stated_share,
)

DRAWS = 400
SLACK = 0.006
"""Three standard errors of a mean of so many draws, rounded up."""


@pytest.mark.parametrize("name", WORLDS)
def test_the_expected_share_of_wrong_among_the_answered_is_at_most_h_star(name: str) -> None:
    kept = simulate_rate(WORLDS[name], 400, 0.05, DRAWS, seed=1)
    assert kept.share <= 0.05 + SLACK


def test_useful_scores_are_used() -> None:
    """The best cut with the truth known answers 45%."""
    kept = simulate_rate(WORLDS["useful scores"], 1500, 0.05, DRAWS, seed=1)
    assert kept.coverage > 0.4 and kept.answering == 1.0


@pytest.mark.parametrize("name", WORLDS)
def test_answered_and_wrong_is_at_most_h_star_of_the_cases_at_or_above_t(name: str) -> None:
    """What is proved, for any world and any number of labelled items."""
    kept = simulate_rate(WORLDS[name], 100, 0.1, 2000, seed=2)
    assert kept.bound <= 0.1 * 1.08


def test_hopeless_worlds_are_mostly_not_answered_but_a_lucky_calibration_is_as_wrong_as_they_are() -> None:
    """Why fewer labels than are needed, or scores that say nothing, call for ``delta``."""
    kept = simulate_rate(WORLDS["wrong 20% at every score"], 400, 0.05, 2000, seed=3)
    assert kept.answering < 0.05 and kept.given > 0.15


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_a_stated_share_of_supported_cases_moves_the_cut_to_where_it_holds(share: float) -> None:
    kept = simulate_stated_share(WORLDS["useful scores"], 800, share, 0.05, DRAWS, seed=4)
    assert kept.share <= 0.05 + SLACK and kept.coverage > 0.05


def test_a_loop_calibrated_as_a_whole_keeps_the_promise() -> None:
    kept = simulate_loop(300, 0.05, 200, seed=6)
    assert kept.share <= 0.05 + SLACK and kept.coverage > 0.2


def test_with_delta_the_rate_is_exceeded_at_most_so_often() -> None:
    kept = simulate_delta(WORLDS["wrong 5.1% at every score"], 800, 0.05, 0.1, DRAWS, seed=7)
    assert kept.exceeded <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / DRAWS)


def test_the_mean_holds_for_the_shipped_scores_while_single_calibrations_stray() -> None:
    """What the documentation says of 400 labelled items at h* = 5%."""
    for template in ("supported-claim/1", "supported-answer/1"):
        kept = simulate_shipped(template, 400, 0.05, DRAWS, seed=8)
        assert kept.share <= 0.05 + SLACK < kept.tenth < 0.09
        assert 0.2 < kept.exceeded < 0.5
