"""The gate after drafting: a component that lets a reply out only if the documents support it."""

from __future__ import annotations

from typing import Any

from haystack import Document, component
from haystack.dataclasses import ChatMessage

from haystack_integrations.components.routers.isr.evidence import KEY, OUTPUTS, Round
from haystack_integrations.components.routers.isr.settings import Gating
from isr_rag import Decision
from isr_rag.errors import InvalidInputError, InvalidTypeError

DRAFT_OUTPUTS: dict[str, Any] = {"answered": list[ChatMessage], "documents": list[Document], **OUTPUTS}

_COUNTED = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens")
"""What of a reply's usage goes on, where it is a number."""


@component
class ISRDraftGate(Gating):
    """Sends a chat generator's reply on if the documents support it, and otherwise no word of it.

    What goes on is a new message with the text that was judged, which is all texts of the reply, and with its numbers
    of tokens. Reasoning, other content and the rest of its metadata stay behind.

    Between the generator and this component the draft is the pipeline's: it shows in a stream, in a snapshot, in traces
    of content, and in the result where the generator's outputs are asked for. `ISRChatGenerator` drafts in here.
    """

    place = "after"

    @component.output_types(**DRAFT_OUTPUTS)
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
        draft = text_of(replies)
        found = Round(query, documents, trail, self.rendering, self.rounds)
        return routed(found, found.decide(self.core, draft), replies[0], draft)

    @component.output_types(**DRAFT_OUTPUTS)
    async def run_async(
        self,
        query: str,
        documents: list[Document],
        replies: list[ChatMessage],
        trail: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """As `run`, without blocking the event loop."""
        draft = text_of(replies)
        await self.warm_up_async()
        found = Round(query, documents, trail, self.rendering, self.rounds)
        return routed(found, await found.adecide(self.core, draft), replies[0], draft)


def text_of(replies: list[ChatMessage]) -> str:
    """The text of the one reply that a draft consists of.

    Raises:
        InvalidInputError: for no reply, several, one without text, or one that calls tools.
        InvalidTypeError: for a reply that is not a `ChatMessage`.
    """
    if not all(isinstance(reply, ChatMessage) for reply in replies):
        raise InvalidTypeError("replies are ChatMessages: take a chat generator, or ChatMessage.from_assistant")
    if len(replies) != 1:
        raise InvalidInputError(f"the gate decides about one reply, and got {len(replies)}: set n=1")
    if replies[0].tool_calls:
        raise InvalidInputError("the reply calls tools: give the gate the reply after their results")
    if not any(text.strip() for text in replies[0].texts):
        raise InvalidInputError("the reply has no text: there is nothing to decide about")
    return "\n".join(replies[0].texts)


def anew(text: str, reply: ChatMessage, **meta: Any) -> ChatMessage:
    """A message with a text that was judged, and with nothing else of the reply but its numbers of tokens."""
    usage = reply.meta.get("usage")
    counted = usage if isinstance(usage, dict) else {}
    numbers = {name: counted[name] for name in _COUNTED if isinstance(counted.get(name), int)}
    return ChatMessage.from_assistant(text, meta={**({"usage": numbers} if numbers else {}), **meta})


def routed(found: Round, decision: Decision, reply: ChatMessage, draft: str) -> dict[str, Any]:
    """What a component sends on after a decision about a reply."""
    outputs = found.outputs(decision)
    if not decision.answered:
        return outputs
    released = anew(draft, reply, **{KEY: decision.to_dict()})
    return {**outputs, "answered": [released], "documents": found.annotated(decision)}
