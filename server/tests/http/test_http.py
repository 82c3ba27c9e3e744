"""Decisions over HTTP: the library's own, refused with a reason, within limits, each with its own request."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from server.tests.http import worlds
from server.tests.http.hostile import bomb

from isr_rag import Chunk, Decision, ISRGate
from isr_rag.errors import ConfigurationError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.http import KEY_VARIABLE, Limits, Settings, create_app
from isr_rag_server.http.app import application
from isr_rag_server.http.desk import Desk, Threads
from isr_rag_server.http.fields import DecideRequest, IndexRequest, KeptChunk
from isr_rag_server.http.kept import KeptChunks, hash_of
from isr_rag_server.http.problems import STATUS, Problem
from isr_rag_server.http.service import Asker, Service
from isr_rag_server.http.settings import key_from_environment

Ask = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def client(gate: ISRGate | None = None, key: str | None = None, **settings: Any) -> AsyncIterator[Any]:
    app = create_app(gate or worlds.gate(), Settings(key=key, **settings))
    async with await worlds.asgi(app) as asking:
        yield asking


def asked(*args: Any, **settings: Any) -> Any:
    """The response to one request."""

    async def ask() -> Any:
        async with client(**settings) as asking:
            return await asking.request(*args[:2], **args[2])

    return asyncio.run(ask())


def post(body: Any, path: str = "/v1/decide", headers: dict[str, str] | None = None, **settings: Any) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"} | (headers or {})
    return asked("POST", path, {"content": content, "headers": sent}, **settings)


def problem(response: Any) -> tuple[int, str]:
    """Status and type of a problem document that is one."""
    assert response.headers["content-type"].startswith("application/problem+json")
    plain = response.json()
    assert plain["status"] == response.status_code and plain["title"] and plain["detail"]
    return response.status_code, plain["type"].removeprefix("urn:isr-rag:problem:")


@pytest.mark.parametrize(
    "item",
    [
        {"claim": "Number 7: number 7.", "evidence": ["a", {"text": "b", "title": "t"}]},
        {"question": "Which number 7?", "answer": "It is number 7.", "evidence": ["a"]},
        {"question": "Is it number 7?", "evidence": ["a"], "h_star": 0.3},
        {"claim": "Number 7: number 7.", "evidence": []},
        {"claim": "\ud800 <script>\x1b[2J number 7", "evidence": ["\udfff \x00 \u202e a"]},
    ],
)
def test_a_decision_is_the_one_of_the_library(item: dict[str, Any]) -> None:
    gate = worlds.gate()
    own = gate.with_h_star(item.get("h_star", gate.h_star))
    expected = own.decide(**{name: value for name, value in item.items() if name != "h_star"})
    response = post({**item, "id": "x-1"}, gate=gate)
    assert response.status_code == 200
    assert Decision.from_dict(response.json()["decision"]) == expected
    assert response.json()["id"] == "x-1" and response.json()["explanation"] == expected.explain()


@pytest.mark.parametrize(
    ("body", "status", "kind", "says"),
    [
        (b"", 422, "invalid-input", "required"),
        (b"{", 400, "malformed", "not JSON"),
        (b"\xff\xfe", 400, "malformed", "not JSON"),
        (b'{"claim": "a", "claim": "b", "evidence": []}', 400, "malformed", "twice"),
        (b'{"claim": "a", "evidence": [], "h_star": NaN}', 400, "malformed", "NaN"),
        (b"[" * 100_000, 400, "malformed", "nested"),
        ([], 422, "invalid-input", "object"),
        ({"claim": "a"}, 422, "invalid-input", "/evidence"),
        ({"claim": "a", "evidence": "one text"}, 422, "invalid-input", "/evidence"),
        ({"claim": 3, "evidence": []}, 422, "invalid-input", "/claim"),
        ({"claim": "a", "evidence": [" "]}, 422, "invalid-input", "evidence[0]"),
        ({"evidence": ["a"]}, 422, "invalid-input", "claim"),
        ({"claim": "a", "question": "b", "evidence": ["a"]}, 422, "invalid-input", "claim"),
        ({"claim": "a", "evidence": ["a"], "h_star": 1.5}, 422, "invalid-input", "/h_star"),
        ({"claim": "a", "evidence": [], "reference": 1}, 422, "invalid-input", "/reference"),
        ({"claim": "a", "evidence": [], "id": "\ud800"}, 422, "invalid-input", "/id"),
        ({"claim": "a", "evidence": [], "id": "\x1b[31m"}, 422, "invalid-input", "/id"),
        ({"claim": "a", "evidence": [], "id": True}, 422, "invalid-input", "/id"),
        ({"claim": "a", "evidence": ["a"] * 9}, 422, "too-many-chunks", "8 are allowed"),
        ({"claim": "a", "evidence": [{"sha256": "0" * 64}]}, 422, "unknown-chunk", "/v1/index"),
        ({"claim": "a" * 5000, "evidence": []}, 413, "body-too-large", "4,000 bytes"),
    ],
)
def test_bad_input_is_a_problem_that_says_what_to_do(body: Any, status: int, kind: str, says: str) -> None:
    response = post(body, limits=Limits(chunks=8, body=4000 if b"[[" not in bytes(str(body), "utf-8") else 10**6))
    assert problem(response) == (status, kind)
    assert says in response.text


@pytest.mark.parametrize(
    ("path", "body", "at"),
    [
        ("/v1/decide", {**worlds.item(1), "id": [1]}, "/id"),
        ("/v1/decide", {**worlds.item(1), "evidence": [{"title": "a"}]}, "/evidence/0/text"),
        ("/v1/decide", {**worlds.item(1), "evidence": [{"text": "a", "chunk": 1}]}, "/evidence/0/chunk"),
        ("/v1/decide", {"a/b~": 1, "evidence": []}, "/a~1b~0"),
        ("/v1/decisions", {"state": "a", "questions": {"string": {"type": "noul"}}}, "/questions/string/instructions"),
        ("/v1/audit?html=perhaps", {"answer": "It is so.", "evidence": []}, "/html"),
        ("/v1/index", [], ""),
    ],
)
def test_problems_point_to_what_is_wrong(path: str, body: Any, at: str) -> None:
    assert json.loads(post(body, path).content)["errors"][0]["at"] == at


def test_other_kinds_of_bodies_paths_and_methods_are_problems_too() -> None:
    text = post(worlds.item(1), headers={"Content-Type": "text/plain"})
    assert problem(text) == (415, "not-json")
    assert problem(asked("GET", "/v1/nothing", {})) == (404, "not-found")
    assert problem(asked("GET", "/v1/decide", {})) == (405, "method-not-allowed")
    assert asked("HEAD", "/healthz", {}).status_code == 200
    assert asked("HEAD", "/v1/models", {}, key=worlds.KEY).status_code == 401
    assert problem(asked("GET", "/page/..%2f..%2fsettings.py", {})) == (404, "not-found")


@pytest.mark.parametrize("path", ["/v1/decide/", "/v1/decide//"])
def test_a_path_that_ends_in_a_slash_is_not_sent_elsewhere(path: str) -> None:
    """Behind a proxy with TLS, a redirect would name http, and evidence and key would follow it."""
    assert post(worlds.item(1), path).status_code == 200
    assert problem(post(worlds.item(1), path, key=worlds.KEY)) == (401, "key-missing")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, (401, "key-missing")),
        ({"Authorization": f"Bearer {worlds.KEY}x"}, (403, "key-wrong")),
        ({"Authorization": f"Basic {worlds.KEY}"}, (403, "key-wrong")),
        ({"Authorization": "Bearer"}, (403, "key-wrong")),
        ({"Authorization": "Bearer \xe9".encode("latin-1").decode("latin-1")}, (403, "key-wrong")),
    ],
)
def test_without_the_key_nothing_is_decided(headers: dict[str, str], expected: tuple[int, str]) -> None:
    gate = worlds.gate()
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    assert problem(post(worlds.item(1), headers=raw, gate=gate, key=worlds.KEY)) == expected
    assert problem(asked("GET", "/metrics", {"headers": raw}, key=worlds.KEY)) == expected
    assert gate.scorer.scored == 0  # type: ignore[attr-defined]


def test_the_key_opens_and_health_and_page_need_none() -> None:
    right = {"Authorization": f"Bearer {worlds.KEY}"}
    assert post(worlds.item(1), headers=right, key=worlds.KEY).status_code == 200
    for path in ("/", "/healthz", "/readyz", "/openapi.json", "/page/page.js"):
        assert asked("GET", path, {}, key=worlds.KEY).status_code == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"host": "example.org"},
        {"key": "short"},
        {"key": "with spaces in it, sixteen"},
        {"origins": ("*",)},
        {"origins": ("https://app.example/",)},
        {"origins": ("https://App.example",)},
        {"origins": ("https://app.example:443",)},
        {"origins": ("app.example",)},
        {"port": 70000},
    ],
)
def test_what_would_be_open_to_everybody_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Settings(**settings)


def test_the_key_comes_from_the_environment_and_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, worlds.KEY)
    settings = Settings(host="0.0.0.0", key=key_from_environment())
    assert worlds.KEY not in repr(settings)
    monkeypatch.setenv(KEY_VARIABLE, " ")
    with pytest.raises(ConfigurationError, match="empty"):
        key_from_environment()


def test_a_name_that_another_site_let_point_here_is_refused_without_a_key() -> None:
    body = worlds.item(1)
    assert problem(post(body, headers={"Host": "evil.example"})) == (421, "wrong-host")
    assert post(body, headers={"Host": "localhost:8000"}).status_code == 200
    assert post(body, headers={"Host": "[::1]:8000"}).status_code == 200


def test_other_origins_may_ask_only_where_that_is_wanted() -> None:
    preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    closed = asked("OPTIONS", "/v1/decide", {"headers": preflight})
    assert "access-control-allow-origin" not in closed.headers
    opened = asked("OPTIONS", "/v1/decide", {"headers": preflight}, origins=("https://app.example",))
    assert opened.headers["access-control-allow-origin"] == "https://app.example"
    tools = {**preflight, "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version"}
    assert asked("OPTIONS", "/mcp", {"headers": tools}, origins=("https://app.example",)).status_code == 200
    other = {**preflight, "Origin": "https://evil.example"}
    refused = asked("OPTIONS", "/v1/decide", {"headers": other}, origins=("https://app.example",))
    assert "access-control-allow-origin" not in refused.headers
    keyless = asked("GET", "/v1/models", {"headers": preflight}, origins=("https://app.example",), key="k" * 32)
    assert keyless.status_code == 401
    assert keyless.headers["access-control-allow-origin"] == "https://app.example"  # the page can read what is wrong


def test_a_full_queue_says_when_to_come_back_and_what_waits_gets_503_when_it_stops() -> None:
    gate = worlds.gate()
    scorer = gate.scorer
    assert isinstance(scorer, worlds.CountingScorer)
    service = Service(gate, Settings(limits=Limits(running=1, queue=2)))

    async def run() -> list[Any]:
        async with await worlds.asgi(application(service)) as asking:
            scorer.may_go.clear()
            tasks = []
            for number in range(4):
                tasks.append(asyncio.create_task(asking.post("/v1/decide", json=worlds.item(number))))
                while service.desk.running + service.desk.waiting < min(number + 1, 3):
                    await asyncio.sleep(0.005)
            full = await tasks[3]
            assert problem(full) == (429, "queue-full") and int(full.headers["retry-after"]) >= 1
            assert "isr_rag_waiting 2.0" in (await asking.get("/metrics")).text
            service.desk.stop()
            for waiting in tasks[1:3]:
                assert problem(await waiting) == (503, "stopping")
            assert problem(await asking.get("/readyz")) == (503, "stopping")
            assert problem(await asking.post("/v1/decide", json=worlds.item(5))) == (503, "stopping")
            scorer.may_go.set()
            await asyncio.wait_for(service.desk.idle(), 5)
            return [await tasks[0]]

    (finished,) = asyncio.run(run())
    assert finished.status_code == 200 and finished.json()["decision"]["q"] == [pytest.approx(worlds.expected_q(0))]
    assert finished.headers["connection"] == "close"


def test_no_client_has_all_places() -> None:
    async def run() -> None:
        desk, may_go = Desk(Limits(running=8, queue=20)), asyncio.Event()
        begun: Counter[str] = Counter()

        async def work(client: str) -> None:
            begun[client] += 1
            await may_go.wait()

        def ask(client: str, times: int) -> list[asyncio.Task[None]]:
            return [asyncio.create_task(desk.run(client, lambda: work(client))) for _ in range(times)]

        greedy = ask("greedy", 10)
        await asyncio.sleep(0.01)
        assert begun == {"greedy": 6} and (desk.running, desk.waiting) == (6, 4)
        others = ask("b", 1) + ask("c", 2)
        await asyncio.sleep(0.01)
        assert begun == {"greedy": 6, "b": 1, "c": 1} and (desk.running, desk.waiting) == (8, 5)
        greedy[0].cancel()  # a place goes to whoever waited longest and has not its share
        others[0].cancel()
        await asyncio.sleep(0.01)
        assert begun == {"greedy": 7, "b": 1, "c": 2} and (desk.running, desk.waiting) == (8, 3)
        may_go.set()
        await asyncio.gather(*greedy[1:], *others[1:])
        await asyncio.wait_for(desk.idle(), 1)
        assert (desk.running, desk.waiting) == (0, 0)

    asyncio.run(run())


def test_a_thread_keeps_the_places_of_all_desks_that_its_request_has() -> None:
    async def run() -> None:
        limits, may_go = Limits(running=2), threading.Event()
        streams, desk = Desk(limits), Desk(limits)
        asyncio.get_running_loop().set_default_executor(Threads(limits))

        async def turn() -> bool:
            return await desk.run("a", lambda: asyncio.to_thread(may_go.wait, 10.0))

        with pytest.raises(Problem, match="too-slow"):
            await streams.run("a", turn, seconds=0.1)
        await asyncio.sleep(0.05)
        assert (streams.running, desk.running) == (1, 1)
        may_go.set()
        await asyncio.wait_for(asyncio.gather(streams.idle(), desk.idle()), 5)

    asyncio.run(run())


def test_what_never_had_its_turn_is_told_that_the_server_is_busy() -> None:
    """Less evidence would not help it."""

    async def run() -> None:
        desk, over = Desk(Limits(running=1)), asyncio.Event()
        begun = asyncio.create_task(desk.run("a", over.wait, seconds=30.0))
        await asyncio.sleep(0)
        with pytest.raises(Problem, match=r"too-slow.* busy"):
            await desk.run("b", over.wait, seconds=0.01)
        over.set()
        await begun

    asyncio.run(run())


def test_what_takes_too_long_is_given_up_and_its_place_is_free_again() -> None:
    gate = worlds.gate()
    service = Service(gate, Settings(limits=Limits(running=1, queue=5, seconds=0.2)))
    scorer = gate.scorer
    assert isinstance(scorer, worlds.CountingScorer)

    async def run() -> None:
        async with await worlds.asgi(application(service)) as asking:
            scorer.may_go.clear()
            slow = await asyncio.gather(*(asking.post("/v1/decide", json=worlds.item(i)) for i in range(3)))
            assert [problem(one) for one in slow] == [(504, "too-slow")] * 3
            assert service.desk.waiting == 0
            scorer.may_go.set()
            assert (await asking.post("/v1/decide", json=worlds.item(4))).status_code == 200

    asyncio.run(run())


def test_a_hundred_at_once_each_get_their_own_decision() -> None:
    async def run() -> list[Any]:
        async with client(limits=Limits(queue=200)) as asking:
            return await asyncio.gather(*(asking.post("/v1/decide", json=worlds.item(i, id=i)) for i in range(100)))

    for number, response in enumerate(asyncio.run(run())):
        assert response.status_code == 200 and response.json()["id"] == number
        assert response.json()["decision"]["q"] == [pytest.approx(worlds.expected_q(number))]


def test_indexed_chunks_are_named_by_their_hash() -> None:
    async def run() -> None:
        async with client() as asking:
            chunks = ["It says 3.", {"text": "More.", "title": "Title"}]
            indexed = (await asking.post("/v1/index", json={"evidence": chunks})).json()
            assert indexed["read_ahead"] is False and indexed["tokens"] == 0  # this scorer keeps no states
            named = [{"sha256": one} for one in indexed["sha256"]]
            by_hash = (await asking.post("/v1/decide", json={"claim": "number 3", "evidence": named})).json()
            by_text = (await asking.post("/v1/decide", json={"claim": "number 3", "evidence": chunks})).json()
            for one in (by_hash, by_text):
                del one["decision"]["seconds"]
            assert by_hash == by_text
            assert problem(await asking.post("/v1/index", json={"evidence": []})) == (422, "invalid-input")

    asyncio.run(run())


def test_long_chunks_that_hashes_name_take_none_of_the_time_of_the_event_loop() -> None:
    async def run() -> None:
        service, asker = Service(worlds.gate(), Settings()), Asker("request", "client")
        sent = await service.index(IndexRequest(evidence=["\u4e2d\u6587 " * 590_000]), asker)
        named: list[Any] = [KeptChunk(sha256=sent.sha256[0])]
        begun = time.thread_time()
        for _ in range(3):
            assert await service.index(IndexRequest(evidence=named), asker) == sent
        with pytest.raises(Problem, match="name fewer chunks"):
            await service.decide(DecideRequest.model_validate({"claim": "c", "evidence": named * 200}), asker)
        assert time.thread_time() - begun < 0.1

    asyncio.run(run())


@pytest.mark.parametrize("text", ["{:x}", "\U0001f642{:x}"])
def test_kept_chunks_take_no_more_memory_than_they_count(text: str) -> None:
    kept = KeptChunks(2**20)
    tracemalloc.start()
    try:
        for i in range(10_000):
            chunk = Chunk(text.format(i), "")
            kept.keep(hash_of(chunk), chunk)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.9 * 2**20 < kept.nbytes <= 2**20
    assert taken < 1.1 * kept.nbytes


def test_a_document_becomes_chunks_and_nothing_is_fetched_or_read_from_disk() -> None:
    def document(content: bytes, name: str) -> Any:
        return asked("POST", "/v1/documents", {"params": {"name": name}, "content": content})

    text = document(b"First paragraph.\n\nSecond one.", "notes.md").json()
    assert text == {"chunks": [{"text": "First paragraph. Second one.", "title": "notes"}]}
    page = b"<html><title>T</title><body><p>The Seine flows through Paris, as everybody knows.</p>" + (
        b'<img src="http://127.0.0.1:1/x"><iframe src="file:///etc/passwd"></iframe></body></html>'
    )
    assert document(page, "page.html").json()["chunks"][0]["text"].startswith("The Seine")
    assert problem(document(b"http://127.0.0.1:1/x", "../../etc/passwd.pdf")) == (422, "unreadable-document")
    assert document(b"http://127.0.0.1:1/x", "/etc/passwd").json()["chunks"][0]["text"] == "http://127.0.0.1:1/x"
    assert problem(document(b"\0\0\0", "a.txt")) == (422, "unreadable-document")


@pytest.mark.slow
def test_a_document_that_takes_too_long_holds_its_place_no_longer_than_its_deadline() -> None:
    async def run() -> None:
        async with client(limits=Limits(seconds=3.0, running=1)) as asking:
            begun = time.monotonic()
            sent = {"params": {"name": "a.pdf"}, "content": bomb()}
            slow = asyncio.create_task(asking.post("/v1/documents", **sent))
            await asyncio.sleep(1.0)
            alive = time.monotonic()
            assert (await asking.get("/healthz")).status_code == 200 and time.monotonic() - alive < 1.0
            assert problem(await slow) in ((504, "too-slow"), (422, "unreadable-document"))
            assert (await asking.post("/v1/documents", params={"name": "a.txt"}, content=b"text")).status_code == 200
            assert time.monotonic() - begun < 5.0

    asyncio.run(run())


def test_failures_are_logged_under_the_request_and_tell_a_client_no_internals(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FixedScorer):
        def score(self, requests: Any) -> Any:
            raise RuntimeError("weights at /secret/place")

    logging.getLogger("isr_rag_server.http").disabled = False  # as another test's logging set-up may leave it
    broken = ISRGate(scorer=Broken([0.5]), reference=Oracle(1.0))
    response = post(worlds.item(1), gate=broken, headers={"X-Request-ID": "abc-1"})
    assert problem(response) == (502, "scorer-failed")
    assert response.headers["x-request-id"] == "abc-1"
    assert [record for record in caplog.records if "abc-1" in record.getMessage() and record.levelno == logging.ERROR]


def test_an_identifier_that_is_none_is_replaced() -> None:
    for bad in ("a b", "x" * 65, "<script>", "%0d%0aSet-Cookie: a=b"):
        response = post(worlds.item(1), headers={"X-Request-ID": bad})
        assert response.headers["x-request-id"] != bad and len(response.headers["x-request-id"]) == 16
        assert "set-cookie" not in response.headers


def test_metrics_count_decisions_by_action_and_reason_and_no_path_of_a_client() -> None:
    async def run() -> str:
        async with client() as asking:
            await asking.post("/v1/decide", json=worlds.item(900))
            await asking.post("/v1/decide", json={"claim": "number 1", "evidence": []})
            await asking.get("/some/made/up/path")
            return (await asking.get("/metrics")).text

    text = asyncio.run(run())
    assert 'isr_rag_decisions_total{action="abstain",predicate="supported-claim/1",reason="no_evidence"} 1.0' in text
    assert 'isr_rag_requests_total{path="/v1/decide",status="200"} 2.0' in text
    assert 'isr_rag_requests_total{path="other",status="404"} 1.0' in text
    assert "/made" not in text and "isr_rag_passes_total 1.0" in text and "isr_rag_state_bytes" in text


def test_a_log_has_a_line_per_decision_without_texts_and_a_full_disk_costs_no_answer(tmp_path: Any) -> None:
    log = tmp_path / "decisions.jsonl"
    post({"claim": "number 5 secretly", "evidence": ["a secret"], "id": "i"}, log=log)
    line = json.loads(log.read_text("utf-8"))
    assert line["id"] == "i" and line["time"].endswith("+00:00")
    assert Decision.from_dict(line["decision"]).q == (pytest.approx(worlds.expected_q(5)),)
    assert "secret" not in log.read_text("utf-8")
    assert log.stat().st_mode & 0o077 == 0
    quoting = {"claim": "This is number 980: “the secret of us all” and 4711 km.", "evidence": ["a"]}
    assert "secret" in post(quoting, log=log).json()["decision"]["detail"]
    assert "secret" not in log.read_text("utf-8")

    async def full() -> str:
        from pathlib import Path

        async with client(log=Path("/dev/full")) as asking:
            answers = [await asking.post("/v1/decide", json=worlds.item(i)) for i in range(5)]
            assert [one.status_code for one in answers] == [200] * 5
            return (await asking.get("/metrics")).text

    if __import__("os").path.exists("/dev/full"):
        assert "isr_rag_unlogged_decisions_total 5.0" in asyncio.run(full())


def test_the_description_has_every_path_with_examples_and_problems() -> None:
    plain = asked("GET", "/openapi.json", {}).json()
    assert {"/v1/decide", "/v1/index", "/v1/documents", "/v1/models", "/healthz", "/readyz", "/metrics"} <= set(
        plain["paths"]
    )
    request = plain["components"]["schemas"]["DecideRequest"]
    assert request["examples"] and request["additionalProperties"] is False
    for path, methods in plain["paths"].items():
        for operation in methods.values():
            for status in ("4XX", "5XX"):
                assert operation["responses"][status]["content"] == {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemFields"}}
                }, path
            assert "security" not in operation
    assert "ProblemFields" in plain["components"]["schemas"]
    assert list(plain["paths"]["/metrics"]["get"]["responses"]["200"]["content"]) == ["text/plain"]
    for example in request["examples"]:
        assert post(example, gate=ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0))).status_code == 200
    assert set(STATUS.values()) <= set(range(400, 600))


def test_the_description_says_where_the_key_is_needed() -> None:
    plain = asked("GET", "/openapi.json", {}, key=worlds.KEY).json()
    (name,) = plain["components"]["securitySchemes"]
    assert plain["components"]["securitySchemes"][name] == {"type": "http", "scheme": "bearer"}
    for path, methods in plain["paths"].items():
        for operation in methods.values():
            assert operation.get("security", []) == ([] if path in ("/healthz", "/readyz") else [{name: []}]), path
