"""Several servers of one model behind one scorer: balanced, watched, and never guessing when all are gone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from isr_rag.errors import ConfigurationError, ISRError, ScorerError
from isr_rag.scorers.protocol import Layout, PartialScoresError, Scorer, ScoreRequest, Scores, noise_floor_of

REST = 5.0
"""Seconds before a server that was taken out is tried again."""

AT_ONCE = 8
"""Items given to one server at a time, for each server of the pool."""


class AllServersDownError(ScorerError):
    """No server of the pool answers."""


class Server(Scorer, Protocol):
    """A scorer behind a server, such as `isr_rag.scorers.remote.RemoteScorer`."""

    @property
    def service(self) -> str:
        """All that determines a score, without the server's address: equal for replicas."""
        ...

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Score every request, or raise ScorerError; called from several threads."""
        ...

    def healthy(self) -> bool:
        """Whether the server answers; never raises."""
        ...


@dataclass(slots=True)
class _Slot:
    """One server: connected or not, in the pool or resting."""

    url: str
    connect: Callable[[], Server]
    server: Server | None = None
    busy: int = 0
    rests_until: float = 0.0
    """Time before which it is not tried; infinite while it is being tried. Meaningless while it is in."""
    is_in: bool = False
    why: str = "not tried yet"


class ServerPool:
    """A scorer over several servers of the same model.

    Each item goes to the server that has the fewest items in hand. Where that fails, a health check decides: a dead
    server is taken out and tried again after `REST` seconds, and the item goes to another server; where a server is
    alive and yet fails an item, every other one is asked once before the item's error counts. A server that is down at
    the start is treated like one that died later.

    Args:
        servers: for each URL what connects to it and raises ScorerError when nothing answers there.
        first: where the search for the least busy server begins, to spread many pools over the servers.

    Raises:
        ConfigurationError: for no server, or servers of different models or settings.
        AllServersDownError: if none can be connected to.
    """

    def __init__(self, servers: Mapping[str, Callable[[], Server]], *, first: int = 0) -> None:
        if not servers:
            raise ConfigurationError("a pool needs at least one server")
        slots = [_Slot(url, connect) for url, connect in servers.items()]
        turn = first % len(slots)
        self._slots = slots[turn:] + slots[:turn]
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(AT_ONCE * len(slots), thread_name_prefix="isr-rag-pool")
        self._identity: str | None = None
        self._layout: Layout = "full"
        list(self._threads.map(self._try, self._slots))
        if self._identity is None:
            raise self._all_down()

    @property
    def identity(self) -> str:
        """The servers' common service, without addresses: it stays when servers come and go."""
        assert self._identity is not None
        return self._identity

    @property
    def layout(self) -> Layout:
        """How the model sees the evidence."""
        return self._layout

    @property
    def noise_floor(self) -> float | None:
        """The largest numerical noise that a connected server knows of itself, in log-odds."""
        floors = [noise_floor_of(slot.server) for slot in self._slots if slot.server is not None]
        known = [floor for floor in floors if floor is not None]
        return max(known) if known else None

    @property
    def state(self) -> dict[str, str]:
        """For each URL `in`, or why it is out."""
        with self._lock:
            return {slot.url: "in" if slot.is_in else slot.why for slot in self._slots}

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Score every request on one server or another.

        Raises:
            AllServersDownError: if no server answers any more.
            ScorerError: if every server that answers fails at an item.
            ISRError: as the servers' own scorers raise it, for what another server cannot do better.
            PartialScoresError: if some of several requests failed; it holds the scores of the others.
        """
        if self._process != os.getpid():
            raise ScorerError("this pool was made in another process: make it after the fork, in each worker")
        outcomes = list(self._threads.map(self._outcome, requests))
        failed = [outcome for outcome in outcomes if isinstance(outcome, ISRError)]
        if not failed:
            return [outcome for outcome in outcomes if isinstance(outcome, Scores)]
        if len(outcomes) == 1:
            raise failed[0]
        raise PartialScoresError(f"{len(failed)} of {len(outcomes)} requests failed: {failed[0]}", outcomes)

    def close(self) -> None:
        """End the threads; the servers' scorers are left to their owner."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _outcome(self, request: ScoreRequest) -> Scores | ISRError:
        try:
            return self._score(request)
        except ISRError as error:
            return error

    def _score(self, request: ScoreRequest) -> Scores:
        asked: set[str] = set()
        failure: ScorerError | None = None
        while (slot := self._take(asked)) is not None:
            assert slot.server is not None
            try:
                return slot.server.score([request])[0]
            except ScorerError as error:
                asked.add(slot.url)
                if slot.server.healthy():
                    failure = error
                else:
                    self._out(slot, str(error))
            finally:
                with self._lock:
                    slot.busy -= 1
        raise failure or self._all_down()

    def _take(self, asked: set[str]) -> _Slot | None:
        """The least busy server that is in and was not asked yet; counted as busy. None if there is none."""
        for due in self._due():
            self._try(due)
        with self._lock:
            free = [slot for slot in self._slots if slot.is_in and slot.url not in asked]
            least = min(free, key=lambda slot: slot.busy, default=None)
            if least is not None:
                least.busy += 1
            return least

    def _due(self) -> list[_Slot]:
        """Servers to try again now; no other thread tries them meanwhile."""
        with self._lock:
            due = [slot for slot in self._slots if not slot.is_in and slot.rests_until <= time.monotonic()]
            for slot in due:
                slot.rests_until = float("inf")
            return due

    def _try(self, slot: _Slot) -> None:
        """Connect to a server, or ask one that was connected whether it lives; it is in, or rests."""
        try:
            if slot.server is None:
                slot.server = slot.connect()
                self._check(slot)
                alive, why = True, ""
            else:
                alive, why = slot.server.healthy(), slot.why
        except ScorerError as error:
            alive, why = False, str(error)
        if alive:
            with self._lock:
                slot.is_in = True
        else:
            self._out(slot, why)

    def _check(self, slot: _Slot) -> None:
        """Compare a new server with the others."""
        assert slot.server is not None
        service, layout = slot.server.service, slot.server.layout
        with self._lock:
            if self._identity is None:
                self._identity, self._layout = service, layout
        if (service, layout) != (self._identity, self._layout):
            raise ConfigurationError(
                f"the servers of a pool must serve the same model in the same way: {slot.url} has {service!r}, "
                f"others {self._identity!r}"
            )

    def _out(self, slot: _Slot, why: str) -> None:
        with self._lock:
            slot.is_in, slot.why, slot.rests_until = False, why, time.monotonic() + REST

    def _all_down(self) -> AllServersDownError:
        reasons = "; ".join(f"{url}: {why}" for url, why in self.state.items())
        return AllServersDownError(f"no server of the pool answers, so nothing can be scored: {reasons}")
