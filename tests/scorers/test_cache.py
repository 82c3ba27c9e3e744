"""The cache gives exactly what the scorer gave, and never something of another model, prompt or ordering."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import diskcache
import numpy as np
import pytest

import isr_rag
from isr_rag import CachedScorer, Chunk, ISRGate, Reason, Supported
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import PartialScoresError, ScoreRequest, Scores
from isr_rag.errors import ISRError, ScorerError
from isr_rag.references import Oracle
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


class Partly(FixedScorer):
    """Fails at claims with the word "bad", as servers do: the others of a call need not be asked again."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        outcomes: list[Scores | ISRError] = [
            ScorerError("no") if "bad" in request.prompt.suffix else super(Partly, self).score([request])[0]
            for request in requests
        ]
        failed = [outcome for outcome in outcomes if isinstance(outcome, ISRError)]
        if failed:
            raise failed[0] if len(outcomes) == 1 else PartialScoresError("some failed", outcomes)
        return [outcome for outcome in outcomes if isinstance(outcome, Scores)]


class PartlyAwaited(Partly):
    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        return self.score(requests)


@pytest.mark.parametrize("make", [Partly, PartlyAwaited])
def test_one_failure_spoils_neither_what_is_known_nor_what_is_scored_beside_it(
    tmp_path: Path, make: type[Partly]
) -> None:
    inner = make([0.99])
    gate = ISRGate(scorer=CachedScorer(inner, tmp_path), reference=Oracle(1.0), on_error="abstain")
    gate.decide(["a"], claim="one")
    items = [{"evidence": ["a"], "claim": claim} for claim in ("one", "bad one", "two", "bad two")]
    for decided in (gate.decide_batch(items), asyncio.run(gate.adecide_batch(items))):
        assert [decision.reason for decision in decided] == [
            Reason.SUFFICIENT, Reason.SCORER_FAILED, Reason.SUFFICIENT, Reason.SCORER_FAILED
        ]  # fmt: skip
    scored = [one.prompt.suffix for one in inner.requests]
    assert len(scored) == len(set(scored)) == 2


def test_scores_that_are_not_finite_are_not_remembered(tmp_path: Path) -> None:
    inner = FixedScorer([float("nan")])
    cached = CachedScorer(inner, tmp_path)
    cached.score([request((0, 1, 2))])
    cached.score([request((0, 1, 2))])
    assert len(inner.requests) == 2


def forge(directory: Path, change: str, *values: object) -> None:
    with closing(sqlite3.connect(directory / "cache.db", isolation_level=None)) as connection:
        connection.execute(change, values)


@pytest.mark.parametrize("value", [b"", b"7 bytes", "sixteen letters.", 7, None])
def test_an_entry_of_another_size_or_type_is_scored_again(tmp_path: Path, value: object) -> None:
    inner = FixedScorer([0.2])
    CachedScorer(inner, tmp_path).score([request((0, 1, 2))])
    forge(tmp_path, "UPDATE Cache SET value = ?", value)
    again = CachedScorer(inner, tmp_path)
    for _ in range(2):
        assert np.exp(again.score([request((0, 1, 2))])[0].logprobs[0, 0]) == pytest.approx(0.2)
    assert len(inner.requests) == 2, "what was scored again is kept again"


def test_a_damaged_file_costs_the_cache_alone(tmp_path: Path) -> None:
    (tmp_path / "cache.db").write_bytes(b"no database" * 100)
    with pytest.warns(RuntimeWarning, match="done without"):
        cached = CachedScorer(FixedScorer([0.2]), tmp_path)
    assert [cached.score([request((0, 1, 2))])[0].passes for _ in range(2)] == [1, 1]


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return (Path.touch, (tmp_path / "exploded",))

    CachedScorer(FixedScorer([0.2]), tmp_path / "c").score([request((0, 1, 2))])
    forge(tmp_path / "c", "UPDATE Cache SET mode = 4, value = ?", pickle.dumps(Bomb()))
    assert CachedScorer(FixedScorer([0.2]), tmp_path / "c").score([request((0, 1, 2))])[0].passes == 1
    assert not (tmp_path / "exploded").exists()
    package = Path(isr_rag.__file__).parent
    sources = [path for path in package.rglob("*.py") if path.parent != package / "testing"]
    assert not [path for path in sources if re.search(r"(pickle|marshal|shelve|dill)\.loads?", path.read_text())]


def test_a_new_directory_is_its_users_alone(tmp_path: Path) -> None:
    CachedScorer(FixedScorer([0.2]), tmp_path / "c").score([request((0, 1, 2))])
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("failure", [sqlite3.OperationalError("database or disk is full"), OSError(28, "no room")])
def test_a_cache_that_fails_costs_neither_scores_nor_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*_: object) -> None:
        raise failure

    inner = FixedScorer(by_first_chunk)
    cached = CachedScorer(inner, tmp_path)
    expected = cached.score([request((0, 1, 2))])[0].logprobs
    monkeypatch.setattr(diskcache.Cache, "get", fail)
    monkeypatch.setattr(diskcache.Cache, "transact", fail)
    with pytest.warns(RuntimeWarning, match="done without"):
        assert np.array_equal(cached.score([request((0, 1, 2))])[0].logprobs, expected)
    gate = ISRGate(scorer=cached, reference=Oracle(1.0))
    assert gate.decide(["a", "bb"], claim="c").q


def test_a_place_that_is_no_directory_costs_the_cache_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o600)
    with pytest.warns(RuntimeWarning, match="done without"):
        cached = CachedScorer(FixedScorer([0.2]), tmp_path / "file" / "cache")
    assert cached.score([request((0, 1, 2))])[0].passes == 1


def test_entries_go_when_there_are_too_many(tmp_path: Path) -> None:
    cached = CachedScorer(FixedScorer([0.2]), tmp_path, size_limit=100_000)
    for i in range(1500):
        cached.score([request((0, 1, 2), claim=f"c{i}")])
    assert (tmp_path / "cache.db").stat().st_size < 200_000
    assert cached.score([request((0, 1, 2), claim="c1499")])[0].passes == 0
    assert cached.score([request((0, 1, 2), claim="c0")])[0].passes == 1


def test_threads_and_processes_share_one_directory(tmp_path: Path) -> None:
    cached = CachedScorer(FixedScorer(by_first_chunk), tmp_path)

    def work(i: int) -> float:
        return float(cached.score([request((0, 1, 2), claim=f"c{i % 20}")])[0].logprobs[0, 0])

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(work, range(400)))) == 1
    child = os.fork()
    if child == 0:
        found = [cached.score([request((0, 1, 2), claim=f"c{i}")])[0].passes for i in range(20)]
        os._exit(0 if not any(found) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cached.score([request((0, 1, 2), claim="c3")])[0].passes == 0
