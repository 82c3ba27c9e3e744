"""One model, many callers: requests that arrive while it is busy are scored together at the next turn."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from isr_rag.core.scorer import ScoreRequest, Scores
from isr_rag.errors import QueueFullError, ScorerError

TOGETHER = 32  # the most requests of one turn, which bounds how long the next caller waits
WAITING = 1024  # callers that may wait by default: a minute's work and more for the adjudicator on a CPU


@dataclass(frozen=True, slots=True, eq=False)
class _Caller:
    requests: tuple[ScoreRequest, ...]
    result: Future[list[Scores]] = field(default_factory=Future[list[Scores]])


class ScoringQueue:
    """Lets concurrent callers share one model.

    A caller who finds the model idle starts at once. One who finds it busy waits for that turn to end, and is then
    scored together with all others that wait, first come first served. Threads compute for everybody whose turn it is;
    tasks of event loops share one worker thread. A request whose caller was cancelled is dropped. Requests that fail
    together are scored again one by one, so an error reaches its own caller only. In a fork the queue begins anew.

    `score` is never called by two threads at a time. Of `waiting` callers in line, later ones are refused at once.
    `forked` is called in a fork before anything else, to renew what the parent's threads may have held.
    """

    def __init__(
        self,
        score: Callable[[Sequence[ScoreRequest]], list[Scores]],
        *,
        waiting: int = WAITING,
        forked: Callable[[], None] = lambda: None,
    ) -> None:
        self._score, self._forked, self._most = score, forked, waiting
        self._begin()
        _queues.add(self)

    def _begin(self) -> None:
        self._line: deque[_Caller] = deque()
        self.turn = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="isr-scoring")

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Score requests, with those of other callers that wait; QueueFullError if the line is full."""
        mine = self._join(requests)
        self._serve_until_done(mine)
        return mine.result.result()

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, without blocking the event loop."""
        mine = self._join(requests)
        self._worker.submit(self._serve_until_done, mine)
        return await asyncio.wrap_future(mine.result)

    def begin_after_fork(self) -> None:
        """Drop what the parent's threads held: their locks would never be released here, nor their work be done."""
        self._begin()
        self._forked()

    def _join(self, requests: Sequence[ScoreRequest]) -> _Caller:
        if len(self._line) >= self._most:
            raise QueueFullError(
                f"{self._most} callers wait for the model already: try again later, or ask with fewer callers at once "
                "(decide_batch takes any number of items as one)"
            )
        mine = _Caller(tuple(requests))
        self._line.append(mine)
        return mine

    def _serve_until_done(self, mine: _Caller) -> None:
        with self.turn:
            while not mine.result.done():
                self._serve(self._next())

    def _next(self) -> list[_Caller]:
        """The callers of one turn, in their order."""
        together: list[_Caller] = []
        size = 0
        while self._line and (not together or size + len(self._line[0].requests) <= TOGETHER):
            caller = self._line.popleft()
            if caller.result.set_running_or_notify_cancel():
                together.append(caller)
                size += len(caller.requests)
        return together

    def _serve(self, together: list[_Caller]) -> None:
        if not together:
            return
        try:
            results = iter(self._score([request for caller in together for request in caller.requests]))
        except Exception as error:
            if len(together) == 1:
                together[0].result.set_exception(error)
            else:
                for caller in together:
                    self._serve([caller])
            return
        except BaseException:  # this thread is being stopped: nobody must wait for it for ever
            for caller in together:
                caller.result.set_exception(ScorerError("the thread that computed the scores was stopped; try again"))
            raise
        for caller in together:
            caller.result.set_result([next(results) for _ in caller.requests])


_queues: weakref.WeakSet[ScoringQueue] = weakref.WeakSet()


def _begin_after_fork() -> None:
    for queue in list(_queues):
        queue.begin_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_after_fork)
