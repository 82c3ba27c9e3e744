"""A decision model over real HTTP, on each wire that is in use, and with what can go wrong."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")

import isr_rag.cli
from isr_rag import Choice, ISRGate
from isr_rag.core.settings import Orderings
from isr_rag.errors import ConfigurationError, ServerError, ServerReplyError
from isr_rag.references import Oracle
from isr_rag.scorers.remote.decisions import DecisionScorer

Reply = tuple[int, Any]


def yes_to(state: str, text: str) -> float:
    """Sure where the first chunk of the state is about Paris, less so where another one is."""
    return 0.9 if state.split("\n")[0].count("Paris") else 0.6


def noul(path: str, body: dict[str, Any]) -> Reply:
    """As System One and the gateways that follow it answer."""
    answers = {
        name: {"type": "noul", "noul": yes_to(body["state"], one["instructions"])}
        for name, one in body["questions"].items()
        if one["type"] == "noul" and set(one["criteria"]) == {"true", "false"}
    }
    return 200, {"model": body["model"], "answers": answers, "usage": {"input_tokens": 50, "output_tokens": 0}}


def predicate(path: str, body: dict[str, Any]) -> Reply:
    """As OpenAI's decisions answer: lists, and nothing but the fields that are known."""
    if "state" in body:
        return 400, {"error": {"message": "Unknown parameter: 'state'."}}
    answers = [
        {"type": "predicate", "name": one["name"], "probability": yes_to(body["input"], one["instructions"])}
        for one in body["questions"]
    ]
    return 200, {"model": body["model"], "answers": answers[::-1], "usage": {"input_tokens": 40}}


def yes_no(path: str, body: dict[str, Any]) -> Reply:
    """As SGLang 0.5.23 answers at `/v1/decisions`: ids in a list, and nothing but the fields that are known."""
    known = {"id", "type", "question", "yes", "no"}
    if set(body) - {"model"} != {"input", "questions"} or any(set(one) - known for one in body["questions"]):
        return 400, {"object": "error", "message": "Extra inputs are not permitted", "type": "BadRequestError"}
    answers: dict[str, Any] = {}
    for one in body["questions"]:
        yes = yes_to(body["input"], one["question"])
        answers[one["id"]] = {"type": one["type"], "probabilities": {"yes": yes, "no": 1.0 - yes}, "label_mass": 0.99}
    reply = {"object": "decisions", "model": body["model"], "prompt_format_version": 1, "answers": answers}
    return 200, reply | {"usage": {"prompt_tokens": 60, "total_tokens": 60, "completion_tokens": 0}}


