"""A workflow: gather evidence, gate it, then answer or stop."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import AsyncStreamingResponse, Response
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step

from isr_rag import Action, Decision, ISRGate
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.gate.adapters import MESSAGE, gate_for
from llama_index.postprocessor.isr.evidence import (
    KEY,
    EngineRounds,
    Nodes,
    Rewrite,
    Widening,
    agather,
    can_retrieve,
    check_engine,
)
from llama_index.postprocessor.isr.gate import warn_unless_last


class RoundEvent(Event):
    """Streamed: a round of retrieval begins.

    Attributes:
        round: its number, from 0.
        query: what is asked.
        previous: the decision that was not enough, as plain data; None at the first round.
    """

    round: int
    query: str
    previous: dict[str, Any] | None = None


class GatheredEvent(Event):
    """The evidence, and what the gate decided about it, round by round, as plain data."""

    question: str
    nodes: list[NodeWithScore]
    decisions: list[dict[str, Any]]


class SufficientEvent(GatheredEvent):
    """The gate answers: the LLM may draft."""


class TokenEvent(Event):
    """Streamed: a piece of the answer, where the engine streams."""

    delta: str


class ISRWorkflow(Workflow):
    """Gathers evidence round by round, gates it, and answers through a query engine or stops with a message.

    `await workflow.run(question=...)` (or `query=...`) gives a Response with `metadata["isr"]`. `RoundEvent`,
    `GatheredEvent` and `TokenEvent` are streamed. Between two steps the context holds plain data and
    nodes only, which can be stored and resumed.

    Args:
        query_engine: retrieves and drafts.
        gate: decides; by default the embedded model with its shipped calibration, at h* = 0.2.
        rounds: how often to retrieve at most, >= 1; h* is split over the rounds.
        factor: how much deeper each further round goes, >= 2.
        rewrite: other words for the query of a further round: `rewrite(query, round_number, decision)`.
        message: the text of the response after an abstention.
        settings: of `Workflow`, such as `timeout` in seconds.

    Raises:
        ConfigurationError: for settings that the engine cannot follow.
        InvalidTypeError: for a gate that is not one of `isr_rag`, or an engine that is none.
        InvalidInputError: from a run without a question, or with anything else: a draft would not be judged.
    """

    def __init__(
        self,
        query_engine: BaseQueryEngine,
        *,
        gate: ISRGate | None = None,
        rounds: int = 2,
        factor: int = 2,
        rewrite: Rewrite | None = None,
        message: str = MESSAGE,
        **settings: Any,
    ) -> None:
        check_engine(query_engine)
        super().__init__(**settings)
        if not can_retrieve(query_engine):
            raise ConfigurationError(f"{type(query_engine).__name__} cannot retrieve without answering")
        self._engine, self._rounds, self._message = query_engine, rounds, message
        self._widening = Widening(factor, rewrite)
        self._widening.check(getattr(query_engine, "retriever", None), rounds)
        self._gate = gate_for("before", gate, rounds=rounds)
        warn_unless_last(query_engine)

    @step
    async def gather(self, ctx: Context, event: StartEvent) -> GatheredEvent:
        """Retrieve until the evidence suffices, or the rounds are spent."""
        if unknown := sorted(set(event.keys()) - {"question", "query"}):
            raise InvalidInputError(f"the workflow takes question= (or query=), not {unknown}")
        question = str(event.get("question") or event.get("query") or "")
        rounds = EngineRounds(self._engine, self._widening, QueryBundle(question))

        async def fetch(query: str, number: int, previous: Decision | None) -> Nodes:
            seen = None if previous is None else previous.to_dict()
            ctx.write_event_to_stream(RoundEvent(round=number, query=query, previous=seen))
            return await rounds.afetch(query, number, previous)

        found = await agather(self._gate, fetch, question=question, rounds=self._rounds)
        decisions = [decision.to_dict() for decision in found.decisions]
        gathered = GatheredEvent(question=question, nodes=found.nodes, decisions=decisions)
        ctx.write_event_to_stream(gathered)
        return gathered

    @step
    async def gate(self, event: GatheredEvent) -> SufficientEvent | StopEvent:
        """On to the answer, or stop."""
        if event.decisions[-1]["action"] == Action.ANSWER.value:
            return SufficientEvent(question=event.question, nodes=event.nodes, decisions=event.decisions)
        return StopEvent(result=Response(self._message, source_nodes=event.nodes, metadata=_metadata(event)))

    @step
    async def answer(self, ctx: Context, event: SufficientEvent) -> StopEvent:
        """Draft from evidence that is enough."""
        response = await self._engine.asynthesize(QueryBundle(event.question), event.nodes)
        if isinstance(response, AsyncStreamingResponse):
            async for delta in response.async_response_gen():
                ctx.write_event_to_stream(TokenEvent(delta=delta))
            response = await response.get_response()
        response.metadata = {**(response.metadata or {}), **_metadata(event)}
        return StopEvent(result=response)


def _metadata(event: GatheredEvent) -> dict[str, Any]:
    return {KEY: event.decisions[-1], f"{KEY}_rounds": event.decisions}
