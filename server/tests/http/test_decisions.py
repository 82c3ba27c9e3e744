"""The gate answers as a decision model does, on both wires, and never above its target where it abstains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from server.tests.http import worlds
from server.tests.http.test_http import asked, post, problem

from isr_rag_server.http.decisions import DecisionsRequest

PATH = "/v1/decisions"
STATE = "It says 997.\n\nIt says 990."
SURE, UNSURE = "This is number 990.", "This is number 997."  # the fake scorer's q: .991 and .001


def noul(**texts: str) -> dict[str, Any]:
    questions = {name: {"type": "noul", "instructions": text, "criteria": {}} for name, text in texts.items()}
    return {"model": "any", "state": STATE, "questions": questions}


def test_questions_by_name_about_a_state() -> None:
    reply = post(noul(sure=SURE, unsure=UNSURE, asked="Is it number 990?"), PATH).json()
    assert reply["model"] == worlds.gate().scorer.identity
    found = {name: answer["noul"] for name, answer in reply["answers"].items()}
    assert found["sure"] == found["asked"] == 1.0 and 0.9 < found["unsure"] < 0.95
    assert {answer["type"] for answer in reply["answers"].values()} == {"noul"}


def test_a_list_of_questions_about_an_input() -> None:
    listed = [{"type": "predicate", "name": text, "instructions": text} for text in (SURE, UNSURE)]
    reply = post({"input": STATE, "questions": listed}, PATH, gate=worlds.gate(p_ref=0.5)).json()
    expected = [{"type": "predicate", "name": text, "probability": 0.5} for text in (SURE, UNSURE)]
    assert reply["answers"] == expected


def test_half_a_surrogate_pair_in_a_name_comes_back_replaced() -> None:
    reply = post(noul(**{"a\ud800": SURE}), PATH)
    assert reply.status_code == 200 and [*reply.json()["answers"]] == ["a\ufffd"]


def test_without_evidence_nothing_is_probable() -> None:
    assert post({**noul(sure=SURE), "state": " \n\n"}, PATH).json()["answers"]["sure"]["noul"] == 0.0


@pytest.mark.parametrize(
    "body",
    [
        {**noul(a=SURE), "state": None},
        {**noul(a=SURE), "input": "both"},
        {"input": STATE, "questions": noul(a=SURE)["questions"]},
        {"state": STATE, "questions": {}},
        {"state": STATE, "questions": {"a": {"type": "score", "instructions": SURE}}},
        noul(a=""),
        noul(**{f"n{n}": SURE for n in range(201)}),
        noul(a="a" * 100_001),
    ],
    ids=lambda body: str(body)[:60],
)
def test_what_is_no_question_is_refused(body: Any) -> None:
    status, kind = problem(post(body, PATH))
    assert status == 422 and kind in ("invalid-input", "too-many-statements", "too-long")


@pytest.mark.parametrize(
    ("questions", "valid"),
    [
        ([{"type": "predicate", "instructions": "b?"}], True),
        ([{"type": "predicate", "instructions": [{"type": "input_text", "text": "b?"}]}], True),
        ([{"type": "predicate", "instructions": ""}], False),
        ([{"type": "predicate", "instructions": []}], False),
        ([], False),
        ({}, False),
    ],
)
def test_the_schema_allows_what_is_read(questions: Any, valid: bool) -> None:
    jsonschema, schema = pytest.importorskip("jsonschema"), DecisionsRequest.model_json_schema()
    assert jsonschema.Draft202012Validator(schema).is_valid({"input": "a", "questions": questions}) is valid


def test_the_model_is_listed_where_clients_look_for_it() -> None:
    listed = asked("GET", "/v1/models", {}).json()["data"]
    assert [model["id"] for model in listed] == [worlds.gate().scorer.identity]


@pytest.mark.parametrize(
    ("state", "chunks"),
    [
        ("It says 997.\n \nIt says 990.", ["It says 997.", "It says 990."]),
        (["It says 997.", {"says": 990}], ["It says 997.", '{"says": 990}']),
        ({"first": "It says 997.", "second": ["990"]}, ["first: It says 997.", 'second: ["990"]']),
        (990, ["990"]),
        ("It says 997.\n\n\u200b\n\n\ufeff It says 990.", ["It says 997.", "\ufeff It says 990."]),
        (["a\ud800"], ["a\ufffd"]),
    ],
)
def test_a_state_is_a_text_or_any_json(state: Any, chunks: list[str]) -> None:
    assert DecisionsRequest.model_validate({**noul(a=SURE), "state": state}).chunks() == chunks


MESSAGES = [
    {"role": "user", "content": "It says 997."},  # OpenAI's clients may leave the type of a message out
    {"type": "function_call", "call_id": "1", "name": "search", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "It says 990."}]},
    {"type": "message", "role": "developer", "content": [{"type": "input_json", "data": {"a": 1}}]},
]


def test_an_input_is_a_text_or_messages_and_outputs_of_tools() -> None:
    asked = [{"type": "predicate", "instructions": [{"type": "input_text", "text": SURE}]}]
    read = DecisionsRequest.model_validate({"input": MESSAGES, "questions": asked})
    assert read.chunks() == ["It says 997.", "It says 990.", '{"a": 1}'] and read.asked() == [{"claim": SURE}]


def test_what_an_assistant_said_is_no_evidence() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": SURE}]}
    image = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}
    for item, why in ((said, "role is user, system or developer"), (image, "no text"), ("text", "evidence is")):
        reply = post({"input": [*MESSAGES, item], "questions": [{"type": "predicate", "instructions": SURE}]}, PATH)
        assert reply.status_code == 422 and why in reply.text


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ([{"role": "user", "content": "Where?"}, {"role": "assistant", "content": SURE}], 422),
        ({"messages": [{"type": "ai", "content": SURE}]}, 422),
        ({"contents": [{"role": "model", "parts": [{"text": SURE}]}]}, 422),
        ([{"role": "user", "content": SURE}], 200),
        ({"staff": [{"name": "Ann", "role": "assistant"}]}, 200),
        ([{"role": None, "type": "ai", "content": SURE}], 422),
        ({"products": [{"type": "model", "content": "It has four doors.", "parts": ["wheel"]}]}, 200),
    ],
)
def test_a_state_holds_nothing_that_an_assistant_said(state: Any, status: int) -> None:
    reply = post({**noul(a=SURE), "state": state}, PATH)
    assert reply.status_code == status and ("no evidence" in reply.text) == (status == 422)
    data = {"type": "message", "role": "user", "content": [{"type": "input_json", "data": state}]}
    listed = {"input": [data], "questions": [{"type": "predicate", "instructions": SURE}]}
    assert post(listed, PATH).status_code == status


def test_criteria_are_part_of_the_question() -> None:
    questions = {"a": {"type": "noul", "instructions": "Status?", "criteria": {"true": "refused", "false": None}}}
    read = DecisionsRequest.model_validate({"state": STATE, "questions": questions})
    assert read.asked() == [{"question": "Status?\nYes means: refused", "answer": "Yes"}]


def test_openai_client_reads_the_reply() -> None:
    """Its models want a usage, and a name that may be missing."""
    types = pytest.importorskip("openai.types.decision")
    listed = [{"type": "predicate", "instructions": SURE}, {"type": "predicate", "name": "b", "instructions": UNSURE}]
    reply = types.Decision.model_validate(post({"input": STATE, "questions": listed}, PATH).json())
    assert [answer.name for answer in reply.answers] == [None, "b"] and reply.usage.total_tokens == 0


def test_every_question_is_logged_under_a_name_of_its_own(tmp_path: Path) -> None:
    reply = post(noul(a=SURE, b=UNSURE), PATH, log=tmp_path / "log.jsonl")
    named = [json.loads(line)["id"] for line in (tmp_path / "log.jsonl").read_text("utf-8").splitlines()]
    request = reply.headers["x-request-id"]
    assert named == [f"{request}#1", f"{request}#2"]


def test_what_is_answered_is_never_below_the_target() -> None:
    reply = post(noul(a=SURE), PATH, gate=worlds.gate(p_ref=0.95 - 5e-10)).json()
    assert reply["answers"]["a"]["noul"] == 0.95
