"""The gate after drafting: a component that lets a reply out only if the documents support it."""

from __future__ import annotations

from typing import Any

from haystack import Document, component
from haystack.dataclasses import ChatMessage

from haystack_integrations.components.routers.isr.evidence import OUTPUTS, Look
from haystack_integrations.components.routers.isr.settings import Gating
from isr_rag import Decision
from isr_rag.errors import InvalidInputError, InvalidTypeError

_OUTPUTS: dict[str, Any] = {"answered": list[ChatMessage], "documents": list[Document], **OUTPUTS}


@component
class ISRDraftGate(Gating):
    """Sends a chat generator's reply on if the documents support it, and otherwise no word of it.

    Give the generator no `streaming_callback`: what streams out of it has left before anything is decided. With
    `Pipeline.stream`, leave it out of `streaming_components`.
    """

    drafted = True

    @component.output_types(**_OUTPUTS)
    def run(
        self,
        query: str,
        documents: list[Document],
        replies: list[ChatMessage],
        trail: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Decide whether documents support a drafted reply to a question.

        Args:
            query: the question.
            documents: what the reply was drafted from, in the retriever's order.
            replies: one reply of a chat generator.
            trail: from the component's own output, in a pipeline that looks again.

        Returns:
            `decision` (plain data, as `isr_rag.Decision.to_dict` writes it) and one of
            `answered`: the reply, with `documents`: copies with the decision in their metadata;
            `abstained`: these copies, where they do not support the reply;
            `acquire`: the question, where another look is allowed, with `trail`.

        Raises:
            InvalidInputError: for no reply, several, or one without text.
            InvalidTypeError: for a reply that is not a `ChatMessage`, such as the text of a generator without chat.
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        draft = _text_of(replies)
        look = Look(query, documents, trail, self.rendering, self.looks)
        return _routed(look, look.decide(self.core, draft), replies)

    @component.output_types(**_OUTPUTS)
    async def run_async(
        self,
        query: str,
        documents: list[Document],
        replies: list[ChatMessage],
        trail: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """As `run`, without blocking the event loop."""
        draft = _text_of(replies)
        await self.warm_up_async()
        look = Look(query, documents, trail, self.rendering, self.looks)
        return _routed(look, await look.adecide(self.core, draft), replies)


def _text_of(replies: list[ChatMessage]) -> str:
    if not all(isinstance(reply, ChatMessage) for reply in replies):
        raise InvalidTypeError("replies are ChatMessages: take a chat generator, or ChatMessage.from_assistant")
    if len(replies) != 1 or not replies[0].text:
        raise InvalidInputError(f"the gate decides about one reply with text, and got {len(replies)}: set n=1")
    return replies[0].text


def _routed(look: Look, decision: Decision, replies: list[ChatMessage]) -> dict[str, Any]:
    outputs = look.outputs(decision)
    if decision.answered:
        return {**outputs, "answered": replies, "documents": look.annotated(decision)}
    return outputs
