"""The sentence that a decision points to: where a reader should look, and what of the claim is not there."""

from __future__ import annotations

import itertools

import pytest

from isr_rag import Chunk, Decision, ISRGate
from isr_rag.core.evidence import nearest
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

EVIDENCE = [
    Chunk("Pierre was born in Paris in 1859. He studied magnetism.", "Pierre Curie"),
    Chunk("She won the Nobel Prize in 1903. She was born in Warsaw in 1867.", "Marie Curie"),
]


@pytest.mark.parametrize(
    ("claim", "chunk", "sentence", "lacking"),
    [
        ("Marie Curie was born in Warsaw.", 1, "She was born in Warsaw in 1867.", ()),
        ("Marie Curie was born in Vienna in 1867.", 1, "She was born in Warsaw in 1867.", ("Vienna",)),
        ("Marie Curie was born in Warsaw in 1868.", 1, "She was born in Warsaw in 1867.", ("1868",)),
        ("Marie Curie was not born in Warsaw.", 1, "She was born in Warsaw in 1867.", ("not",)),
        ("Pierre Curie studied magnets and law.", 0, "He studied magnetism.", ("law",)),
    ],
)
def test_it_is_the_one_with_most_of_the_words_and_what_it_lacks_is_told(
    claim: str, chunk: int, sentence: str, lacking: tuple[str, ...]
) -> None:
    for order in itertools.permutations(range(2)):
        found = nearest(claim, claim, [EVIDENCE[i] for i in order], order)
        assert found is not None
        assert (found.chunk, found.sentence, found.lacking) == (chunk, sentence, lacking)


@pytest.mark.parametrize(
    ("query", "chunk", "sentence"),
    [
        ("How much does the leaf rake cost? 15.30 euros", 0, "Leaf rake, 1.6 m, 15.30 euros."),
        ("How much is the rent? £1,150 a month", 1, "Rent: £1,150.00."),
    ],
)
def test_a_rare_word_says_more_than_how_or_much(query: str, chunk: int, sentence: str) -> None:
    chunks = [
        Chunk("How much does it hold? How much does it cost? Leaf rake, 1.6 m, 15.30 euros."),
        Chunk("Rent: £1,150.00. How much gas is included in the rent, up to £60 a month? It is not."),
    ]
    found = nearest(query, None, chunks, (0, 1))
    assert found is not None and (found.chunk, found.sentence) == (chunk, sentence)


def test_of_a_long_table_the_rows_that_matter_are_shown_and_all_of_it_counts() -> None:
    table = "\n".join(f"| Part {i} | made of steel by Miller in Ghent | stock {i} |" for i in range(12))
    claim = "Part 11 is made of steel by Brown."
    found = nearest(claim, claim, [Chunk(table)], (0,))
    assert found is not None and found.sentence.endswith("| stock 11 |") and found.sentence.startswith("| Part")
    assert found.lacking == ("Brown",)


def test_no_word_of_a_draft_or_question_gets_into_a_decision() -> None:
    gate = ISRGate(scorer=FixedScorer([0.2]), reference=Oracle(0.3))
    asked = "When was Marie Curie born?"
    draft = gate.decide(EVIDENCE, question=asked, answer="in 1870").nearest
    assert draft is not None and draft.lacking == ()  # decisions travel; a draft held back does not
    question = gate.decide(EVIDENCE, question=asked).nearest
    assert question is not None and (question.chunk, question.lacking) == (1, ())


def test_without_a_common_word_there_is_none() -> None:
    assert nearest("Zinc melts.", "Zinc melts.", EVIDENCE, (0, 1)) is None
    assert nearest("Zinc melts.", "Zinc melts.", [], ()) is None


def test_a_decision_names_the_sentence_and_survives_json() -> None:
    gate = ISRGate(scorer=FixedScorer([0.2]), reference=Oracle(0.3))
    decision = gate.decide(EVIDENCE, claim="Marie Curie was born in Vienna.")
    assert "chunk 2: “She was born in Warsaw in 1867.” That sentence lacks “Vienna”." in decision.explain()
    assert Decision.from_json(decision.to_json()) == decision
    answered = ISRGate(scorer=FixedScorer([0.99]), reference=Oracle(1.0)).decide(EVIDENCE, claim="Curie was in Vienna.")
    assert answered.answered and "lacks" not in answered.explain()


def test_an_old_decision_without_it_is_read() -> None:
    decision = ISRGate(scorer=FixedScorer([0.2]), reference=Oracle(0.3)).decide([], claim="Marie Curie was born.")
    plain = decision.to_dict()
    assert plain.pop("nearest") is None
    assert Decision.from_dict(plain) == decision


def test_control_characters_and_markup_of_the_evidence_do_not_reach_what_is_shown() -> None:
    gate = ISRGate(scorer=FixedScorer([0.2]), reference=Oracle(0.3))
    decision = gate.decide(["Curie \x1b[31mwas <b>born</b>\u202e in Warsaw."], claim="Curie was born in Vienna.")
    assert "\x1b" not in str(decision) and "\u202e" not in str(decision)
    assert "<b>born" not in decision._repr_html_()
