"""Contrastive twins differ in exactly one detail, see the same evidence, and are right about it."""

from __future__ import annotations

import gzip
import json
import random
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from isr_lab.mix.annotate import INSTALL, PIPELINE, Annotated, annotate
from isr_lab.mix.contrast import read_contrast
from isr_lab.mix.details import Change, Rival, days, names, negated, numbers, opposites, years
from isr_lab.mix.evidence import Document, Pool, assemble, document
from isr_lab.mix.inputs import ReaderInputs
from isr_lab.mix.lexicon import EXCLUSIVE, SAME
from isr_lab.mix.records import Candidate, RowLog
from isr_lab.mix.rewrite import birth, reworded, rewritings, without_parentheses
from isr_lab.mix.swaps import kind_of, nearby_number, other_number
from isr_lab.mix.text import contains, detokenise, sentences, tokens

needs_model = pytest.mark.skipif(find_spec(PIPELINE) is None, reason=INSTALL)


def bare(text: str) -> Annotated:
    return Annotated(text, (), ())


def noted(text: str) -> Annotated:
    return next(annotate([text]))


@given(st.integers(2, 9_999_999), st.integers(0, 10_000), st.booleans())
def test_a_nearby_number_differs_and_rounds_alike(value: int, seed: int, commas: bool) -> None:
    number = f"{value:,}" if commas else str(value)
    new = nearby_number(number, random.Random(seed))
    assert new != number and int(new.replace(",", "")) >= 0
    assert ("," in new) <= ("," in number or commas)


@given(st.integers(1000, 2023), st.integers(0, 10_000))
def test_a_nearby_year_is_no_year_to_come(year: int, seed: int) -> None:
    new = nearby_number(str(year), random.Random(seed))
    assert new != str(year) and int(new) <= 2023 and abs(int(new) - year) <= 15


def test_only_a_single_number_is_changed() -> None:
    assert other_number("two of 30 and 40", random.Random(1)) is None
    assert re.fullmatch(r"about \d+ km", other_number("about 30 km", random.Random(1)) or "")


@pytest.mark.parametrize(
    ("text", "label", "kind"),
    [("1990", "DATE", "YEAR"), ("5 May 1990", "DATE", "DATE2"), ("today", "DATE", None), ("Paris", "GPE", "PLACE")],
)
def test_dates_are_told_apart_by_form(text: str, label: str, kind: str | None) -> None:
    assert kind_of(text, label) == kind


def test_a_birth_is_stated_from_the_brackets() -> None:
    assert birth(bare("Jane Doe (born May 3, 1950) is a singer.")) == "Jane Doe was born on May 3, 1950."
    assert birth(bare("Jane Doe (born 1950) is a singer.")) == "Jane Doe was born in 1950."
    assert birth(bare("Jane Doe is a singer (born in Rome).")) is None


def test_brackets_go_with_their_space() -> None:
    assert without_parentheses("Kobe (神戸) lies 35 km (22 mi (or so)) west.") == "Kobe lies 35 km west."


@pytest.mark.parametrize("seed", range(5))
def test_rewording_keeps_names_and_numbers(seed: int) -> None:
    text = "The Lido was founded in 1946 and is located in Paris; its children attended it."
    new = reworded(text, random.Random(seed))
    assert all(word in new for word in ("Lido", "1946", "Paris"))
    assert reworded("He was received by the king.", random.Random(seed)) == "He was received by the king."


def test_tables_hold_no_word_twice_in_a_set() -> None:
    assert all(len(set(group)) == len(group) >= 2 for group in EXCLUSIVE)
    assert all(re.compile(pattern) for pattern, _ in SAME)


def test_rewording_never_blurs_an_opposite() -> None:
    opposed = {word for group in EXCLUSIVE for word in group}
    blurred = {word for word in opposed for pattern, _ in SAME if re.search(pattern, word)}
    assert blurred <= {"film", "began"}  # "movie" and "started" mean no more and no less


def test_years_in_ranges_and_titles_stay() -> None:
    rng = random.Random(3)
    assert years(bare("It ran from 1990 to 1995."), [], rng) == []
    assert years(bare('The film "1984" was long.'), [], rng) == []
    (change,) = years(bare("It opened in 1990."), [Rival("year", "1955", "-")], rng)
    assert change.old == "1990" and change.claim == f"It opened in {change.new}."


def test_only_the_day_of_a_full_date_changes() -> None:
    (change,) = days(bare("It opened on May 3, 1990."), random.Random(3))
    assert re.fullmatch(r"It opened on May \d+, 1990\.", change.claim) and change.new != "3"


def test_numbers_that_are_names_stay() -> None:
    text = 'Part 2 of Route 66 was No. 5 in 1990 and sold 12,500 copies of "7 Days" in 24-hour shops.'
    assert [change.old for change in numbers(bare(text), random.Random(1))] == ["12,500"]


@needs_model
def test_an_opposite_takes_the_place_of_its_word() -> None:
    (change,) = opposites(noted("The Supremes were a girl group from Detroit."), random.Random(1))
    assert change.claim == "The Supremes were a boy group from Detroit."
    assert opposites(noted("Brother Sister Records was loud."), random.Random(1)) == []


