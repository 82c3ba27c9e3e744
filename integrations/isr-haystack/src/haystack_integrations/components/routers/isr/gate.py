"""The gate before drafting: a component that branches on whether the documents suffice to answer."""

from __future__ import annotations

from typing import Any

from haystack import Document, component

from haystack_integrations.components.routers.isr.evidence import OUTPUTS, Round
from haystack_integrations.components.routers.isr.settings import Gating
from isr_rag import Decision

_OUTPUTS: dict[str, Any] = {"answered": list[Document], **OUTPUTS}


@component
class ISRGate(Gating):
    """Sends documents on to the prompt if they suffice to answer the question, and otherwise another way.

    Connect `answered` to the prompt builder: without an answer of the gate nothing comes out there, and no model is
    called. `abstained` gives the documents to a branch of yours (a fixed message, a person); unconnected, it is in the
    result of the pipeline. With `rounds` above 1 `acquire` gives the question to whatever fetches more evidence.
    """

    @component.output_types(**_OUTPUTS)
    def run(self, query: str, documents: list[Document], trail: dict[str, Any] | None = None) -> dict[str, Any]:
        """Decide whether documents suffice to answer a question.

        Args:
            query: the question.
            documents: what was retrieved, in the retriever's order.
            trail: from the component's own output, in a pipeline that searches again.

        Returns:
            `decision` (plain data, as `isr_rag.Decision.to_dict` writes it) and one of
            `answered`: copies of the documents with the decision in their metadata;
            `abstained`: the same, where they do not suffice;
            `acquire`: the question, where another round is allowed, with `trail`.

        Raises:
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        found = Round(query, documents, trail, self.rendering, self.rounds)
        return _routed(found, found.decide(self.core))

    @component.output_types(**_OUTPUTS)
    async def run_async(
        self, query: str, documents: list[Document], trail: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """As `run`, without blocking the event loop."""
        await self.warm_up_async()
        found = Round(query, documents, trail, self.rendering, self.rounds)
        return _routed(found, await found.adecide(self.core))


def _routed(found: Round, decision: Decision) -> dict[str, Any]:
    outputs = found.outputs(decision)
    return {**outputs, "answered": found.annotated(decision)} if decision.answered else outputs
