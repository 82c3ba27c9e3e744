"""Storms of callers and long lives: the same numbers as alone, and no more memory after thousands of decisions."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("torch", reason="a local model needs torch: pip install '.[local]'")
pytest.importorskip("psutil", reason="pip install '.[local]'")

import psutil

from isr_rag import ISRGate
from isr_rag.errors import PromptTooLongError
from isr_rag.references import Oracle
from isr_rag.scorers.embedded import embedded_scorer, is_ready
from isr_rag.scorers.local.states import StateCache
from tests.scorers import tiny

pytestmark = pytest.mark.chaos
LONG = os.environ.get("ISR_RAG_CHAOS") == "long"
CLAIMS = [f"Paris is city number {i}." for i in range(16)]
EVIDENCE = ["Paris is the capital of France.", "Lyon is its third city."]


@pytest.fixture(scope="module")
def gate() -> ISRGate:
    return ISRGate(scorer=tiny.scorer(states=StateCache(memory=2**20)), reference=Oracle(1.0))


@pytest.fixture(scope="module")
def expected(gate: ISRGate) -> list[float]:
    return [gate.decide(EVIDENCE, claim=claim).q[0] for claim in CLAIMS]


def test_sixty_four_threads_decide_as_one(gate: ISRGate, expected: list[float]) -> None:
    def decide(i: int) -> float:
        return gate.decide(EVIDENCE, claim=CLAIMS[i % 16]).q[0]

    rounds = 50 if LONG else 6
    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(decide, range(64 * rounds)))
    assert np.allclose(found, [expected[i % 16] for i in range(64 * rounds)], atol=1e-6)


def test_tasks_that_are_cancelled_take_nobody_with_them(gate: ISRGate, expected: list[float]) -> None:
    chance = random.Random(3)
    tasks = 256 if LONG else 128

    async def storm() -> list[float | BaseException]:
        running = [asyncio.create_task(one(i)) for i in range(tasks)]
        for i in range(0, tasks, 2):
            await asyncio.sleep(chance.uniform(0, 0.004))
            running[i].cancel()
        return await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), timeout=120)

    async def one(i: int) -> float:
        return (await gate.adecide(EVIDENCE, claim=CLAIMS[i % 16])).q[0]

    found = asyncio.run(storm())
    for i, outcome in enumerate(found):
        if isinstance(outcome, float):
            assert outcome == pytest.approx(expected[i % 16], abs=1e-6)
        else:
            assert isinstance(outcome, asyncio.CancelledError) and i % 2 == 0
    assert gate.decide(EVIDENCE, claim=CLAIMS[0]).q[0] == pytest.approx(expected[0], abs=1e-6)


def test_memory_stays_within_two_percent_over_thousands_of_decisions(gate: ISRGate) -> None:
    """Fresh evidence each time; every tenth prompt is refused."""
    decisions = 5000 if LONG else 600
    process = psutil.Process()

    def decide(first: int, last: int) -> None:
        for i in range(first, last):
            gate.decide([f"Report {i} says {i * 7}.", f"Report {i} also says {i * 11}."], claim=f"Report {i} says so.")
            if i % 10 == 0:
                long = gate.decide([f"{i} word" * 20_000], claim="Too long.")
                assert long.left_out == (0,)
                with pytest.raises(PromptTooLongError):
                    gate.decide(["short"], claim=f"{i} word" * 20_000)

    warm_up = decisions // 2
    decide(0, warm_up)
    gc.collect()
    before = process.memory_info().rss
    decide(warm_up, warm_up + decisions)
    gc.collect()
    grown = (process.memory_info().rss - before) / before
    assert grown < 0.02, f"{grown:.1%} more memory after {decisions} decisions"


@pytest.mark.model
@pytest.mark.skipif(not is_ready(), reason="not set up: isr-rag setup")
def test_memory_of_the_embedded_model_stays_within_two_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh evidence each time, more than its states may take; every twentieth claim is refused."""
    decisions = 5000 if LONG else 50
    chance = random.Random(1)
    scorer = embedded_scorer()
    monkeypatch.setattr(scorer, "states", StateCache(memory=2**24))  # full after 10 decisions
    gate = ISRGate(scorer=scorer, reference=Oracle(1.0))
    process = psutil.Process()

    def decide(count: int) -> None:
        for i in range(count):
            chunks = [" ".join(f"w{chance.randrange(100, 900)}" for _ in range(6)) for _ in range(2)]
            gate.decide(chunks, claim=f"It was w{i:04}.")
            if i % 20 == 0:
                with pytest.raises(PromptTooLongError):
                    gate.decide(["short"], claim=f"{i} word" * 20_000)

    decide(max(40, decisions // 4))  # of one length, since torch keeps something for every other
    gc.collect()
    before = process.memory_info().rss
    decide(decisions)
    gc.collect()
    grown = (process.memory_info().rss - before) / before
    assert grown < 0.02, f"{grown:.1%} more memory after {decisions} decisions"
