"""Bodies of requests and responses: how much is held at a time, and what is looked at before they are parsed."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from isr_rag._util import strict_json
from isr_rag_server.http.problems import Problem
from isr_rag_server.http.settings import Limits

Result = TypeVar("Result")

FREE = 64 * 1024
"""Bytes that every request may hold, however many others there are: as much as a connection buffers anyway."""

_OF_A_CHUNK = 12
"""Most marks of JSON in a chunk: its braces, two names and their texts, colons and commas, and some to spare."""
_OF_THE_REST = 1000
# A string (up to its end, or that of the text) or a mark outside strings. Possessive: it never goes back.
_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[,:\[{\]}]', re.DOTALL)
_DEEPEST = 100
_LONGEST_NAME = 4000
"""Bytes of a name in JSON: no request needs a longer one, and errors repeat names."""


def parsed(body: bytes) -> Any:
    """The value of JSON, read strictly.

    Raises:
        Problem: `malformed`, if it is not JSON.
    """
    try:
        return strict_json.loads(body.decode("utf-8"))
    except ValueError as error:
        raise Problem("malformed", f"the body is not JSON: {error}") from error


class Bodies:
    """The bytes that all requests hold together.

    Args:
        limits: how many.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: Counter[str] = Counter()
        self._parsing = asyncio.Lock()

    def take(self, client: str, size: int) -> bool:
        """Hold bytes for a client; returns whether there is room for them."""
        most = max(self._limits.bodies, self._limits.body)  # else no body of the allowed length would ever have room
        if self._held.total() + size > most or self._held[client] + size > max(most // 2, self._limits.body):
            return False
        self._held[client] += size
        return True

    def take_response(self, client: str, size: int, own: int) -> bool:
        """Hold a response until its client has taken it, as `take`; one always, if all else it holds is `own`."""
        if self._held[client] <= own:
            self._held[client] += size
            return True
        return self.take(client, size)

    def note(self, client: str, size: int) -> None:
        """Hold bytes that are there already, such as an event; a negative number gives them back."""
        self._held[client] += size
        if self._held[client] <= 0:
            del self._held[client]

    async def in_turn(self, size: int, work: Callable[[], Result]) -> Result:
        """Do work on a body while no other one is worked on, and let everything else run in between."""
        if size <= FREE:
            return work()
        async with self._parsing:
            begun = time.perf_counter()
            try:
                return work()
            finally:
                await asyncio.sleep(time.perf_counter() - begun)

    def check_json(self, body: bytes, chunks: int | None = None) -> None:
        """Refuse JSON of more values, deeper, or of longer names than a request of some chunks needs, unparsed.

        Raises:
            Problem: `invalid-input` or `malformed`.
        """
        allowed = self._limits.chunks if chunks is None else chunks
        most = _OF_A_CHUNK * allowed + _OF_THE_REST
        depth = length = 0
        for marks, mark in enumerate(_MARK.finditer(body), start=1):
            kind = body[mark.start()]
            depth += (kind in b"[{") - (kind in b"]}")
            if depth > _DEEPEST:
                raise Problem("malformed", "the body is not JSON of a request: nested too deeply")
            if kind in b":" and length > _LONGEST_NAME:
                raise Problem("invalid-input", f"the body has a name of {length - 2:,} bytes")
            length = mark.end() - mark.start()
            if marks > most:
                raise Problem(
                    "invalid-input",
                    f"the body holds more values than a request needs: {allowed:,} chunks of evidence are "
                    "allowed, each a text, or a text with a title",
                )
