"""The gate as a document compressor, for pipelines that post-process what they retrieved."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict, Field

from isr_rag.gate import ISRGate as CoreGate
from langchain_isr.common import OnAbstain, evidence_of, released


class ISRCompressor(BaseDocumentCompressor):
    """Lets documents pass when they suffice to answer the query, in their own order, tagged with the decision.

    Args:
        gate: the gate of :mod:`isr_rag` that decides; by default the embedded model with its calibration.
        on_abstain: ``"empty"`` returns no documents, ``"raise"`` raises :class:`ISRAbstained`, ``"annotate"`` returns
            all of them with the decision in ``metadata["isr"]``.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    gate: CoreGate = Field(default_factory=CoreGate)
    on_abstain: OnAbstain = "empty"

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """The documents, if they suffice for the query.

        Raises:
            ISRAbstained: after an abstention, with ``on_abstain="raise"``.
            ISRError: as :meth:`isr_rag.ISRGate.decide`.
        """
        decision = self.gate.decide(evidence_of(documents), question=query)
        return released(documents, decision, self.on_abstain)

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """As ``compress_documents``, without blocking the event loop."""
        decision = await self.gate.adecide(evidence_of(documents), question=query)
        return released(documents, decision, self.on_abstain)
