"""Predicates: what they refuse, what they render, and that user text cannot leave its place."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from isr_rag.core.evidence import Chunk
from isr_rag.core.predicates import Choice, Custom, Predicate, Refuted, Sufficient, Supported, predicate_for
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError

CHUNKS = [Chunk("Paris is the capital of France.", "Paris"), Chunk("Lyon is a city.")]
ALL: list[Predicate] = [
    Supported(claim="Paris is a capital."),
    Supported(question="What is the capital?", answer="Paris"),
    Refuted("Paris is a capital."),
    Sufficient("What is the capital?"),
    Choice("What is the capital?", ["Paris", "Lyon"]),
    Custom("rule", "Rule: {rule}", "Is the rule kept? Reply 1 or 0.", {"rule": "no shouting"}),
]


def test_the_call_chooses_the_predicate() -> None:
    assert predicate_for(claim="c") == Supported(claim="c")
    assert predicate_for(question="q", answer="a") == Supported(question="q", answer="a")
    assert predicate_for(question="q") == Sufficient("q")


@pytest.mark.parametrize(
    "call",
    [
        dict(),
        dict(answer="a"),
        dict(question=""),
        dict(question=" \n"),
        dict(question="\u200b"),
        dict(question="q", answer=""),
        dict(question="", answer="a"),
        dict(claim="  "),
        dict(claim="c", question="q"),
        dict(claim="c", answer="a"),
    ],
)
def test_empty_and_contradictory_calls_are_refused(call: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        predicate_for(**call)


@pytest.mark.parametrize("call", [dict(question=3), dict(claim=b"c"), dict(question="q", answer=["a"])])
def test_other_types_are_refused(call: dict[str, object]) -> None:
    with pytest.raises(InvalidTypeError):
        predicate_for(**call)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [[], ["one"], ["same", "same "], ["a", ""], [str(i) for i in range(27)]])
def test_choices_need_2_to_26_distinct_options(options: list[str]) -> None:
    with pytest.raises(InvalidInputError):
        Choice("q", options)


@pytest.mark.parametrize(
    "arguments",
    [
        dict(topic="{a} {b}", fields={"a": "x"}),
        dict(topic="{a}", fields={"a": "x", "b": "y"}),
        dict(topic="{a", fields={"a": "x"}),
        dict(topic="plain", labels=("1",)),
        dict(topic="plain", labels=("1", ())),
        dict(topic="plain", target=2),
        dict(topic="plain", target=-1),
    ],
)
def test_custom_templates_that_do_not_fit_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Custom("name", ask="ask", **arguments)  # type: ignore[arg-type]


def test_custom_fields_must_not_be_empty() -> None:
    with pytest.raises(InvalidInputError):
        Custom("name", "{a}", "ask", {"a": " "})


@pytest.mark.parametrize("predicate", ALL, ids=lambda p: p.template)
@pytest.mark.parametrize("topic_first", [True, False])
def test_segments_keep_the_shape_that_token_boundaries_need(predicate: Predicate, topic_first: bool) -> None:
    prompt = predicate.render(CHUNKS, topic_first=topic_first)
    assert prompt.prefix.endswith("Evidence:\n") and (prompt.prefix == "Evidence:\n") is not topic_first
    assert prompt.chunks == ("> Paris: Paris is the capital of France.\n", "> Lyon is a city.\n")
    assert prompt.suffix == prompt.suffix.strip()
    assert len(prompt.labels) >= 2
    assert predicate.target is None or 0 <= predicate.target < len(prompt.labels)
    assert prompt.instruction and predicate.query and predicate.template
    assert isinstance(predicate, Predicate)


def test_templates_tell_predicates_apart() -> None:
    assert len({predicate.template for predicate in ALL}) == len(ALL)


def test_templates_and_queries_are_stable() -> None:
    """Calibrations are tied to these names: whoever rewords a template must rename it."""
    assert [predicate.template for predicate in ALL] == [
        "supported-claim/1",
        "supported-answer/1",
        "refuted-claim/1",
        "sufficient/1",
        "choice-2/1",
        "custom-rule",
    ]
    prompt = Supported(question="q?", answer="a").render([Chunk("t")])
    assert prompt.prefix == "Question: q?\nAnswer: a\nEvidence:\n"
    assert prompt.suffix == "Question: q?\nAnswer: a\nDoes the evidence support this answer? Reply 1 or 0."


def test_refuted_asks_for_a_contradiction() -> None:
    refuted = Refuted("Lyon is the capital.")
    assert refuted.target == 0
    prompt, supported = (asked.render(CHUNKS) for asked in (refuted, Supported(claim="Lyon is the capital.")))
    assert prompt.suffix == "Claim: Lyon is the capital.\nDoes the evidence contradict the claim? Reply 1 or 0."
    assert (prompt.prefix, prompt.chunks, prompt.labels) == (supported.prefix, supported.chunks, supported.labels)
    with pytest.raises(InvalidInputError):
        Refuted(" ")
    with pytest.raises(InvalidTypeError):
        Refuted(3)  # type: ignore[arg-type]


hostile = st.lists(
    st.sampled_from(
        ["<|im_end|>", "[/INST]", "\n> ", "\r", "\u2028", "\u200b", "</s>", "\nEvidence:\n", "{x}", "x", " "]
    ),
    min_size=1,
    max_size=8,
).map(lambda parts: "x" + "".join(parts))


@given(hostile)
def test_questions_answers_claims_and_options_stay_on_their_line(text: str) -> None:
    for predicate in (
        Supported(claim=text),
        Supported(question=text, answer=text),
        Sufficient(text),
        Choice(text, [text, "other"]),
        Custom("n", "Topic: {a}", "Ask.", {"a": text}),
    ):
        prompt = predicate.render([Chunk(text, text)])
        harmless = predicate_like(predicate).render([Chunk("x")])
        for hostile_part, plain in ((prompt.prefix, harmless.prefix), (prompt.suffix, harmless.suffix)):
            assert len(hostile_part.splitlines()) == len(plain.splitlines())
            assert not {"<|im_end|>", "[/INST]", "</s>"} & {
                m for m in ("<|im_end|>", "[/INST]", "</s>") if m in hostile_part
            }
            assert not any(line.startswith(">") for line in hostile_part.splitlines())
        assert len(prompt.chunks[0].splitlines()) == 1


def predicate_like(predicate: Predicate) -> Predicate:
    match predicate:
        case Supported(claim=str()):
            return Supported(claim="x")
        case Supported():
            return Supported(question="x", answer="x")
        case Sufficient():
            return Sufficient("x")
        case Choice():
            return Choice("x", ["x", "other"])
        case _:
            return Custom("n", "Topic: {a}", "Ask.", {"a": "x"})


@pytest.mark.parametrize("labels", [("1", "1"), (("yes", "1"), ("no", "1"))])
def test_labels_that_share_a_string_are_refused(labels: tuple[str | tuple[str, ...], ...]) -> None:
    with pytest.raises(ConfigurationError, match="share a string"):
        Custom("n", "{x}", "Reply 1 or 0.", {"x": "y"}, labels=labels)
