"""The pool: standard BM25 scores, a fixed order, and pages that belong to a split."""

from __future__ import annotations

import math

import pytest

from isr_lab.slice.pool import Pool
from isr_lab.slice.records import Sentence

TEXTS = ["red fox jumps", "red red bear", "blue fox", "green bear sleeps long", "red fox jumps again here"]


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool([Sentence(text, f"T{i}") for i, text in enumerate(TEXTS)], 1.2, 0.75)


def lucene(query: str, i: int) -> float:
    """Lucene's BM25 written out, over `title text`."""
    documents = [f"t{j} {text}".split() for j, text in enumerate(TEXTS)]
    mean = sum(map(len, documents)) / len(documents)
    total = 0.0
    for term in query.split():
        df = sum(term in document for document in documents)
        tf = documents[i].count(term)
        idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
        total += idf * tf / (tf + 1.2 * (1 - 0.75 + 0.75 * len(documents[i]) / mean))
    return total


@pytest.mark.parametrize("query", ["red fox", "bear", "red bear sleeps", "t2 fox"])
def test_scores_are_lucenes_bm25(pool: Pool, query: str) -> None:
    scores = pool.scores(query)
    for i in range(len(TEXTS)):
        assert scores[i] == pytest.approx(lucene(query, i), abs=3e-4)


def test_rankings_are_best_first_positive_and_capped(pool: Pool) -> None:
    hits = pool.ranking(pool.scores("red fox"), "train", 3)
    assert len(hits) == 3
    scores = [pool.score_of(pool.scores("red fox"), hit) or 0.0 for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert not pool.ranking(pool.scores("zebra the of"), "train", 3)


def test_ties_keep_the_pools_order() -> None:
    pool = Pool([Sentence("same words", f"A{i}") for i in range(30)], 1.2, 0.75)
    hits = pool.ranking(pool.scores("same words"), "train", 5)
    assert [hit.title for hit in hits] == ["A0", "A1", "A2", "A3", "A4"]


def test_an_owned_page_is_a_distractor_only_within_its_split() -> None:
    pool = Pool([Sentence("red fox", "One"), Sentence("red bear", "Two")], 1.2, 0.75)
    pool.own({"one": "test"})
    assert [hit.title for hit in pool.ranking(pool.scores("red"), "train", 9)] == ["Two"]
    assert len(pool.ranking(pool.scores("red"), "test", 9)) == 2


def test_repeated_and_untitled_sentences_count_once_and_never() -> None:
    pool = Pool([Sentence("a red fox", "One"), Sentence("a red fox", "One"), Sentence("fox", None)], 1.2, 0.75)
    assert len(pool) == 1
    assert pool.score_of(pool.scores("fox"), Sentence("elsewhere", "One")) is None
