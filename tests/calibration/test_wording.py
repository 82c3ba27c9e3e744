"""No claim gains by its words getting less true: the wording's features, and every score that weighs them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isr_rag import Chunk, Sufficient, Supported
from isr_rag.calibration import Combination
from isr_rag.wording import FEATURES, NO_COMMON_WORD, compare

WORDS = ["kepler", "published", "the", "harmonic", "law", "1619", "Prague", "Tycho", "km", "20", "observed", "orbits"]
words = st.lists(st.sampled_from(WORDS), min_size=2, max_size=7)
texts = st.lists(words.map(" ".join), min_size=1, max_size=3)
weights = st.fixed_dictionaries({name: st.floats(0, 5) for name in FEATURES})
invented = st.text("bcdfgz", min_size=5, max_size=9)


def score(combination: Combination, claim: str, evidence: list[str]) -> float:
    return combination.score(0.8, compare(Supported(claim=claim), [Chunk(text) for text in evidence]))


@given(words, texts, weights, st.randoms(use_true_random=False))
def test_a_claims_word_taken_out_of_the_evidence_never_helps(
    claim: list[str], evidence: list[str], weighed: dict[str, float], rng: random.Random
) -> None:
    own = Combination(0.0, 1.0, weighed)
    word = rng.choice(claim)
    less = [" ".join(w for w in text.split() if w != word) or "nothing else" for text in evidence]
    assert score(own, " ".join(claim), less) <= score(own, " ".join(claim), evidence) + 1e-12


@given(words, texts, weights, invented, st.sampled_from(["word", "name", "number"]), st.integers(0, 7))
def test_an_invented_word_name_or_number_never_helps_a_claim(
    claim: list[str], evidence: list[str], weighed: dict[str, float], word: str, kind: str, place: int
) -> None:
    own = Combination(0.0, 1.0, weighed)
    new = {"word": word, "name": word.capitalize(), "number": "98" + str(len(word))}[kind]
    more = [*claim[:place], new, *claim[place:]]
    assert score(own, " ".join(more), evidence) <= score(own, " ".join(claim), evidence) + 1e-12


@given(words, texts, weights, st.lists(invented, min_size=1, max_size=6))
def test_a_chunk_that_shares_no_word_with_the_claim_never_helps(
    claim: list[str], evidence: list[str], weighed: dict[str, float], stranger: list[str]
) -> None:
    own = Combination(0.0, 1.0, weighed)
    assert score(own, " ".join(claim), [*evidence, " ".join(stranger)]) <= score(own, " ".join(claim), evidence) + 1e-12


@given(words, texts, weights, st.floats(0, 1), st.floats(0, 1))
def test_the_score_never_falls_when_a_q_rises(
    claim: list[str], evidence: list[str], weighed: dict[str, float], a: float, b: float
) -> None:
    own, wording = Combination(-0.4, 0.7, weighed), compare(Supported(claim=" ".join(claim)), [Chunk(evidence[0])])
    low, high = (own.score(q, wording) for q in sorted((a, b)))
    assert 0.0 <= low <= high <= 1.0


@given(texts)
def test_the_order_of_chunks_does_not_matter(evidence: list[str]) -> None:
    predicate = Supported(claim="Tycho observed orbits from Prague in 1619")
    chunks = [Chunk(text) for text in evidence]
    assert compare(predicate, chunks) == compare(predicate, chunks[::-1])


NEAR = "In 1619 Kepler published the harmonic law in Prague, 20 km from Tycho."


@pytest.mark.parametrize(
    ("claim", "evidence", "features"),
    [
        ("In 1619 Kepler published the harmonic law.", NEAR, {}),
        ("In 1620 Kepler published the harmonic law.", NEAR, {"details": 1 / 3}),
        ("In 1619 Galileo published the harmonic law.", NEAR, {"details": 1 / 3}),
        ("It lies 20 miles from Tycho.", NEAR, {"details": 1 / 3}),
        ("In 1619 Kepler did not publish the harmonic law.", NEAR, {"negation": 1.0}),
        ("In 1619 Kepler never published the law.", "In 1619 Kepler did not publish the law.", {}),
        ("The law was published by Kepler, not in 1619.", NEAR, {"negation": 1.0}),
        ("There Tycho taught Kepler.", "Then Kepler taught Tycho.", {"order": 1.0}),
        ("There Kepler taught Tycho.", "Then Kepler taught Tycho.", {}),
    ],
)
def test_what_speaks_against_a_claim(claim: str, evidence: str, features: dict[str, float]) -> None:
    (found,) = compare(Supported(claim=claim), [Chunk(evidence)]).sentences
    named = dict(zip(FEATURES, found, strict=True))
    for name in ("details", "negation"):
        assert named[name] == pytest.approx(features.get(name, 0.0)), name
    if "order" in features:
        assert named["order"] == features["order"]


def test_a_detail_must_stand_in_the_sentence_that_carries_the_claim() -> None:
    claim = Supported(claim="Kepler published the harmonic law in 1620")
    apart = [Chunk("Kepler published the harmonic law in 1619."), Chunk("Tycho left Prague in 1620.")]
    nearest = min(compare(claim, apart).sentences, key=sum)
    assert nearest[1] == pytest.approx(1 / 3)


def test_titles_count_and_questions_have_no_negation() -> None:
    titled = compare(Supported(claim="Kepler published the law"), [Chunk("He published the law.", title="Kepler")])
    assert titled.sentences == ((0.0, 0.0, 0.0, 0.0),)
    assert compare(Sufficient("What is not in it?"), [Chunk("It is in it, and not out.")]).sentences[0][2] in (0.0, 1.0)
    assert compare(Supported(claim="zzzzz"), [Chunk("nothing")]).sentences == (NO_COMMON_WORD,)


def test_a_combination_that_rewards_what_speaks_against_a_claim_is_refused() -> None:
    from isr_rag.calibration import CalibrationError

    good: dict[str, Any] = dict.fromkeys(FEATURES, 1.0)
    with pytest.raises(CalibrationError, match="must not reward"):
        Combination(0.0, 1.0, {**good, "order": -0.1})
