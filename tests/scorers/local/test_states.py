"""Kept chunk states: the same scores for fewer tokens, bounded and content-addressed."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("cachetools")

from isr_rag import ISRGate, Sufficient, Supported  # noqa: E402
from isr_rag.core.evidence import Chunk  # noqa: E402
from isr_rag.core.scorer import ScoreRequest  # noqa: E402
from isr_rag.errors import ConfigurationError  # noqa: E402
from isr_rag.references import Oracle  # noqa: E402
from isr_rag.scorers.cache import CachedScorer  # noqa: E402
from isr_rag.scorers.local.scorer import LocalScorer  # noqa: E402
from isr_rag.scorers.local.states import StateCache  # noqa: E402
from isr_rag.testing import FixedScorer  # noqa: E402
from tests.scorers.tiny import scorer  # noqa: E402

TEXTS = ["Paris is the capital of France.", "Lyon is a city.", "Kepler published it in 1619.", "Nothing here at all."]


def asked(claim: str, texts: list[str]) -> ScoreRequest:
    prompt = Supported(claim=claim).render([Chunk(text) for text in texts], topic_first=False)
    return ScoreRequest(prompt, (tuple(range(len(texts))),))


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma3", "mistral"])
def test_scores_are_those_without_states(architecture: str) -> None:
    plain, keeping = scorer(architecture), scorer(architecture, states=StateCache())
    calls = [
        [asked("Paris is the capital.", TEXTS[:2])],
        [asked("Lyon is the capital.", TEXTS[:2])],  # everything is known but the claim
        [asked("It was published in 1619.", TEXTS[1:]), asked("Metz.", TEXTS[3:])],  # some is known
    ]
    for call in calls:
        for a, b in zip(plain.score(call), keeping.score(call), strict=True):
            assert np.abs(a.logprobs - b.logprobs).max() < 1e-5


def test_a_second_question_computes_its_closing_only() -> None:
    one = scorer(states=StateCache())
    one.score([asked("Paris is the capital.", TEXTS)])
    before = one.engine.computed_tokens
    second = asked("Lyon is the capital.", list(reversed(TEXTS)))
    one.score([second])
    assert one.engine.computed_tokens - before == len(one.encoder.encode(second.prompt).tail)


def test_indexing_ahead_leaves_the_closing_and_is_idle_the_second_time() -> None:
    gate = ISRGate(scorer=scorer(states=StateCache(), batch_tokens=40), reference=Oracle(1.0))
    one = gate.scorer
    assert isinstance(one, LocalScorer)
    assert gate.index(TEXTS) > sum(len(one.encoder._outside(text)) for text in TEXTS)
    assert gate.index(TEXTS) == 0
    before = one.engine.computed_tokens
    gate.decide(TEXTS, claim="Lyon is a city.")
    gate.decide(TEXTS[:2], question="What is Lyon?")
    closings = [Supported(claim="Lyon is a city."), Sufficient("What is Lyon?")]
    prompts = [predicate.render([Chunk("x")], topic_first=False) for predicate in closings]
    assert one.engine.computed_tokens - before == sum(len(one.encoder.encode(prompt).tail) for prompt in prompts)


def test_a_scorer_says_how_much_it_keeps_and_a_cache_in_front_of_it_as_well(tmp_path: Path) -> None:
    keeping = scorer(states=StateCache())
    cached = CachedScorer(keeping, tmp_path)
    assert cached.kept_bytes == 0
    ISRGate(scorer=cached, reference=Oracle(1.0)).index(TEXTS)
    assert cached.kept_bytes == keeping.kept_bytes and (keeping.kept_bytes or 0) > 1_000
    assert scorer().kept_bytes is None and CachedScorer(FixedScorer([0.5]), tmp_path).kept_bytes is None


def test_memory_stays_within_its_bound_and_scores_stay_right() -> None:
    plain, bounded = scorer(), scorer(states=StateCache(memory=30_000))
    assert bounded.states is not None
    for i in range(20):
        call = [asked(f"Claim {i}.", [f"Text number {i} of many.", TEXTS[i % 4]])]
        assert np.abs(plain.score(call)[0].logprobs - bounded.score(call)[0].logprobs).max() < 1e-5
        assert bounded.states.nbytes <= 30_000
    assert 0 < len(bounded.states._kept) < 20


def test_a_batch_reads_each_chunk_once_although_few_are_kept() -> None:
    bounded = scorer(states=StateCache(memory=60_000), batch_tokens=400)
    asked_of_items = [
        [asked(f"Claim {i}.", texts), *(asked(f"Claim {i}.", [text]) for text in texts)]  # together, and each alone
        for i in range(20)
        for texts in [[f"Text number {i} of many.", f"The other text is {i}."]]
    ]
    encoded = [bounded.encoder.encode(one.prompt) for item in asked_of_items for one in item]
    chunks = {chunk for one in encoded for chunk in one.chunks}
    before = bounded.engine.computed_tokens
    bounded.score([one for item in asked_of_items for one in item])
    assert bounded.states is not None and len(bounded.states._kept) < len(chunks)
    needed = len(encoded[0].head) + sum(map(len, chunks)) + sum(len(one.tail) for one in encoded)
    assert bounded.engine.computed_tokens - before == needed


def test_another_model_finds_nothing() -> None:
    states = StateCache()
    scorer(states=states).score([asked("Paris.", TEXTS)])
    other = scorer("qwen3", states=states)
    assert np.allclose(
        other.score([asked("Paris.", TEXTS)])[0].logprobs, scorer("qwen3").score([asked("Paris.", TEXTS)])[0].logprobs
    )


def test_copies_share_the_scorer_and_pickling_says_what_to_do() -> None:
    one = scorer()
    gate = ISRGate(one, Oracle(1.0))
    assert copy.copy(one) is one and copy.deepcopy(gate).scorer is one
    with pytest.raises(TypeError, match="cannot be pickled: make the scorer anew in the other process"):
        pickle.dumps(gate)


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="late"):
        scorer(layout="full", states=StateCache())
    with pytest.raises(ConfigurationError, match="StateCache"):
        scorer().index([])
    with pytest.raises(ConfigurationError, match="nothing to index"):
        ISRGate(scorer=FixedScorer([0.5]), reference=Oracle(1.0)).index(["text"])
    with pytest.raises(ConfigurationError, match="keeps no states"):
        CachedScorer(FixedScorer([0.5]), tmp_path).index([])


def test_a_run_larger_than_the_memory_is_not_kept() -> None:
    cache = StateCache(memory=100)
    cache.put("model", ((1,), (2,)), (torch.zeros(2, 1, 30, 4), torch.zeros(2, 1, 30, 4)))
    assert cache.nbytes == 0
    assert cache.get("model", ((1,), (2,))) is None
