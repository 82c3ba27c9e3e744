"""The cascade: what it saves, and that an exact stop is exact."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from isr_rag import Action, Decision, ISRGate
from isr_rag.core.bounds import hopeless, stages, weigh
from isr_rag.core.settings import Convention, Orderings, Rule, Settings
from isr_rag.references import CalibratedMixture, Oracle, Reference
from isr_rag.testing import FixedScorer

EVIDENCE = ["a", "b", "c", "d", "e"]
probability = st.one_of(st.floats(0, 1), st.floats(0.9, 1.0), st.sampled_from([0.0, 1e-9, 1e-4, 0.02, 0.95, 1.0]))
twelve = st.lists(probability, min_size=12, max_size=12)


class Rising:
    """A calibration that never falls when the score rises."""

    def __init__(self, power: float) -> None:
        self._power = power

    def lower(self, score: float) -> float:
        return float(score**self._power)


def decide(q: list[float], reference: Reference, *, m: int = 12, cascade: bool = True, **settings: object) -> Decision:
    gate = ISRGate(scorer=FixedScorer(q), reference=reference, **settings, orderings=Orderings(m=m, cascade=cascade))  # type: ignore[arg-type]
    return gate.decide(EVIDENCE, claim="c")


def test_stages() -> None:
    assert stages(12, True) == [3, 6, 12]
    assert stages(6, True) == [3, 6]
    assert stages(3, True) == [3]
    assert stages(2, True) == [2]
    assert stages(24, False) == [24]


def numbers(decision: Decision) -> tuple[object, ...]:
    return (
        decision.action,
        decision.reason,
        decision.q,
        decision.orderings,
        decision.isr,
        decision.budget,
        decision.p_ref,
    )


@given(twelve, probability, st.sampled_from(["safe", "paper"]), st.sampled_from([0.3, 2.0, 6.0]))
def test_a_cascade_decides_as_the_m_that_it_names(
    q: list[float], p: float, convention: Convention, clip: float
) -> None:
    settings = {"rule": Rule(clip, convention)}
    quick = decide(q, Oracle(p), **settings)
    assert quick.passes == len(quick.q) in (3, 6, 12)
    assert quick.m in (quick.passes, 12)
    fixed = decide(q, Oracle(p), cascade=False, m=quick.m, **settings)
    assert quick.action is fixed.action
    if quick.passes == quick.m:
        assert numbers(quick) == numbers(fixed)
    else:
        assert quick.action is Action.ABSTAIN and quick.m == 12  # only an abstention can be known beforehand


@given(twelve, st.floats(0.05, 3.0), st.sampled_from(["safe", "paper"]))
def test_with_a_calibrated_mixture_only_exact_stops_count(q: list[float], power: float, convention: Convention) -> None:
    quick = decide(q, CalibratedMixture(Rising(power)), rule=Rule(convention=convention))
    fixed = decide(q, CalibratedMixture(Rising(power)), rule=Rule(convention=convention), cascade=False)
    assert quick.m == 12
    assert quick.action is fixed.action


@given(
    st.lists(probability, min_size=1, max_size=6),
    st.lists(probability, min_size=1, max_size=10),
    probability,
    st.sampled_from(["safe", "paper"]),
    st.floats(0.01, 0.5),
    st.floats(0.1, 12.0),
)
def test_nothing_to_come_could_rescue_a_hopeless_case(
    seen: list[float], rest: list[float], p: float, convention: Convention, h: float, clip: float
) -> None:
    rule = Settings(h_star=h, rule=Rule(clip, convention))
    if hopeless(seen, len(seen) + len(rest), p, None, rule):
        assert not weigh([*seen, *rest], p, rule).answers


@pytest.mark.parametrize(
    ("q", "p", "passes", "m", "action"),
    [
        ([0.99] * 12, 1.0, 3, 3, Action.ANSWER),  # far from the boundary
        ([0.99] * 12, 0.5, 3, 12, Action.ABSTAIN),  # the reference alone decides: exact
        ([1e-9] * 12, 1.0, 3, 12, Action.ABSTAIN),  # B2T above the clip: exact
        ([0.9, 1e-4] * 6, 1.0, 3, 12, Action.ABSTAIN),
        ([0.5, 0.3, 0.6, 0.4, 0.5, 0.6, 0.1, 0.5, 0.5, 0.5, 0.5, 0.5], 1.0, 12, 12, Action.ABSTAIN),
    ],
)
def test_cases_worked_by_hand(q: list[float], p: float, passes: int, m: int, action: Action) -> None:
    decision = decide(q, Oracle(p))
    assert (decision.passes, decision.m, decision.action) == (passes, m, action)


def test_a_reference_of_its_own_is_asked_once() -> None:
    asked: list[int] = []
    decide([0.5, 0.3, 0.6, 0.4, 0.5, 0.6, 0.1] + [0.5] * 5, Oracle(lambda case: asked.append(1) or 1.0))
    assert len(asked) == 1


def test_a_cascade_asks_only_for_orderings_it_lacks() -> None:
    scorer = FixedScorer([0.5, 0.3, 0.6, 0.4, 0.5, 0.6, 0.1] + [0.5] * 5)
    decision = ISRGate(scorer=scorer, reference=Oracle(1), orderings=Orderings(m=12, cascade=True)).decide(
        EVIDENCE, claim="c"
    )
    assert [len(request.orderings) for request in scorer.requests] == [3, 3, 6]
    assert tuple(o for request in scorer.requests for o in request.orderings) == decision.orderings
    assert len(set(decision.orderings)) == 12
