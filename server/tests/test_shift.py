"""Shift: found when the scores change, and on wish no answer after that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isr_rag import Action, Decision, ISRGate, Reason
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.shift import ShiftWarning, ShiftWatch


def scores(chance: np.random.Generator, size: int, share: float) -> np.ndarray:
    """Scores of supported and unsupported cases, with ties."""
    supported = chance.random(size) < share
    return np.where(supported, chance.beta(5, 1.5, size), chance.beta(1.2, 3, size)).round(2)


def test_a_shift_is_found_soon() -> None:
    chance = np.random.default_rng(1)
    watch = ShiftWatch(scores(chance, 300, 0.5))
    for score in scores(chance, 300, 0.5):
        watch.feed_score(score)
    assert not watch.shifted
    with pytest.warns(ShiftWarning, match="label some of the new cases") as warned:
        for score in scores(chance, 300, 0.15):
            watch.feed_score(score)
    assert len(warned) == 1
    assert watch.alarm_after is not None
    assert 300 < watch.alarm_after < 450
    assert watch.evidence >= 100


@pytest.fixture
def decision() -> Decision:
    return ISRGate(scorer=FixedScorer([0.99]), reference=Oracle(1.0)).decide(["e"], claim="c")


def test_after_an_alarm_a_watch_abstains_on_wish(decision: Decision) -> None:
    chance = np.random.default_rng(2)
    for abstain in (False, True):
        watch = ShiftWatch(scores(chance, 100, 0.2), abstain=abstain)
        assert watch.feed(decision) is decision
        with pytest.warns(ShiftWarning):
            told = [watch.feed(decision) for _ in range(200)]
        assert told[0] is decision
        assert told[-1].action is (Action.ABSTAIN if abstain else Action.ANSWER)
        if abstain:
            assert told[-1].reason is Reason.SHIFTED
            assert told[-1].q == decision.q
            assert "calibration on labels of the new cases" in told[-1].explain()
            assert Decision.from_json(told[-1].to_json()) == told[-1]
            refused = replace(decision, action=Action.ABSTAIN, reason=Reason.ORDER_SENSITIVE)
            assert watch.feed(refused) is refused


def test_what_was_not_scored_does_not_count() -> None:
    watch = ShiftWatch([0.5] * 20)
    nothing = ISRGate(scorer=FixedScorer([0.99]), reference=Oracle(1.0)).decide([], claim="c")
    assert watch.feed(nothing) is nothing
    assert (watch.fed, watch.evidence) == (0, 1.0)


def test_a_decision_counts_with_at_most_its_best_chunk_alone(decision: Decision) -> None:
    known = np.random.default_rng(2).random(100)
    read_alone, alike, apart = (ShiftWatch(known) for _ in range(3))
    for _ in range(5):
        read_alone.feed(replace(decision, q_alone=(0.1, 0.3)))
        alike.feed_score(0.3)
        apart.feed(decision)
    assert read_alone.evidence == alike.evidence != apart.evidence


def test_equal_scores_are_no_shift() -> None:
    watch = ShiftWatch([0.5] * 50)
    for _ in range(300):
        watch.feed_score(0.5)
    assert watch.evidence < 10


def test_the_same_scores_give_the_same_evidence() -> None:
    stream = scores(np.random.default_rng(3), 80, 0.4)
    watches = [ShiftWatch(stream[:30]), ShiftWatch(list(reversed(stream[:30])))]
    assert len({tuple(watch.feed_score(score) for score in stream[30:]) for watch in watches}) == 1


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="level"):
        ShiftWatch([0.5] * 20, level=0.0)
    with pytest.raises(InvalidInputError, match="19 scores"):
        ShiftWatch([0.5] * 19)
    with pytest.raises(InvalidInputError, match="probability"):
        ShiftWatch([0.5] * 20).feed_score(float("nan"))
