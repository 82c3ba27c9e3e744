"""A server that means harm, or is broken in ways that look like it: bounded in time and memory, and never believed."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")

from isr_rag import ISRGate
from isr_rag.core.settings import Orderings
from isr_rag.errors import ConfigurationError, ServerError, ServerReplyError
from isr_rag.references import Oracle
from isr_rag.scorers.remote import RemoteScorer, read_reply, remote_scorer
from isr_rag.scorers.remote.replies import Candidate, FirstToken, mass_bounds, renormalise
from tests.scorers.remote.conftest import Connect, request_about
from tests.scorers.remote.servers import Fault, Proxy

pytestmark = pytest.mark.slow

CANARY = "sk-canary-4f8a1c77e2d94b60"


@contextmanager
def raw_server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does with each connection what it likes."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                answer(connection)
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        over.set()
        listening.close()


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.2)


def silence(connection: socket.socket) -> None:
    time.sleep(60)


def come_back_later(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 429 Too Many\r\nRetry-After: 59\r\nContent-Length: 2\r\n\r\n{}")


@pytest.mark.parametrize("answer", [drip, silence, come_back_later])
def test_connecting_ends_in_time(answer: Callable[[socket.socket], None]) -> None:
    with raw_server(answer) as url:
        started = time.monotonic()
        with pytest.raises(ServerError):
            remote_scorer(url, timeout=0.5, deadline=1.0, retries=3)
        assert time.monotonic() - started < 8.0


@pytest.fixture
def scorer(proxy: Proxy, connect: Connect) -> Iterator[RemoteScorer]:
    with proxy.serve() as url:
        yield connect(url, timeout=1.0, deadline=3.0, retries=1)


@pytest.mark.parametrize("packed", [False, True])
def test_an_endless_reply_is_cut_off(packed: bool) -> None:
    sent = gzip.compress(bytes(400 * 2**20)) if packed else b"[" * 2**20

    def bomb(connection: socket.socket) -> None:
        encoding = "Content-Encoding: gzip\r\n" if packed else ""
        size = len(sent) if packed else 400 * 2**20
        connection.sendall(f"HTTP/1.1 200 OK\r\n{encoding}Content-Length: {size}\r\n\r\n".encode())
        for _ in range(1 if packed else 400):
            connection.sendall(sent)

    with raw_server(bomb) as url:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ServerError):
            remote_scorer(url, timeout=20.0, deadline=20.0, retries=0)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # kB


def test_a_long_string_as_a_logprob_stays_out_of_the_decision(proxy: Proxy, scorer: RemoteScorer) -> None:
    def rewrite(reply: Any) -> Any:
        top = reply["choices"][0]["logprobs"]["top_logprobs"][0]
        reply["choices"][0]["logprobs"]["top_logprobs"][0] = dict.fromkeys(list(top)[:2], "\x1b[31m" + "x" * 5_000_000)
        return reply

    proxy.plan = lambda n, body: Fault(rewrite=rewrite)
    gate = ISRGate(scorer=scorer, reference=Oracle(1.0), on_error="abstain", orderings=Orderings(m=1))
    decision = gate.decide(["a", "b"], claim="c")
    assert decision.reason == "scorer_failed" and len(decision.detail) < 3000 and "\x1b" not in decision.detail


@pytest.mark.parametrize("value", ["1e999", "-1" + "0" * 4000, "[" * 100_000, '{"a":' * 50_000, "9" * 5000])
def test_numbers_and_nesting_without_end_are_bad_replies(proxy: Proxy, scorer: RemoteScorer, value: str) -> None:
    raw = '{"choices": [{"logprobs": {"tokens": ["1"], "token_logprobs": [VALUE], "top_logprobs": [{}]}}]}'
    raw = raw.replace("VALUE", value)
    proxy.plan = lambda n, body: Fault(raw=raw.encode())
    with pytest.raises(ServerError):
        scorer.score([request_about(m=1)])


def test_a_key_that_comes_back_in_a_token_or_a_number_is_taken_out(
    proxy: Proxy, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISR_RAG_API_KEY", CANARY)

    def echo(reply: Any) -> Any:
        logprobs = reply["choices"][0]["logprobs"]
        logprobs["tokens"] = logprobs["token_logprobs"] = [f"x{CANARY}"]
        logprobs["top_logprobs"] = [{CANARY: CANARY}]
        return {**reply, "model": CANARY}

    with proxy.serve() as url:
        one = connect(url, retries=0)
        escaped = json.dumps(echo({"choices": [{"logprobs": {}}]})).replace("k-", "\\u006b-")
        for fault in (Fault(rewrite=echo), Fault(raw=escaped.encode())):
            proxy.plan = lambda n, body, fault=fault: fault  # type: ignore[misc]
            with pytest.raises(ServerReplyError) as caught:
                one.score([request_about(m=1)])
            assert CANARY not in str(caught.value) and "where a log-probability belongs" in str(caught.value)
            gate = ISRGate(scorer=one, reference=Oracle(1.0), on_error="abstain", orderings=Orderings(m=1))
            assert CANARY not in gate.decide(["a", "b"], claim="c").to_json()


def test_names_of_models_control_no_terminal() -> None:
    def name(connection: socket.socket) -> None:
        body = json.dumps({"data": [{"id": "\x1b[31mred"}]}).encode()
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        connection.sendall(body)

    with raw_server(name) as url, pytest.raises(ServerError, match="not a name"):
        remote_scorer(url, timeout=2.0, deadline=2.0, retries=0)


def test_no_redirect_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISR_RAG_API_KEY", CANARY)
    reached: list[socket.socket] = []
    with raw_server(reached.append) as elsewhere:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {elsewhere}/models\r\nContent-Length: 0\r\n\r\n".encode()
        with raw_server(lambda c: c.sendall(moved)) as url, pytest.raises(ServerError, match="307"):
            remote_scorer(url, timeout=2.0, deadline=2.0, retries=0)
    assert not reached


@pytest.mark.parametrize("listed", [7, ["tiny"], [{"id": ["a"]}], [{"id": "a", "max_model_len": "9", "meta": 3}]])
def test_odd_lists_of_models_are_errors_or_say_nothing(listed: object) -> None:
    body = json.dumps({"data": listed}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with raw_server(lambda c: c.sendall(head + body)) as url, pytest.raises((ServerError, ConfigurationError)):
        remote_scorer(url, timeout=2.0, deadline=2.0, retries=0)


LABELS = (("1",), ("0",))


def listed(*entries: tuple[str, float]) -> FirstToken:
    return FirstToken(tuple(Candidate(text, logprob) for text, logprob in entries))


def test_a_token_listed_twice_fills_no_list_and_adds_no_certainty() -> None:
    """The least probable of a full list bounds what is missing; a list padded with repetitions is not full."""
    padded = listed(("1", -1.2), ("x", -12.0), ("x", -12.0), ("y", -12.5))
    least, most = renormalise(*mass_bounds(padded, LABELS, 4))
    assert least[0] < 0.5 and most[0] == 1.0
    full = listed(("1", -1.2), ("x", -12.0), ("z", -12.0), ("y", -12.5))
    assert renormalise(*mass_bounds(full, LABELS, 4))[0][0] > 0.99


def test_a_label_listed_twice_counts_once_where_that_is_cautious() -> None:
    least, most = renormalise(*mass_bounds(listed(("1", -1.0), ("1", -1.0), ("0", -1.5)), LABELS, 3))
    plain, _ = renormalise(*mass_bounds(listed(("1", -1.0), ("0", -1.5), ("x", -9.0)), LABELS, 3))
    assert least[0] <= plain[0] + 1e-9 <= most[0]


def test_a_padded_reply_is_not_answered(proxy: Proxy, connect: Connect) -> None:
    def pad(reply: Any) -> Any:
        first = reply["choices"][0]["logprobs"]["content"][0]
        top = [entry for entry in first["top_logprobs"] if entry["token"].strip() != "0"]
        first["top_logprobs"] = [*top, *[top[-1]] * (len(first["top_logprobs"]) - len(top))]
        return reply

    with proxy.serve() as url:
        one = connect(url, known=False, retries=0)
        proxy.plan = lambda n, body: Fault(rewrite=pad)
        gate = ISRGate(scorer=one, reference=Oracle(1.0), on_error="abstain", orderings=Orderings(m=2))
        assert not gate.decide(["a", "b"], claim="c").answered


def test_replies_are_read_whatever_they_hold() -> None:
    huge = {"choices": [{"logprobs": {"content": [{"token": 1, "logprob": 10**400}]}}]}
    for reply in (None, [], {}, {"choices": 7}, huge):
        with pytest.raises(ServerReplyError):
            read_reply(reply)
