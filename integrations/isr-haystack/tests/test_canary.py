"""A secret draft goes out in no shape, and settings that can never answer are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from haystack import Document
from haystack.core.errors import PipelineRuntimeError
from haystack.dataclasses import ChatMessage, ChatRole, ReasoningContent, TextContent, ToolCall
from hs_parts import gated_after

from haystack_integrations.components.routers.isr import ISRDraftGate, ISRGate
from isr_rag import ISRGate as CoreGate
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.references import Case, Oracle
from isr_rag.testing import FixedScorer

SECRET = "UNGATEDCANARY"
QUESTION = "Which river flows through Paris?"
DOCUMENTS = [Document(content="The Seine flows through Paris.")]


def doubting(**settings: Any) -> CoreGate:
    """Answers what does not hold the canary."""
    reference = Oracle(lambda case: float(SECRET not in case.predicate.query))
    return CoreGate(scorer=FixedScorer([0.97]), reference=reference, **{"h_star": 0.2, **settings})


def message(*content: Any, **meta: Any) -> ChatMessage:
    return ChatMessage(_role=ChatRole.ASSISTANT, _content=list(content), _meta=meta)


def released(reply: ChatMessage) -> dict[str, Any]:
    return ISRDraftGate(doubting()).run(QUESTION, DOCUMENTS, [reply])


@pytest.mark.parametrize("first", ["The Seine.", "", SECRET])
def test_all_texts_are_judged_together(first: str) -> None:
    found = released(message(TextContent(first), TextContent(SECRET)))
    assert found["decision"]["action"] == "abstain" and SECRET not in repr(found)


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


def test_a_gate_that_fails_lets_nothing_out() -> None:
    def dead(case: Case) -> float:
        raise RuntimeError("the machine is gone")

    for policy, answers in (("raise", None), ("abstain", "reference_failed")):
        core = CoreGate(scorer=FixedScorer([0.97]), reference=Oracle(dead), h_star=0.2, on_error=policy)  # type: ignore[arg-type]
        pipeline = gated_after(ISRDraftGate(core), lambda query, number: DOCUMENTS, lambda prompt: SECRET)
        if answers is None:
            with pytest.raises(PipelineRuntimeError, match="the machine is gone") as caught:
                pipeline.run({"ask": {"value": QUESTION}})
            assert SECRET not in str(caught.value)
        else:
            result = pipeline.run({"ask": {"value": QUESTION}})
            assert result["gate"]["decision"]["reason"] == answers and SECRET not in repr(result)


@pytest.mark.parametrize("question", ["And when did it end?", "Who built it?"])
def test_a_question_that_does_not_stand_alone_is_an_abstention_that_says_so(question: str) -> None:
    gate = CoreGate(scorer=FixedScorer([0.97]), reference=Oracle(1.0), h_star=0.2)
    replies = [ChatMessage.from_assistant("In 1918.")]
    for found in (ISRGate(gate).run(question, DOCUMENTS), ISRDraftGate(gate).run(question, DOCUMENTS, replies)):
        assert "answered" not in found and "stands alone" in found["decision"]["detail"]
        assert found["decision"]["question"] == question


def test_what_a_failing_reference_says_of_a_draft_is_left_out() -> None:
    def dead(case: Case) -> float:
        raise RuntimeError(f"cannot read {case.predicate.query}")

    core = CoreGate(scorer=FixedScorer([0.97]), reference=Oracle(dead), h_star=0.2, on_error="abstain")
    found = ISRDraftGate(core).run(QUESTION, DOCUMENTS, [ChatMessage.from_assistant(SECRET)])
    assert found["decision"]["reason"] == "reference_failed" and SECRET not in repr(found)
    assert found["decision"]["detail"].endswith("RuntimeError")


def test_no_evidence_is_an_abstention() -> None:
    found = ISRDraftGate(doubting()).run(QUESTION, [], [ChatMessage.from_assistant(SECRET)])
    assert found["decision"]["reason"] == "no_evidence" and SECRET not in repr(found)


class Low:
    """A calibration that reaches little for questions and drafts."""

    needs_scores = False

    def estimate(self, case: Case) -> Any:
        raise AssertionError("nothing is decided here")

    def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
        return 0.99 if predicate is None else 0.7


@pytest.mark.parametrize("kind", [ISRGate, ISRDraftGate])
def test_settings_that_can_never_answer_are_refused_when_the_object_is_made(kind: Any) -> None:
    low = CoreGate(scorer=FixedScorer([0.9]), reference=Low())
    with pytest.raises(ConfigurationError, match=r"h_star >= 0.3"):
        kind(low)
    with pytest.raises(ConfigurationError, match=r"h_star >= 0.3"):
        kind(lambda: low).warm_up()


def test_the_default_target_can_be_reached_and_one_that_cannot_is_refused_without_loading_a_model() -> None:
    ISRGate(), ISRGate(rounds=2), ISRDraftGate()
    with pytest.raises(ConfigurationError, match=r"sufficient/1.*Choose h_star >= 0\.028"):
        ISRGate(h_star=0.01)
