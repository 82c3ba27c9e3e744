"""An evaluator beside faithfulness and relevancy: does the evidence support the response?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    PydanticResponse,
    StreamingResponse,
)
from llama_index.core.evaluation import BaseEvaluator, EvaluationResult
from llama_index.core.prompts.mixin import PromptDictType

from isr_rag import Decision, ISRGate, Reason
from isr_rag.core.evidence import one_line
from isr_rag.errors import InvalidInputError, ISRError
from isr_rag.gate.adapters import core_gate, gate_for, not_alone
from llama_index.postprocessor.isr.evidence import chunk_of
from llama_index.postprocessor.isr.query_engine import aread_whole


class ISREvaluator(BaseEvaluator):
    """Judges a response by its contexts: passing where the gate answers.

    `score` is p_ref, what can be trusted about the response in [0, 1] (0 with no contexts), and `feedback` the
    whole decision as JSON (`isr_rag.Decision.from_json` reads it). With a query the response is judged as its
    answer, without one as a claim.

    Args:
        gate: decides; the embedded model with its shipped calibration by default.

    Raises:
        InvalidTypeError: for a gate that is not one of `isr_rag`.
    """

    def __init__(self, gate: ISRGate | None = None) -> None:
        self._gate = gate_for("after") if gate is None else core_gate(gate)

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        """Nothing to update: the gate's wording belongs to its calibration."""

    async def aevaluate(
        self,
        query: str | None = None,
        response: str | None = None,
        contexts: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """Judge one response.

        A row that cannot be judged (no response or contexts, an empty text, a query that does not stand alone, a scorer
        that fails) is a result with `invalid_result=True` and the reason: a batch runner keeps its other rows.
        """
        try:
            if response is None or contexts is None:
                raise InvalidInputError("ISREvaluator needs a response and its contexts (a list, which may be empty)")
            asked: dict[str, Any] = {"claim": response} if query is None else {"question": query, "answer": response}
            decision = None if query is None else not_alone(self._gate, query, response)
            if decision is None:
                decision = await self._gate.adecide(list(contexts), **asked)
        except ISRError as error:
            return EvaluationResult(
                query=query, response=response, contexts=contexts, invalid_result=True, invalid_reason=str(error)
            )
        return _result(decision, query, response, contexts)

    def evaluate_response(
        self, query: str | None = None, response: RESPONSE_TYPE | None = None, **kwargs: Any
    ) -> EvaluationResult:
        """Judge a response by its source nodes, in the text that the LLM read: with the metadata that it sees.

        A stream is taken in, and of a structured response the JSON is judged.
        """
        return asyncio_run(self.aevaluate_response(query=query, response=response, **kwargs))  # type: ignore[no-any-return]

    async def aevaluate_response(
        self, query: str | None = None, response: RESPONSE_TYPE | None = None, **kwargs: Any
    ) -> EvaluationResult:
        """As `evaluate_response`, awaited."""
        try:
            read = await _read(response)
        except ISRError as error:
            return EvaluationResult(query=query, invalid_result=True, invalid_reason=str(error))
        return await self.aevaluate(query=query, **read, **kwargs)


async def _read(response: RESPONSE_TYPE | None) -> dict[str, Any]:
    if response is None:
        return {}
    if isinstance(response, (PydanticResponse, StreamingResponse, AsyncStreamingResponse)):
        response = await aread_whole(response)
    contexts = [chunk_of(node).text for node in response.source_nodes]
    return {"response": response.response, "contexts": [text for text in contexts if one_line(text)]}


def _result(decision: Decision, query: str | None, response: str, contexts: Sequence[str]) -> EvaluationResult:
    failed = decision.p_ref is None and decision.reason is not Reason.NO_EVIDENCE
    return EvaluationResult(
        query=query,
        response=response,
        contexts=contexts,
        passing=decision.answered,
        score=None if failed else decision.p_ref or 0.0,
        feedback=decision.to_json(),
        invalid_result=failed,
        invalid_reason=decision.detail or decision.reason.value if failed else None,
    )
