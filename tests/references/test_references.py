"""References: what each one says, and that a broken one never leads to an answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from isr_rag import Action, Choice, ISRGate, Reason, Supported, acquire
from isr_rag.core.evidence import Chunk
from isr_rag.core.settings import Orderings, Settings
from isr_rag.errors import ConfigurationError, ReferenceFailedError
from isr_rag.references import (
    CalibratedMixture,
    Case,
    Estimate,
    MinReference,
    Oracle,
    Reference,
    ToolReference,
    Verifier,
)
from isr_rag.testing import FixedScorer

CASE = Case(Supported(claim="c"), (Chunk("a"),), Settings("fixed"), (0.8, 0.6))
CHOICE = Case(Choice("q", ["a", "b"]), (Chunk("a"),), Settings("fixed"))


class Halved:
    def lower(self, score: float) -> float:
        return score / 2


class Mad:
    def __init__(self, value: Any) -> None:
        self._value = value

    def lower(self, score: float) -> float:
        return self._value  # type: ignore[no-any-return]


def test_an_oracle_gives_its_value() -> None:
    for value in (0, 1, True, False, 0.4, np.float32(0.25), np.int64(1)):
        assert Oracle(value).estimate(CASE).p_ref == float(value)
        assert type(Oracle(value).estimate(CASE).p_ref) is float
    assert Oracle(lambda case: len(case.chunks)).estimate(CASE).p_ref == 1.0


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan"), "yes", None, [1]])
def test_an_oracle_of_no_probability_is_refused_at_once(value: Any) -> None:
    with pytest.raises(ConfigurationError):
        Oracle(value)


def test_a_tool_names_the_option() -> None:
    for tool in ("b", 1, lambda case: "b", lambda case: 1):
        estimate = ToolReference(tool).estimate(CHOICE)
        assert (estimate.p_ref, estimate.target) == (1.0, 1)


@pytest.mark.parametrize("tool", ["c", 2, -1, True, None, 0.0])
def test_a_tool_that_names_no_option_fails(tool: Any) -> None:
    with pytest.raises(ReferenceFailedError):
        ToolReference(tool).estimate(CHOICE)


def test_a_tool_decides_about_choices_only_and_a_choice_needs_one() -> None:
    with pytest.raises(ConfigurationError, match="Choice"):
        ToolReference(0).estimate(CASE)
    for reference in (Oracle(1), CalibratedMixture(Halved())):
        with pytest.raises(ConfigurationError):
            ISRGate(scorer=FixedScorer([0.9]), reference=reference).decide(["a"], predicate=Choice("q", ["a", "b"]))


def test_a_verifiers_hard_verdict_counts_as_it_stands() -> None:
    for value in (0, 1, True, False, 0.0, 1.0):
        assert Verifier(lambda case, value=value: value).estimate(CASE).p_ref == float(value)


def test_a_score_counts_only_with_its_calibration() -> None:
    with pytest.raises(ReferenceFailedError, match="calibration"):
        Verifier(lambda case: 0.9).estimate(CASE)
    assert Verifier(lambda case: 0.9, calibration=Halved()).estimate(CASE).p_ref == 0.45
    with pytest.raises(ConfigurationError):
        Verifier(0.9)  # type: ignore[arg-type]


def test_the_calibrated_mixture_calibrates_the_mean() -> None:
    assert CalibratedMixture(Halved()).estimate(CASE).p_ref == pytest.approx(0.35)


def test_the_lowest_bound_counts() -> None:
    both = MinReference(Oracle(0.9), Verifier(lambda case: 0.5, calibration=Halved()), Oracle(1))
    assert both.estimate(CASE).p_ref == 0.25 and not both.needs_scores
    assert MinReference(Oracle(1), CalibratedMixture(Halved())).needs_scores
    assert MinReference(Oracle(0.5), ToolReference("b")).estimate(CHOICE) == Estimate(
        0.5, "lowest of 2: oracle", 1, pointwise=0.5
    )
    with pytest.raises(ReferenceFailedError, match="different options"):
        MinReference(ToolReference("a"), ToolReference("b")).estimate(CHOICE)
    with pytest.raises(ConfigurationError):
        MinReference(Oracle(1))


def raising(case: Case) -> float:
    raise OSError("the database is gone")


BROKEN: list[Reference] = [
    *(
        Oracle(lambda case, value=value: value)
        for value in (math.nan, math.inf, -0.1, 1.1, "1?", None, [0.5, 0.5], 10**400)
    ),
    Oracle(raising),
    Verifier(raising),
    Verifier(lambda case: math.nan),
    Verifier(lambda case: 2.0, calibration=Halved()),
    Verifier(lambda case: 0.5, calibration=Mad(math.nan)),
    CalibratedMixture(Mad(1.5)),
    CalibratedMixture(Mad(None)),
    MinReference(Oracle(1), Verifier(raising)),
]


@pytest.mark.parametrize("reference", BROKEN, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("cascade", [False, True])
def test_a_broken_reference_raises_or_abstains_and_never_answers(reference: Reference, cascade: bool) -> None:
    evidence = ["a", "b", "c", "d"]
    settings: dict[str, Any] = {"scorer": FixedScorer([0.99]), "reference": reference}
    settings["orderings"] = Orderings(cascade=cascade)
    with pytest.raises(ReferenceFailedError) as caught:
        ISRGate(**settings).decide(evidence, claim="c")
    assert str(caught.value)
    d = ISRGate(**settings, on_error="abstain").decide(evidence, claim="c")
    assert (d.action, d.reason) == (Action.ABSTAIN, Reason.REFERENCE_FAILED) and d.detail
    d = ISRGate(**settings, on_error="abstain").decide(evidence, claim="c", can_acquire=True)
    assert d.action is not Action.ANSWER


@pytest.mark.parametrize("returned", [0.9, None, "yes", {"p_ref": 1.0}])
def test_an_estimate_of_another_type_is_a_failure(returned: Any) -> None:
    class Odd:
        needs_scores = False

        def estimate(self, case: Case) -> Estimate:
            return returned  # type: ignore[no-any-return]

    with pytest.raises(ReferenceFailedError):
        ISRGate(scorer=FixedScorer([0.9]), reference=Odd()).decide(["a"], claim="c")


@pytest.mark.parametrize("value", [True, np.float32(0.99), np.float64(0.99), "0.99", np.int64(1)])
def test_an_estimate_of_any_number_is_a_plain_one(value: Any) -> None:
    class Own:
        needs_scores = False

        def estimate(self, case: Case) -> Estimate:
            return Estimate(value, "own")

    decision = ISRGate(scorer=FixedScorer([0.99]), reference=Own()).decide(["a"], claim="c")
    assert decision.answered and type(decision.p_ref) is float


@pytest.mark.parametrize("target", [2, -1, "1"])
def test_an_estimate_for_a_label_that_is_not_there_is_a_failure(target: Any) -> None:
    class Odd:
        needs_scores = False

        def estimate(self, case: Case) -> Estimate:
            return Estimate(1.0, "odd", target)

    with pytest.raises(ReferenceFailedError):
        ISRGate(scorer=FixedScorer([0.9]), reference=Odd()).decide(["a"], predicate=Choice("q", ["a", "b"]))


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6), st.lists(st.floats(0, 1), min_size=2, max_size=4))
def test_combining_references_never_answers_more(q: list[float], values: list[float]) -> None:
    scorer, evidence = FixedScorer(q), ["a", "b", "c", "d"]
    together = ISRGate(scorer=scorer, reference=MinReference(*map(Oracle, values))).decide(evidence, claim="c")
    alone = ISRGate(scorer=scorer, reference=Oracle(min(values))).decide(evidence, claim="c")
    assert together.p_ref == min(values) and together.action is alone.action


def test_references_see_the_callers_evidence_and_their_own_scores_only_when_promised() -> None:
    seen: list[Case] = []
    gate = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(lambda case: seen.append(case) or 1.0))
    gate.decide([{"text": "a", "title": "T"}], claim="c")
    assert seen[0].chunks == (Chunk("a", "T"),) and seen[0].q == () and seen[0].settings.orderings.m == 6


def test_a_rate_over_cases_does_not_speak_for_one_case() -> None:
    assert Estimate(0.9, "labels", guarantee="selective").of_this_case == 0.0
    assert Estimate(0.9, "labels", guarantee="selective", pointwise=0.7).of_this_case == 0.7
    assert Estimate(0.9, "labels", guarantee="pointwise").of_this_case == 0.9


def test_a_reference_that_is_false_counts_all_the_same() -> None:
    """An empty table of verdicts is false, and no other reference may speak in its place."""

    class Table(dict[str, float]):
        needs_scores = False

        def estimate(self, case: Case) -> Estimate:
            return Estimate(self.get(case.predicate.query, 0.0), "table")

    trusting = ISRGate(FixedScorer([0.99]), Oracle(1.0))
    assert trusting.decide(["It rains."], reference=Table(), claim="It rains.").p_ref == 0.0
    assert trusting.with_h_star(0.2, reference=Table()).decide(["It rains."], claim="It rains.").p_ref == 0.0
    trail = acquire(trusting, lambda query, number, previous: ["It rains."], rounds=2, reference=Table(), claim="c")
    assert trail.stop == "nothing_new" and trail.decision.p_ref == 0.0
