"""Many threads and tasks on one gate: no deadlock, no mixed results."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from isr_rag import Decision, ISRGate, Supported
from isr_rag.core.evidence import Chunk
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import ScoreRequest, Scores
from isr_rag.core.settings import Orderings
from isr_rag.references import CalibratedMixture, Oracle, Reference
from isr_rag.testing import FixedScorer

THREADS = 64


class Square:
    def lower(self, score: float) -> float:
        return score**2


def hashed(prompt: Prompt, ordering: Ordering) -> float:
    return zlib.crc32(repr((prompt.suffix, ordering)).encode()) / 2**32


def item(i: int) -> dict[str, object]:
    return {"evidence": [f"chunk {i} {k}" for k in range(i % 5)], "claim": f"claim {i}"}


@pytest.mark.parametrize("reference", [Oracle(0.97), CalibratedMixture(Square())], ids=["oracle", "mixture"])
@pytest.mark.parametrize("cascade", [False, True])
def test_64_threads_on_one_gate(reference: Reference, cascade: bool) -> None:
    gate = ISRGate(scorer=FixedScorer(hashed), reference=reference, orderings=Orderings(m=12, cascade=cascade))
    expected = [gate.decide(**item(i)) for i in range(4 * THREADS)]  # type: ignore[arg-type]
    barrier = threading.Barrier(THREADS)

    def work(thread: int) -> list[Decision]:
        barrier.wait(timeout=30)
        mine = range(thread, 4 * THREADS, THREADS)
        return [gate.decide(**item(i)) for i in mine] + gate.decide_batch([item(i) for i in mine])  # type: ignore[arg-type]

    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(work, thread) for thread in range(THREADS)]
        for thread, future in enumerate(futures):
            assert future.result(timeout=60) == expected[thread::THREADS] * 2


def test_64_tasks_on_one_gate_leave_the_event_loop_alone() -> None:
    gate = ISRGate(scorer=FixedScorer(hashed), reference=Oracle(0.97))
    expected = [gate.decide(**item(i)) for i in range(THREADS)]  # type: ignore[arg-type]

    async def run() -> list[Decision]:
        decisions = asyncio.gather(*(gate.adecide(**item(i)) for i in range(THREADS)))  # type: ignore[arg-type]
        return list(await asyncio.wait_for(decisions, timeout=60))

    assert asyncio.run(run()) == expected


def test_the_loop_runs_on_while_a_slow_scorer_works() -> None:
    """adecide with a blocking scorer must not block: the scorer waits for what only the loop can do."""
    loop_did_its_part = threading.Event()

    def waits(prompt: Prompt, ordering: Ordering) -> float:
        assert loop_did_its_part.wait(timeout=20)
        return 0.9

    gate = ISRGate(scorer=FixedScorer(waits), reference=Oracle(1))

    async def run() -> Decision:
        task = asyncio.create_task(gate.adecide(["a", "b"], claim="c"))
        await asyncio.sleep(0.05)
        loop_did_its_part.set()
        return await task

    assert asyncio.run(run()).answered


class AsyncScorer(FixedScorer):
    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        return self.score(requests)


def test_callers_read_their_evidence_one_at_a_time_beside_the_event_loop() -> None:
    inside, most = 0, 0

    class Slow(Supported):
        def render(self, chunks: Sequence[Chunk], *, topic_first: bool = True) -> Prompt:
            nonlocal inside, most
            assert threading.current_thread() is not threading.main_thread()
            inside += 1
            most = max(most, inside)
            threading.Event().wait(0.002)
            inside -= 1
            return super().render(chunks, topic_first=topic_first)

    gate = ISRGate(scorer=AsyncScorer([0.97]), reference=Oracle(1.0))

    async def run() -> list[Decision]:
        return list(await asyncio.gather(*(gate.adecide(["a"], predicate=Slow(claim="a")) for _ in range(50))))

    assert len({decision.action for decision in asyncio.run(run())}) == 1
    assert most == 1
