"""A secret draft goes out in no shape, and settings that can never answer are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from haystack import Document
from haystack.dataclasses import ChatMessage, ChatRole, ReasoningContent, TextContent, ToolCall

from haystack_integrations.components.routers.isr import ISRDraftGate, ISRGate
from isr_rag import ISRGate as CoreGate
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

SECRET = "UNGATEDCANARY"
QUESTION = "Which river flows through Paris?"
DOCUMENTS = [Document(content="The Seine flows through Paris.")]


def message(*content: Any, **meta: Any) -> ChatMessage:
    return ChatMessage(_role=ChatRole.ASSISTANT, _content=list(content), _meta=meta)


def released(reply: ChatMessage) -> dict[str, Any]:
    judge = Oracle(lambda case: float(SECRET not in case.predicate.query))
    return ISRDraftGate(CoreGate(FixedScorer([0.97]), judge, h_star=0.2)).run(QUESTION, DOCUMENTS, [reply])


def test_several_texts_go_out_as_the_one_that_was_judged() -> None:
    found = released(message(TextContent("The Seine."), TextContent("It is long.")))
    assert found["answered"][0].texts == ["The Seine.\nIt is long."]


def test_reasoning_and_metadata_stay_behind() -> None:
    usage = {"total_tokens": 7, "prompt_tokens": SECRET, SECRET: 1}
    reply = message(ReasoningContent(SECRET), TextContent("The Seine."), model=SECRET, logprobs=[SECRET], usage=usage)
    reply = replace(reply, _name=SECRET)
    found = released(reply)
    assert found["answered"][0].text == "The Seine." and SECRET not in repr(found)
    assert found["answered"][0].meta == {"usage": {"total_tokens": 7}, "isr": found["decision"]}


def test_a_reply_that_calls_tools_is_no_answer() -> None:
    with pytest.raises(InvalidInputError, match="calls tools") as caught:
        released(message(TextContent("The Seine."), ToolCall("search", {"query": SECRET})))
    assert SECRET not in str(caught.value)


class Low(Oracle):
    """A calibration that reaches little for questions and drafts."""

    def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
        return 0.99 if predicate is None else 0.7


@pytest.mark.parametrize("kind", [ISRGate, ISRDraftGate])
def test_a_gate_that_can_never_answer_is_refused_where_a_function_makes_it(kind: Any) -> None:
    low = CoreGate(scorer=FixedScorer([0.9]), reference=Low(0.7))
    with pytest.raises(ConfigurationError, match=r"h_star >= 0.3"):
        kind(lambda: low).warm_up()


def test_the_default_target_can_be_reached_and_one_that_cannot_is_refused_without_loading_a_model() -> None:
    ISRGate(), ISRGate(rounds=2), ISRDraftGate()
    with pytest.raises(ConfigurationError, match=r"sufficient/1.*Choose h_star >= 0\.028"):
        ISRGate(h_star=0.01)
