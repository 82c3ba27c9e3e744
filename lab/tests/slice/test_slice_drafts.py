"""False drafts: of the right type, really false, taken from the evidence where that is possible."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isr_lab.slice.drafts import Drafter, Names, answer_type
from isr_lab.slice.records import Record, Sentence
from isr_lab.slice.text import fold, generator

POOL = [
    Sentence("Ada Abbot (born 1900) is an American actor.", "Ada Abbot", 0),
    Sentence("Boris Barlow (born 1910) is a British writer.", "Boris Barlow", 0),
    Sentence("Arden is a city in Delaware.", "Arden", 0),
    Sentence("Brill is a village in England.", "Brill", 0),
    Sentence("Night Train is a 1959 film.", "Night Train (film)", 0),
]
NAMES = Names(POOL)


def record(question: str, answer: str, gold: str = "", key: str = "k", source: str = "nq_open") -> Record:
    sentences = (Sentence(gold, "Page"),) if gold else ()
    return Record(
        source, key, "d", "f", "1", "l", "extractive", question, answers=(answer,), gold=sentences, answer_type="born"
    )


@pytest.mark.parametrize(
    ("question", "answer", "kind"),
    [
        ("Is it so?", "yes", "yesno"),
        ("When was it?", "4 March 1999", "date"),
        ("When was it?", "1999", "year"),
        ("How many are there?", "12 seasons", "number"),
        ("How many are there?", "twelve", "number"),
        ("What was the wall made of?", "limestone", "word"),
        ("Who wrote it?", "Zed Quux", "person"),
        ("Where is it?", "Zedland", "place"),
        ("What is it?", "Night Train", "screen"),
        ("What is it?", "Ada Abbot", "person"),
    ],
)
def test_answers_are_typed_by_form_question_and_knowledge(question: str, answer: str, kind: str) -> None:
    assert answer_type(question, answer, NAMES) == kind


def draw(one: Record, evidence: list[Sentence] = [], others: list[Record] = [], seed: int = 1) -> object:  # noqa: B006
    drafter = Drafter([one, *others], {r.key: "train" for r in (one, *others)}, NAMES)
    return drafter.draw(one, "train", evidence, generator(seed))


def test_yes_becomes_no() -> None:
    assert draw(record("Is it so?", "yes")).answer == "no"
    assert draw(record("Is it so?", "No")).answer == "yes"


@pytest.mark.parametrize("seed", range(6))
def test_a_person_is_replaced_by_another_person_of_the_evidence(seed: int) -> None:
    one = record("Who directed it?", "Ada Abbot", "It was directed by Ada Abbot in 1950.")
    draft = draw(one, [Sentence("The village of Brill honours Boris Barlow.", "Brill")], seed=seed)
    assert draft.answer == "Boris Barlow"
    assert draft.carrier.title == "Brill"


def test_of_two_options_the_other_one_is_drawn() -> None:
    gold = (Sentence("He was born in 1950.", "Ada Abbot (actor)"), Sentence("Born in 1960.", "Boris Barlow"))
    one = replace(record("Who is older, Ada Abbot or Boris Barlow?", "Ada Abbot"), gold=gold, form="multihop")
    assert draw(one).answer == "Boris Barlow"


def test_partners_named_beside_the_answer_are_not_drawn() -> None:
    one = record("Who directed it?", "Ada Abbot", "It was directed by Ada Abbot and Boris Barlow.")
    assert draw(one) is None


@pytest.mark.parametrize("seed", range(6))
def test_a_year_is_replaced_by_another_year(seed: int) -> None:
    one = record("When did it open?", "1930", "Planned in 1921, it opened in 1930.")
    draft = draw(one, [Sentence("It closed in 1955.", "Other")], seed=seed)
    assert draft.answer in ("1921", "1955")


def test_a_number_without_rivals_is_changed_and_keeps_its_form() -> None:
    draft = draw(record("How many people live there?", "1,200 people", "There are 1,200 people."))
    assert draft.answer != "1,200 people"
    assert draft.answer.endswith(" people")
    draft = draw(record("How many are there?", "Twelve", "There are twelve."))
    assert draft.answer != "Twelve"
    assert draft.answer[0].isupper()


def test_other_records_answers_stand_in_unless_the_page_states_them() -> None:
    one = record("What is it made of?", "limestone", "It is made of limestone and granite.")
    others = [record("What is the roof made of?", w, key=w) for w in ("granite", "slate")]
    assert draw(one, others=others).answer == "slate"


def test_an_answer_of_another_split_is_never_drawn() -> None:
    one, other = record("What is it made of?", "limestone"), record("What is it made of?", "slate", key="o")
    drafter = Drafter([one, other], {"k": "train", "o": "test"}, NAMES)
    assert drafter.draw(one, "train", [], generator(1)) is None


def test_aliases_and_parts_of_the_answer_are_never_drawn() -> None:
    one = record("Who wrote it?", "Ada Abbot", "Abbot wrote it. Ada Maria Abbot was born in 1900.")
    draft = draw(one, [Sentence("Ada Abbot (born 1900) met Abbot.", "Ada Abbot")])
    assert draft is None or "abbot" not in fold(draft.answer)