@needs_model
def test_a_name_is_swapped_for_one_of_its_sort_and_the_article_follows() -> None:
    note = noted("Anna Berg is a German singer who lives in Hamburg.")
    rivals = [Rival("nationality", "Italian", "x"), Rival("town", "Verona", "x"), Rival("person", "Ida Holm", "x")]
    claims = {change.how: change.claim for change in names(note, rivals, note.text, random.Random(1))}
    assert claims["nationality"] == "Anna Berg is an Italian singer who lives in Hamburg."
    assert claims["town"] == "Anna Berg is a German singer who lives in Verona."
    assert "person" not in claims


@needs_model
@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("The bridge was opened in 1932.", "The bridge was not opened in 1932."),
        ("The club won the cup in 1932.", "The club did not win the cup in 1932."),
        ("The club never won the cup.", None),
    ],
)
def test_a_claim_is_denied_where_it_is_plain_how(text: str, denied: str | None) -> None:
    assert negated(noted(text)) == denied


@needs_model
def test_rewriting_gives_shorter_true_claims() -> None:
    found = dict(rewritings(noted("The Fly is a 1986 horror film directed by David Cronenberg.")))
    assert found["made by"] == "The Fly was directed by David Cronenberg."
    found = dict(rewritings(noted("The tower was designed by Ann Lee in 1990.")))
    assert found["active"] == "Ann Lee designed the tower in 1990."


FACTS = [
    ("Harbour Bridge", "The Harbour Bridge was opened by Mayor John Lang in Sydney in 1932."),
    ("River Bridge", "The River Bridge was opened by Mayor Peter Hall in Brisbane in 1940."),
    ("Stone Bridge", "The Stone Bridge in Hobart was opened by John Ross on 12 May 1955."),
    ("Lake Bridge", "The Lake Bridge is a bridge in Perth with 14 arches that John Smith built."),
    ("Moon Bridge", "The Moon Bridge was opened in Darwin in 1961 (after a fire) and has 22 arches."),
    ("Toll Bridge", "The Toll Bridge was opened in Cairns by John Webb and was closed in 1977."),
]


def corpus(folder: Path) -> ReaderInputs:
    (folder / "corpus").mkdir(parents=True)
    rows = [{"title": t, "sent_id": 0, "text": s, "source": "x", "snapshot": "2018", "split": "y"} for t, s in FACTS]
    text = "".join(json.dumps(row) + "\n" for row in rows) + '{"title": "Broken", "sent_id": 0}\n'
    (folder / "corpus/wiki_sentences.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return ReaderInputs(folder, RowLog(), random.Random("1"))


def pairs(found: list[Candidate]) -> list[list[Candidate]]:
    units: dict[str, list[Candidate]] = {}
    for one in found:
        units.setdefault(one.unit, []).append(one)
    return list(units.values())


@needs_model
def test_twins_see_the_same_evidence_and_differ_in_one_detail(tmp_path: Path) -> None:
    inputs = corpus(tmp_path)
    found = read_contrast(inputs)
    assert found and [bad.line for bad in inputs.log.bad] == [len(FACTS) + 1]
    for unit in pairs(found):
        assert sum(one.label for one in unit) * 2 == len(unit)
        true, false = unit[0], next(one for one in unit if one.label == 0)
        if false.kind == "refuted":
            assert [c.text for c in true.chunks] == [c.text for c in false.chunks]
            assert true.claim != false.claim
        else:
            assert true.claim == false.claim and not any(c.is_support for c in false.chunks)
        assert sum(chunk.is_support for chunk in true.chunks) == 1
        assert 2 <= len(true.chunks) <= 7


@needs_model
def test_contrastive_pairs_are_reproducible(tmp_path: Path) -> None:
    assert read_contrast(corpus(tmp_path / "a")) == read_contrast(corpus(tmp_path / "b"))


def test_changes_say_where_they_are() -> None:
    change = Change("It opened in 1991.", "1990", "1991", "year", 13)
    assert change.claim[change.at : change.at + 4] == change.new


def test_support_is_kept_and_the_budget_holds() -> None:
    docs = [document(f"Sentence {i} is about boats and lakes. " * 3, f"T{i}") for i in range(20)]
    gold = Document(("The red boat sank in 1901.",), "Gold", frozenset({0}))
    chunks = assemble([*docs, gold], "Which boat sank?", random.Random(1), budget=100)
    assert sum(chunk.is_support for chunk in chunks) == 1
    assert sum(tokens(chunk.text) for chunk in chunks) <= 100
    assert chunks == assemble([*docs, gold], "Which boat sank?", random.Random(1), budget=100)


def test_near_documents_come_best_first_and_only_where_they_fit() -> None:
    pool = Pool([document("Red boats sail."), document("Red boats sail far, red boats sink."), document("Cats sleep.")])
    assert [doc.sentences[0][:3] for doc in pool.near("red boats sink", 2, lambda doc: True)] == ["Red", "Red"]
    assert pool.near("red boats", 2, lambda doc: False) == []
    assert pool.near("the", 2, lambda doc: True) == []


def test_corpus_tokenisation_is_undone() -> None:
    text = "Kesha -LRB- born March 1 , 1987 -RRB- is a `` star '' who 's worth $ 5 -LRB- -RRB- ."
    assert detokenise(text) == 'Kesha (born March 1, 1987) is a "star" who\'s worth $5 .'
    assert sentences("Dr. Lee came. He left.\nThen\n\n...") == ("Dr. Lee came.", "He left.", "Then")
    assert contains("The Red-Brown fox.", "red brown") and not contains("The Redbrown fox.", "red")
