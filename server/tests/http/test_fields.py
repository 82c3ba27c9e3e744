"""Whatever is in a field of a caller stays the text of that field: no role, no line, no control token."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable

import pytest
from tests.security.strings import MARKERS, STRINGS

from isr_rag import Choice, Chunk, Custom, Decision, ISRGate, Sufficient, Supported
from isr_rag._util.text import printable
from isr_rag.core.evidence import neutralise, one_line
from isr_rag.core.predicates import Predicate
from isr_rag.core.prompt import Prompt
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

FIELDS: dict[str, Callable[[str], tuple[Predicate, Chunk]]] = {
    "text": lambda s: (Supported(claim="c"), Chunk(f"before {s} after")),
    "title": lambda s: (Supported(claim="c"), Chunk("text", f"before {s} after")),
    "claim": lambda s: (Supported(claim=f"before {s} after"), Chunk("text")),
    "question": lambda s: (Sufficient(f"before {s} after"), Chunk("text")),
    "answer": lambda s: (Supported(question="q", answer=f"before {s} after"), Chunk("text")),
    "option": lambda s: (Choice("q", ["one", f"before {s} after"]), Chunk("text")),
    "field": lambda s: (Custom("n", "Topic: {topic}", "Reply 1 or 0.", {"topic": f"before {s} after"}), Chunk("text")),
}


def whole(prompt: Prompt) -> str:
    return prompt.prefix + "".join(prompt.chunks) + prompt.suffix


def test_there_are_three_hundred() -> None:
    assert len(set(STRINGS)) >= 300


@pytest.mark.parametrize("field", FIELDS)
def test_no_string_leaves_its_line_or_keeps_a_control_token(field: str) -> None:
    lines = whole(FIELDS[field]("x")[0].render([FIELDS[field]("x")[1]])).count("\n")
    wrong: list[tuple[str, str]] = []
    for string in STRINGS:
        predicate, chunk = FIELDS[field](string)
        prompt = predicate.render([chunk])
        text = whole(prompt)
        if text.count("\n") != lines or len(text.splitlines()) != lines + 1:
            wrong.append((string, "lines"))
        if any(marker in text for marker in MARKERS):
            wrong.append((string, "marker"))
        if not prompt.chunks[0].startswith("> ") or any(0xD800 <= ord(c) <= 0xDFFF for c in text):
            wrong.append((string, "form"))
    assert not wrong


@pytest.mark.parametrize(
    "family",
    [
        "chatml",
        "llama3",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("mistral", "gemma", "llama2", "deepseek")),
    ],
)
def test_no_string_becomes_a_control_token_of_a_known_tokenizer(family: str) -> None:
    pytest.importorskip("torch", reason="a local model needs torch: pip install '.[local]'")
    from tests.scorers import tiny

    from isr_rag.scorers.local.encoding import PromptEncoder

    if family not in tiny.FAMILIES:
        pytest.skip(f"no tiny tokenizer of {family}")
    encoder = PromptEncoder(tiny.tokenizer(family))

    def controls(predicate: Predicate, chunk: Chunk) -> int:
        encoded = encoder.encode(predicate.render([chunk]))
        return sum(i in encoder._control_ids for i in encoded.assemble((0,)))

    for make in FIELDS.values():
        plain = controls(*make("x"))
        assert not [string for string in STRINGS if controls(*make(string)) != plain]


@pytest.mark.slow
def test_no_string_in_any_field_breaks_a_decision_or_what_is_shown_of_it() -> None:
    gate = ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(1.0), max_words=50)
    for string in STRINGS:
        for name, make in FIELDS.items():
            if name != "option":  # a Choice needs a reference that names one
                predicate, chunk = make(string)
                decision = gate.decide([chunk, "another"], predicate=predicate)
                assert Decision.from_dict(json.loads(decision.to_json())) == decision
                assert str(decision) == printable(str(decision), None)


def test_what_fails_says_so_without_control_characters() -> None:
    def fail(case: object) -> float:
        raise RuntimeError("\x1b[31m\u202e\ud800" + "x" * 10_000)

    gate = ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(fail), on_error="abstain")
    decision = gate.decide(["a"], claim="c")
    shown = decision.detail + str(decision)
    assert decision.reason == "reference_failed" and len(decision.detail) < 3000
    assert not [c for c in shown if c != "\n" and unicodedata.category(c) in ("Cc", "Cs")] and "\u202e" not in shown
    shown.encode()


@pytest.mark.parametrize("text", ["a < b and c > d", "<html>", "</div><br/>", "x[INSTANCE]", "[1]", "<a@b.c>", "[PDF]"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert neutralise(one_line(text)) == text
