"""Servers of one model share the work, a dead one is left out and comes back, and with none nothing is answered."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from isr_rag import ISRGate
from isr_rag.decision import Reason
from isr_rag.errors import ConfigurationError, PromptTooLongError, ScorerError
from isr_rag.items import check_file
from isr_rag.items.lines import BATCH
from isr_rag.prompt import Prompt
from isr_rag.references import Oracle
from isr_rag.scorers.protocol import Layout, PartialScoresError, Scorer, ScoreRequest, Scores
from isr_rag.scorers.remote import AllServersDownError, ServerPool, pool

PROMPT = Prompt("", "p\n", ("> a\n", "> b\n"), "s", (("yes",), ("no",)))
REQUEST = ScoreRequest(PROMPT, ((0, 1), (1, 0)))


class Fake:
    """A server that can be switched off."""

    layout: Layout = "full"

    def __init__(self, service: str = "model") -> None:
        self.service = service
        self.up = True
        self.fails: Exception | None = None
        self.answered = 0
        self.checks = 0
        self.gate: threading.Barrier | None = None

    def connect(self) -> Fake:
        if not self.up:
            raise ScorerError("connection refused")
        return self

    def healthy(self) -> bool:
        self.checks += 1
        return self.up

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        if not self.up:
            raise ScorerError("connection reset")
        if self.fails is not None:
            raise self.fails
        if self.gate is not None:
            self.gate.wait(10)
        self.answered += len(requests)
        return [Scores(np.log(np.full((len(r.orderings), 2), 0.5)), len(r.orderings)) for r in requests]


def make(*servers: Fake, first: int = 0) -> ServerPool:
    return ServerPool({f"http://{i}": server.connect for i, server in enumerate(servers)}, first=first)


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "REST", 0.0)


@pytest.fixture
def long_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "REST", 3600.0)


def test_it_is_a_scorer_named_by_the_service_and_not_by_addresses() -> None:
    one, two = make(Fake()), make(Fake(), Fake())
    assert isinstance(one, Scorer)
    assert one.identity == two.identity == "model"


def test_items_in_hand_are_shared_evenly() -> None:
    servers = Fake(), Fake()
    barrier = threading.Barrier(4)  # opens only when four items are in hand at once
    for server in servers:
        server.gate = barrier
    assert len(make(*servers).score([REQUEST] * 4)) == 4
    assert [server.answered for server in servers] == [2, 2]


def test_pools_of_many_workers_begin_with_different_servers() -> None:
    servers = Fake(), Fake(), Fake()
    for first in range(3):
        make(*servers, first=first).score([REQUEST])
    assert [server.answered for server in servers] == [1, 1, 1]


def test_a_server_that_dies_is_taken_out_and_its_items_go_elsewhere(long_rest: None) -> None:
    dead, alive = Fake(), Fake()
    both = make(dead, alive)
    dead.up = False
    assert len(both.score([REQUEST] * 20)) == 20
    assert alive.answered == 20
    assert Counter(state == "in" for state in both.state.values()) == {True: 1, False: 1}
    checks = dead.checks
    both.score([REQUEST] * 20)
    assert dead.checks == checks  # it rests


def test_a_server_that_comes_back_is_used_again(no_rest: None) -> None:
    back, other = Fake(), Fake()
    both = make(back, other)
    back.up = False
    both.score([REQUEST])
    back.up, other.up = True, False
    assert len(both.score([REQUEST] * 3)) == 3
    assert back.answered == 3


def test_a_server_that_is_down_at_the_start_joins_later(no_rest: None) -> None:
    late, other = Fake(), Fake()
    late.up = False
    both = make(late, other)
    assert both.state["http://0"] == "connection refused"
    late.up, other.up = True, False
    both.score([REQUEST])
    assert late.answered == 1


def test_with_all_servers_down_there_is_a_typed_error_and_no_answer(long_rest: None) -> None:
    servers = Fake(), Fake()
    both = make(*servers)
    for server in servers:
        server.up = False
    with pytest.raises(AllServersDownError, match="http://0: connection reset; http://1: connection reset"):
        ISRGate(scorer=both, reference=Oracle(1.0)).decide(["a", "b"], claim="c")
    decision = ISRGate(scorer=both, reference=Oracle(1.0), on_error="abstain").decide(["a", "b"], claim="c")
    assert (decision.answered, decision.reason) == (False, Reason.SCORER_FAILED)


def test_no_server_at_the_start_is_the_same_error() -> None:
    dead = Fake()
    dead.up = False
    with pytest.raises(AllServersDownError, match="refused"):
        make(dead)
    with pytest.raises(ConfigurationError, match="at least one server"):
        ServerPool({})


def test_an_item_that_a_living_server_fails_is_asked_of_the_others_once() -> None:
    bad, good = Fake(), Fake()
    bad.fails = ScorerError("500 for this prompt")
    both = make(bad, good)
    assert len(both.score([REQUEST])) == 1
    assert set(both.state.values()) == {"in"}
    good.fails = ScorerError("500 here too")
    with pytest.raises(ScorerError, match="500"):
        both.score([REQUEST])


def test_what_was_scored_is_kept_when_other_items_fail() -> None:
    class Picky(Fake):
        def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
            if len(requests[0].orderings) == 1:
                raise ScorerError("no label in the reply")
            return super().score(requests)

    with pytest.raises(PartialScoresError, match="1 of 3 requests failed: no label") as caught:
        make(Picky()).score([REQUEST, ScoreRequest(PROMPT, ((0, 1),)), REQUEST])
    assert [isinstance(outcome, Scores) for outcome in caught.value.outcomes] == [True, False, True]


def test_bad_input_is_not_tried_on_another_server() -> None:
    first, second = Fake(), Fake()
    first.fails = PromptTooLongError("too long")
    with pytest.raises(PromptTooLongError):
        make(first, second).score([REQUEST])
    assert second.answered == 0


def test_servers_of_different_models_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="http://1 has 'other'"):
        make(Fake("model"), Fake("other"))


class Handler(BaseHTTPRequestHandler):
    """An OpenAI-compatible server of one model that is 90 % sure of everything."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[Counter[int]] = Counter()
    down: ClassVar[set[int]] = set()

    def parse_request(self) -> bool:
        """A server that is down hangs up on whoever is connected."""
        if self.server.server_address[1] in self.down:
            self.close_connection = True
            return False
        return super().parse_request()

    def do_GET(self) -> None:
        self.reply({"object": "list", "data": [{"id": "sure", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        port = self.server.server_address[1]
        self.asked[int(port)] += 1
        if not self.path.endswith("/chat/completions"):
            return self.reply({"error": {"message": "no such endpoint"}}, 404)
        tops = [{"token": "1", "logprob": math.log(0.9)}, {"token": "0", "logprob": math.log(0.1)}]
        content = [{**tops[0], "top_logprobs": tops[: body.get("top_logprobs", 0)]}]
        choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "1"}}
        self.reply({"object": "chat.completion", "choices": [{**choice, "logprobs": {"content": content}}]})

    def reply(self, plain: dict[str, object], status: int = 200) -> None:
        text = json.dumps({"id": "x", "created": 0, "model": "sure", **plain}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_over_http_two_servers_share_a_file_and_one_finishes_it_alone(long_rest: None, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="servers need the openai client: pip install '.[server]'")
    from isr_rag.factory import build_gate

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    ports = [int(server.server_address[1]) for server in servers]
    gate = build_gate(servers=[f"http://127.0.0.1:{port}" for port in ports], p_ref=1.0)
    assert isinstance(gate.scorer, ServerPool)
    before = Handler.asked.copy()
    source = tmp_path / "in.jsonl"
    lines = [json.dumps({"id": i, "claim": f"c{i}", "evidence": ["a"]}) for i in range(3 * BATCH)]
    source.write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def stop_one(done: int, items: int) -> None:
        if done == BATCH:
            assert all(Handler.asked[port] > before[port] for port in ports)
            Handler.down.add(ports[0])

    assert check_file(gate, source, tmp_path / "out.jsonl", progress=stop_one).decided == 3 * BATCH
    assert sorted(state == "in" for state in gate.scorer.state.values()) == [False, True]
    record = json.loads((tmp_path / "out.jsonl").read_text("utf-8").splitlines()[-1])
    assert record["decision"]["q"] == pytest.approx([0.9])
    for server in servers:
        server.shutdown()
        server.server_close()
