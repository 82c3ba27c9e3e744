"""Text work: restored, compared, split and capped the same way everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from isr_lab.slice.text import (
    TokenCap,
    contains,
    digest,
    fold,
    generator,
    page_title,
    restore_treebank,
    split_sentences,
    stems,
)
from isr_rag.errors import ConfigurationError


@pytest.mark.parametrize(
    ("tokenised", "restored"),
    [
        ("Soul Food -LRB- film -RRB- is by `` Babyface '' Edmonds .", 'Soul Food (film) is by "Babyface" Edmonds.'),
        ("It 's 12 ft long , they said ; was n't it ?", "It's 12 ft long, they said; wasn't it?"),
        ("hispanos -LSB- is\u02c8panos -RSB-", "hispanos [is\u02c8panos]"),
        ("Newton D . Baker", "Newton D. Baker"),
    ],
)
def test_treebank_tokens_are_restored(tokenised: str, restored: str) -> None:
    assert restore_treebank(tokenised) == restored


def test_page_titles_read_as_people_write_them() -> None:
    assert page_title("Soul_Food_-LRB-film-RRB-") == "Soul Food (film)"
    assert page_title("Mission-COLON-_Impossible") == "Mission: Impossible"


def test_answers_are_found_as_whole_words_whatever_their_case_and_accents() -> None:
    assert contains(fold("Born in São Paulo, Brazil."), fold("the Sao paulo"))
    assert not contains(fold("He wrote 1984."), fold("198"))
    assert not contains(fold("anything"), fold("?"))


def test_stems_join_forms_of_a_word() -> None:
    assert stems("He acted") & stems("an acting career")
    assert stems("1984") != stems("1985")


def test_sentences_do_not_end_at_initials() -> None:
    assert split_sentences("John F. Kennedy was here.  He left.") == ["John F. Kennedy was here.", "He left."]


@given(st.lists(st.text("abcdefghij", min_size=1, max_size=9), min_size=1, max_size=80), st.integers(8, 20))
def test_a_capped_text_loses_nothing_and_no_piece_is_too_long(words: list[str], limit: int) -> None:
    cap = TokenCap.__new__(TokenCap)
    cap.limit, cap._pieces = limit, {}
    cap.count = lambda text: len(text.split())  # type: ignore[method-assign]
    text = " ".join(words)
    pieces = cap.pieces(text)
    assert " ".join(pieces) == text
    assert all(cap.count(piece) <= limit for piece in pieces)


def test_an_unbroken_string_is_cut_too(tokenizer: str) -> None:
    cap = TokenCap(tokenizer, 8)
    pieces = cap.pieces("-.".join("abcdefghij" * 3))
    assert len(pieces) > 1
    assert all(cap.count(piece) <= 8 for piece in pieces)


def test_a_missing_tokenizer_is_a_clear_error(tmp_path: object) -> None:
    with pytest.raises(ConfigurationError, match="give the path of a tokenizer"):
        TokenCap(f"{tmp_path}/none.json", 48)


def test_chance_depends_on_the_parts_alone() -> None:
    assert generator(1, "a").random() == generator(1, "a").random() != generator(1, "b").random()
    assert digest("a", 1) == "839e11a421d370be28db56fde67e9aadde2f31514becf2626b521ea3b9009ef4"
