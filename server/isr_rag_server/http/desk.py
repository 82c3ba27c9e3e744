"""Concurrency limiter with a bounded queue."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from isr_rag_server.http.problems import Problem
from isr_rag_server.http.settings import Limits

Result = TypeVar("Result")

_FIRST_GUESS = 0.5
"""Seconds that a request takes, before any was measured."""


class Desk:
    """Lets `limits.running` requests through at a time, has `limits.queue` wait in line, and refuses the rest.

    Args:
        limits: how many, and for how long.

    Attributes:
        running: requests being worked on.
        stopped: set when no more requests are let through.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._line: deque[asyncio.Future[None]] = deque()
        self.running = 0
        self.stopped = asyncio.Event()
        self._seconds = _FIRST_GUESS
        self._works: set[asyncio.Future[Any]] = set()

    @property
    def stopping(self) -> bool:
        """Whether no more requests are let through."""
        return self.stopped.is_set()

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return len(self._line)

    async def run(
        self, work: Callable[[], Awaitable[Result]], *, abandon: bool = False, seconds: float | None = None
    ) -> Result:
        """Do work when it is its turn.

        Args:
            work: started when its turn comes.
            seconds: time that it may take, waiting included; `limits.seconds` for None.
            abandon: the work cannot be cancelled (a thread): when nobody waits for it any more it goes on, and
                keeps its place until it ends.

        Raises:
            Problem: `queue-full`, `stopping` or `too-slow`.
        """
        allowed = self._limits.seconds if seconds is None else seconds
        try:
            async with asyncio.timeout(allowed):
                await self._turn()
                task = asyncio.ensure_future(self._timed(work))
                self._works.add(task)
                task.add_done_callback(self._done)
                return await (asyncio.shield(task) if abandon else task)
        except TimeoutError:
            raise Problem(
                "too-slow",
                f"not done within {allowed:g} s: send less evidence, or let the operator allow more time (--timeout)",
            ) from None

    def stop(self) -> None:
        """Let nobody through any more: what runs is finished, and what waits is refused."""
        self.stopped.set()
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_exception(_stopping())

    async def idle(self) -> None:
        """Wait until nothing runs."""
        while self._works:
            await asyncio.wait(set(self._works))

    async def _timed(self, work: Callable[[], Awaitable[Result]]) -> Result:
        begun = time.perf_counter()
        try:
            return await work()
        finally:
            self._seconds += 0.1 * (time.perf_counter() - begun - self._seconds)

    async def _turn(self) -> None:
        if self.stopping:
            raise _stopping()
        if self.running < self._limits.running and not self._line:
            self.running += 1
            return
        if len(self._line) >= self._limits.queue:
            wait = max(1, math.ceil(len(self._line) / self._limits.running * self._seconds))
            raise Problem(
                "queue-full",
                f"{len(self._line)} requests wait already: try again in about {wait} s",
                headers={"Retry-After": str(wait)},
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give()  # its turn had come at the very moment when it was cancelled
            elif turn in self._line:
                self._line.remove(turn)
            raise

    def _done(self, task: asyncio.Future[Any]) -> None:
        self._works.discard(task)
        if not task.cancelled():
            task.exception()  # somebody may have stopped waiting for it: then it is nobody's
        self._give()

    def _give(self) -> None:
        """Hand the place to whoever is next."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1


def _stopping() -> Problem:
    return Problem("stopping", "the server is stopping: ask another one, or try again", headers={"Retry-After": "5"})
