"""Connections: how many a client may hold, and how long each may take to ask and to be answered."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

import h11
import uvicorn
from h11 import _readers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from isr_rag_server.http.clients import client_of, is_among
from isr_rag_server.http.problems import Problem
from isr_rag_server.http.settings import Limits

HEALTH = ("/healthz", "/readyz")

_SHARE = 4
"""One client holds at most this part of the connections, one in four."""
_AT_LEAST = 16
RESERVE = 64
"""Connections beyond all limits, which are answered about the server's health and nothing else."""
_READ = 16 * 1024
"""Bytes that are read from a connection at a time, after which it is the turn of the others."""
_PIECES = 1000
_LINES = 256
"""Lines of a request's header: parsing one costs as much as parsing hundreds of bytes."""
_OF_A_PIECE = 64
"""Bytes that the chunks of a body (HTTP's, not evidence) have at least on average, once there are many: parsing one
costs as much as parsing thousands of bytes."""

# h11 goes back over blanks and what follows a semicolon in time that grows with the square of their number: 1.7 s for
# one header of 31 kB. The same with possessive quantifiers takes no time, and lets the same through but for a carriage
# return inside an extension of a chunk.
_readers.header_field_re = re.compile(_readers.header_field_re.pattern.replace(rb"[ \t]*", rb"[ \t]*+"))
_readers.chunk_header_re = re.compile(_readers.chunk_header_re.pattern.replace(rb";.*", rb";[^\r\n]*+"))
_h11: Any = _readers
_fields_of: Callable[[list[bytes]], Iterable[tuple[bytes, bytes]]] = _h11._decode_header_lines


def _fields_of_few(lines: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
    if len(lines) > _LINES:
        raise h11.LocalProtocolError(f"more than {_LINES} lines of header")
    return _fields_of(lines)


_h11._decode_header_lines = _fields_of_few


class Connections:
    """The open connections of a server.

    Who comes when all places are taken, or when its address has its share of them, takes the place of the connection
    that has been without a request for the longest time. If there is none, it is still told about the server's health.

    Args:
        limits: how many, and for how long.
        proxies: addresses that pass on the requests of others, and so have no share.
    """

    def __init__(self, limits: Limits, proxies: Collection[str]) -> None:
        self.limits = limits
        self._proxies = frozenset(proxies)
        self._share = min(limits.connections, max(_AT_LEAST, limits.connections // _SHARE))
        self._open: dict[str, dict[Connection, None]] = {}
        self._reserve: dict[Connection, None] = {}

    def add(self, connection: Connection) -> None:
        """Give a new connection its place."""
        mine = self._open.setdefault(connection.from_client, {})
        full = sum(map(len, self._open.values())) >= self.limits.connections
        greedy = len(mine) >= self._share and not is_among(connection.from_address, self._proxies)
        if full or greedy:
            others: Iterable[Connection] = mine if greedy else (one for held in self._open.values() for one in held)
            idle = min((one for one in others if one.idle), key=lambda one: one.since, default=None)
            if idle is None:
                self._add_to_reserve(connection)
                return
            idle.drop()
            mine = self._open.setdefault(connection.from_client, {})
        mine[connection] = None

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        self._reserve.pop(connection, None)
        mine = self._open.get(connection.from_client, {})
        mine.pop(connection, None)
        if not mine:
            self._open.pop(connection.from_client, None)

    def drop_overdue(self) -> None:
        """Hang up on those who take too long."""
        now = time.monotonic()
        for connection in [*self._reserve, *(one for held in self._open.values() for one in held)]:
            if connection.overdue(now):
                connection.drop()

    def _add_to_reserve(self, connection: Connection) -> None:
        if len(self._reserve) >= RESERVE:  # the oldest of the client that holds most of it gives way
            [(most, _)] = Counter(one.from_client for one in self._reserve).most_common(1)
            next(one for one in self._reserve if one.from_client == most).drop()
        self._reserve[connection] = None
        app: Any = connection.app
        connection.app = _only_health(app)


class _Counting(h11.Connection):
    """h11's parser, which counts the pieces that a body comes in."""

    pieces = size = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.pieces = self.size = 0
        elif isinstance(event, h11.Data):
            self.pieces += 1
            self.size += len(event.data)
        return event


class Connection(H11Protocol):
    """uvicorn's protocol, with a deadline for each request's header and for the taking of each response.

    Attributes:
        connections_of_server: all of them; set by `protocol_of`.
        from_client: who is at the other end.
        from_address: the address there.
        since: when it last had no request, on the clock `time.monotonic`.
    """

    connections_of_server: Connections
    from_client = ""
    from_address: str | None = None
    since = 0.0
    _unsent_since: float | None = None

    def __init__(self, config: uvicorn.Config, *args: Any, **settings: Any) -> None:
        super().__init__(config, *args, **settings)
        self._counting = _Counting(h11.SERVER, config.h11_max_incomplete_event_size or _READ)
        self.conn = self._counting

    def data_received(self, data: bytes) -> None:
        """Take a part of a request, and hang up where a body comes in pieces of some bytes."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # what is no HTTP came after the response had begun: uvicorn cannot refuse it
            self.drop()
        if self._counting.pieces > max(_PIECES, self._counting.size // _OF_A_PIECE):
            self.drop()

    def connection_made(self, transport: Any) -> None:
        """Take a place among the connections."""
        super().connection_made(transport)
        if hasattr(transport, "max_size"):
            transport.max_size = _READ  # asyncio would hold four times as much of what nobody has asked for yet
        self.from_address = self.client[0] if self.client else None
        self.from_client, self.since = client_of(self.from_address), time.monotonic()
        self.connections_of_server.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.connections_of_server.remove(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self.since = time.monotonic()
        super().on_response_complete()

    @property
    def idle(self) -> bool:
        """Whether no request of it is being answered."""
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete

    def overdue(self, now: float) -> bool:
        """Whether the next request, or the taking of a response, lasts longer than it may."""
        if self.transport.get_write_buffer_size():
            self._unsent_since = now if self._unsent_since is None else self._unsent_since
        else:
            self._unsent_since = None
        waits_since = self._unsent_since or (self.since if self.idle else now)
        return now - waits_since > self.connections_of_server.limits.body_seconds

    def drop(self) -> None:
        """Hang up, whatever is still to be sent."""
        self.connections_of_server.remove(self)
        self.transport.abort()


def protocol_of(connections: Connections) -> type[asyncio.Protocol]:
    """The protocol of a server's connections."""
    return type("ServedConnection", (Connection,), {"connections_of_server": connections})


def _only_health(app: ASGIApp) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in HEALTH:
            await app(scope, receive, send)
            return
        problem = Problem(
            "too-many-connections",
            "all connections are in use, by your address or by everybody: close some, or try again",
            headers={"Connection": "close", "Retry-After": "5"},
        )
        await problem.response()(scope, receive, send)

    return answer
