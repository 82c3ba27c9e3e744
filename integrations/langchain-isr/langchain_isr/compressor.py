"""The gate as a document compressor, for pipelines that post-process what they retrieved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from langchain_core.callbacks import BaseCallbackManager, Callbacks, adispatch_custom_event, dispatch_custom_event
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, Field, model_validator

from isr_rag.gate.acquisition import SUFFICIENT, require_answerable
from isr_rag.gate.adapters import asked, gate_for, not_alone
from langchain_isr.common import (
    DOCUMENT_PROMPT,
    EVENT,
    Core,
    DocumentPrompt,
    OnAbstain,
    evidence_of,
    released,
)


class ISRCompressor(BaseDocumentCompressor):
    """Lets documents pass when they suffice to answer the query, in their own order, tagged with the decision.

    Each decision is a custom event of the run that it is called from.

    Args:
        gate: the gate of `isr_rag` that decides; by default the embedded model with its calibration, at h* = 0.2.
        on_abstain: `"raise"` stops with `ISRAbstained`; `"empty"` returns no documents, and a chain that calls its
            model all the same then answers without evidence; `"annotate"` returns all of them with the decision in
            `metadata["isr"]`.
        document_prompt: how your chain renders a document for its model; the gate judges exactly that text.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    gate: Core = Field(default_factory=lambda: gate_for("before"))
    on_abstain: OnAbstain = "raise"
    document_prompt: DocumentPrompt = DOCUMENT_PROMPT

    @model_validator(mode="after")
    def _can_answer(self) -> Self:
        require_answerable(self.gate, SUFFICIENT)
        return self

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """The documents, if they suffice for the query.

        Raises:
            ISRAbstained: after an abstention, with `on_abstain="raise"`.
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        decision = not_alone(self.gate, query)
        if decision is None:
            decision = asked(self.gate.decide(evidence_of(documents, self.document_prompt), question=query), query)
        if config := _running(callbacks):
            dispatch_custom_event(EVENT, decision.to_dict(), config=config)
        return released(documents, decision, self.on_abstain)

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """As `compress_documents`, without blocking the event loop."""
        decision = not_alone(self.gate, query)
        if decision is None:
            made = await self.gate.adecide(evidence_of(documents, self.document_prompt), question=query)
            decision = asked(made, query)
        if config := _running(callbacks):
            await adispatch_custom_event(EVENT, decision.to_dict(), config=config)
        return released(documents, decision, self.on_abstain)


def _running(callbacks: Callbacks | None) -> RunnableConfig | None:
    """The configuration of the run that a compressor was called from, if it was."""
    if isinstance(callbacks, BaseCallbackManager) and callbacks.parent_run_id is not None:
        return RunnableConfig(callbacks=callbacks)
    return None
