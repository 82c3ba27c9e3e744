"""One connection to an inference server, shared by every thread and event loop, through the official client.

The client lives in an event loop of its own, in a thread of its own. One pool of connections and one limit of requests
in flight therefore serve synchronous callers and any number of event loops.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

from isr_rag.errors import ConfigurationError, MissingDependencyError
from isr_rag.printable import printable
from isr_rag.scorers.remote.errors import ServerDeadlineError, ServerError, ServerReplyError

try:
    import anyio
    import openai
    from anyio.from_thread import BlockingPortal, start_blocking_portal

    from isr_rag.scorers.remote.transport import MOST, TOO_MUCH, BoundedClient
except ImportError as error:
    raise MissingDependencyError("a remote scorer", error.name or "openai", "server") from error

__all__ = ["Endpoint", "ServerClient", "anyio", "checked_url"]

T = TypeVar("T")
Endpoint = Literal["completions", "chat/completions"]

_SHOWN = 300
"""Characters of a server's own words that an error repeats."""

_SECRET = 8
"""Characters of a key from which on it is taken out of replies: a shorter one may be any word."""

HEALTH = 5.0
"""Seconds in which a server must say that it is there."""


class ServerClient:
    """Sends requests to one server: limited in number, retried with backoff, errors without the key.

    Args:
        url: base URL, such as `http://127.0.0.1:8000/v1`; `/v1` is added to a bare host.
        key_env: environment variable with the API key. The key of a vendor is never sent to another server: only
            this variable is read.
        concurrency: most requests in flight.
        retries: how often a request is repeated after 408, 409, 429, 5xx, a timeout or a lost connection, with
            exponential backoff or after as long as `Retry-After` says.
        timeout: seconds for one try, from connecting to the last byte of the reply.
        deadline: seconds for one request, retries and waits between them included.

    Raises:
        ConfigurationError: for an invalid URL or one that holds a password, or a setting out of range.
        MissingDependencyError: if the package openai is not installed.
    """

    def __init__(
        self, url: str, *, key_env: str, concurrency: int, retries: int, timeout: float, deadline: float = 120.0
    ) -> None:
        if concurrency < 1 or retries < 0 or not timeout > 0.0:
            raise ConfigurationError(
                f"concurrency must be at least 1, retries at least 0 and timeout above 0 seconds, "
                f"got {concurrency!r}, {retries!r} and {timeout!r}"
            )
        self.url = checked_url(url)
        self.key_env = key_env
        self.deadline = deadline
        self.slots = anyio.CapacityLimiter(concurrency)
        self._process = os.getpid()
        key = _key(key_env)
        self._redact: Callable[[str], str] = lambda text: text.replace(key, "[key]") if key else text
        self._secret = len(key) >= _SECRET
        self._client = openai.AsyncOpenAI(
            base_url=self.url,
            api_key=key or "none",
            max_retries=retries,
            timeout=timeout,
            http_client=BoundedClient(),
        )
        # The client fills these from variables that belong to one vendor.
        self._client.organization = self._client.project = None
        thread = ExitStack()
        self._portal = thread.enter_context(start_blocking_portal(name="isr-rag-server"))
        # At the latest when the interpreter ends: later the thread can no longer be asked to stop.
        self._end = weakref.finalize(
            self, _end, self._process, self._portal.call(threading.get_ident), self._portal, self._client, thread
        )

    def __repr__(self) -> str:
        return f"ServerClient({self.url!r})"

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run work in the client's event loop and wait for it; an interrupt cancels it there."""
        future = self._portal_here().start_task_soon(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def arun(self, work: Callable[[], Awaitable[T]]) -> T:
        """As `run`, awaited; cancelling it cancels the work."""
        return await asyncio.wrap_future(self._portal_here().start_task_soon(work))

    async def post(self, endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any]:
        """One request within the client's loop; the caller holds a slot.

        Raises:
            ServerError: if it failed for good.
            ServerReplyError: if what came back is not a JSON object.
        """
        return await self._send(lambda: self._client.post(f"/{endpoint}", body=body, cast_to=object))

    async def get(self, path: str, *, patient: bool = True) -> dict[str, Any]:
        """As `post`; impatient: one try of `HEALTH` seconds."""
        options: dict[str, Any] = {} if patient else {"timeout": HEALTH, "max_retries": 0}
        client = self._client.with_options(**options) if options else self._client
        limit = self.deadline if patient else HEALTH
        return await self._send(lambda: client.get(f"/{path}", cast_to=object), limit)

    async def _send(self, call: Callable[[], Awaitable[object]], limit: float | None = None) -> dict[str, Any]:
        limit = self.deadline if limit is None else limit
        # What the client raises holds the request and with it the key: none of it may hang on to our error.
        failure: ServerError | None = None
        reply: object = None
        try:
            with anyio.fail_after(limit):
                reply = await call()
        except TimeoutError:
            failure = ServerDeadlineError(
                f"the server at {self.url} did not answer within {limit:g} s, retries included"
            )
        except openai.APIStatusError as error:
            failure = self._refused(error.status_code, str(error.message))
        except openai.APITimeoutError:
            failure = ServerError(f"the server at {self.url} did not answer in time, retries included")
        except openai.APIConnectionError as error:
            cause = type(error.__cause__).__name__ if error.__cause__ else "connection error"
            failure = ServerError(
                f"the server at {self.url} cannot be reached or broke off ({cause}), retries included"
            )
        except (openai.OpenAIError, ValueError, RecursionError) as error:
            failure = ServerReplyError(f"the server at {self.url} sent no valid JSON ({type(error).__name__})")
        if failure is not None:
            raise failure
        if not isinstance(reply, dict):
            raise ServerReplyError(f"the server at {self.url} sent {type(reply).__name__} instead of a JSON object")
        plain = cast(dict[str, Any], reply)
        if TOO_MUCH in plain:
            raise ServerReplyError(
                f"the server at {self.url} sent more than {MOST // 2**20} MiB, or packed it in a way not asked for"
            )
        return cast(dict[str, Any], self._without_key(plain)) if self._secret else plain

    def _without_key(self, value: object) -> object:
        """A reply without the key: a server that repeats it in a token would spread it through errors and outputs."""
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, list):
            return [self._without_key(part) for part in cast(list[object], value)]
        if isinstance(value, dict):
            items = cast(dict[str, object], value).items()
            return {self._redact(name): self._without_key(part) for name, part in items}
        return value

    def _refused(self, status: int, message: str) -> ServerError:
        said = printable(" ".join(self._redact(message).split()), _SHOWN)
        hint = f"; the key is read from the variable {self.key_env}" if status in (401, 403) else ""
        return ServerError(f"the server at {self.url} refused with status {status}{hint}: {said}", status)

    def close(self) -> None:
        """Drop the connections and end the thread; nothing can be scored afterwards."""
        self._end()

    def _portal_here(self) -> BlockingPortal:
        if self._process != os.getpid():
            raise ServerError("this scorer was made in another process: make it after the fork, in each worker")
        if not self._end.alive:
            raise ServerError("this scorer is closed")
        return self._portal


def _end(process: int, loop_thread: int, portal: BlockingPortal, client: openai.AsyncOpenAI, thread: ExitStack) -> None:
    """Drop the connections and end the loop's thread, from any thread but that one."""
    if os.getpid() != process:  # a fork has no such thread
        return
    if threading.get_ident() == loop_thread:  # garbage was collected there
        threading.Thread(target=_end, args=(process, 0, portal, client, thread)).start()
        return
    portal.call(_close, client)
    thread.close()


async def _close(client: openai.AsyncOpenAI) -> None:
    with anyio.move_on_after(HEALTH):
        await client.close()


def checked_url(url: str) -> str:
    """The base URL of an OpenAI-compatible API.

    Raises:
        ConfigurationError: if it is not an http(s) URL, or holds credentials or a query.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError("a server's URL looks like http://127.0.0.1:8000/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(
            "a server's URL holds no user, password, query or fragment: keys come from the environment"
        )
    address = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{address}{f':{port}' if port else ''}{parts.path.rstrip('/') or '/v1'}"


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or any(not character.isprintable() or character == " " for character in key):
        raise ConfigurationError(f"the variable {variable} holds characters that no API key has")
    return key
