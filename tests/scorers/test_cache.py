"""The cache gives exactly what the scorer gave, and never something of another model, prompt or ordering."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from isr_rag import CachedScorer, Chunk, ISRGate, Supported
from isr_rag.prompt import Ordering, Prompt
from isr_rag.references import Oracle
from isr_rag.scorers.protocol import ScoreRequest
from isr_rag.testing import FixedScorer


def by_first_chunk(prompt: Prompt, ordering: Ordering) -> float:
    return 0.1 + 0.8 * len(prompt.chunks[ordering[0]]) / 100


def request(*orderings: Ordering, chunks: tuple[str, ...] = ("a", "bb", "ccc"), claim: str = "c") -> ScoreRequest:
    return ScoreRequest(Supported(claim=claim).render([Chunk(text) for text in chunks]), orderings)


def test_the_second_time_costs_nothing_and_is_bit_equal(tmp_path: Path) -> None:
    inner = FixedScorer(by_first_chunk)
    cached = CachedScorer(inner, tmp_path)
    wanted = [request((0, 1, 2), (2, 1, 0))]
    first, second = cached.score(wanted)[0], cached.score(wanted)[0]
    assert np.array_equal(first.logprobs, second.logprobs)
    assert (first.passes, second.passes, len(inner.requests)) == (2, 0, 1)


def test_only_missing_orderings_are_scored_and_land_in_their_rows(tmp_path: Path) -> None:
    inner = FixedScorer(by_first_chunk)
    cached = CachedScorer(inner, tmp_path)
    cached.score([request((1, 0, 2))])
    mixed = cached.score([request((0, 1, 2), (1, 0, 2), (2, 0, 1))])[0]
    assert inner.requests[-1].orderings == ((0, 1, 2), (2, 0, 1))
    assert np.array_equal(mixed.logprobs, inner.score([request((0, 1, 2), (1, 0, 2), (2, 0, 1))])[0].logprobs)
    assert mixed.passes == 2


@pytest.mark.parametrize("other", [{"claim": "d"}, {"chunks": ("a", "bb", "cccc")}])
def test_another_prompt_is_another_entry(tmp_path: Path, other: dict[str, object]) -> None:
    inner = FixedScorer(by_first_chunk)
    cached = CachedScorer(inner, tmp_path)
    cached.score([request((0, 1, 2))])
    cached.score([request((0, 1, 2), **other)])  # type: ignore[arg-type]
    assert len(inner.requests) == 2


def test_another_model_is_another_entry(tmp_path: Path) -> None:
    CachedScorer(FixedScorer([0.2], identity="one"), tmp_path).score([request((0, 1, 2))])
    other = CachedScorer(FixedScorer([0.7], identity="two"), tmp_path).score([request((0, 1, 2))])[0]
    assert np.exp(other.logprobs[0, 0]) == pytest.approx(0.7)


def test_a_gate_decides_the_same_with_and_without_sync_and_async(tmp_path: Path) -> None:
    plain = ISRGate(scorer=FixedScorer(by_first_chunk), reference=Oracle(1.0))
    cached = ISRGate(scorer=CachedScorer(FixedScorer(by_first_chunk), tmp_path), reference=Oracle(1.0))
    expected = plain.decide(["a", "bb", "ccc"], claim="c")
    assert cached.decide(["a", "bb", "ccc"], claim="c") == expected
    again = asyncio.run(cached.adecide(["a", "bb", "ccc"], claim="c"))
    assert (again.q, again.passes) == (expected.q, 0)


def test_scores_that_are_not_finite_are_not_remembered(tmp_path: Path) -> None:
    inner = FixedScorer([float("nan")])
    cached = CachedScorer(inner, tmp_path)
    cached.score([request((0, 1, 2))])
    cached.score([request((0, 1, 2))])
    assert len(inner.requests) == 2
