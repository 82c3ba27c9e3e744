"""Start the server on an allowed address, and stop it without losing requests in progress."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import socket
from collections.abc import Callable, Generator
from logging.handlers import QueueHandler, QueueListener
from typing import Any

import uvicorn

from isr_rag._util.text import printable
from isr_rag.gate import ISRGate
from isr_rag_server.http.app import application
from isr_rag_server.http.clients import names_of
from isr_rag_server.http.connections import RESERVE, Connections, protocol_of
from isr_rag_server.http.problems import without_texts
from isr_rag_server.http.service import Service
from isr_rag_server.http.settings import Limits, Settings

_LINGER = 0.5
"""Seconds in which a server that stops still says so to whoever asks, before it closes its door, and as long after it
to those who are inside."""
_CLOSING = 1
"""Seconds in which the last responses are taken, once everything has ended."""
_HEADER = 16 * 1024
"""Bytes of a request's header."""
_LINES = 1000
"""Lines of the log that wait while nobody takes them; later ones are dropped."""
_KNOWN = ("isr_rag", "isr_rag_server", "uvicorn")
"""Packages whose messages hold no texts of requests."""
_FILES = 256
"""Files that a process needs beside its connections."""

_logger = logging.getLogger("isr_rag_server.http")


def serve(gate: ISRGate, settings: Settings, *, started: Callable[[str], None] = lambda address: None) -> None:
    """Serve until the process is told to stop (SIGTERM, SIGINT).

    What runs then is finished within `limits.seconds`, and what waits or comes gets 503. A thread that works on even
    then cannot be stopped: the process ends without it, by `os._exit(1)`.

    Args:
        gate: decides.
        settings: where, for whom, and within which limits.
        started: told the address once requests are taken.

    Raises:
        OSError: if the address cannot be bound or the log not be opened.
    """
    with _logging_to_stderr():
        _serve(gate, settings, started)


def _serve(gate: ISRGate, settings: Settings, started: Callable[[str], None]) -> None:
    service = Service(gate, settings)
    _allow_files(settings.limits)
    connections = Connections(settings.limits, settings.proxies)
    config = uvicorn.Config(
        application(service),
        loop="asyncio",  # uvloop, where it is installed, drops connections while it stops listening
        http=protocol_of(connections),
        ws="none",
        access_log=False,
        log_config=None,
        log_level="error",  # a warning per request that is not HTTP would let strangers fill a disk
        server_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=[name for proxy in settings.proxies for name in names_of(proxy)],
        h11_max_incomplete_event_size=_HEADER,
        timeout_graceful_shutdown=_CLOSING,
    )
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named, since asyncio sends without delay (TCP_NODELAY) only where it knows that it is TCP.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        host = f"[{settings.host.strip('[]')}]" if family == socket.AF_INET6 else settings.host
        try:
            listener.bind((settings.host.strip("[]"), settings.port))
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{host}:{settings.port}") from error
        address = f"http://{host}:{listener.getsockname()[1]}"
        _Uvicorn(config, service, connections, lambda: started(address)).run(sockets=[listener])


class _Plain(logging.Formatter):
    """Nothing in a line controls the terminal that shows it, and no line holds texts of requests.

    Of exceptions, kinds and places are told. Of what other packages say, the place where they said it.
    """

    def format(self, record: logging.LogRecord) -> str:
        record = logging.makeLogRecord({**record.__dict__, "exc_text": None})  # which another handler may have written
        if record.name.partition(".")[0] not in _KNOWN:
            record = logging.makeLogRecord(
                {**record.__dict__, "msg": f"{record.name} complains at {record.module}:{record.lineno}", "args": ()}
            )
        return printable(super().format(record), None)

    def formatException(self, ei: Any) -> str:
        return "" if ei[1] is None else without_texts(ei[1])


class _Dropping(QueueHandler):
    """Drops a line where there is no room, rather than complaining about it in another one."""

    def enqueue(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(queue.Full):
            self.queue.put_nowait(record)


class _Listener(QueueListener):
    """Writes lines in a thread of its own, and is not waited for when nobody takes them."""

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        with contextlib.suppress(queue.Full):
            self.enqueue_sentinel()
            if thread is not None:
                thread.join(_CLOSING)


@contextlib.contextmanager
def _logging_to_stderr() -> Generator[None]:
    """Let what went wrong be seen, where the program has not said how to log; a slow reader stops nothing."""
    root = logging.getLogger()
    if root.handlers or _logger.handlers:
        yield
        return
    lines: queue.Queue[logging.LogRecord] = queue.Queue(_LINES)
    handler = _Dropping(lines)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Plain("%(asctime)s %(levelname)s %(message)s"))
    listener = _Listener(lines, logging.StreamHandler())
    root.addHandler(handler)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        listener.stop()


def _allow_files(limits: Limits) -> None:
    """Let the process open as many files as its connections need, as far as the system allows."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + RESERVE + _FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        _logger.warning("%d files may be open, which is too few for %d connections", allowed, limits.connections)


class _Uvicorn(uvicorn.Server):
    """uvicorn, which hangs up on who is too slow, and says that it stops before it closes its connections."""

    def __init__(
        self, config: uvicorn.Config, service: Service, connections: Connections, started: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service, self._guarded, self._when_started = service, connections, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        asyncio.get_running_loop().set_exception_handler(_say)
        self._when_started()

    async def on_tick(self, counter: int) -> bool:
        if counter % 5 == 0:  # twice a second
            self._guarded.drop_overdue()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        desks = self._service.desks
        for desk in desks:
            desk.stop()
        ending = asyncio.gather(*(desk.idle() for desk in desks), asyncio.sleep(_LINGER))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending, max(_LINGER, self._service.settings.limits.seconds))
        for desk in desks:
            desk.give_up()
        await self._close_door(sockets or [])
        await super().shutdown(sockets)
        if hanging := sum(desk.running for desk in desks):
            _logger.error("%d threads work on: the process ends without them", hanging)
            for handler in logging.getLogger().handlers:
                handler.flush()
            os._exit(1)

    async def _close_door(self, sockets: list[socket.socket]) -> None:
        """Take no more connections, and still refuse what those ask that were made before, rather than cut them off."""
        most = self.config.backlog  # as many as may wait: whoever goes on opening connections does not hold it up
        waiting = [connection for listening in sockets for connection in _waiting_at(listening, most)]
        for listening in self.servers:
            listening.close()
        loop = asyncio.get_running_loop()
        for connection in waiting:
            with contextlib.suppress(OSError):  # gone meanwhile
                await loop.connect_accepted_socket(self._protocol, connection)
        until = loop.time() + _LINGER
        while self.server_state.connections and loop.time() < until:
            await asyncio.sleep(0.02)

    def _protocol(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        made: asyncio.Protocol = protocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


def _waiting_at(listening: socket.socket, most: int) -> Generator[socket.socket]:
    """Connections that the system has made and the event loop not taken yet: closing the door would cut them off."""
    with contextlib.suppress(OSError):  # none waits, or no file may be opened
        for _ in range(most):
            connection, _ = listening.accept()
            connection.setblocking(False)
            yield connection


def _say(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what went wrong inside the event loop, without texts."""
    error, said = context.get("exception"), str(context.get("message"))
    said = said.partition(" in callback ")[0]  # whose arguments follow
    _logger.error("%s%s", said, "" if error is None else f": {without_texts(error)}")
