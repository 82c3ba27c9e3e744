"""Replies as the servers of the guide write them: labels are read, and the code of the guide drafts."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

openai = pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")
httpx = pytest.importorskip("httpx")

from isr_rag.errors import ServerReplyError  # noqa: E402
from isr_rag.scorers.remote.replies import read_reply  # noqa: E402

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "models.md"
TOP = {"1": -0.105, "0": -2.303}
USAGE = {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}


def listed(*, ids: bool, octets: bool) -> dict[str, Any]:
    """The logprobs of a chat completion; some servers add token ids and bytes."""
    rows = [
        {"token": token, "logprob": value}
        | ({"id": 15 + i} if ids else {})
        | ({"bytes": list(token.encode())} if octets else {})
        for i, (token, value) in enumerate(TOP.items())
    ]
    return {"content": [rows[0] | {"top_logprobs": rows}]}


def chat(logprobs: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "in the Atlantic"}
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
    reply = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "usage": USAGE}
    return reply | {"choices": [choice]} | more


def text(logprobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "text": "1", "logprobs": logprobs, "finish_reason": "length"} | more
    reply = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "usage": USAGE}
    return reply | {"choices": [choice]}


def response(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A response as OpenAI's and LM Studio's documentation of `/v1/responses` has it."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": list(parts)}
    usage = {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}
    reply = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": None, "model": "m"}
    return reply | {"incomplete_details": None, "output": [message], "usage": usage} | more


def spoken(logprobs: list[dict[str, Any]] | None) -> dict[str, Any]:
    part = {"type": "output_text", "text": "1", "annotations": []}
    return part if logprobs is None else part | {"logprobs": logprobs}


TOKENS = {"tokens": ["1"], "token_logprobs": [TOP["1"]], "top_logprobs": [TOP], "text_offset": [0]}
REPLIES = {
    "vLLM, completions": text(TOKENS, stop_reason=None, prompt_logprobs=None),
    "vLLM, chat": chat(listed(ids=False, octets=True), prompt_logprobs=None),
    "SGLang, completions": text(TOKENS | {"text_offset": []}, matched_stop=None),
    "SGLang, chat": chat(listed(ids=False, octets=True), metadata={"weight_version": "default"}),
    "llama.cpp, completions": text(listed(ids=True, octets=True)),
    "llama.cpp, chat": chat(listed(ids=True, octets=True), timings={"prompt_n": 7}),
    "Ollama, chat": chat(listed(ids=False, octets=False), system_fingerprint="fp_ollama"),
    "OpenAI, chat": chat(listed(ids=False, octets=True) | {"refusal": None}, service_tier="default"),
    "OpenAI, responses": response(spoken(listed(ids=False, octets=True)["content"]), reasoning={"effort": None}),
    "LM Studio, responses": response(spoken(listed(ids=False, octets=True)["content"]), previous_response_id=None),
    "cut at its limit": response(
        spoken(listed(ids=False, octets=True)["content"] * 16),
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
}
"""As vLLM's and SGLang's schemas, llama.cpp's server and the documentation of Ollama and OpenAI have them."""


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_labels_are_read(reply: dict[str, Any]) -> None:
    first = read_reply(reply)
    assert {token: round(value, 3) for token, value in first.top} == TOP and first.prompt_tokens == 7
    assert sum(math.exp(value) for _, value in first.top) == pytest.approx(1.0, abs=1e-3)


def test_lm_studio_lists_none_in_a_chat_completion() -> None:
    with pytest.raises(ServerReplyError, match="LM Studio"):
        read_reply(chat(None))


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
REFUSED = {
    "logprobs of older engines": (response(spoken([])), "LM Studio to 0.3.39 or later"),
    "no logprobs": (response(spoken(None)), "LM Studio to 0.3.39 or later"),
    "thoughts first": (response(spoken(listed(ids=False, octets=True)["content"]), output=[THOUGHT]), "thinks before"),
    "thoughts up to the limit": (response(output=[THOUGHT], status="incomplete"), "thinks before"),
    "a refusal": (response({"type": "refusal", "refusal": "I cannot"}), "does not begin with text"),
    "a failure": (response(output=[], status="failed", error={"message": "x"}), "no whole answer: {'message': 'x'}"),
    "no output": (response(output=None), "does not begin with text"),
    "no text of tokens": (response(spoken([{"token": 1, "logprob": -1.0, "top_logprobs": []}])), "unknown form"),
    "a list of something else": (response(spoken([1])), "unknown form"),  # type: ignore[list-item]
}


@pytest.mark.parametrize(("reply", "said"), REFUSED.values(), ids=REFUSED)
def test_other_responses_are_refused(reply: dict[str, Any], said: str) -> None:
    with pytest.raises(ServerReplyError, match=said):
        read_reply(reply)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_the_first_token_of_thoughts_in_a_chat_is_no_label(name: str) -> None:
    reply = chat(listed(ids=False, octets=True))
    reply["choices"][0]["message"] = {"role": "assistant", "content": None, name: "1"}
    assert read_reply(reply).top[0].text == "1"  # the label itself, by a parser that looks for thoughts
    reply["choices"][0]["message"][name] = "Okay"
    with pytest.raises(ServerReplyError, match=r"thinks before it answers.*enable_thinking"):
        read_reply(reply)


@pytest.mark.parametrize("name", [name for name in REPLIES if name.endswith("chat")] + ["LM Studio"])
def test_the_code_of_the_guide_drafts(name: str) -> None:
    (block,) = re.findall(
        r"^```python\n(from openai.*?)^```$", GUIDE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    namespace: dict[str, Any] = {}
    exec(compile(block, GUIDE.name, "exec"), namespace)
    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/chat/completions"
        asked.append(json.loads(request.content))
        return httpx.Response(200, json=REPLIES.get(name, chat(None)))

    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="-", http_client=http)
        found = namespace["draft"](client, "m", "Where does the Loire end?", ["The Loire ends in the Atlantic."])
    assert found == "in the Atlantic"
    (body,) = asked
    assert body["model"] == "m" and "ends in the Atlantic.\n\nAnswer" in body["messages"][0]["content"]
