"""Whole answers over HTTP and MCP: the library's own audits, with progress, within limits."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from mcp import Client
from server.tests.http import worlds
from tests.audit import audit_world

from isr_rag import ISRGate
from isr_rag.audit import AnswerAudit
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.http import Limits, Settings, create_app
from isr_rag_server.http.fields import AuditRequest, DecideRequest
from isr_rag_server.http.service import Asker, Service
from isr_rag_server.http.tools import mcp_server

ANSWER = (
    "The Seine is 777 kilometres long [1]. The Loire is 3 kilometres long. It flows through Nantes [3].\n\n"
    "I hope this helps!"
)
ASKED: dict[str, Any] = {
    "question": "Which rivers are there?", "answer": ANSWER, "evidence": list(audit_world.RIVERS)
}  # fmt: skip


def post(body: dict[str, Any], path: str = "/v1/audit", accept: str = "application/json", **limits: int) -> Any:
    async def ask() -> Any:
        app = create_app(audit_world.gate(), Settings(limits=Limits(**limits)))
        async with await worlds.asgi(app) as client:
            return await client.post(path, json=body, headers={"Accept": accept})

    return asyncio.run(ask())


def stream(text: str) -> list[tuple[str, Any]]:
    """The events of a response."""
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_an_audit_is_the_one_of_the_library() -> None:
    expected = audit_world.gate().audit(**ASKED)
    assert expected.counts["supported"] and expected.counts["not_judged"]
    plain = post({**ASKED, "id": 7}).json()
    assert AnswerAudit.from_dict(plain["audit"]) == expected and plain["id"] == 7
    assert plain["release"] == expected.releasable().to_dict() and plain["headline"] == expected.headline()
    assert "html" not in plain
    assert post(ASKED, "/v1/audit?html=true").json()["html"].startswith("<!doctype html>")


def test_a_stream_tells_how_far_it_is_and_ends_in_the_same_audit() -> None:
    long = {**ASKED, "answer": " ".join(f"The Seine is {n} kilometres long." for n in range(40))}
    response = post(long, accept="text/event-stream")
    assert response.headers["content-type"].startswith("text/event-stream")
    told = stream(response.text)
    answered = [data["answered"] for name, data in told if name == "progress"]
    assert told[0][1]["said"] == "40 statements" and answered == sorted(answered) and len(answered) > 5
    name, data = told[-1]
    assert name == "audit"
    assert AnswerAudit.from_dict(data["audit"]) == AnswerAudit.from_dict(post(long).json()["audit"])


def test_too_many_statements_are_a_problem_also_in_a_stream() -> None:
    refused = post(ASKED, statements=2)
    assert refused.status_code == 422 and refused.json()["type"].endswith("too-many-statements")
    ((name, problem),) = stream(post(ASKED, accept="text/event-stream", statements=2).text)
    assert name == "problem" and "3 statements; 2 are allowed" in problem["detail"]


@pytest.mark.parametrize("change", [{"answer": " "}, {"answer": None}, {"evidence": ["", "a"]}, {"h_star": 0}])
def test_what_cannot_be_audited_is_a_problem(change: dict[str, Any]) -> None:
    response = post({**ASKED, **change})
    assert response.status_code == 422 and response.json()["type"].endswith("invalid-input")


def test_markup_and_escapes_of_texts_stay_text_in_the_report() -> None:
    nasty = "<script>alert(1)</script> The Seine is 777 kilometres long.\x1b[2J"
    report = post({**ASKED, "answer": nasty, "question": "<img src=x onerror=a>"}, "/v1/audit?html=true").json()["html"]
    assert "<script" not in report and "<img" not in report and "\x1b" not in report


def test_an_agent_gets_what_may_go_out() -> None:
    async def run() -> tuple[Any, list[str | None]]:
        told: list[str | None] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            told.append(message)

        server = mcp_server(Service(audit_world.gate(), Settings()))
        async with Client(server) as client:
            return await client.call_tool("audit_answer", ASKED, progress_callback=note), told

    result, told = asyncio.run(run())
    expected = audit_world.gate().audit(**ASKED)
    plain = result.structured_content
    assert plain["releasable"] == expected.releasable().text and plain["action"] == expected.action.value
    assert [one["verdict"] for one in plain["statements"]] == [one.verdict.value for one in expected.statements]
    assert plain["statements"][0]["citations"][0] == {"chunk": 0, "sentence": "The Seine is 777 kilometres long."}
    because = {one.statement: one.reason for one in expected.releasable().left_out}
    told_why = [one["left_out_because"] for one in plain["statements"]]
    assert because and told_why == [because.get(place, "") for place in range(len(told_why))]
    assert told[0] == "3 statements" and len(told) > 2


def test_an_empty_answer_is_an_error_of_the_tool() -> None:
    async def run() -> Any:
        async with Client(mcp_server(Service(audit_world.gate(), Settings()))) as client:
            return await client.call_tool("audit_answer", {"answer": " ", "evidence": ["a"]})

    result = asyncio.run(run())
    assert result.is_error and "empty" in result.content[0].text


def test_streamed_audits_leave_places_for_what_is_short() -> None:
    async def served() -> None:
        def read(prompt: Prompt, ordering: Ordering) -> float:
            time.sleep(0.0 if "short" in prompt.suffix else 0.5)  # an audit takes several
            return 0.9

        limits = Limits(running=4, seconds=1.0, audit_seconds=20.0)
        service = Service(ISRGate(FixedScorer(read), Oracle(1.0)), Settings(limits=limits))
        asked = AuditRequest.model_validate({"answer": "It is long.", "evidence": ["It is long."]})

        async def audit(client: str) -> str:
            return await service.audit(asked, Asker("a", client), lambda made: made.headline(), seconds=20.0)

        audits = [asyncio.create_task(audit(client)) for client in ("greedy", "second") * 3]
        await asyncio.sleep(0.1)
        short = DecideRequest.model_validate({"claim": "It is short.", "evidence": ["It is short."]})
        await service.decide(short, Asker("b", "other"))
        assert not any(one.done() for one in audits) and service.desk.running == 3
        assert len(await asyncio.gather(*audits)) == 6
        assert service.desk.running == service.streams.running == 0

    asyncio.run(served())
