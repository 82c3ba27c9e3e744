"""ISRWorkflow: gathers, gates, answers or stops; its events are streamed and its context can be written."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.workflow import Context, JsonSerializer
from llama_parts import DraftingLLM, OpaqueEngine, TopKRetriever, fixed, node, speaks_of, texts

from isr_rag.errors import ConfigurationError, InvalidInputError
from llama_index.postprocessor.isr import ISRWorkflow
from llama_index.postprocessor.isr.workflow import GatheredEvent, RoundEvent, TokenEvent

ROUNDS = [[node("Paris.", "a")], [node("Paris.", "a"), node("Rouen.", "b")]]


def engine(calls: list[str], *, streaming: bool = False) -> RetrieverQueryEngine:
    llm = DraftingLLM(write=lambda prompt: calls.append(prompt) or "red green")  # type: ignore[func-returns-value]
    synthesizer = get_response_synthesizer(llm=llm, streaming=streaming)
    return RetrieverQueryEngine(TopKRetriever(lambda query, round_number: ROUNDS[round_number]), synthesizer)


async def follow(workflow: ISRWorkflow) -> tuple[Any, list[Any]]:
    handler = workflow.run(question="Where is Rouen?")
    events = [event async for event in handler.stream_events()]
    return await handler, events


def test_answers_after_a_second_round_and_streams_what_happens() -> None:
    calls: list[str] = []
    workflow = ISRWorkflow(engine(calls, streaming=True), gate=fixed(speaks_of("Rouen")), timeout=60)
    response, events = asyncio.run(follow(workflow))
    assert str(response) == "red green" and texts(response.source_nodes) == ["Paris.", "Rouen."]
    assert response.metadata["isr"]["action"] == "answer"
    rounds = [event for event in events if isinstance(event, RoundEvent)]
    assert [event.round for event in rounds] == [0, 1]
    assert rounds[1].previous is not None and rounds[1].previous["action"] == "acquire"
    assert [event.delta for event in events if isinstance(event, TokenEvent)] == ["red", " green"]


def test_stops_with_the_message_and_calls_no_llm() -> None:
    calls: list[str] = []
    response, events = asyncio.run(follow(ISRWorkflow(engine(calls), gate=fixed(0), message="No idea.", timeout=60)))
    assert str(response) == "No idea." and not calls and len(response.metadata["isr_rounds"]) == 2
    assert not any(isinstance(event, TokenEvent) for event in events)


def test_a_run_is_written_as_json_in_the_middle_and_taken_up_by_another_workflow() -> None:
    calls: list[str] = []

    async def interrupted() -> dict[str, Any]:
        workflow = ISRWorkflow(engine(calls), gate=fixed(speaks_of("Rouen")), timeout=60)
        handler = workflow.run(question="Where is Rouen?")
        async for event in handler.stream_events():
            if isinstance(event, GatheredEvent):
                break
        written: dict[str, Any] = handler.ctx.to_dict(serializer=JsonSerializer())
        await handler.cancel_run()
        return written

    async def resumed(written: dict[str, Any]) -> Any:
        workflow = ISRWorkflow(engine(calls), gate=fixed(speaks_of("Rouen")), timeout=60)
        context = Context.from_dict(workflow, written, serializer=JsonSerializer())
        return await workflow.run(ctx=context)

    written = json.loads(json.dumps(asyncio.run(interrupted())))
    response = asyncio.run(resumed(written))
    assert str(response) == "red green" and texts(response.source_nodes) == ["Paris.", "Rouen."]
    assert response.metadata["isr"]["action"] == "answer"


def test_a_run_without_a_question_is_refused() -> None:
    async def run() -> None:
        await ISRWorkflow(engine([]), gate=fixed(1), timeout=60).run()

    with pytest.raises(InvalidInputError, match="question is empty"):
        asyncio.run(run())


def test_refuses_an_engine_that_cannot_retrieve() -> None:
    with pytest.raises(ConfigurationError, match="without answering"):
        ISRWorkflow(OpaqueEngine([]), gate=fixed(1))
