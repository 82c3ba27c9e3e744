"""Focus: long evidence is cut to the sentences that matter, openly and without losing a chunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, strategies as st

from isr_rag import Decision, ISRGate
from isr_rag._util.bm25 import Bm25
from isr_rag.core.decision import Focus
from isr_rag.core.evidence import Chunk, choose, words
from isr_rag.core.exact import missing_numbers
from isr_rag.core.scorer import ScoreRequest, Scores
from isr_rag.errors import PromptTooLongError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from tests.complexity.growth import peak


def focus(chunks: list[Chunk], query: str, budget: int) -> tuple[tuple[Chunk, ...], Focus | None]:
    reading = choose(chunks, query, budget)
    return reading.chunks, reading.focus


FILLER = "Weather was discussed at length by everyone. Nothing else happened on that day. "
LONG = FILLER * 5 + "Kepler published the harmonic law in 1619. " + FILLER * 5


@pytest.mark.parametrize(
    "step",
    [
        lambda chunks: choose(chunks, "anything", 50),
        lambda chunks: missing_numbers("There are 17 km.", chunks, None),
    ],
    ids=["choosing", "numbers"],
)
def test_many_words_take_little_memory_beside_their_text(step: Callable[[list[Chunk]], object]) -> None:
    step([Chunk("A way of 17 km. " * 20)])  # first imports
    text = "ab " * 100_000
    assert peak(lambda: step([Chunk(text)])) < 15 * len(text)


def test_short_evidence_is_read_whole() -> None:
    chunks = [Chunk("One short sentence."), Chunk("Another one.", "Title")]
    kept, said = focus(chunks, "anything", 10)
    assert kept == tuple(chunks) and said is None


def test_the_sentence_that_matters_is_kept_and_the_gap_is_marked() -> None:
    kept, said = focus([Chunk(LONG, "Kepler")], "When was the harmonic law published?", 20)
    assert "Kepler published the harmonic law in 1619." in kept[0].text
    assert kept[0].title == "Kepler" and "…" in kept[0].text
    assert said is not None and said.words_total == words(LONG) + 1 and said.words_read <= 20 == said.budget


def test_the_rows_of_a_table_stay_whole_and_are_told_apart_by_a_digit() -> None:
    rows = [
        f"| Garden hose of model {i} with a yellow stripe | {i} m long | {i}.90 euros | in stock |" for i in range(10)
    ]
    kept, _ = focus([Chunk("\n".join(rows)), Chunk(FILLER * 20)], "What does the hose of model 7 cost?", 60)
    parts = [part for chunk in kept for part in chunk.text.split(" … ") if "hose" in part]
    assert parts and all(part.startswith("| Garden") and part.endswith("stock |") for part in parts)
    assert rows[7] in " ".join(parts)


def test_every_chunk_keeps_a_sentence_its_place_and_its_title_while_the_words_last() -> None:
    chunks = [Chunk(f"Number {i} comes first. " + FILLER, f"T{i}") for i in range(6)]
    kept, said = focus(chunks, "Kepler", 60)
    assert [chunk.title for chunk in kept] == [f"T{i}" for i in range(6)]
    assert all(chunk.text for chunk in kept)
    assert said is not None and said.words_read <= 60


def test_the_budget_is_a_cap_and_whole_chunks_are_left_out_for_it() -> None:
    chunks = [Chunk(f"Chunk {i} says nothing of use at all. " + FILLER, "A title") for i in range(100)]
    chunks[70] = Chunk("Kepler published the harmonic law in 1619. " + FILLER, "A title")
    reading = choose(chunks, "When did Kepler publish the harmonic law?", 50)
    assert reading.focus is not None and reading.focus.words_read <= 50
    assert sum(words(chunk.text) + words(chunk.title or "") for chunk in reading.chunks) <= 50
    assert 70 in reading.places and reading.places == tuple(sorted(reading.places))
    assert set(reading.places) < set(range(100))


@pytest.mark.parametrize(
    "text", ["x" * 2_000_000, "漢字" * 7000, "a " * 50_000, "ไทย" * 5000, "https://a.b/" + "c" * 99_999]
)
@pytest.mark.parametrize("title", [None, "x" * 100_000, "title " * 5000])
def test_no_text_or_title_is_read_beyond_the_budget(text: str, title: str | None) -> None:
    reading = choose([Chunk(text, title)], "anything", 600)
    assert reading.focus is not None and 0 < reading.focus.words_read <= 600 < reading.focus.words_total
    assert sum(len(chunk.text) + len(chunk.title or "") for chunk in reading.chunks) <= 600 * 25


def test_words_are_counted_where_a_script_has_no_spaces() -> None:
    assert words("Paris is the capital of France.") == 6
    assert words("巴黎是法国的首都") == 8
    assert words("internationalisation") == 1
    assert words("a" * 240) == 10


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
def test_any_text_and_query_leave_something_to_read_within_the_budget(
    texts: list[str], query: str, budget: int
) -> None:
    chunks = [Chunk(text) for text in texts]
    reading = choose(chunks, query, budget)
    assert reading.chunks and len(reading.chunks) == len(reading.places)
    assert all(chunk.text.replace("\u200b", "").strip() for chunk in reading.chunks)
    assert chunks == [Chunk(text) for text in texts]
    if reading.focus is not None:
        assert 0 < reading.focus.words_read <= min(budget, reading.focus.words_total)
        assert reading == choose(chunks, query, budget)


class TestInTheGate:
    def test_the_decision_says_how_much_was_read_and_the_reference_sees_it_all(self) -> None:
        seen: list[Chunk] = []
        scorer = FixedScorer([0.9])
        gate = ISRGate(scorer=scorer, reference=Oracle(lambda case: seen.extend(case.chunks) or 1.0), max_words=20)
        decision = gate.decide([LONG, "Short."], question="When was the harmonic law published?", answer="1619")
        assert decision.focus is not None and decision.focus.words_read < decision.focus.words_total
        assert seen == [Chunk(LONG), Chunk("Short.")]
        assert "1619" in scorer.requests[0].prompt.chunks[0] and len(scorer.requests[0].prompt.chunks[0]) < len(LONG)
        assert "words" in str(decision)

    def test_orderings_and_what_was_left_out_name_the_callers_chunks(self) -> None:
        chunks = [FILLER * 3, LONG, FILLER * 4, LONG]
        gate = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0), max_words=16)
        decision = gate.decide(chunks, question="When was the harmonic law published?", answer="1619")
        assert decision.left_out == (0, 2) and set(decision.orderings) == {(1, 3), (3, 1)}
        assert "2 of 4" in str(decision)
        assert Decision.from_json(decision.to_json()) == decision

    def test_chunks_too_long_for_the_window_are_left_out_and_named(self) -> None:
        class Windowed(FixedScorer):
            def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
                for request in requests:
                    long = [i for i, chunk in enumerate(request.prompt.chunks) if len(chunk) > 50]
                    if long:
                        raise PromptTooLongError(f"evidence[{long[0]}] is too long", long)
                return super().score(requests)

        gate = ISRGate(scorer=Windowed([0.97]), reference=Oracle(1.0))
        decisions = gate.decide_batch(
            [{"claim": "c", "evidence": ["a", "b" * 60, "c"]}, {"claim": "c", "evidence": ["a"]}]
        )
        assert [decision.left_out for decision in decisions] == [(1,), ()]
        assert set(decisions[0].orderings) == {(0, 2), (2, 0)} and decisions[0].answered
        nothing = gate.decide(["b" * 60], claim="c")
        assert (nothing.action, nothing.reason, nothing.left_out) == ("abstain", "no_evidence", (0,))
        assert "too long" in nothing.detail

    def test_focus_is_off_for_an_ordinary_scorer(self) -> None:
        scorer = FixedScorer([0.9])
        decision = ISRGate(scorer=scorer, reference=Oracle(1)).decide([LONG * 20], claim="c")
        assert decision.focus is None and len(scorer.requests[0].prompt.chunks[0]) > len(LONG) * 19

    def test_auto_takes_the_scorers_own_limit(self) -> None:
        scorer = FixedScorer([0.9])
        scorer.focus_words = 15  # type: ignore[attr-defined]
        assert ISRGate(scorer=scorer, reference=Oracle(1)).decide([LONG], claim="c").focus is not None
        assert ISRGate(scorer=scorer, reference=Oracle(1), max_words=None).decide([LONG], claim="c").focus is None

    @pytest.mark.parametrize("value", [0, -1, 2.5, True, "all"])
    def test_bad_budgets_are_refused(self, value: object) -> None:
        with pytest.raises(ValueError, match="max_words"):
            ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1), max_words=value)  # type: ignore[arg-type]


@given(st.permutations(range(6)))
def test_what_is_read_does_not_depend_on_the_order_of_the_chunks(order: list[int]) -> None:
    chunks = [Chunk(" ".join(f"Nothing was found in {what}{i}." for i in range(9)), "T") for what in "aabcd"]
    chunks.append(Chunk("Kepler published it. Nothing was seen.", "T"))
    once, again = (choose([chunks[i] for i in o], "When did Kepler publish?", 60).chunks for o in (range(6), order))
    assert Counter(once) == Counter(again)


def test_an_index_for_known_queries_scores_as_one_for_all() -> None:
    texts = [f"The river {n % 7} of town {n % 5} flows to the sea, {n} miles away." for n in range(2500)] + ["", "The"]
    queries = ["Which river flows to town 3?", "the lake", "sea miles 2017 away away", ""]
    known, all_of_them = Bm25(iter(texts), queries), Bm25(texts)
    for query in queries:
        assert known.scores(query).tolist() == all_of_them.scores(query).tolist()
    assert known.scores(queries[0]).any()
