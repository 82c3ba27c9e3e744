"""Concurrency limiter with a bounded queue, fair among clients."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from isr_rag_server.http.problems import Problem
from isr_rag_server.http.settings import Limits

Result = TypeVar("Result")

_FIRST_GUESS = 0.5
"""Seconds that a request takes, before any was measured."""
_SPARE_THREADS = 4


class _Place:
    """Where one request is worked on: taken until its work, and every thread that the work began, has ended.

    `outer` is that of another desk, at which it is worked on meanwhile.
    """

    def __init__(self, outer: _Place | None) -> None:
        self.threads: set[Future[Any]] = set()
        self.outer = outer


_place: ContextVar[_Place | None] = ContextVar("place", default=None)


def readers_of(limits: Limits) -> int:
    """How many documents are read at a time."""
    return max(1, limits.running // 4)


def streams_of(limits: Limits) -> int:
    """How many audits are streamed at a time: most places, and not all."""
    return max(1, limits.running - limits.running // 4)


class Threads(ThreadPoolExecutor):
    """The threads of an event loop (`asyncio.to_thread`), which know for which request they work.

    A thread cannot be stopped: the request that it works for may be refused at its deadline, but keeps its place.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits.running + readers_of(limits) + _SPARE_THREADS, thread_name_prefix="isr-serving")

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Begin work, and let the place of its request know."""
        future = super().submit(fn, *args, **kwargs)
        place = _place.get()
        while place is not None:
            place.threads.add(future)
            future.add_done_callback(place.threads.discard)
            place = place.outer
        return future


class Desk:
    """Lets `limits.running` requests through at a time, has `limits.queue` wait in line, and refuses the rest.

    Each client has a line of its own, and they are served in turns. None has all places, if there are several: one in
    four, or one, is left to others. When all lines together are full, who has the longest gives way to a client with a
    shorter one.

    Args:
        limits: how many, and for how long.

    Attributes:
        stopped: set when no more requests are let through.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._share = max(1, limits.running - max(1, limits.running // 4))
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}  # in the order of their turns
        self._held: Counter[str] = Counter()  # places by client
        self.stopped = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._seconds = _FIRST_GUESS
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> int:
        """Places that are taken: by requests, and by threads that still work for a request that was given up."""
        return self._held.total()

    @property
    def stopping(self) -> bool:
        """Whether no more requests are let through."""
        return self.stopped.is_set()

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return sum(map(len, self._lines.values()))

    async def run(self, client: str, work: Callable[[], Awaitable[Result]], *, seconds: float | None = None) -> Result:
        """Do work when it is its turn.

        Work that is given up, since its time is over or nobody waits for it any more, is cancelled.

        Args:
            client: whose turn it is.
            work: started when its turn comes.
            seconds: time that it may take, waiting included; `limits.seconds` for None.

        Raises:
            Problem: `queue-full`, `stopping` or `too-slow`.
        """
        allowed = self._limits.seconds if seconds is None else seconds
        deadline = asyncio.get_running_loop().time() + allowed
        try:
            async with asyncio.timeout_at(deadline):
                await self._turn(client)
        except TimeoutError:
            raise Problem(
                "too-slow",
                f"its turn did not come within {allowed:g} s, as the server is busy: try again later, with fewer "
                "requests at a time",
            ) from None
        task = self._begin(client, work)
        try:
            await asyncio.wait({task}, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():
            task.cancel()
            raise _too_slow(allowed)
        if task.cancelled():
            raise _stopping()
        return task.result()

    def stop(self) -> None:
        """Let nobody through any more: what runs is finished, and what waits is refused."""
        self.stopped.set()
        lines, self._lines = self._lines, {}
        for turn in (turn for line in lines.values() for turn in line if not turn.done()):
            turn.set_exception(_stopping())

    def give_up(self) -> None:
        """End what still runs; its requests are told that the server stops."""
        for task in list(self._tasks):
            task.cancel()

    async def idle(self) -> None:
        """Wait until no place is taken."""
        await self._idle.wait()

    def _begin(self, client: str, work: Callable[[], Awaitable[Result]]) -> asyncio.Task[Result]:
        place, context = _Place(_place.get()), copy_context()
        context.run(_place.set, place)
        task = asyncio.get_running_loop().create_task(self._timed(work), context=context)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._ended(task, client, place))
        return task

    async def _timed(self, work: Callable[[], Awaitable[Result]]) -> Result:
        begun = time.perf_counter()
        try:
            return await work()
        finally:
            self._seconds += 0.1 * (time.perf_counter() - begun - self._seconds)

    async def _turn(self, client: str) -> None:
        if self.stopping:
            raise _stopping()
        if client not in self._lines and self._may_take(client):  # who else waits then has its share
            self._take(client)
            return
        self._make_room(client)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give(client)  # its turn had come at the very moment when it was cancelled
            elif turn in (line := self._lines.get(client, deque())):
                line.remove(turn)
                if not line:
                    del self._lines[client]
            raise

    def _make_room(self, client: str) -> None:
        if (waiting := self.waiting) < self._limits.queue:
            return
        wait = max(1, math.ceil(waiting / self._limits.running * self._seconds))
        full = Problem(
            "queue-full",
            f"{waiting} requests wait already: try again in about {wait} s",
            headers={"Retry-After": str(wait)},
        )
        longest = max(self._lines, key=lambda name: len(self._lines[name]), default=client)
        if len(self._lines.get(longest, ())) <= len(self._lines.get(client, ())) + 1:
            raise full
        if not (last := self._lines[longest].pop()).done():
            last.set_exception(full)

    def _may_take(self, client: str) -> bool:
        return self.running < self._limits.running and self._held[client] < self._share

    def _take(self, client: str) -> None:
        self._held[client] += 1
        self._idle.clear()

    def _ended(self, task: asyncio.Task[Any], client: str, place: _Place) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # somebody may have stopped waiting for it: then it is nobody's
        loop = task.get_loop()
        left = [asyncio.wrap_future(thread, loop=loop) for thread in list(place.threads)]
        if left:
            asyncio.gather(*left, return_exceptions=True).add_done_callback(lambda _: self._give(client))
        else:
            self._give(client)

    def _give(self, client: str) -> None:
        """Take a place back from a client, and hand it to whoever is next."""
        self._held -= Counter([client])
        while (after := next(filter(self._may_take, self._lines), None)) is not None:
            line = self._lines.pop(after)
            turn = line.popleft()
            if line:
                self._lines[after] = line  # behind all others
            if not turn.done():
                self._take(after)
                turn.set_result(None)
        if not self._held:
            self._idle.set()


def _too_slow(seconds: float) -> Problem:
    return Problem(
        "too-slow",
        f"not done within {seconds:g} s: send less evidence, or let the operator allow more time (--timeout)",
    )


def _stopping() -> Problem:
    return Problem("stopping", "the server is stopping: ask another one, or try again", headers={"Retry-After": "5"})
