"""Retrieved text is not the caller's error: whatever it is, there is a decision, and it says what was not read."""

from __future__ import annotations

import pytest

from isr_rag import Action, ISRGate

pytestmark = [pytest.mark.model, pytest.mark.slow]

PLAIN = "The Seine flows through Paris and Rouen."
TEXTS = {
    "a lone surrogate": "The Seine \ud800 flows \udfff through Paris.",
    "control characters": "The Seine\x00 flows\x1b[31m through\u202e Paris.",
    "Thai without spaces": "แม่น้ำแซนไหลผ่านกรุงปารีส" * 20,
    "Arabic": "يمر نهر السين بباريس. " * 20,
    "emoji": "🌊🏙️👩‍👩‍👧" * 40,
    "one endless word": "x" * 2_000,
    "7,000 Chinese characters": "塞纳河流经巴黎。" * 875,
}


@pytest.fixture(scope="module")
def gate() -> ISRGate:
    return ISRGate(on_error="raise")


@pytest.mark.parametrize("name", TEXTS)
def test_any_text_is_decided_about(gate: ISRGate, name: str) -> None:
    decision = gate.decide([PLAIN, TEXTS[name]], question="Which river flows through Paris?", answer="The Seine")
    assert decision.action in (Action.ANSWER, Action.ABSTAIN)
    assert decision.q and decision.to_json()
    assert 0 not in decision.left_out  # one odd chunk does not take the others with it


def test_what_does_not_fit_is_left_out_and_said(gate: ISRGate) -> None:
    long = [f"{i} " + TEXTS["7,000 Chinese characters"] for i in range(4)]
    decision = gate.decide([PLAIN, *long], question="Which river flows through Paris?", answer="The Seine")
    assert decision.q and 0 not in decision.left_out
    assert decision.left_out or decision.focus is not None