@contextmanager
def served(answer: Callable[[str, dict[str, Any]], Reply], seen: list[Any] | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"data": [{"id": "jev", "owned_by": "tests"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if seen is not None:
                seen.append((self.path, body))
            self._send(*answer(self.path, body))

        def _send(self, status: int, reply: Any) -> None:
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def system_one(path: str, body: dict[str, Any]) -> Reply:
    return noul(path, body) if path == "/v1/systemone" else (404, {"error": {"message": "no such path"}})


EVIDENCE = ["Paris lies on the Seine.", "Lyon lies on the Rhône."]


@pytest.mark.parametrize(
    ("answer", "wire", "tokens"),
    [
        (noul, "decisions/noul", 50),
        (predicate, "decisions/predicate", 40),
        (yes_no, "decisions/yes_no", 60),
        (system_one, "systemone/noul", 50),
    ],
)
def test_every_wire_gives_a_probability_for_each_ordering(
    answer: Callable[[str, dict[str, Any]], Reply], wire: str, tokens: int
) -> None:
    with served(answer) as url:
        scorer = DecisionScorer(url)
        assert scorer.identity == f"jev|{wire}"
        gate = ISRGate(scorer, Oracle(1.0), orderings=Orderings(m=2))
        decision = gate.decide(EVIDENCE, claim="The Seine flows through Paris.")
        assert sorted(decision.q) == pytest.approx([0.6, 0.9])
        assert scorer.prompt_tokens == 3 * tokens  # one question when it was made, and two orderings
        again = asyncio.run(gate.adecide(EVIDENCE, claim="The Seine flows through Paris."))
        assert again.q == decision.q


@pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")
def test_a_decision_model_is_calibrated_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(path: str, body: dict[str, Any]) -> Reply:
        status, reply = noul(path, body)
        for name, one in reply["answers"].items():
            one["noul"] = 0.9 if "waxes" in json.dumps(body["questions"][name]) else 0.1
        return status, reply

    rows = [
        {"id": i, "label": int(i % 2 != 0 and i % 17 != 0), "claim": f"It {word}.", "evidence": [f"Note {i}.", "More."]}
        for i, word in enumerate(["wanes", "waxes"] * 120)
    ]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    given = ["--items", str(tmp_path / "items.jsonl"), "--out", str(tmp_path / "jev"), "--m", "2"]
    with served(answer) as url:
        monkeypatch.setattr(sys, "argv", ["isr-rag", "calibrate", "--decisions", url, *given])
        with pytest.raises(SystemExit) as stop:
            isr_rag.cli.main()
        assert not stop.value.code
        gate = ISRGate.load(tmp_path / "jev", h_star=0.2)
        assert gate.scorer.identity.startswith("jev|decisions/noul")
        assert gate.decide(["Note.", "More."], claim="It waxes.").answered
        assert not gate.decide(["Note.", "More."], claim="It wanes.").answered


def test_a_server_that_reads_one_request_at_a_time_is_not_asked_for_too_many_at_once() -> None:
    """Asked for all twelve orderings together, it would let the last one wait for longer than a request may take."""
    alone = threading.Lock()

    def slow(path: str, body: dict[str, Any]) -> Reply:
        with alone:
            time.sleep(0.25)
            return noul(path, body)

    with served(slow) as url:
        gate = ISRGate(DecisionScorer(url, timeout=2.0, retries=0), Oracle(1.0), orderings=Orderings(m=12))
        for number in range(6):  # one after another they are quick, which says nothing about many at once
            gate.decide(EVIDENCE[:1], claim=f"City number {number} lies there.")
        assert len(gate.decide([*EVIDENCE, "Metz is a city.", "Nice is one, too."], claim="A city lies there.").q) == 12


def test_a_server_that_reads_many_at_once_is_asked_for_many_at_once_although_it_is_slow() -> None:
    seen = [0, 0]

    def slow(path: str, body: dict[str, Any]) -> Reply:
        seen[0] += 1
        seen[1] = max(seen)
        time.sleep(0.6)
        seen[0] -= 1
        return noul(path, body)

    with served(slow) as url:
        gate = ISRGate(DecisionScorer(url, timeout=2.0), Oracle(1.0), orderings=Orderings(m=12))
        gate.decide([*EVIDENCE, "Metz is a city.", "Nice is one, too."], claim="A city lies there.")
    assert seen[1] >= 4


def test_questions_about_one_ordering_travel_together() -> None:
    seen: list[Any] = []
    with served(noul, seen) as url:
        gate = ISRGate(DecisionScorer(url), Oracle(1.0), orderings=Orderings(m=2))
        seen.clear()
        gate.decide_batch([{"evidence": EVIDENCE, "claim": f"Claim {n}."} for n in range(5)])
        assert [len(body["questions"]) for _, body in seen] == [5, 5]
        seen.clear()
        one = ISRGate(gate.scorer, Oracle(1.0), orderings=Orderings(m=1))
        one.decide_batch([{"evidence": EVIDENCE, "claim": f"Claim {n}."} for n in range(230)])
    assert sorted(len(body["questions"]) for _, body in seen) == [30, 100, 100]  # servers take no more than so many


@pytest.mark.parametrize(
    "wrong",
    [
        {"answers": {}},
        {"answers": {"0": {"type": "noul", "noul": 1.2}}},
        {"answers": {"0": {"type": "noul", "noul": True}}},
        {"answers": {"0": {"type": "choice", "choice": "yes"}}},
        {"answers": [{"type": "refusal", "name": "0"}]},
        {"answers": "yes"},
        {},
    ],
)
def test_an_answer_without_a_probability_is_a_failure_and_never_a_decision(wrong: dict[str, Any]) -> None:
    good = True
    with served(lambda path, body: noul(path, body) if good else (200, wrong)) as url:
        scorer = DecisionScorer(url)
        good = False
        with pytest.raises(ServerReplyError, match="no probability"):
            ISRGate(scorer, Oracle(1.0)).decide(EVIDENCE, claim="c")
        with pytest.raises(ServerError, match="is no decision model"):
            DecisionScorer(url)


@pytest.mark.parametrize(
    "changed",
    [
        {"answers": [{"type": "predicate", "name": "0", "probability": p} for p in (0.9, 0.01)]},
        {"answers": [{"type": "refusal", "name": "0", "probability": 0.9}]},
        {"answers": [{"type": "predicate", "name": ["0"], "probability": 0.9}]},
    ],
)
def test_answers_of_a_list_are_one_for_each_question_and_of_its_type(changed: dict[str, Any]) -> None:
    good = True
    with served(lambda path, body: predicate(path, body) if good or "state" in body else (200, changed)) as url:
        scorer = DecisionScorer(url)
        good = False
        with pytest.raises(ServerReplyError, match="no probability"):
            ISRGate(scorer, Oracle(1.0), orderings=Orderings(m=1)).decide(EVIDENCE[:1], claim="c")


def test_a_server_that_refuses_is_named_and_a_choice_is_not_asked() -> None:
    with served(lambda path, body: (401, {"error": {"message": "no key"}})) as url, pytest.raises(ServerError) as told:
        DecisionScorer(url)
    assert told.value.status == 401 and "ISR_RAG_API_KEY" in str(told.value)
    with served(noul) as url, pytest.raises(ConfigurationError, match="yes-or-no"):
        ISRGate(DecisionScorer(url), Oracle(1.0)).decide(EVIDENCE, predicate=Choice("Which?", ["a", "b"]))


@pytest.mark.parametrize(
    "body", [{"detail": "no field x"}, {"error": "no field x"}, {"error": {"message": "no field x"}}]
)
def test_what_a_server_says_of_a_refusal_is_passed_on(body: Any) -> None:
    """FastAPI says it as `detail`, LM Studio as a text, OpenAI as a message."""
    with served(lambda path, asked: (422, body)) as url, pytest.raises(ServerError, match=r"status 422: .*no field x"):
        DecisionScorer(url)
