"""One connection to an inference server, shared by all threads and event loops of a process.

The official client runs in an event loop of its own, in a thread of its own. One connection pool and one limit of
requests in flight thus serve synchronous callers and any number of event loops.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from isr_rag._util.text import printable
from isr_rag.errors import ConfigurationError, ServerDeadlineError, ServerError, ServerReplyError, needed_for

with needed_for("a remote scorer", "server"):
    import anyio as anyio
    import openai
    from anyio.from_thread import BlockingPortal, start_blocking_portal

    from isr_rag.scorers.remote.transport import MOST, TOO_MUCH, BoundedClient

T = TypeVar("T")


class ServerClient:
    """Sends requests to one server: as many at a time as it answers quickly, retried, errors without the key.

    The arguments are those of `remote_scorer`; `deadline` holds for one request, including retries and the waits
    between them. Only the variable `key_env` is read, so that the key of one vendor is never sent to another server.
    """

    def __init__(
        self,
        url: str,
        *,
        key_env: str = "ISR_RAG_API_KEY",
        concurrency: int = 16,
        retries: int = 4,
        timeout: float = 30.0,
        deadline: float = 120.0,
    ) -> None:
        if concurrency < 1 or retries < 0 or not timeout > 0.0:
            raise ConfigurationError(
                f"concurrency must be at least 1, retries at least 0 and timeout above 0 seconds, "
                f"got {concurrency!r}, {retries!r} and {timeout!r}"
            )
        self.url, self.key_env, self.deadline = checked_url(url), key_env, deadline
        self.concurrency, self._timeout = concurrency, timeout
        self._quickest, self._halved = math.inf, -math.inf  # seconds of a reply; when the slots were made fewer
        self.slots = anyio.CapacityLimiter(1)  # `send` makes them as many as the server is quick enough for
        self._process = os.getpid()
        key = _key(key_env)
        self._key: Callable[[], str] = lambda: key  # not an attribute, which a report of an error could show
        self._client = openai.AsyncOpenAI(
            base_url=self.url, api_key=key or "none", max_retries=retries, timeout=timeout, http_client=BoundedClient()
        )
        # The client fills these from variables that belong to one vendor.
        self._client.organization = self._client.project = None
        thread = ExitStack()
        self._portal = thread.enter_context(start_blocking_portal(name="isr-rag-server"))
        # Runs before the interpreter ends: later the thread can no longer be asked to stop.
        self._end = weakref.finalize(
            self, _end, self._process, self._portal.call(threading.get_ident), self._portal, self._client, thread
        )

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

    async def send(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a POST request, or GET without a body, within the client's loop; for a POST the caller holds a slot.

        ServerError if it failed for good, took longer than the deadline, or the reply is not a JSON object.
        """
        # The client's exceptions hold the request and with it the key, so ours must not be chained to them.
        failure: ServerError | None = None
        reply: object = None
        sent = anyio.current_time()
        try:
            with anyio.fail_after(self.deadline):
                if body is None:
                    reply = await self._client.get(f"/{path}", cast_to=object)
                else:
                    reply = await self._client.post(f"/{path}", body=body, cast_to=object)
            reply = self._without_key(reply)
        except TimeoutError:
            failure = ServerDeadlineError(
                f"the server at {self.url} did not answer within {self.deadline:g} s, retries included"
            )
        except openai.APIStatusError as error:
            told: Any = error.body.get("detail") if isinstance(error.body, dict) else error.body  # not in its message
            failure = self._refused(error.status_code, told if isinstance(told, str) and told else str(error.message))
        except openai.APIConnectionError as error:
            cause = type(error.__cause__).__name__ if error.__cause__ else "connection error"
            failure = ServerError(f"the server at {self.url} cannot be reached or broke off ({cause}), with retries")
        except (openai.OpenAIError, ValueError, RecursionError) as error:
            failure = ServerReplyError(f"the server at {self.url} sent no valid JSON ({type(error).__name__})")
        if body is not None:
            self._pace(sent, answered=failure is None)
        if failure is not None:
            raise failure
        if not isinstance(reply, dict):
            raise ServerReplyError(f"the server at {self.url} sent {type(reply).__name__} instead of a JSON object")
        if TOO_MUCH in reply:
            raise ServerReplyError(
                f"the server at {self.url} sent more than {MOST // 2**20} MiB, or used an encoding not asked for"
            )
        return cast(dict[str, Any], reply)

    def _pace(self, sent: float, *, answered: bool) -> None:
        """A slot more for a quick reply while all are taken; half of them, once, where replies wait for others."""
        now, slots = anyio.current_time(), int(self.slots.total_tokens)
        seconds, quick = now - sent, max(self._timeout / 4, 2 * self._quickest)
        if answered and seconds < quick and self.slots.borrowed_tokens >= slots:
            self.slots.total_tokens = min(slots + 1, self.concurrency)
        elif seconds > max(self._timeout / 2, quick) and sent > self._halved:
            self.slots.total_tokens, self._halved = max(slots // 2, 1), now
        self._quickest = min(self._quickest, seconds if answered else math.inf)

    def _without_key(self, reply: object) -> object:
        """A reply without the key: a server that repeats it in a token would spread it through errors and outputs."""
        if len(self._key()) < 8:  # any word, such as a label
            return reply
        return json.loads(json.dumps(reply).replace(json.dumps(self._key())[1:-1], "[key]"))

    def _refused(self, status: int, message: str) -> ServerError:
        said = printable(" ".join(message.replace(self._key() or "\0", "[key]").split()), 300)
        hint = f"; the key is read from the variable {self.key_env}" if status in (401, 403) else ""
        return ServerError(f"the server at {self.url} refused with status {status}{hint}: {said}", status)

    def close(self) -> None:
        """Close the connections and end the thread; nothing can be scored afterwards."""
        self._end()

    def _portal_here(self) -> BlockingPortal:
        if self._process != os.getpid():
            raise ServerError("this scorer was made in another process: make it after the fork, in each worker")
        if not self._end.alive:
            raise ServerError("this scorer is closed")
        return self._portal


def _end(process: int, loop_thread: int, portal: BlockingPortal, client: openai.AsyncOpenAI, thread: ExitStack) -> None:
    """Close the connections and end the loop's thread, called from any thread but that one."""
    if os.getpid() != process:  # a fork has no such thread
        return
    if threading.get_ident() == loop_thread:  # called by the garbage collector in the loop's thread
        threading.Thread(target=_end, args=(process, 0, portal, client, thread)).start()
        return
    portal.call(_close, client)
    thread.close()


async def _close(client: openai.AsyncOpenAI) -> None:
    with anyio.move_on_after(5.0):
        await client.close()


def checked_url(url: str) -> str:
    """The base URL of an OpenAI-compatible API; ConfigurationError for another URL, or credentials or a query in it."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError("a server's URL looks like http://127.0.0.1:8000/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError("a server's URL has no credentials, query or fragment: keys come from the environment")
    address = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{address}{f':{port}' if port else ''}{parts.path.rstrip('/') or '/v1'}"


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or any(not character.isprintable() or character == " " for character in key):
        raise ConfigurationError(f"the variable {variable} holds characters that no API key has")
    return key
