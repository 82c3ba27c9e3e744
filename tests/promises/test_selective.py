"""`selective`: on average over calibrations at most h* of the answers are wrong (docs/method.md, README.md, `Tail`).

The worlds are those of ``python -m isr_lab.simulations``, which draws more often and prints a table.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

pytest.importorskip("scipy", reason="Learn-then-Test needs the 'calibrate' extra")

from isr_lab.loops import loop_steps
from isr_lab.simulations import WORLDS, simulate_loop, simulate_rate, simulate_shipped, simulate_stated_share
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


SCORES = [0.1, 0.3, 0.5, 0.7, 0.9]
Loop = list[tuple[float, int]]
loops = st.lists(st.lists(st.tuples(st.sampled_from(SCORES), st.integers(0, 1)), min_size=1, max_size=3), min_size=2)


def wrong_at(loop: Loop, threshold: float) -> bool:
    """Whether the first round that reaches the threshold is wrong."""
    return next((not label for score, label in loop if score >= threshold), False)


@given(loops, st.sampled_from([0.2, 0.34, 0.5, 0.67]))
@settings(max_examples=400, deadline=None)
@example([[(0.3, 1), (0.9, 0)], [(0.3, 1), (0.9, 0)], [(0.9, 1)], [(0.1, 0)]], 0.5)
def test_left_out_in_turn_no_more_loops_are_wrong_than_the_proof_allows(cases: list[Loop], h_star: float) -> None:
    """Exactly, also where evidence that came later makes a right answer wrong: at most h* of the loops that reach T."""
    wrong = 0
    for place, case in enumerate(cases):
        others = cases[:place] + cases[place + 1 :]
        steps = loop_steps([[s for s, _ in one] for one in others], [[y for _, y in one] for one in others])
        threshold = steps.threshold(1.0 - h_star)
        wrong += threshold is not None and wrong_at(case, threshold)
    allowed = 0.0
    for score in reversed(SCORES):  # the lowest at which the rate holds over all loops is the last one
        reaching = sum(max(s for s, _ in one) >= score for one in cases)
        errors = sum(any(wrong_at(one, higher) for higher in SCORES if higher >= score) for one in cases)
        if errors <= h_star * reaching:
            allowed = h_star * reaching
    assert wrong <= allowed + 1e-9


@given(loops)
def test_where_labels_never_fall_only_the_answering_round_counts(cases: list[Loop]) -> None:
    labels = [list(accumulate((y for _, y in one), max)) for one in cases]
    scores = [[s for s, _ in one] for one in cases]
    steps = loop_steps(scores, labels)
    risen = 0.0
    for score in sorted({s for one in scores for s in one}):
        reaching = sum(max(one) >= score for one in scores)
        errors = sum(wrong_at(list(zip(*one, strict=True)), score) for one in zip(scores, labels, strict=True))
        risen = max(risen, 1.0 - (errors + 1) / (reaching + 1))
        assert steps.at(score) == pytest.approx(risen)


def test_the_mean_holds_for_the_shipped_scores_while_single_calibrations_stray() -> None:
    """What the documentation says of 400 labelled items at h* = 5%."""
    for template in ("supported-claim/1", "supported-answer/1"):
        kept = simulate_shipped(template, 400, 0.05, 400, seed=8)
        assert kept.share <= 0.05 + 3.0 * kept.error < kept.tenth < 0.09
        assert 0.2 < kept.exceeded < 0.5
