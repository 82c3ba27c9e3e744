"""A real OpenAI-compatible server around a tiny model, and a proxy that does to its traffic what networks do."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from tests.scorers import tiny


@dataclass
class Features:
    """What the tiny server offers."""

    completions: bool = True
    chat: bool = True
    top: int = 1000
    at_least: int = 0
    token_prompts: bool = True
    logprobs: bool = True
    system: bool = True
    limit: str = "max_tokens"
    key: str | None = None
    responses: str = ""
    """What it does with logprobs at `/responses`, which it has not if empty: `lists`, `forgets` or `refuses` them."""
    thinks: bool = False


@dataclass
class Tiny:
    """A tiny language model with a byte-level tokenizer and a ChatML template, behind HTTP."""

    features: Features = field(default_factory=Features)
    family: str = "chatml"
    seen: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    connections: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tokenizer = tiny.tokenizer(self.family)
        self.model = tiny.model("llama", len(self.tokenizer))
        self.lock = threading.Lock()

    def logprobs(self, ids: list[int]) -> torch.Tensor:
        with self.lock, torch.inference_mode():
            return self.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)

    def answer(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if self.features.key is not None and headers.get("authorization") != f"Bearer {self.features.key}":
            return 401, {"error": {"message": f"wrong key: {headers.get('authorization')}"}}
        if path == "/v1/models":
            return 200, {"data": [{"id": "tiny", "object": "model", "owned_by": "tests", "max_model_len": 1024}]}
        self.seen.append(body)
        if path == "/v1/responses" and self.features.responses:
            return self._response(body)
        chat = path == "/v1/chat/completions"
        if path not in ("/v1/completions", "/v1/chat/completions") or not (
            self.features.chat if chat else self.features.completions
        ):
            return 404, {"error": {"message": f"no such path {path}"}}
        asked = body.get("top_logprobs", 0) if chat else body.get("logprobs", 0)
        if asked > self.features.top:
            return 400, {"error": {"message": f"logprobs {asked} > {self.features.top}"}}
        if self.features.limit not in body:
            return 400, {"error": {"message": f"use {self.features.limit}"}}
        if chat and not self.features.system and body["messages"][0]["role"] == "system":
            return 400, {"error": {"message": "no system role"}}
        try:
            ids = self._ids(chat, body)
        except TypeError:
            return 422, {"error": {"message": "prompt must be a string"}}
        return 200, self._reply(chat, body, ids, asked)

    def _response(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """As the schema of OpenAI's Responses API, which LM Studio follows, has it."""
        if body["max_output_tokens"] < 16:
            said = f"Invalid 'max_output_tokens': Expected a value >= 16, but got {body['max_output_tokens']} instead."
            return 400, {"error": {"message": said, "param": "max_output_tokens", "code": "integer_below_min_value"}}
        if self.features.responses == "refuses":
            said = "logprobs are not supported with reasoning models."
            return 400, {"error": {"message": said, "param": "include", "code": "unsupported_parameter"}}
        if not self.features.system and body["input"][0]["role"] == "system":
            return 400, {"error": {"message": "no system role"}}
        assert body["store"] is False and body["include"] == ["message.output_text.logprobs"]
        ids = self._ids(True, body)
        listed: list[dict[str, Any]] = []
        for _ in range(3):  # as if the limit ended it here
            written = [one["id"] for one in listed]
            row = self.logprobs(ids + written)[-1]
            top = [
                {"token": self.tokenizer.decode([i]), "bytes": [], "logprob": max(float(row[i]), -9999.0), "id": i}
                for i in row.topk(min(body["top_logprobs"], len(row))).indices.tolist()
            ]
            listed.append(top[0] | {"top_logprobs": top})
        text = "".join(one["token"] for one in listed)
        kept = listed if self.features.responses == "lists" else []
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": kept}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "incomplete", "content": [part]}
        thought = {"type": "reasoning", "id": "rs_1", "summary": []}
        return 200, {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "error": None,
            "model": "tiny",
            "output": [thought, message] if self.features.thinks else [message],
            "usage": {"input_tokens": len(ids), "output_tokens": 3, "total_tokens": len(ids) + 3},
        }

    def _ids(self, chat: bool, body: dict[str, Any]) -> list[int]:
        if chat:
            turns = body.get("messages") or body["input"]
            text = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        else:
            text = body["prompt"]
        if isinstance(text, list):
            if not self.features.token_prompts:
                raise TypeError
            return text
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _reply(self, chat: bool, body: dict[str, Any], ids: list[int], asked: int) -> dict[str, Any]:
        row = self.logprobs(ids)[-1]
        chosen = int(row.argmax())
        listed: list[int] = row.topk(min(max(asked, self.features.at_least, 1), len(row))).indices.tolist()
        name: Callable[[int], str] = lambda i: self.tokenizer.decode([i])  # noqa: E731
        value: Callable[[int], float] = lambda i: max(float(row[i]), -9999.0)  # noqa: E731
        choice_out: dict[str, Any] = {"index": 0, "finish_reason": "length", "text": name(chosen)}
        if self.features.logprobs and asked:
            if chat:
                top = [{"token": name(i), "logprob": value(i)} for i in listed]
                first = {"token": name(chosen), "logprob": value(chosen), "top_logprobs": top}
                choice_out["logprobs"] = {"content": [first]}
            else:
                choice_out["logprobs"] = {
                    "tokens": [name(chosen)],
                    "token_logprobs": [value(chosen)],
                    "top_logprobs": [{name(i): value(i) for i in listed}],
                }
        return {"id": "x", "model": "tiny", "choices": [choice_out], "usage": {"prompt_tokens": len(ids)}}

    @contextmanager
    def serve(self) -> Iterator[str]:
        """The base URL while it runs."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(*server.answer(self.path, {}, self._lowered()))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with server.lock:
                    server.connections.add(self.client_address)
                    server.headers.append(self._lowered())
                    server.in_flight += 1
                    server.most_in_flight = max(server.most_in_flight, server.in_flight)
                try:
                    self._send(*server.answer(self.path, body, self._lowered()))
                finally:
                    with server.lock:
                        server.in_flight -= 1

            def _lowered(self) -> dict[str, str]:
                return {name.lower(): value for name, value in self.headers.items()}

            def _send(self, status: int, reply: dict[str, Any]) -> None:
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        with _running(Handler) as url:
            yield url


@dataclass(frozen=True)
class Fault:
    """What becomes of one reply."""

    drop: bool = False
    delay: float = 0.0
    status: int | None = None
    retry_after: str | None = None
    cut: bool = False
    rewrite: Callable[[Any], Any] | None = None
    raw: bytes | None = None


@dataclass
class Proxy:
    """Passes requests on, and spoils the replies as the plan says; `requests` counts what came in."""

    upstream: str
    plan: Callable[[int, dict[str, Any]], Fault | None] = lambda n, body: None
    requests: int = 0

    @contextmanager
    def serve(self) -> Iterator[str]:
        """The base URL while it runs."""
        proxy, lock = self, threading.Lock()
        host = self.upstream.split("/")[2]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._pass("GET", None)

            def do_POST(self) -> None:
                self._pass("POST", self.rfile.read(int(self.headers["content-length"])))

            def _pass(self, method: str, body: bytes | None) -> None:
                fault = None
                if body is not None:
                    with lock:
                        proxy.requests += 1
                        fault = proxy.plan(proxy.requests, json.loads(body))
                fault = fault or Fault()
                time.sleep(fault.delay)
                if fault.drop:
                    self.close_connection = True
                    return
                if fault.status is not None:
                    self._send(fault.status, b'{"error": {"message": "by the proxy"}}', fault)
                    return
                onward = http.client.HTTPConnection(host, timeout=30)
                onward.request(method, self.path, body, {"content-type": "application/json"})
                reply = onward.getresponse()
                data = reply.read()
                onward.close()
                if fault.rewrite is not None:
                    data = json.dumps(fault.rewrite(json.loads(data))).encode()
                self._send(reply.status, data if fault.raw is None else fault.raw, fault)

            def _send(self, status: int, data: bytes, fault: Fault) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                if fault.retry_after is not None:
                    self.send_header("retry-after", fault.retry_after)
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if fault.cut else data)
                if fault.cut:
                    self.close_connection = True

            def log_message(self, *_: object) -> None: ...

        with _running(Handler) as url:
            yield url


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Callers that give up are what some tests are for."""


@contextmanager
def _running(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
