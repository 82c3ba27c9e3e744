"""Probabilities known only up to intervals: decided on the cautious end, reported, never remembered as exact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from isr_rag import Decision, ISRGate
from isr_rag.core.bounds import hopeless, weigh
from isr_rag.core.scorer import PartialScoresError, ScoreRequest, Scores
from isr_rag.core.settings import Rule, Settings
from isr_rag.errors import ScorerError
from isr_rag.references import Oracle

unit = st.floats(0.0, 1.0)
triples = st.lists(st.tuples(unit, unit, unit).map(sorted), min_size=1, max_size=6)
rules = st.builds(
    Settings,
    h_star=st.sampled_from([0.05, 0.2, 0.5]),
    rule=st.builds(Rule, st.sampled_from([2.0, 6.0]), st.sampled_from(["safe", "paper"])),
)


@given(triples, unit, rules)
def test_an_interval_answers_only_where_every_point_of_it_would(
    triples: list[list[float]], p: float, rule: Settings
) -> None:
    low, inside, high = (list(ends) for ends in zip(*triples, strict=True))
    cautious, exact = weigh(low, p, rule, high), weigh(inside, p, rule)
    assert not cautious.answers or exact.answers
    assert cautious.risk_of_hallucination <= exact.risk_of_hallucination + 1e-9
    if rule.rule.convention == "safe" or exact.isr < np.inf:
        assert cautious.isr <= exact.isr * (1.0 + 1e-9) + 1e-12


@given(st.lists(unit, min_size=1, max_size=6), unit, rules)
def test_intervals_of_no_width_change_nothing(q: list[float], p: float, rule: Settings) -> None:
    assert weigh(q, p, rule, q) == weigh(q, p, rule)


@given(triples, st.lists(unit, min_size=1, max_size=4), unit, rules)
def test_an_exact_stop_holds_for_intervals_too(
    triples: list[list[float]], rest: list[float], p: float, rule: Settings
) -> None:
    low, _, high = (list(ends) for ends in zip(*triples, strict=True))
    if hopeless(low, len(low) + len(rest), p, None, rule, high):
        assert not weigh([*low, *rest], p, rule, [*high, *rest]).answers


class Bounded:
    """A scorer that knows every probability only up to an interval."""

    layout = "full"
    identity = "bounded"

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high, self.calls = low, high, 0

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        self.calls += 1
        return [self._one(len(request.orderings)) for request in requests]

    def _one(self, m: int) -> Scores:
        ends = np.array([[[self.low, 1.0 - self.high]] * m, [[self.high, 1.0 - self.low]] * m])
        return Scores(np.log(np.array([[self.low, 1.0 - self.low]] * m)), m, ends)


def test_a_decision_reports_both_ends_and_survives_json() -> None:
    decision = ISRGate(scorer=Bounded(0.6, 0.96), reference=Oracle(1.0)).decide(["a", "b", "c"], claim="c")
    assert set(decision.q) == {0.6} and set(decision.q_high) == {0.96}
    assert "0.36" in str(decision)
    assert Decision.from_json(decision.to_json()) == decision


def test_what_the_low_end_alone_would_answer_is_an_abstention() -> None:
    alone = ISRGate(scorer=Bounded(0.6, 0.6), reference=Oracle(0.96)).decide(["a", "b", "c"], claim="c")
    wide = ISRGate(scorer=Bounded(0.6, 0.96), reference=Oracle(0.96)).decide(["a", "b", "c"], claim="c")
    assert alone.answered and not alone.q_high
    assert not wide.answered


def test_bounds_that_are_none_are_a_failed_scorer() -> None:
    with pytest.raises(ScorerError, match="not intervals"):
        ISRGate(scorer=Bounded(0.7, 0.6), reference=Oracle(1.0)).decide(["a", "b"], claim="c")


def test_the_cache_remembers_no_interval(tmp_path: Path) -> None:
    from isr_rag.scorers.cache import CachedScorer

    inner = Bounded(0.6, 0.7)
    gate = ISRGate(scorer=CachedScorer(inner, tmp_path), reference=Oracle(1.0))
    first, second = (gate.decide(["a", "b"], claim="c") for _ in range(2))
    assert inner.calls == 2
    assert first == second and first.q_high == pytest.approx((0.7, 0.7))


class HalfBroken(Bounded):
    """Fails for good for every second request of a call, and says what came of the others."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        scored = super().score(requests)
        outcomes = [ScorerError("gone") if i % 2 else scores for i, scores in enumerate(scored)]
        raise PartialScoresError("some failed", outcomes)


def test_what_was_scored_beside_a_failure_is_not_scored_again() -> None:
    scorer = HalfBroken(0.97, 0.97)
    gate = ISRGate(scorer=scorer, reference=Oracle(1.0), on_error="abstain")
    decisions = gate.decide_batch([{"evidence": ["a", "b"], "claim": f"c{i}"} for i in range(4)])
    assert scorer.calls == 1
    assert [decision.answered for decision in decisions] == [True, False, True, False]
