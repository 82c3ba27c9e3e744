"""An HTTP client with a time limit for each try and a size limit for each reply."""

from __future__ import annotations

import importlib
import zlib
from typing import Any

import anyio
import openai

# The HTTP library of the official client; its releases have used more than one.
_client = next(kind for kind in openai.DefaultAsyncHttpxClient.__mro__ if kind.__name__ == "AsyncClient")
httpx: Any = importlib.import_module(_client.__module__.partition(".")[0])

MOST = 2**24
"""Bytes of a reply, as sent and as unpacked: 8,000 tokens with their logprobs take a tenth of that."""

TOO_MUCH = "isr_rag_too_much"
"""Key of the reply that stands for one that was too long to read."""


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """The official client's HTTP client, within limits.

    A try takes at most its timeout, from connecting to the last byte, however slowly the bytes come. At most `MOST`
    bytes of a reply are read or unpacked; a longer one is replaced by `{TOO_MUCH: true}`.
    """

    def __init__(self) -> None:
        # A redirect would carry evidence and key to another server; only these encodings can be bounded here.
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
        headers = response.headers.copy()
        for name in ("content-encoding", "content-length", "transfer-encoding"):
            headers.pop(name, None)
        return httpx.Response(response.status_code, headers=headers, content=content, request=request)


async def _read(response: Any) -> bytes | None:
    """The unpacked body; None where it is too long, or in an encoding that was not asked for."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        return None
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding not in ("", "identity") else None
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
