"""Start the server on an allowed address, and stop it without losing requests in progress."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from isr_rag._util.text import printable
from isr_rag.gate import ISRGate
from isr_rag_server.http.app import application
from isr_rag_server.http.service import Service
from isr_rag_server.http.settings import Settings

_LINGER = 0.5
"""Seconds in which a server that stops still says so to whoever asks, before it closes its door."""


def serve(gate: ISRGate, settings: Settings, *, started: Callable[[str], None] = lambda address: None) -> None:
    """Serve until the process is told to stop (SIGTERM, SIGINT).

    What runs then is finished, and what waits or comes gets 503.

    Args:
        gate: decides.
        settings: where, for whom, and within which limits.
        started: told the address once requests are taken.

    Raises:
        OSError: if the address cannot be bound or the log not be opened.
    """
    _log_to_stderr()
    service = Service(gate, settings)
    limits = settings.limits
    config = uvicorn.Config(
        application(service),
        loop="asyncio",  # uvloop, where it is installed, drops connections while it stops listening
        http=_timed(limits.body_seconds),
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
    )
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named, since asyncio sends without delay (TCP_NODELAY) only where it knows that it is TCP.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host.strip("[]"), settings.port))
        host = f"[{settings.host.strip('[]')}]" if family == socket.AF_INET6 else settings.host
        address = f"http://{host}:{listener.getsockname()[1]}"
        _Uvicorn(config, service, lambda: started(address)).run(sockets=[listener])


class _Plain(logging.Formatter):
    """Nothing in a message controls the terminal that shows it."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), None)


def _log_to_stderr() -> None:
    """Let what went wrong be seen, where the program has not said how to log."""
    logger = logging.getLogger("isr_rag_server.http")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_Plain("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


class _Uvicorn(uvicorn.Server):
    """uvicorn, which says that it stops before it closes its connections."""

    def __init__(self, config: uvicorn.Config, service: Service, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._when_started = service, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.desk.stop()
        await asyncio.gather(self._service.desk.idle(), asyncio.sleep(_LINGER))
        for listening in self.servers:
            listening.close()
        await asyncio.sleep(0.1)  # requests of connections that were just opened are still read and refused
        await super().shutdown(sockets)


def _timed(seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol, which hangs up on a connection whose first request does not come within some seconds."""

    class TimedProtocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(seconds, self._hang_up_if_silent)

        def _hang_up_if_silent(self) -> None:
            cycle: object = self.cycle
            if cycle is None:
                self.transport.close()

    return TimedProtocol
