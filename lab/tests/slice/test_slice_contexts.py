"""Evidence sets: all support kept, capped in tokens and number, negatives that cannot support."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from isr_lab.slice.config import SliceConfig
from isr_lab.slice.contexts import (
    Assembler,
    cannot_support,
    distractors_of,
    draw_size,
    off_pages,
    weak_support,
    without_answers,
)
from isr_lab.slice.pool import Pool
from isr_lab.slice.records import Record, Sentence
from isr_lab.slice.text import TokenCap, generator
from isr_rag.errors import ConfigurationError


def question(answers: tuple[str, ...] = ("Arden",), gold: tuple[Sentence, ...] = ()) -> Record:
    return Record("nq_open", "k", "d", "f", "1", "l", "extractive", "Where was Ada born?", answers=answers, gold=gold)


def scored(sentence: Sentence) -> float:
    return float(len(sentence.text))


@pytest.fixture
def assembler(tokenizer: str) -> Assembler:
    return Assembler(SliceConfig(tokenizer=tokenizer, n=(1, 8), tail_to=8), TokenCap(tokenizer, 48))


@pytest.mark.parametrize("size", [1, 3, 8, 60])
def test_all_support_is_kept_and_the_rest_filled_up(assembler: Assembler, size: int) -> None:
    support = [Sentence("Ada was born in Arden", "Ada"), Sentence("Arden is a town", "Arden")]
    pool = [Sentence(f"sentence number {i}", f"T{i}") for i in range(100)]
    context = assembler.assemble(support, [], pool, size, scored, ["Arden"], generator("x"))
    assert len(context.chunks) == max(size, 2)
    assert {c.text for c in context.chunks if c.is_support} == {s.text for s in support}
    assert [context.chunks[s.chunk].text[s.start : s.end] for s in context.spans] == ["Arden", "Arden"]


def test_a_context_never_exceeds_sixty_chunks(assembler: Assembler) -> None:
    pool = [Sentence(f"sentence number {i}", f"T{i}") for i in range(100)]
    context = assembler.assemble([pool[0]], [], pool[1:], 99, scored, [], generator("x"))
    assert len(context.chunks) == 60


def test_long_support_goes_into_consecutive_chunks_within_the_cap(assembler: Assembler, tokenizer: str) -> None:
    text = " ".join(f"word{i}" for i in range(110)) + " Arden"
    context = assembler.assemble([Sentence(text, "Ada")], [], [], 3, scored, ["Arden"], generator("x"))
    assert " ".join(c.text for c in context.chunks) == text
    assert all(c.is_support for c in context.chunks)
    assert max(TokenCap(tokenizer, 48).count(c.text) for c in context.chunks) <= 48


def test_chunks_stand_in_the_order_of_their_scores(assembler: Assembler) -> None:
    pool = [Sentence("x" * (i + 1), f"T{i}") for i in range(9)]
    context = assembler.assemble([Sentence("xxxx y", "S")], [], pool, 8, scored, [], generator("x"))
    scores = [chunk.score or 0 for chunk in context.chunks]
    assert scores == sorted(scores, reverse=True)


def test_distractors_leave_out_gold_repeats_and_answers() -> None:
    gold = Sentence("Ada was born in Arden.", "Ada")
    hits = [gold, Sentence("ARDEN has a bridge", "B"), Sentence("a boat", "C"), Sentence("A boat!", "D")]
    record = question(("Arden", "Old Arden"), (gold,))
    assert [s.title for s in distractors_of(record, hits, without_answers(record), 120)] == ["C"]
    assert len(distractors_of(record, [Sentence(f"s{i}", "T") for i in range(500)], lambda s: True, 120)) == 120


def test_yes_and_no_are_not_searched_for() -> None:
    assert without_answers(question(("yes",)))(Sentence("Yes, it is.", "T"))


@pytest.mark.parametrize(
    ("claim", "title", "sentence", "may_stay"),
    [
        (
            "Dulquer Salmaan acted in a 2012 film.",
            "Dulquer Salmaan",
            "He made his acting debut in the 2012 action drama Second Show.",
            False,
        ),
        ("Dulquer Salmaan acted in a 2012 film.", "Dulquer Salmaan", "He lives in Kochi.", True),
        ("Tilda Swinton is a vegan.", "Tilda Swinton", "Tilda Swinton is a British actress.", True),
        ("Tilda Swinton is a vegan.", "Veganism", "Many vegans follow Tilda Swinton.", False),
        ("Tilda Swinton is a vegan.", "Joaquin Phoenix", "Phoenix is a vegan.", True),
        ("The New Jersey Turnpike has zero shoulders.", "Road", "A turnpike in New Jersey without shoulders.", False),
    ],
)
def test_sentences_that_may_support_a_claim_are_no_negatives(
    claim: str, title: str, sentence: str, may_stay: bool
) -> None:
    assert cannot_support(claim)(Sentence(sentence, title)) is may_stay


def test_pages_taken_out_are_out_by_title() -> None:
    judge = off_pages(["ada abbot"])
    assert not judge(Sentence("She sings.", "Ada Abbot"))
    assert judge(Sentence("Ada Abbot sings.", "Ada Abbott"))
    assert not off_pages(["ada abbot"], ["ada abbot"])(Sentence("Ada Abbot sings.", "Ada Abbott"))


@given(st.integers(1, 20), st.integers(0, 20), st.floats(0, 1), st.integers(0, 10**6))
def test_sizes_stay_in_their_range(low: int, more: int, tail: float, seed: int) -> None:
    config = SliceConfig(n=(low, low + more), n_tail=tail, tail_to=60)
    assert low <= draw_size(config, generator(seed)) <= 60


@pytest.mark.parametrize("wrong", [{"n": (0, 3)}, {"n": (5, 3)}, {"n": (3, 61)}, {"n_tail": 2.0}, {"candidates": 0}])
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        SliceConfig(**wrong)  # type: ignore[arg-type]


def test_retrieved_sentences_support_only_when_they_hold_the_answer_and_fit_the_question(tmp_path: Path) -> None:
    pool = Pool(
        [
            Sentence("Ada was born in Arden.", "Ada"),
            Sentence("Arden is old.", "Arden"),
            Sentence("Ada was born long ago.", "Ada B"),
        ],
        1.2,
        0.75,
    )
    found = weak_support(question(), pool)
    assert found is not None
    assert [s.text for s in found.gold] == ["Ada was born in Arden."]
    assert found.pages == ("ada",)
    assert weak_support(question(("Brill",)), pool) is None
