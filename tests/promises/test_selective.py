"""`selective`: on average over calibrations at most h* of the answers are wrong (docs/method.md, README.md, `Tail`).

The worlds are those of ``python -m isr_lab.simulations``, which draws more often and prints a table.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("scipy", reason="Learn-then-Test needs the 'calibrate' extra")

from isr_lab.simulations import WORLDS, simulate_loop, simulate_rate, simulate_stated_share
from isr_rag.calibration.tail import loop_steps
from tests.promises.worlds import at_most

SIZES = [100, 1000]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", WORLDS)
def test_the_expected_share_of_wrong_among_the_answered_is_at_most_h_star(name: str, n: int) -> None:
    """A calibration that answers nothing counts as never wrong."""
    kept = simulate_rate(WORLDS[name], n, 0.1, 400, seed=1)
    assert kept.share <= 0.1 + 3.0 * kept.error


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ["useful scores", "the surest are worse"])
def test_answered_and_wrong_is_at_most_h_star_of_the_cases_at_or_above_t(name: str, n: int) -> None:
    """What is proved, for any world and any number of labelled items."""
    kept = simulate_rate(WORLDS[name], n, 0.1, 1500 if n < 1000 else 400, seed=2)
    assert kept.excess <= 3.0 and kept.answering > 0.2


def test_useful_scores_are_used() -> None:
    """The best threshold with the truth known answers 45%."""
    kept = simulate_rate(WORLDS["useful scores"], 1500, 0.05, 200, seed=1)
    assert kept.coverage > 0.4 and kept.answering == 1.0


def test_hopeless_worlds_are_mostly_not_answered_but_a_lucky_calibration_is_as_wrong_as_they_are() -> None:
    """Why fewer labels than are needed, or scores that say nothing, call for ``delta``."""
    kept = simulate_rate(WORLDS["wrong 20% at every score"], 400, 0.05, 1000, seed=3)
    assert kept.answering < 0.05 and kept.given > 0.15


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("share", [0.6, 0.9])
def test_a_stated_prevalence_moves_the_threshold_to_where_the_rate_holds(share: float, n: int) -> None:
    """79% of the labelled items are supported; of the cases to decide, the share that is stated."""
    kept = simulate_stated_share(WORLDS["useful scores"], n, share, 0.1, 600, seed=4)
    assert kept.share <= 0.1 + 3.0 * kept.error and kept.coverage > 0.05


@pytest.mark.parametrize("n", SIZES)
def test_a_loop_calibrated_as_a_whole_keeps_the_rate_without_a_split(n: int) -> None:
    kept = simulate_loop(n, 0.05, 100 if n < 1000 else 15, seed=6)
    assert kept.share <= 0.05 + 3.0 * kept.error and kept.coverage > 0.1


@pytest.mark.parametrize("n", SIZES)
def test_a_loop_with_scores_that_say_nothing_is_answered_by_luck_only(n: int) -> None:
    """The rate with one further wrong loop counts; without it lucky calibrations would be too many."""
    rng, h_star, wrong, answering = np.random.default_rng(7), 0.1, 0.2, list[float]()
    for _ in range(400 if n < 1000 else 40):
        scores, labels = rng.random((n, 2)), rng.random((n, 2)) >= wrong
        steps = loop_steps(scores.tolist(), labels.astype(int).tolist())
        answering.append(wrong * (steps.threshold(1.0 - h_star) is not None))
    at_most(answering, h_star)
