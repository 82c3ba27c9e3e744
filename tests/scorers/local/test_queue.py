"""Concurrent callers share one model: scored together, each with its own result, error or cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from isr_rag.core.prompt import Prompt
from isr_rag.core.scorer import ScoreRequest, Scores
from isr_rag.errors import QueueFullError, ScorerError
from isr_rag.scorers.local.queue import TOGETHER, ScoringQueue


def request(name: str) -> ScoreRequest:
    return ScoreRequest(Prompt("", "", ("chunk",), name, (("1",), ("0",))), ((0,),))


class Model:
    """Scores by name; stops at a gate in its first turn, and keeps what every turn held."""

    def __init__(self) -> None:
        self.turns: list[list[str]] = []
        self.busy, self.go_on = threading.Event(), threading.Event()
        self._inside = threading.Lock()

    def __call__(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        assert self._inside.acquire(blocking=False), "two turns at a time"
        try:
            names = [r.prompt.suffix for r in requests]
            self.turns.append(names)
            if names == ["first"]:
                self.busy.set()
                assert self.go_on.wait(timeout=20)
            if "broken" in names:
                raise ScorerError("this one fails")
            if "stopped" in names:
                raise KeyboardInterrupt
            return [Scores(np.full((1, 2), float(len(name))), 1) for name in names]
        finally:
            self._inside.release()


def value(scores: list[Scores]) -> float:
    return float(scores[0].logprobs[0, 0])


def test_callers_that_come_while_the_model_is_busy_share_the_next_turn() -> None:
    model = Model()
    queue = ScoringQueue(model)
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(queue.score, [request("first")])
        assert model.busy.wait(timeout=20)
        others = [pool.submit(queue.score, [request("x" * (i + 1))]) for i in range(16)]
        while len(queue._line) < 16:
            threading.Event().wait(0.001)
        model.go_on.set()
        assert value(first.result(timeout=20)) == 5
        assert [value(other.result(timeout=20)) for other in others] == [i + 1 for i in range(16)]
    assert [len(turn) for turn in model.turns] == [1, 16]


def test_a_full_line_refuses_at_once_and_those_in_it_are_served() -> None:
    model = Model()
    queue = ScoringQueue(model, waiting=2)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(queue.score, [request("first")])
        assert model.busy.wait(timeout=20)
        waiting = [pool.submit(queue.score, [request(name)]) for name in ("aa", "aaa")]
        while len(queue._line) < 2:
            threading.Event().wait(0.001)
        with pytest.raises(QueueFullError, match=r"2 callers wait.*decide_batch"):
            queue.score([request("late")])
        with pytest.raises(QueueFullError):
            asyncio.run(queue.ascore([request("late")]))
        model.go_on.set()
        assert [value(one.result(timeout=20)) for one in (first, *waiting)] == [5, 2, 3]
    assert value(queue.score([request("late")])) == 4


def test_a_turn_is_bounded_and_a_large_call_stays_whole() -> None:
    model = Model()
    queue = ScoringQueue(model)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(queue.score, [request("first")])
        assert model.busy.wait(timeout=20)
        calls = [[request("a")] * (TOGETHER - 1), [request("b")] * 2, [request("c")] * (2 * TOGETHER)]
        waiting = []
        for number, call in enumerate(calls, 1):
            waiting.append(pool.submit(queue.score, call))
            while len(queue._line) < number:
                threading.Event().wait(0.001)
        model.go_on.set()
        first.result(timeout=20)
        assert [len(one.result(timeout=20)) for one in waiting] == [len(call) for call in calls]
    assert [len(turn) for turn in model.turns] == [1, TOGETHER - 1, 2, 2 * TOGETHER]


def test_an_error_reaches_its_own_caller_only() -> None:
    model = Model()
    queue = ScoringQueue(model)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(queue.score, [request("first")])
        assert model.busy.wait(timeout=20)
        names = ["a", "broken", "ccc"]
        waiting = [pool.submit(queue.score, [request(name)]) for name in names]
        while len(queue._line) < 3:
            threading.Event().wait(0.001)
        model.go_on.set()
        first.result(timeout=20)
        for name, one in zip(names, waiting, strict=True):
            if name == "broken":
                with pytest.raises(ScorerError, match="this one fails"):
                    one.result(timeout=20)
            else:
                assert value(one.result(timeout=20)) == len(name)


def test_who_waits_for_a_stopped_thread_gets_an_error_and_the_model_goes_on() -> None:
    model = Model()
    queue = ScoringQueue(model)
    waiting = queue._join([request("beside")])
    with pytest.raises(KeyboardInterrupt):
        queue.score([request("stopped")])
    with pytest.raises(ScorerError, match="stopped"):
        waiting.result.result(timeout=20)
    assert value(queue.score([request("later")])) == 5


def test_a_cancelled_caller_is_never_scored_and_nobody_else_notices() -> None:
    model = Model()
    queue = ScoringQueue(model)

    async def run() -> list[float]:
        first = asyncio.create_task(queue.ascore([request("first")]))
        while not model.busy.is_set():
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(queue.ascore([request(name)])) for name in ("gone", "aa", "bbb")]
        await asyncio.sleep(0.01)
        others[0].cancel()
        await asyncio.sleep(0.01)
        model.go_on.set()
        results = await asyncio.wait_for(asyncio.gather(first, *others, return_exceptions=True), timeout=20)
        assert isinstance(results[1], asyncio.CancelledError)
        return [value(one) for one in results if not isinstance(one, BaseException)]

    assert asyncio.run(run()) == [5, 2, 3]
    assert model.turns == [["first"], ["aa", "bbb"]]


def test_many_tasks_take_one_thread() -> None:
    model = Model()
    queue = ScoringQueue(model)
    seen: set[str] = set()

    def watched(requests: Sequence[ScoreRequest]) -> list[Scores]:
        seen.add(threading.current_thread().name)
        return model(requests)

    queue = ScoringQueue(watched)

    async def run() -> list[float]:
        return [value(one) for one in await asyncio.gather(*(queue.ascore([request("x" * i)]) for i in range(64)))]

    assert asyncio.run(run()) == list(range(64))
    assert len(seen) == 1
