"""Focus: long evidence is cut to the sentences that matter, openly and without losing a chunk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isr_rag import ISRGate
from isr_rag.evidence import Chunk
from isr_rag.focus import focus, words
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

FILLER = "Weather was discussed at length by everyone. Nothing else happened on that day. "
LONG = FILLER * 5 + "Kepler published the harmonic law in 1619. " + FILLER * 5


def test_short_evidence_is_read_whole() -> None:
    chunks = [Chunk("One short sentence."), Chunk("Another one.", "Title")]
    kept, said = focus(chunks, "anything", 10)
    assert kept == tuple(chunks) and said is None


def test_the_sentence_that_matters_is_kept_and_the_gap_is_marked() -> None:
    kept, said = focus([Chunk(LONG, "Kepler")], "When was the harmonic law published?", 20)
    assert "Kepler published the harmonic law in 1619." in kept[0].text
    assert kept[0].title == "Kepler" and "…" in kept[0].text
    assert said is not None and said.words_total == words(LONG) and said.words_read <= 20 == said.budget


def test_every_chunk_keeps_a_sentence_its_place_and_its_title() -> None:
    chunks = [Chunk(f"Number {i} comes first. " + FILLER, f"T{i}") for i in range(6)]
    kept, said = focus(chunks, "Kepler", 1)
    assert [chunk.title for chunk in kept] == [f"T{i}" for i in range(6)]
    assert all(chunk.text for chunk in kept)
    assert said is not None and said.words_read >= 6


def test_kept_sentences_stay_in_order() -> None:
    text = "Alpha came first. Nothing here. Beta came second. Nothing there. Alpha and Beta came last."
    kept, _ = focus([Chunk(text)], "Alpha Beta came", 12)
    assert kept[0].text == "Alpha came first. … Beta came second. … Alpha and Beta came last."


def test_text_without_sentence_ends_is_cut_all_the_same() -> None:
    table = " ".join(f"cell{i}" for i in range(500))
    kept, said = focus([Chunk(table)], "cell321", 80)
    assert "cell321" in kept[0].text.split() and said is not None and said.words_read <= 80


@given(
    st.lists(
        st.lists(
            st.sampled_from(["the", "a", "of", ".", "1619", "Kepler", "。", "?", "\n", "\u200b", "法", "Mr."]),
            min_size=1,
            max_size=40,
        )
        .map(" ".join)
        .filter(lambda text: bool(text.replace("\u200b", "").strip())),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["the of", "Kepler 1619", "?", "法", "unknown words"]),
    st.integers(1, 30),
)
def test_any_text_and_query_leave_every_chunk_with_text(texts: list[str], query: str, budget: int) -> None:
    chunks = [Chunk(text) for text in texts]
    kept, said = focus(chunks, query, budget)
    assert len(kept) == len(chunks)
    assert all(chunk.text.replace("\u200b", "").strip() for chunk in kept)
    assert chunks == [Chunk(text) for text in texts]
    if said is not None:
        assert 0 < said.words_read <= said.words_total
        assert (kept, said) == focus(chunks, query, budget)


class TestInTheGate:
    def test_the_decision_says_how_much_was_read_and_the_reference_sees_it_all(self) -> None:
        seen: list[Chunk] = []
        scorer = FixedScorer([0.9])
        gate = ISRGate(scorer=scorer, reference=Oracle(lambda case: seen.extend(case.chunks) or 1.0), focus=20)
        decision = gate.decide([LONG, "Short."], question="When was the harmonic law published?", answer="1619")
        assert decision.focus is not None and decision.focus.words_read < decision.focus.words_total
        assert seen == [Chunk(LONG), Chunk("Short.")]
        assert "1619" in scorer.requests[0].prompt.chunks[0] and len(scorer.requests[0].prompt.chunks[0]) < len(LONG)
        assert "words" in str(decision)

    def test_focus_is_off_for_an_ordinary_scorer(self) -> None:
        scorer = FixedScorer([0.9])
        decision = ISRGate(scorer=scorer, reference=Oracle(1)).decide([LONG * 20], claim="c")
        assert decision.focus is None and len(scorer.requests[0].prompt.chunks[0]) > len(LONG) * 19

    def test_auto_takes_the_scorers_own_limit(self) -> None:
        scorer = FixedScorer([0.9])
        scorer.focus_words = 15  # type: ignore[attr-defined]
        assert ISRGate(scorer=scorer, reference=Oracle(1)).decide([LONG], claim="c").focus is not None
        assert ISRGate(scorer=scorer, reference=Oracle(1), focus=None).decide([LONG], claim="c").focus is None

    @pytest.mark.parametrize("value", [0, -1, 2.5, True, "all"])
    def test_bad_budgets_are_refused(self, value: object) -> None:
        with pytest.raises(ValueError, match="focus"):
            ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1), focus=value)  # type: ignore[arg-type]
