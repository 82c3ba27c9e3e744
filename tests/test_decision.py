"""Decisions: plain, frozen, readable, and the same after a round trip through JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from isr_rag import Action, Decision, ISRGate, Reason
from isr_rag.core.decision import Focus, Nearest, percent
from isr_rag.core.evidence import Chunk
from isr_rag.core.settings import Orderings
from isr_rag.errors import InvalidInputError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer


def decided(q: list[float], p_ref: float = 1.0, **settings: Any) -> Decision:
    gate = ISRGate(scorer=FixedScorer(q), reference=Oracle(p_ref), **settings, orderings=Orderings(m=len(q)))
    return gate.decide(["a <b>", "b", "c", "d"], claim="c")


def plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0, 1))
def test_json_round_trip_keeps_every_number(q: list[float], p_ref: float) -> None:
    decision = decided(q, p_ref)
    back = Decision.from_json(decision.to_json())
    assert back == decision
    assert back.seconds == decision.seconds
    assert plain(decision.to_dict())
    assert decision.to_dict()["schema_version"] == 2


def test_infinite_isr_survives_strict_json() -> None:
    decision = decided([0.99, 0.98])
    assert decision.isr == math.inf
    parsed = json.loads(decision.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert parsed["isr"] == "inf"
    assert Decision.from_json(decision.to_json()).isr == math.inf


def test_an_unscored_decision_and_a_focused_one_survive() -> None:
    nothing = ISRGate(scorer=FixedScorer([0.5]), reference=Oracle(1)).decide([], claim="c")
    assert Decision.from_json(nothing.to_json()) == nothing
    assert nothing.isr is nothing.q_bar is nothing.p_ref is None
    focused = dataclasses.replace(decided([0.9]), focus=Focus(3, 9, 4))
    assert Decision.from_dict(focused.to_dict()) == focused


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 1},
        {"action": "maybe"},
        {"q": None},
        {"isr": "much"},
        {"focus": {"unknown": 1}},
        {"surprise": 1},
    ],
)
def test_other_schemas_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        Decision.from_dict({**decided([0.9]).to_dict(), **change})


@pytest.mark.parametrize(
    "change",
    [{"isr": math.nan}, {"p_ref": "high"}, {"settings": {"h_star": math.nan}}, {"q": 1.0}, {"action": "ANSWER"}],
)
def test_numbers_that_are_none_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="not a decision as to_dict writes it"):
        Decision.from_dict({**decided([0.9]).to_dict(), **change})
    with pytest.raises(InvalidInputError, match="not a decision as to_dict writes it"):
        Decision.from_dict([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", "{nonsense"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Decision.from_json(text)


def test_is_frozen_and_neither_true_nor_false() -> None:
    decision = decided([0.9])
    with pytest.raises(dataclasses.FrozenInstanceError):
        decision.m = 7  # type: ignore[misc]
    with pytest.raises(TypeError, match="action"):
        bool(decision)
    assert decision.answered is (decision.action is Action.ANSWER)


def test_says_what_was_decided_and_why() -> None:
    text = str(decided([0.9, 0.8]))
    assert text.startswith("ANSWER: ") and "(sufficient)" in text
    for number in ("p_ref", "q_bar", "ISR", "lower bound", "forward passes"):
        assert number in text
    assert "guarantee" not in text
    assert "order" in str(decided([0.9, 1e-7])) and "ABSTAIN" in str(decided([0.9], 0.0))


def test_every_reason_can_be_printed() -> None:
    for reason in Reason:
        shown = dataclasses.replace(decided([0.9]), reason=reason, detail="<why>")
        assert reason.value in str(shown) and "<why>" in str(shown)
        assert shown.explain()[0].isupper() and shown.explain().endswith(".")
        assert "&lt;why&gt;" in shown._repr_html_() and "<why>" not in shown._repr_html_()


def test_html_shows_a_dot_for_every_ordering() -> None:
    html = decided([0.9, 0.8, 0.7])._repr_html_()
    assert html.count("<circle") == 3 and "ANSWER" in html


def test_how_sure_this_very_case_is_stands_beside_the_share_of_surer_ones_where_they_differ() -> None:
    selective = dataclasses.replace(decided([0.9], 0.97), guarantee="selective", pointwise=0.78)
    assert "97% of the cases at least as sure as this one hold" in selective.explain()
    assert "Of cases only about as sure, 78% do, by a cautious estimate." in selective.explain()
    for pointwise in (None, 0.0, 0.93):  # none is known, or it is much the same
        assert "only about as sure" not in dataclasses.replace(selective, pointwise=pointwise).explain()


def test_no_wider_target_is_advised_where_each_needs_a_cut_of_its_own() -> None:
    decision = decided([0.9], 0.94)
    cut = dataclasses.replace(decision, threshold_reached=True)
    assert "h_star=0.1" in decision.explain() and "h_star" not in cut.explain()
    assert "calibration on labelled data" in cut.explain()


def test_at_a_shell_options_and_titles_are_named() -> None:
    decision = dataclasses.replace(
        decided([0.9], 0.94),
        nearest=Nearest(1, "Kettles have a warranty."),
        detail="no evidence can reach 1 - h* = 0.95 for c: the highest is 0.82",
        lowest_h_star=0.18,
    )
    said = decision.at_shell([Chunk("a", "other"), Chunk("Kettles have a warranty.", "terms\nof use")])
    assert "--h-star 0.1 if 10% wrong" in said and "Choose --h-star 0.18, or" in said and "h_star" not in said
    assert "in chunk 2 (terms of use): “Kettles" in said and "p_ref" in said
    assert "in chunk 2: “Kettles" in decision.at_shell() and "h_star=0.1" in str(decision)


def test_an_abstention_says_what_is_needed_and_what_would_change_it() -> None:
    said = decided([0.9], 0.94).explain()
    assert "trusted at 94%; 95% is needed (h* = 0.05)" in said
    assert "h_star=0.1 if 10% wrong answers will do" in said and "calibration on labelled data" in said
    assert "h_star" not in decided([0.9], 0.3).explain()
    assert "0.9 on average" not in said
    beyond = dataclasses.replace(decided([0.9], 0.94), lowest_h_star=1 / 18)
    assert "states it more directly" in said and "states it more directly" not in beyond.explain()
    assert "What would change it: h_star=0.1 if" in beyond.explain()
    assert "Choose h_star >= 0.056, or calibrate on more labelled items." in beyond.explain()
    assert "in the worst" in decided([0.9, 1e-7]).explain()
    assert (
        "What would change it: retrieving evidence."
        in dataclasses.replace(decided([0.9]), action=Action.ABSTAIN, reason=Reason.NO_EVIDENCE).explain()
    )


@given(st.floats(0, 1), st.floats(0, 1))
def test_percentages_tell_two_numbers_apart_and_never_flatter(value: float, beside: float) -> None:
    shown, needed = percent(value, beside)
    if abs(value - beside) > 1e-5:
        assert shown != needed
    assert float(shown.rstrip("%")) <= value * 100 + 1e-4


def test_no_risk_is_never_printed_as_a_number() -> None:
    assert "no lower bound" in str(decided([0.9], 1.0)) and ">= 0.0000" not in str(decided([0.9], 1.0))
    assert ">= 0.1" in str(decided([0.9], 0.9))


def test_the_strip_follows_the_page_and_shows_what_is_trusted() -> None:
    html = decided([0.9, 0.8])._repr_html_()
    assert "currentColor" in html and "#000" not in html and "<path" in html and "each of 2 orders" in html
