"""ASGI middleware that checks host, key, body size and deadline before a request is routed."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from isr_rag_server.http.desk import Desk
from isr_rag_server.http.problems import Problem
from isr_rag_server.http.settings import Settings, is_loopback

MCP_PATH = "/mcp"

OPEN = ("/", "/healthz", "/readyz", "/openapi.json")
"""Paths that ask for no key, beside the files of the page."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DRAINED = 4
"""How many times the largest body is read and dropped, so that its sender gets to read the refusal."""

Answered = Callable[[str, int, float], None]
"""Told of each response: the route's path, the status, the seconds."""


class _Gone(Exception):
    """The client has hung up."""


class Door:
    """ASGI middleware: what is refused here costs the application nothing.

    A request whose client hangs up is cancelled. The body is read whole before the application sees it, within its
    limits of bytes and time, and never without the key.

    Args:
        app: the application.
        settings: hosts, key and limits.
        answered: see `Answered`.
        desk: says when the server is stopping: connections are closed then, as their responses say.
    """

    def __init__(self, app: ASGIApp, settings: Settings, answered: Answered, desk: Desk) -> None:
        self._app, self._settings, self._answered, self._desk = app, settings, answered, desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        headers = Headers(scope=scope)
        identifier = headers.get("x-request-id", "")
        if not _ID.fullmatch(identifier):
            identifier = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = identifier
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                sent = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    sent.setdefault(name, value)
                sent["X-Request-ID"] = identifier
                if self._desk.stopping:
                    sent["Connection"] = "close"
            await send(message)

        try:
            try:
                self._check(scope, headers)
                body = await self._body(headers, receive)
            except Problem as problem:
                await problem.response()(scope, receive, answer)
                return
            await self._serve(scope, body, receive, answer)
        except _Gone:
            status = status or 499  # as nginx counts it
        finally:
            route = getattr(scope.get("route"), "path", None)
            self._answered(route or "other", status, time.perf_counter() - begun)

    async def _serve(self, scope: Scope, body: bytes, receive: Receive, answer: Send) -> None:
        """Run the application, until it is done or the client is gone."""
        gone = asyncio.Event()
        given = whole = False

        async def replay() -> Message:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal whole
            await answer(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        work = asyncio.ensure_future(self._app(scope, replay, send))
        ends: set[asyncio.Future[Any]] = {work, asyncio.ensure_future(watch())}
        if scope["method"] == "GET" and scope["path"] == MCP_PATH:  # a stream of notifications, which would never end
            ends.add(asyncio.ensure_future(self._desk.stopped.wait()))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not whole:  # a server also says that a client is gone when all was sent to it
                work.cancel()
                await asyncio.wait({work})
                raise _Gone
            try:
                await work
            except Exception:
                if not whole:  # else it is logged and answered already
                    raise
        finally:
            for task in ends:  # of which the work is one where the server itself is being stopped
                task.cancel()

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Refuse what is not for this server, and who has no key.

        Raises:
            Problem: `wrong-host`, `key-missing` or `key-wrong`.
        """
        settings, path = self._settings, scope["path"]
        if settings.key is None and not is_loopback(_without_port(headers.get("host", ""))):
            # A page elsewhere can let its own name point to this machine: only the name tells them apart then.
            raise Problem("wrong-host", "without a key this server answers under localhost and 127.0.0.1 only")
        preflight = scope["method"] == "OPTIONS" and bool(settings.origins)
        if settings.key is None or path in OPEN or path.startswith("/page/") or preflight:
            return
        given = headers.get("authorization")
        if given is None:
            raise Problem(
                "key-missing",
                "this server asks for a key: send the header Authorization: Bearer KEY",
                headers={"WWW-Authenticate": 'Bearer realm="isr-rag"'},
            )
        scheme, _, key = given.partition(" ")
        right = hmac.compare_digest(key.strip().encode("utf-8", "replace"), settings.key.encode())
        if scheme.lower() != "bearer" or not right:
            raise Problem("key-wrong", "the key is not the one of this server")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """The body of a request, read whole.

        Raises:
            Problem: `body-too-large`, `request-too-slow` or `malformed`.
        """
        limits = self._settings.limits
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    if size <= limits.body:
                        parts.append(part)
                    elif size > _DRAINED * limits.body:
                        break
        except TimeoutError:
            if size <= limits.body:
                raise Problem(
                    "request-too-slow",
                    f"the request did not arrive within {limits.body_seconds:g} s",
                    headers={"Connection": "close"},
                ) from None
        if size > limits.body:
            raise Problem(
                "body-too-large",
                f"the body has more than {limits.body:,} bytes: send fewer or shorter chunks, or name them by their "
                "hash (/v1/index)",
                headers={"Connection": "close"},
            )
        return b"".join(parts)


def _without_port(host: str) -> str:
    return host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
