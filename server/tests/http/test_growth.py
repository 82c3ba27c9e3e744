"""Requests take time and memory in proportion to their length, whatever is in them, up to the accepted size."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server.tests.http import worlds
from server.tests.http.test_mcp import call, tools
from tests.complexity.growth import faults, some

from isr_rag.errors import ISRError
from isr_rag_server.http import Limits, Settings, create_app
from isr_rag_server.traffic.page import page
from isr_rag_server.traffic.records import read_log
from isr_rag_server.traffic.report import report_of

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

LIMITS = Limits(seconds=600.0)
PART = 1 if os.environ.get("ISR_RAG_CHAOS") == "long" else 5
TEXT = 90_000 // PART
BODY = (LIMITS.body - 1000) // PART


def post(path: str, content: str | bytes, kind: str = "application/json", accept: str = "*/*") -> int:
    async def run() -> int:
        app = create_app(worlds.gate(), Settings(limits=LIMITS))
        async with await worlds.asgi(app) as asking:
            response = await asking.post(path, content=content, headers={"Content-Type": kind, "Accept": accept})
        return int(response.status_code)

    status = asyncio.run(run())
    assert status < 500
    return status


def repeated(pattern: str) -> Callable[[int], str]:
    """A text of whole patterns, an even number of them: what opens and closes does so alike at every size."""
    return lambda size: pattern * (size // len(pattern) // 2 * 2)


@pytest.mark.parametrize(
    "pattern", some(["[1]", "A", "a [1]. ", "\u200b", "漢。", "<|im_start|>", "(", " .", "Sources. "], 4)
)
@pytest.mark.parametrize("field", ["answer", "streamed", "claim", "evidence", "title"])
def test_a_text_of_a_request(pattern: str, field: str) -> None:
    def step(text: str) -> object:
        body: dict[str, Any] = {"claim": "number 3", "evidence": ["It says 3."]}
        if field in ("answer", "streamed"):
            accept = "text/event-stream" if field == "streamed" else "*/*"
            return post("/v1/audit", json.dumps({"answer": text, "evidence": ["It says 3."]}), accept=accept)
        if field == "evidence":
            body["evidence"] = [text, {"text": text, "title": "t"}]
        elif field == "title":
            body["evidence"] = [{"text": "a", "title": text}]
        else:
            body["claim"] = f"{text} number 3"
        return post("/v1/decide", json.dumps(body))

    assert not faults(step, repeated(pattern), TEXT // 2, most=30.0)


@pytest.mark.parametrize("field", ["state", "chunks", "instructions", "questions"])
def test_questions_to_a_decision_model(field: str) -> None:
    def step(text: str) -> object:
        question = {"type": "noul", "instructions": "number 3"}
        asked: dict[str, Any] = {"state": "It says 3.", "questions": {"a": question}}
        if field in ("state", "chunks"):
            asked["state"] = text if field == "state" else text.replace(".", "\n\n")
        elif field == "instructions":
            question["instructions"] = f"{text} number 3"
        else:
            asked["questions"] = {f"{i:x}": question for i in range(len(text) // 450)}
        return post("/v1/decisions", json.dumps(asked))

    assert not faults(step, repeated("A b. "), TEXT // 2, most=30.0)


@pytest.mark.parametrize(
    "inside", ["0,", "[],", "{},", '{"text":0},', '{"sha256":""},', '"",', '"a",', "null,", "1e9,"]
)
def test_a_long_list_of_evidence(inside: str) -> None:
    def step(text: str) -> object:
        return post(
            "/v1/decide", f'{{"claim": "c", "evidence": [{text[: len(text) // len(inside) * len(inside)][:-1]}]}}'
        )

    assert not faults(step, repeated(inside), BODY // 2, most=30.0)


@pytest.mark.parametrize("content", ["[", '{"a":', '"', "1", '{"claim": "c", ', "\\u0000"])
def test_a_body_that_is_not_json(content: str) -> None:
    assert not faults(lambda text: post("/v1/decide", text), repeated(content), BODY // 2, most=30.0)


def test_keys_that_come_twice_or_are_not_known() -> None:
    def step(text: str) -> object:
        names = [f'"{i:x}": 0' for i in range(len(text) // 12)]
        return post("/v1/decide", "{" + ", ".join(names) + "}"), post(
            "/v1/decide", "{" + ", ".join(names) + ', "0": 0}'
        )

    assert not faults(step, repeated("a"), BODY // 2, most=30.0)


@pytest.mark.parametrize("pattern", some(["a ", "漢", "\n\n", '"a"\n', "[0]\n"], 2))
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_document(pattern: str, name: str) -> None:
    def step(text: str) -> object:
        raw = text.encode()[:BODY]
        return post(f"/v1/documents?name={name}", raw, "application/octet-stream")

    assert not faults(step, repeated(pattern), BODY // 6, most=30.0)


@pytest.mark.parametrize("argument", ["claim", "evidence", "wrong"])
def test_arguments_of_a_tool(argument: str) -> None:
    def step(text: str) -> object:
        wrong: list[Any] = [0] * (len(text) // 4)
        given = {"claim": text if argument == "claim" else "number 3", "evidence": ["It says 3."]}
        if argument != "claim":
            given["evidence"] = wrong if argument == "wrong" else [text]
        return call(tools(), ("judge_claim", given))

    assert not faults(step, repeated("A [1]. "), TEXT // 2, most=30.0)


@pytest.mark.parametrize("line", ["decision", "{", '{"id": 1, "time": "x", "decision": {}}', "[0]"])
def test_a_log_is_reported_in_proportion_to_its_lines(line: str, tmp_path: Path) -> None:
    if line == "decision":
        decision = worlds.gate().decide(["It says 3."], claim="number 3").to_dict()
        line = json.dumps({"id": 1, "time": "2026-01-01T00:00:00.000+00:00", "decision": decision})

    def step(text: str) -> object:
        file = tmp_path / "log.jsonl"
        file.write_text(text)
        try:
            return page(report_of(read_log(file)))
        except ISRError as error:
            return error

    lines = 2_000 if PART == 1 else 200
    assert not faults(step, repeated(f"{line}\n"), lines * (len(line) + 1), most=60.0)
