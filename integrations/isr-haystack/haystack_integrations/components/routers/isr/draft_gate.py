"""The gate after drafting: a component that lets a reply out only if the documents support it."""

from __future__ import annotations

from typing import Any

from haystack import Document, component
from haystack.dataclasses import ChatMessage

from haystack_integrations.components.routers.isr.evidence import KEY, OUTPUTS, Round
from haystack_integrations.components.routers.isr.settings import Gating
from isr_rag import Decision
from isr_rag.errors import InvalidInputError, InvalidTypeError

_OUTPUTS: dict[str, Any] = {"answered": list[ChatMessage], "documents": list[Document], **OUTPUTS}

_KEPT = ("model", "index", "finish_reason", "usage")
"""What of a reply's metadata goes on: what says nothing of its content."""


@component
class ISRDraftGate(Gating):
    """Sends a chat generator's reply on if the documents support it, and otherwise no word of it.

    What goes on is a new message with the text that was judged: all texts of the reply, without
    its reasoning and other content.

    Give the generator no `streaming_callback`: what streams out of it has left before anything is decided. With
    `Pipeline.stream`, leave it out of `streaming_components`.
    """

    place = "after"

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
            trail: from the component's own output, in a pipeline that searches again.

        Returns:
            `decision` (plain data, as `isr_rag.Decision.to_dict` writes it) and one of
            `answered`: the reply, made anew, with `documents`: copies with the decision in their metadata;
            `abstained`: these copies, where they do not support the reply;
            `acquire`: the question, where another round is allowed, with `trail`.

        Raises:
            InvalidInputError: for no reply, several, one without text, or one that calls tools.
            InvalidTypeError: for a reply that is not a `ChatMessage`, such as the text of a generator without chat.
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        draft = _text_of(replies)
        found = Round(query, documents, trail, self.rendering, self.rounds)
        return _routed(found, found.decide(self.core, draft), replies[0], draft)

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
        found = Round(query, documents, trail, self.rendering, self.rounds)
        return _routed(found, await found.adecide(self.core, draft), replies[0], draft)


def _text_of(replies: list[ChatMessage]) -> str:
    if not all(isinstance(reply, ChatMessage) for reply in replies):
        raise InvalidTypeError("replies are ChatMessages: take a chat generator, or ChatMessage.from_assistant")
    if len(replies) != 1 or not any(text.strip() for text in replies[0].texts):
        raise InvalidInputError(f"the gate decides about one reply with text, and got {len(replies)}: set n=1")
    if replies[0].tool_calls:
        raise InvalidInputError("the reply calls tools: give the gate the reply after their results")
    return "\n".join(replies[0].texts)


def _routed(found: Round, decision: Decision, reply: ChatMessage, draft: str) -> dict[str, Any]:
    outputs = found.outputs(decision)
    if not decision.answered:
        return outputs
    meta = {name: reply.meta[name] for name in _KEPT if name in reply.meta}
    released = ChatMessage.from_assistant(draft, meta={**meta, KEY: decision.to_dict()}, name=reply.name)
    return {**outputs, "answered": [released], "documents": found.annotated(decision)}
