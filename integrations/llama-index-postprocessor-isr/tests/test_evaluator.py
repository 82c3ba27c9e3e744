"""ISREvaluator: a response passes where the gate answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from llama_index.core.base.response.schema import (
    AsyncStreamingResponse,
    PydanticResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.evaluation import BatchEvalRunner
from llama_parts import fixed, node, speaks_of
from pydantic import BaseModel

from isr_rag import Decision
from isr_rag.references import Case
from llama_index.postprocessor.isr import ISREvaluator

CONTEXTS = ["The Seine flows through Paris."]


def test_passes_what_the_contexts_support_and_hands_out_the_numbers() -> None:
    result = ISREvaluator(fixed(1)).evaluate(query="Where is Rouen?", response="Paris.", contexts=CONTEXTS)
    assert result.passing and result.score == 1.0 and result.contexts == CONTEXTS and not result.invalid_result
    assert Decision.from_json(result.feedback or "").predicate == "supported-answer/1"
    failed = ISREvaluator(fixed(speaks_of("London"))).evaluate(response="London.", contexts=CONTEXTS)
    assert failed.passing is False and failed.score == 0.0
    assert Decision.from_json(failed.feedback or "").predicate == "supported-claim/1"


def test_judges_a_response_by_what_the_llm_read_of_its_nodes() -> None:
    read, hidden = node("It ends at Le Havre.", title="The Seine"), node("It ends at Le Havre.", title="The Seine")
    hidden.node.excluded_llm_metadata_keys = ["title"]
    evaluator = ISREvaluator(fixed(speaks_of("Seine")))
    for source, passes in ((read, True), (hidden, False)):
        asked = {"query": "Where does the Seine end?", "response": Response("Le Havre.", source_nodes=[source])}
        assert evaluator.evaluate_response(**asked).passing is passes  # type: ignore[arg-type]
        assert asyncio.run(evaluator.aevaluate_response(**asked)).passing is passes  # type: ignore[arg-type]


class Told(BaseModel):
    city: str


async def words() -> AsyncGenerator[str, None]:
    for word in ("Le ", "Havre."):
        yield word


@pytest.mark.parametrize("kind", ["structured", "a stream", "an async stream"])
@pytest.mark.parametrize("run", ["sync", "async"])
def test_judges_streams_and_structured_responses_by_their_text(kind: str, run: str) -> None:
    asked: list[str] = []
    evaluator = ISREvaluator(fixed(lambda case: float(not asked.append(case.predicate.query))))
    source = [node("It ends at Le Havre.")]
    response: Any = {
        "structured": lambda: PydanticResponse(Told(city="Le Havre."), source_nodes=source),
        "a stream": lambda: StreamingResponse(iter(["Le ", "Havre."]), source_nodes=source),
        "an async stream": lambda: AsyncStreamingResponse(words(), source_nodes=source),
    }[kind]()
    if run == "sync":
        result = evaluator.evaluate_response(query="Where does the Seine end?", response=response)
    else:
        result = asyncio.run(evaluator.aevaluate_response(query="Where does the Seine end?", response=response))
    assert result.passing and "Le Havre." in (result.response or "") and "Le Havre." in asked[-1]
    empty = evaluator.evaluate_response(query="Where does the Seine end?", response=PydanticResponse(None))
    assert empty.invalid_result and "no text" in (empty.invalid_reason or "")


def test_no_contexts_do_not_pass_and_missing_input_is_invalid() -> None:
    assert ISREvaluator(fixed(1)).evaluate(query="Where is Rouen?", response="Paris.", contexts=[]).passing is False
    missing = ISREvaluator(fixed(1)).evaluate(query="Where is Rouen?", response="Paris.")
    assert missing.invalid_result and "contexts" in (missing.invalid_reason or "")


def test_a_follow_up_is_not_judged_without_what_it_refers_to() -> None:
    contexts = ["The war in Aceh ended in 1914."]
    result = ISREvaluator(fixed(1)).evaluate(query="And when did it end?", response="1914.", contexts=contexts)
    assert result.invalid_result and result.passing is False and result.score is None
    assert "refers to what was said before it" in (result.invalid_reason or "")
    asked = "When did the war in Aceh end?"
    assert ISREvaluator(fixed(1)).evaluate(query=asked, response="1914.", contexts=contexts).passing


def test_a_bad_row_does_not_lose_the_others_of_a_batch() -> None:
    runner = BatchEvalRunner({"isr": ISREvaluator(fixed(1))}, workers=2)
    results = asyncio.run(
        runner.aevaluate_response_strs(
            queries=["Where is Rouen?", "Who?", "When?"],
            response_strs=["Paris.", " ", "1901."],
            contexts_list=[CONTEXTS, CONTEXTS, [""]],
        )
    )["isr"]
    assert [(bool(result.passing), result.invalid_result) for result in results] == [
        (True, False),
        (False, True),
        (False, True),
    ]


def test_a_failure_is_an_invalid_result_where_the_policy_is_to_abstain() -> None:
    def broken(case: Case) -> float:
        raise RuntimeError("verifier down")

    result = ISREvaluator(fixed(broken, on_error="abstain")).evaluate(response="Paris.", contexts=CONTEXTS)
    assert result.invalid_result and result.passing is False and result.score is None
    assert "verifier down" in (result.invalid_reason or "")
