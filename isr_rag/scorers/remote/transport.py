"""An HTTP client whose every try ends in time, and whose every reply has an end."""

from __future__ import annotations

import importlib
import zlib
from typing import Any

from isr_rag.errors import MissingDependencyError

try:
    import anyio
    import openai
except ImportError as error:
    raise MissingDependencyError("a remote scorer", error.name or "openai", "server") from error

# The HTTP library that the official client uses, which has changed between its releases.
_client = next(kind for kind in openai.DefaultAsyncHttpxClient.__mro__ if kind.__name__ == "AsyncClient")
httpx: Any = importlib.import_module(_client.__module__.partition(".")[0])

MOST = 2**24
"""Bytes of a reply, as sent and as unpacked: 8,000 tokens with their logprobs take a tenth of that."""

TOO_MUCH = "isr_rag_too_much"
"""Key of the reply that stands for one that is not read to its end."""


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """As the official client's own, within limits.

    A try takes no longer than its timeout, from connecting to the last byte, however slowly they drip. Of a reply no
    more than `MOST` bytes are read or unpacked: what is longer becomes a reply that says so.
    """

    def __init__(self) -> None:
        # A redirect would carry the evidence to a server that nobody named; other packings cannot be bounded here.
        super().__init__(follow_redirects=False, headers={"accept-encoding": "gzip, deflate"})

    async def send(self, request: Any, **settings: Any) -> Any:
        """Send a request and read the whole reply."""
        seconds = request.extensions.get("timeout", {}).get("read")
        unread: dict[str, Any] = {**settings, "stream": True}
        try:
            with anyio.fail_after(seconds):
                response = await super().send(request, **unread)
                try:
                    content = await _read(response)
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise httpx.ReadTimeout("the reply did not end in time", request=request) from error
        if content is None:
            return httpx.Response(200, json={TOO_MUCH: True}, request=request)
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        return httpx.Response(response.status_code, headers=headers, content=content, request=request)


async def _read(response: Any) -> bytes | None:
    """The unpacked body; None where it is too long, or packed in a way that was not asked for."""
    packing = response.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("", "identity", "gzip", "x-gzip", "deflate"):
        return None
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if packing not in ("", "identity") else None
    body, sent = bytearray(), 0
    async for part in response.aiter_raw():
        sent += len(part)
        try:
            body += unpack.decompress(part, MOST + 1 - len(body)) if unpack else part
        except zlib.error as error:
            raise httpx.DecodingError(str(error), request=response.request) from error
        if sent > MOST or len(body) > MOST or (unpack is not None and unpack.unconsumed_tail):
            return None
    return bytes(body)
