"""A server with the limits that it has by default, in a process of its own, and what hostile clients send to it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from server.tests.http import worlds

ROOT = Path(__file__).parents[3]
MEGABYTE = 2**20
JSON = "application/json"

PROGRAM = """
import json, os, sys, time
from collections import deque
from pathlib import Path
from isr_rag import ISRGate
from isr_rag.core.settings import Orderings
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.http import Limits, Settings, serve


def read(prompt, ordering):
    if "sleepy" in prompt.suffix:
        time.sleep(float(os.environ.get("SLEEPY", "1")))
    if "break" in prompt.suffix:
        raise RuntimeError(f"cannot read {prompt.suffix}")
    return 0.97


scorer = FixedScorer(read)
scorer.requests = deque(maxlen=0)  # it would remember them all
given = json.loads(sys.argv[1])
for name in ("folder", "log"):
    if name in given:
        given[name] = Path(given[name])
if "proxies" in given:
    given["proxies"] = tuple(given["proxies"])
limits = Limits(**given.pop("limits", {}))
serve(
    ISRGate(scorer=scorer, reference=Oracle(0.9), orderings=Orderings(m=1), max_words=600),  # as the judge reads
    Settings(port=0, limits=limits, **given),
    started=lambda address: print(address, flush=True),
)
"""


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], address: str, key: str | None) -> None:
        self.process, self.address, self.key = process, address, key
        host, port = address.removeprefix("http://").split(":")
        self.at = (host, int(port))
        self._watched = psutil.Process(process.pid)

    @property
    def megabytes(self) -> float:
        """Resident memory, of the processes that it has begun, too."""
        taken = self._watched.memory_info().rss
        for child in self.children:
            with contextlib.suppress(psutil.NoSuchProcess):
                taken += child.memory_info().rss
        return float(taken / MEGABYTE)

    @property
    def seconds(self) -> float:
        """Processor time spent so far, whatever else the machine does."""
        times = self._watched.cpu_times()
        return float(times.user + times.system)

    @property
    def children(self) -> list[psutil.Process]:
        """Processes that it has begun and that are still there."""
        try:
            return list(self._watched.children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    @property
    def files(self) -> int:
        return int(self._watched.num_fds())

    def head(self, method: str, path: str, *lines: str, length: int | None = None, kind: str = JSON) -> bytes:
        """The head of a request."""
        told = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines]
        if self.key is not None:
            told.append(f"Authorization: Bearer {self.key}")
        if length is not None:
            told += [f"Content-Type: {kind}", f"Content-Length: {length}"]
        return ("\r\n".join(told) + "\r\n\r\n").encode()

    def open(self, *parts: bytes, source: str = "127.0.0.1") -> socket.socket:
        """A connection over which something was sent."""
        made = socket.create_connection(self.at, timeout=60, source_address=(source, 0))
        for part in parts:
            made.sendall(part)
        return made

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *lines: str,
        source: str = "127.0.0.1",
        kind: str = "application/json",
    ) -> tuple[int, bytes]:
        """Status and body of the response to a request over a connection of its own."""
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = self.head(
            method, path, *lines, "Connection: close", length=None if content is None else len(content), kind=kind
        )
        with contextlib.suppress(BrokenPipeError, ConnectionResetError), self.open(source=source) as made:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                made.sendall(head + (content or b""))
            return answer_of(made)
        return 0, b""

    def metric(self, name: str) -> float:
        """A metric without labels."""
        _, text = self.ask("GET", "/metrics")
        return next(float(line.split()[-1]) for line in text.decode().splitlines() if line.startswith(f"{name} "))


def answer_of(made: socket.socket) -> tuple[int, bytes]:
    """Status and body that come over a connection until it is closed; status 0 where nothing came."""
    received = bytearray()
    with contextlib.suppress(OSError):
        while data := made.recv(65536):
            received += data
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    return (int(head[9:12]) if head else 0), body


@contextmanager
def serving(*, environment: dict[str, str] | None = None, stderr: Any = None, **settings: Any) -> Iterator[Server]:
    """A server with given settings."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(settings)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if stderr is None else stderr,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, "the server did not start"
            yield Server(process, address, settings.get("key"))
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)


class Cost:
    """What something cost a server: the processor's seconds, the most megabytes, the longest wait for its health."""

    seconds = megabytes = health = 0.0


@contextmanager
def cost(server: Server) -> Generator[Cost]:
    """Watch a server's memory and health meanwhile."""
    found, over = Cost(), threading.Event()
    seconds, megabytes = server.seconds, server.megabytes

    def watch() -> None:
        while not over.wait(0.05):
            begun = time.perf_counter()
            status, _ = server.ask("GET", "/healthz")
            assert status == 200, status
            found.health = max(found.health, time.perf_counter() - begun)
            found.megabytes = max(found.megabytes, server.megabytes - megabytes)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()
        found.seconds = server.seconds - seconds
        found.megabytes = max(found.megabytes, server.megabytes - megabytes)


def mcp(name: str, arguments: Any) -> dict[str, Any]:
    """A call of a tool."""
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


MCP_LINES = ("Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2025-06-18")

__all__ = ["KEY", "MCP_LINES", "Cost", "Server", "answer_of", "cost", "mcp", "serving"]
KEY = worlds.KEY


def bomb() -> bytes:
    """A PDF of some kilobytes that takes minutes to read: pages that share one packed stream of text."""
    packed = zlib.compress(b"BT /F 9 Tf " + b"1 0 0 1 5 5 Tm (some words here) Tj " * 20_000 + b"ET", 9)
    pages = 40
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(b"%d 0 R" % (5 + i) for i in range(pages)), pages),
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        *[b"<< /Type /Page /Parent 2 0 R /Contents 3 0 R /Resources << /Font << /F 4 0 R >> >> >>"] * pages,
    ]
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, content in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    tail = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(out))
    return bytes(out) + head + table + tail
