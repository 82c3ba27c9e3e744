"""Server-sent events that report the progress of long requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.responses import StreamingResponse

from isr_rag_server.http.problems import refusal

Tell = Callable[[str, str], Awaitable[None]]
"""Sends an event: its name and its data, which is JSON."""

_PING = 10.0
"""Seconds of silence after which a comment is sent, so that nothing between takes the connection for dead."""


def events(work: Callable[[Tell], Awaitable[None]], identifier: str) -> StreamingResponse:
    """A response that lasts as long as some work, and sends the events that it tells.

    Args:
        work: what it raises becomes the event `problem`. It is cancelled when the client hangs up.
        identifier: of the request, for the log.
    """
    return StreamingResponse(
        _stream(work, identifier), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _stream(work: Callable[[Tell], Awaitable[None]], identifier: str) -> AsyncGenerator[str]:
    told: asyncio.Queue[str | None] = asyncio.Queue()

    async def tell(name: str, data: str) -> None:
        await told.put(f"event: {name}\ndata: {data}\n\n")

    async def run() -> None:
        try:
            await work(tell)
        except Exception as error:
            await tell("problem", json.dumps(refusal(error, identifier).to_dict(), ensure_ascii=False))
        finally:
            await told.put(None)

    running = asyncio.ensure_future(run())
    try:
        while True:
            try:
                event = await asyncio.wait_for(told.get(), _PING)
            except TimeoutError:
                event = ": still working\n\n"
            if event is None:
                return
            yield event
    finally:
        running.cancel()
