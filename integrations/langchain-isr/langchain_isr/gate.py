"""The gate as a runnable: composes in LCEL on question, documents and, after drafting, the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, Field

from isr_rag.decision import Decision
from isr_rag.errors import ISRError
from isr_rag.gate import ISRGate as CoreGate
from langchain_isr.batched import Batched, StateOrError, checked_state
from langchain_isr.common import EVENT, KEY, MESSAGE, ISRAbstained, State, item_of


class ISRGate(Batched):
    """Decides about ``{"question", "documents", "answer"?}`` and adds ``"isr"``, the decision as plain data.

    Without an answer it decides whether the documents suffice to answer the question; with one, whether they support
    it. Everything else in the input passes through, and the input itself is not changed. A batch is scored together.

    Args:
        gate: the gate of :mod:`isr_rag` that decides; by default the embedded model with its calibration.
        h_star: overrides the gate's target hallucination rate in (0, 1); made for ``configurable_fields``.
        on_abstain: after an abstention ``"withhold"`` the answer (``message`` takes its place), ``"raise"``
            :class:`ISRAbstained`, or ``"annotate"``: the answer stays, and the decision is yours to heed.
        message: stands in the place of a withheld answer.

    Raises:
        InvalidInputError: for an input without question or documents, or with empty ones.
        ISRAbstained: after an abstention, with ``on_abstain="raise"``.
        ISRError: as :meth:`isr_rag.ISRGate.decide`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    gate: CoreGate = Field(default_factory=CoreGate)
    h_star: float | None = None
    on_abstain: Literal["withhold", "raise", "annotate"] = "withhold"
    message: str = MESSAGE

    @property
    def core(self) -> CoreGate:
        """The gate that decides, at this runnable's own target."""
        return self.gate if self.h_star is None else self.gate.with_h_star(self.h_star)

    def _many(self, inputs: list[State], config: list[RunnableConfig]) -> list[StateOrError]:
        outcomes: list[StateOrError] = []
        for state, decision, own in zip(inputs, self.decisions(inputs), config, strict=True):
            if isinstance(decision, Decision):
                dispatch_custom_event(EVENT, decision.to_dict(), config=own)
            outcomes.append(self._outcome(state, decision))
        return outcomes

    async def _amany(self, inputs: list[State], config: list[RunnableConfig]) -> list[StateOrError]:
        outcomes: list[StateOrError] = []
        for state, decision, own in zip(inputs, await self.adecisions(inputs), config, strict=True):
            if isinstance(decision, Decision):
                await adispatch_custom_event(EVENT, decision.to_dict(), config=own)
            outcomes.append(self._outcome(state, decision))
        return outcomes

    def decisions(self, inputs: Sequence[Mapping[str, Any]]) -> list[Decision | ISRError]:
        """The bare decisions, scored together, without run or event; an input that fails has its error instead."""
        try:
            return list(self.core.decide_batch([item_of(checked_state(state)) for state in inputs]))
        except ISRError as error:
            # One bad input must not take the others with it: each gets its own decision or its own error.
            return [error] if len(inputs) == 1 else [self.decisions([state])[0] for state in inputs]

    async def adecisions(self, inputs: Sequence[Mapping[str, Any]]) -> list[Decision | ISRError]:
        """As :meth:`decisions`, without blocking the event loop."""
        try:
            return list(await self.core.adecide_batch([item_of(checked_state(state)) for state in inputs]))
        except ISRError as error:
            return [error] if len(inputs) == 1 else [(await self.adecisions([state]))[0] for state in inputs]

    def _outcome(self, state: State, decision: Decision | ISRError) -> StateOrError:
        if isinstance(decision, ISRError):
            return decision
        if not decision.answered and self.on_abstain == "raise":
            return ISRAbstained(decision, state["documents"])
        outcome = {**state, KEY: decision.to_dict()}
        if not decision.answered and self.on_abstain == "withhold" and state.get("answer") is not None:
            outcome["answer"] = self.message
        return outcome
