"""Finished responses that nobody takes: one client holds a part of the memory for them, and others get theirs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from server.tests.http import worlds

from isr_rag.errors import ConfigurationError
from isr_rag_server.http import Limits, Settings
from isr_rag_server.http.app import application
from isr_rag_server.http.bodies import Bodies
from isr_rag_server.http.service import Service

MEGABYTE = 2**20
BODY = b"\x01" * 60_000
"""Held by nobody's account, and six times as large in the JSON of the response."""


class Reader:
    """A client that asks for a document's chunks and takes nothing of a large response until it is told to."""

    def __init__(self, client: str, body: bytes = BODY) -> None:
        self.client, self.body = client, body
        self.status = self.taken = 0
        self.problem = b""
        self.waits, self.takes = asyncio.Event(), asyncio.Event()

    async def ask(self, app: Any) -> asyncio.Task[None]:
        """Ask, and return when the response is there or waits to be taken."""
        scope = {
            **{"type": "http", "method": "POST", "path": "/v1/documents", "query_string": b"name=a.txt"},
            **{"raw_path": b"/v1/documents", "scheme": "http", "http_version": "1.1", "root_path": ""},
            **{"headers": [(b"host", b"localhost")], "client": (self.client, 1), "server": ("localhost", 80)},
        }
        self._given = False
        task = asyncio.create_task(app(scope, self._receive, self._send))
        await asyncio.wait([task, asyncio.create_task(self.waits.wait())], return_when=asyncio.FIRST_COMPLETED)
        return task

    async def _receive(self) -> Any:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await asyncio.Event().wait()

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif self.status == 200:
            self.waits.set()
            await self.takes.wait()
            self.taken += len(message["body"])
        else:
            self.problem += message["body"]


def test_a_body_of_the_allowed_length_always_has_room() -> None:
    """Also where the operator allows more for one (`--max-body`) than all together have by default."""
    bodies = Bodies(Limits(body=64 * MEGABYTE))
    assert bodies.take("10.0.0.1", 64 * MEGABYTE) and not bodies.take("10.0.0.2", 1)


@pytest.mark.parametrize("seconds", [float("inf"), 1e10, float("nan"), 0.0])
def test_a_time_that_nothing_can_wait_for_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="seconds must be more than 0"):
        Limits(seconds=seconds)


def test_what_waits_for_one_client_is_limited_and_given_back() -> None:
    async def served() -> None:
        limits = Limits(bodies=4 * MEGABYTE, body=MEGABYTE)
        service = Service(worlds.gate(), Settings(limits=limits))
        app = application(service)
        readers = [Reader("10.0.0.1") for _ in range(12)]
        tasks = [await reader.ask(app) for reader in readers]
        refused = [reader for reader in readers if reader.status == 429]
        assert [reader.status for reader in readers] == [200] * 5 + [429] * 7  # of 360 kB each, in half of 4 MiB
        assert all(json.loads(reader.problem)["type"].endswith("too-many-bytes") for reader in refused)
        small, other = Reader("10.0.0.1", b"a short document"), Reader("10.0.0.2")
        more = [await one.ask(app) for one in (small, other)]
        assert small.status == other.status == 200
        for reader in (*readers, small, other):
            reader.takes.set()
        await asyncio.gather(*tasks, *more)
        assert {reader.taken for reader in readers if reader.status == 200} == {readers[0].taken} != {0}
        again = Reader("10.0.0.1", BODY * 12)  # a response of more than all that a client may hold, but alone
        again.takes.set()
        await (await again.ask(app))
        assert (again.status, again.taken > 4 * MEGABYTE) == (200, True)
        assert not service.bodies._held

    asyncio.run(served())
