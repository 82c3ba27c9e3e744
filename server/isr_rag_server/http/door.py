"""ASGI middleware that checks host, origin, key, body size and deadline before a request is routed."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Callable
from typing import Any, cast

from cachetools import TTLCache
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from isr_rag_server.http.bodies import FREE, Bodies, parsed
from isr_rag_server.http.clients import Allowance, client_of
from isr_rag_server.http.desk import Desk
from isr_rag_server.http.problems import Problem, refusal
from isr_rag_server.http.settings import Settings, is_loopback

MCP_PATH = "/mcp"

OPEN = ("/", "/healthz", "/readyz", "/openapi.json")
"""Paths that ask for no key, beside the files of the page."""

_JSON = ("/v1/decide", "/v1/decisions", "/v1/audit", "/v1/index", MCP_PATH)
_WITH_BODY = (*_JSON, "/v1/documents")
"""Paths whose bodies are read, of POST requests; all others are dropped as they arrive."""

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
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PIECE = 64 * 1024
"""Bytes of a response that are handed on at a time, so that it is held until its client has taken it."""
_LATE = 1.0
"""Seconds after its deadline that a request is ended by force, if nothing else has ended it."""
_MINUTE = 60.0
_HOUR = 3600.0
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
        bodies: what all requests hold together.
    """

    def __init__(self, app: ASGIApp, settings: Settings, answered: Answered, desk: Desk, bodies: Bodies) -> None:
        self._app, self._settings, self._answered = app, settings, answered
        self._desk, self._bodies = desk, bodies
        self._wrong_keys = Allowance(settings.limits.wrong_keys, _MINUTE)
        self._right_keys = cast("TTLCache[str, bool]", TTLCache(10_000, _HOUR))

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
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # the server leaves the body of HEAD out
        scope = {**scope, "method": method, "path": scope["path"].rstrip("/") or "/"}
        client = client_of((scope.get("client") or (None,))[0])
        scope.setdefault("state", {}).update(request_id=identifier, client=client)
        status = held = 0
        refused = False

        async def answer(message: Message) -> None:
            nonlocal status, held, refused
            if refused:
                return
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                size = int(sent.get("content-length", 0))
                if size > FREE:
                    if not self._bodies.take_response(client, size, held):
                        await _no_room().response()(scope, receive, answer)
                        refused = True
                        return
                    held += size
                status = message["status"]
                for name, value in _HEADERS.items():
                    sent.setdefault(name, value)
                sent["X-Request-ID"] = identifier
                if self._desk.stopping:
                    sent["Connection"] = "close"
                await send(message)
                return
            body, more = message.get("body", b""), message.get("more_body", False)
            event = len(body) if more and len(body) > FREE else 0
            self._bodies.note(client, event)
            try:
                for at in range(0, max(1, len(body)), _PIECE):
                    part = body[at : at + _PIECE]
                    await send({"type": message["type"], "body": part, "more_body": more or at + _PIECE < len(body)})
            finally:
                self._bodies.note(client, -event)

        try:
            try:
                self._check(scope, headers, client)
                body = b""
                if scope["method"] == "POST" and scope["path"] in _WITH_BODY:
                    body = await self._body(receive, client)
                    held += max(0, len(body) - FREE)
                    if scope["path"] in _JSON:
                        await self._bodies.in_turn(len(body), lambda: self._bodies.check_json(body))
                    if scope["path"] == MCP_PATH:  # which the SDK reads leniently; the other paths read it themselves
                        await self._bodies.in_turn(len(body), lambda: parsed(body))
                await self._serve(scope, headers, body, receive, answer)
            except Problem as problem:
                if status:
                    raise _Gone from problem
                await problem.response()(scope, receive, answer)
        except _Gone:
            status = status or 499  # as nginx counts it
        finally:
            self._bodies.note(client, -held)
            route = getattr(scope.get("route"), "path", None)
            self._answered(route or "other", status, time.perf_counter() - begun)

    async def _serve(self, scope: Scope, headers: Headers, body: bytes, receive: Receive, answer: Send) -> None:
        """Run the application, until it is done, the client is gone or the time is over."""
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

        limits = self._settings.limits
        streamed = "text/event-stream" in headers.get("accept", "") and scope["path"] != MCP_PATH
        allowed = limits.audit_seconds if streamed else limits.seconds
        work = asyncio.ensure_future(self._app(scope, replay, send))
        ends: set[asyncio.Future[Any]] = {work, asyncio.ensure_future(watch())}
        try:
            await asyncio.wait(ends, timeout=allowed + limits.body_seconds + _LATE, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not whole:  # a server also says that a client is gone when all was sent to it
                work.cancel()
                await asyncio.wait({work}, timeout=_LATE)
                if gone.is_set():
                    raise _Gone
                raise Problem("too-slow", f"not done within {allowed:g} s")
            try:
                await work
            except Exception as error:
                if not whole:  # else it is logged and answered already
                    raise refusal(error, scope["state"]["request_id"]) from None
        finally:
            for task in ends:  # of which the work is one where the server itself is being stopped
                task.cancel()

    def _check(self, scope: Scope, headers: Headers, client: str) -> None:
        """Refuse what is not for this server, what pages of others send, and who has no key.

        Raises:
            Problem: `wrong-host`, `foreign-origin`, `key-missing`, `key-wrong` or `too-many-wrong-keys`.
        """
        settings, path = self._settings, scope["path"]
        if settings.key is None and not is_loopback(_without_port(headers.get("host", ""))):
            # A page elsewhere can let its own name point to this machine: only the name tells them apart then.
            raise Problem("wrong-host", "without a key this server answers under localhost and 127.0.0.1 only")
        self._check_origin(scope, headers)
        if settings.key is None or path in OPEN or path.startswith("/page/"):
            return
        given = headers.get("authorization")
        if given is None:
            raise Problem(
                "key-missing",
                "this server asks for a key: send the header Authorization: Bearer KEY",
                headers={"WWW-Authenticate": 'Bearer realm="isr-rag"'},
            )
        scheme, _, key = given.partition(" ")
        if not self._wrong_keys.left(client) and client not in self._right_keys:  # it may guess no more
            raise _too_many_wrong_keys()
        right = hmac.compare_digest(key.strip().encode("utf-8", "replace"), settings.key.encode())
        if scheme.lower() == "bearer" and right:
            self._right_keys[client] = True
            return
        if not self._wrong_keys.left(client):
            raise _too_many_wrong_keys()
        self._wrong_keys.spend(client)
        raise Problem("key-wrong", "Authorization is not Bearer and the key of this server")

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """Refuse what a browser sends for a page of another origin, of whatever method, without the page's consent.

        Raises:
            Problem: `foreign-origin`.
        """
        origin, allowed = headers.get("origin"), self._settings.origins
        if origin is not None and (origin in allowed or "*" in allowed):
            return
        if scope["method"] == "GET" and scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate":
            return  # a link to the page
        own = origin is None or origin.lower().partition("://")[2] == headers.get("host", "").lower()
        # To a browser two ports of one machine are the same site, so that this is no place for "same-site".
        if not own or headers.get("sec-fetch-site", "none").lower() not in ("same-origin", "none"):
            raise Problem(
                "foreign-origin",
                "pages of other origins may not ask here, unless the operator names their origin (--cors)",
            )

    async def _body(self, receive: Receive, client: str) -> bytes:
        """The body of a request, read whole; what of it is more than `FREE` is held among `Bodies`.

        Raises:
            Problem: `body-too-large`, `too-many-bytes`, `request-too-slow` or `malformed`.
        """
        limits = self._settings.limits
        body = bytearray()
        size = held = 0
        room = True
        try:
            async with asyncio.timeout(limits.body_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    beyond = max(0, size - FREE) - held
                    if room and size <= limits.body and (room := self._bodies.take(client, beyond)):
                        held += beyond
                        body += part
                    elif size > _DRAINED * limits.body:
                        break
            if size > limits.body:
                raise _too_large(limits.body)
            if not room:
                raise _no_room()
            whole = bytes(body)
            held = 0  # the caller's from here on
        except TimeoutError:
            if size > limits.body:
                raise _too_large(limits.body) from None
            raise Problem(
                "request-too-slow",
                f"the request did not arrive within {limits.body_seconds:g} s",
                headers={"Connection": "close"},
            ) from None
        finally:
            self._bodies.note(client, -held)
        return whole


def _too_large(most: int) -> Problem:
    return Problem(
        "body-too-large",
        f"the body has more than {most:,} bytes: send fewer or shorter chunks, or name them by their hash (/v1/index)",
        headers={"Connection": "close"},
    )


def _no_room() -> Problem:
    return Problem(
        "too-many-bytes",
        "the server holds as many bytes of other requests and responses as it may: take those, or try again in seconds",
        headers={"Connection": "close", "Retry-After": "2"},
    )


def _too_many_wrong_keys() -> Problem:
    return Problem(
        "too-many-wrong-keys",
        "too many wrong keys came from this address: try again in a minute",
        headers={"Retry-After": str(int(_MINUTE))},
    )


def _without_port(host: str) -> str:
    """The name in a `Host` header; empty where it is not a name with or without a port."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found["name"].strip("[]")
