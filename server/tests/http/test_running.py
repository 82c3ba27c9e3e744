"""A server in a process of its own: stopped under load, asked by slow, vanishing and hostile clients."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
import uvicorn
from server.tests.http import worlds
from typer.testing import CliRunner
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from isr_rag.cli.app import app
from isr_rag_server.http import Limits, Settings, running as server_run
from isr_rag_server.http.clients import client_of
from isr_rag_server.http.connections import RESERVE, Connections

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


@contextmanager
def running(*settings: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves, and its address."""
    command = [sys.executable, "-m", "server.tests.http.worlds", *map(str, settings)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)


async def ask(client: Any, number: int) -> str:
    """What came of one request: its status, `crossed`, `refused` (never begun) or `lost`."""
    try:
        response = await client.post("/v1/decide", json=worlds.item(number, id=number))
    except httpx.ConnectError:
        return "refused"
    except httpx.TransportError as error:
        return f"lost: {type(error).__name__}"
    if response.status_code != 200:
        return str(response.status_code)
    plain = response.json()
    right = plain["id"] == number and abs(plain["decision"]["q"][0] - worlds.expected_q(number)) < 1e-9
    return "200" if right else "crossed"


def test_sigterm_under_load_loses_crosses_and_leaves_nothing_unanswered() -> None:
    async def load(address: str, process: subprocess.Popen[str]) -> Counter[str]:
        found: Counter[str] = Counter()

        async def caller(own: int) -> None:
            async with httpx.AsyncClient(base_url=address, timeout=20, verify=False) as client:
                for turn in range(10_000):
                    outcome = await ask(client, 1000 * own + turn)
                    found[outcome] += 1
                    if outcome == "refused" or outcome.startswith("lost"):
                        return
                    if outcome == "503":  # asks again until the door is closed
                        await asyncio.sleep(0.02)

        callers = [asyncio.create_task(caller(own)) for own in range(24)]
        while found["200"] < 50:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*callers), 30)
        return found

    with running(0.02, 64, 4) as (process, address):
        found = asyncio.run(load(address, process))
        process.wait(10)
    assert set(found) <= {"200", "503", "refused"}, found
    assert found["200"] >= 50 and found["503"] >= 24 and found["refused"] == 24, found


def raw(address: str, *parts: bytes, pause: float = 0.0, wait: float = 5.0) -> bytes:
    """What a server answers to bytes sent in parts."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except OSError:  # hung up on meanwhile
            pass
        received = b""
        try:
            while data := connection.recv(65536):
                received += data
                head, _, body = received.partition(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0
                )
                if head and len(body) >= length > 0:
                    return received
        except OSError:
            pass
        return received


def test_slow_vanishing_oversized_and_malformed_clients_hurt_nobody() -> None:
    body = json.dumps(worlds.item(7)).encode()
    head = b"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    def started(length: int) -> bytes:
        return head + f"Content-Length: {length}\r\n\r\n".encode()

    with running(0.3, 8, 1) as (process, address):
        begun = time.perf_counter()
        slow = raw(address, started(len(body)) + body[:10], pause=0.0, wait=6)
        assert slow.startswith(b"HTTP/1.1 408") and b"request-too-slow" in slow
        silent = raw(address, b"POST /v1/dec", wait=6)
        assert silent == b"" and time.perf_counter() - begun < 8  # hung up on

        for _ in range(6):  # they ask and are gone: what still waits for its turn is never scored
            with socket.create_connection(tuple(address.removeprefix("http://").split(":")), timeout=5) as gone:  # type: ignore[arg-type]
                gone.sendall(started(len(body)) + body)
        time.sleep(0.2)
        begun = time.perf_counter()
        right = raw(address, started(len(body)) + body)
        assert right.startswith(b"HTTP/1.1 200") and time.perf_counter() - begun < 1.5

        big = raw(address, started(200_000), b"x" * 200_000)
        assert big.startswith(b"HTTP/1.1 413") and b"body-too-large" in big
        endless = raw(
            address,
            head + b"Transfer-Encoding: chunked\r\n\r\n",
            *[b"4000\r\n" + b"x" * 0x4000 + b"\r\n"] * 10,
            b"0\r\n\r\n",
        )
        assert endless.startswith(b"HTTP/1.1 413")
        for broken in (
            b"\0\x01\x02\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            started(5) + b"{{{{{",
            head + b"X: " + b"y" * 100_000,
        ):
            assert raw(address, broken)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 421"), broken[:30]
        split = raw(
            address, head + b"X-Request-ID: a\r\n b: c\r\n" + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        assert b"\r\nb: c" not in split and b"\r\n b: c" not in split
        assert raw(address, started(len(body)) + body).startswith(b"HTTP/1.1 200")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) in (0, -signal.SIGTERM)
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


@pytest.mark.model
def test_the_command_serves_the_embedded_model_over_http(tmp_path: Path) -> None:
    """The same decision as the library's, chunks read ahead, and a clean end."""
    pytest.importorskip("torch")
    from isr_rag import Decision, ISRGate
    from isr_rag.scorers import embedded

    if not embedded.is_ready():
        pytest.skip("isr-rag setup was not run")
    log = tmp_path / "decisions.jsonl"
    command = [sys.executable, "-m", "isr_rag", "serve", "--port", "0", "--log", str(log)]
    evidence = ["Marie Curie was born in Warsaw in 1867.", "Pierre Curie was born in Paris in 1859."]
    claims = ["Marie Curie was born in Warsaw.", "Marie Curie was born in Vienna."]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = next(line for line in process.stderr if " at http" in line).rsplit(" at ", 1)[1].strip()
            with httpx.Client(base_url=address, timeout=30) as client:
                indexed = client.post("/v1/index", json={"evidence": evidence}).json()
                assert indexed["read_ahead"] and indexed["tokens"] > 10
                named = [{"sha256": one} for one in indexed["sha256"]]
                found = [client.post("/v1/decide", json={"claim": claim, "evidence": named}).json() for claim in claims]
                assert client.post("/v1/index", json={"evidence": evidence}).json()["tokens"] == 0
                assert "isr_rag_decisions_total" in client.get("/metrics").text
            process.send_signal(signal.SIGTERM)
            process.wait(15)
        finally:
            if process.poll() is None:
                process.kill()
    gate = ISRGate()
    for claim, answer in zip(claims, found, strict=True):
        served, own = Decision.from_dict(answer["decision"]), gate.decide(evidence, claim=claim)
        assert served.action is own.action and served.p_ref == pytest.approx(own.p_ref, abs=1e-4)
    assert len(log.read_text("utf-8").splitlines()) == 2


@pytest.mark.parametrize(
    ("settings", "environment", "says"),
    [
        (["--host", "0.0.0.0"], {}, "ISR_RAG_SERVE_KEY"),
        ([], {"ISR_RAG_CACHE": "/nowhere/at/all"}, "isr-rag setup"),
        (["--log", "/nowhere/log.jsonl"], {}, "/nowhere"),
        (["--model", "overlap"], {}, "without a reference"),
    ],
)
def test_what_cannot_be_served_is_said_before_anything_listens(
    settings: list[str], environment: dict[str, str], says: str
) -> None:
    import os

    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "isr_rag", "serve", "--port", "0", *settings],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode in (1, 2, 5) and says in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["serve", "mcp"])
def test_how_a_model_is_loaded_reaches_it(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    class Loaded(Exception):
        pass

    def load(model: str, **settings: object) -> None:
        asked.append({"model": model, **settings})
        raise Loaded

    monkeypatch.setitem(sys.modules, "isr_rag.scorers.transformers", SimpleNamespace(TransformersScorer=load))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    options = ["--model", "m", "--device", "cuda:1", "--dtype", "float16", "--quantization", "nf4", "--p-ref", "1"]
    assert isinstance(CliRunner().invoke(app, [command, *options]).exception, Loaded)
    assert asked == [{"model": "m", "device": "cuda:1", "dtype": "float16", "quantization": "nf4"}]


@pytest.mark.parametrize("proxy", ["10.0.0.5", "::ffff:10.0.0.5"])
@pytest.mark.parametrize("peer", ["10.0.0.5", "::ffff:10.0.0.5"])  # the second over a socket of both families
def test_a_proxy_is_known_however_its_address_is_written(
    proxy: str, peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[uvicorn.Config] = []

    class Kept(server_run._Uvicorn):
        def run(self, sockets: Any = None) -> None:
            made.append(self.config)

    monkeypatch.setattr(server_run, "_Uvicorn", Kept)
    server_run.serve(worlds.gate(), Settings(port=0, proxies=(proxy,)))
    assert peer in ProxyHeadersMiddleware(None, made[0].forwarded_allow_ips).trusted_hosts  # type: ignore[arg-type]


def test_whoever_floods_the_reserve_takes_nobody_out_of_it() -> None:
    connections = Connections(Limits(connections=1), [])

    def add(address: str) -> Mock:
        made = Mock(from_client=address, from_address=address, idle=False)
        made.drop = Mock(side_effect=lambda: connections.remove(made))
        connections.add(made)
        return made

    probe = (add("192.0.2.1"), add("192.0.2.2"))[1]
    flood = [add(f"192.0.2.{3 + i % 4}") for i in range(500)]
    assert not probe.drop.called and sum(one.drop.called for one in flood) == 500 - RESERVE + 1


def test_only_the_proxy_itself_has_no_share_of_the_connections() -> None:
    for address, kept in (("2001:db8::5", 17), ("2001:db8::6", 16)):
        connections = Connections(Limits(connections=60), ["2001:db8::5"])
        for _ in range(17):
            connections.add(Mock(from_client=client_of(address), from_address=address, idle=False))
        assert len(connections._open[client_of(address)]) == kept


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"'127.0.0.1:{port}'"):
            server_run.serve(worlds.gate(), Settings(port=port))
