"""What an agent's messages say about its present run: the question, the evidence by rounds, what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from isr_rag import Decision
from isr_rag.errors import InvalidInputError
from isr_rag.evidence import one_line
from langchain_isr.common import KEY, gathered

_FAILED = "isr_failed"
"""Where a tool message says what its tool raised."""


@dataclass
class AgentRun:
    """One run of an agent so far, read from its state at each call of the model; nothing is kept between calls.

    Attributes:
        question: the text of the message that the run answers.
        rounds: the documents found, by rounds of tool calls.
        fresh: whether the last round came since the model was last called.
        failed: what a tool raised; None when none did.
        decisions: the decisions so far, as plain data.
        tools: names of the tools that find evidence; None for all.
        kept: evidence of earlier runs of the same thread.
        begun: what the run answers, and where in the messages it begins, as plain data.
    """

    question: str
    rounds: list[list[Document]]
    fresh: bool
    failed: str | None
    decisions: list[dict[str, Any]]
    tools: frozenset[str] | None
    kept: list[Document]
    begun: dict[str, Any]

    @classmethod
    def of(cls, state: Mapping[str, Any], tools: frozenset[str] | None) -> AgentRun:
        """The run that a state describes."""
        messages = cast(list[BaseMessage], state["messages"])
        ids = [message.id for message in messages]
        begun = cast(dict[str, Any], state.get("isr_run") or begin(messages))
        start = ids.index(begun["after"]) + 1 if begun["after"] in ids else 0
        kept = list(cast(Sequence[Document], state.get("isr_kept") or []))
        run = cls(begun["question"], [], False, None, list(state.get(KEY) or []), tools, kept, begun)
        run._read(messages[start:])
        return run

    def _read(self, messages: Sequence[BaseMessage]) -> None:
        open_round = False
        for message in messages:
            if isinstance(message, AIMessage):
                open_round, self.fresh = False, False
            elif isinstance(message, ToolMessage) and self.finds_evidence(message.name or ""):
                if _FAILED in message.additional_kwargs:
                    self.failed = str(message.additional_kwargs[_FAILED])
                if not open_round:
                    self.rounds.append([])
                open_round, self.fresh = True, True
                self.rounds[-1] += _documents(message)

    @property
    def documents(self) -> list[Document]:
        """The evidence of earlier runs of the thread, then that of all rounds, in the order it was found."""
        return gathered([self.kept, *self.rounds])

    def finds_evidence(self, tool: str) -> bool:
        """Whether a tool finds evidence."""
        return self.tools is None or tool in self.tools

    def last_sufficiency(self) -> Decision | None:
        """The last decision about the evidence alone."""
        made = [Decision.from_dict(plain) for plain in self.decisions]
        return next((d for d in reversed(made) if d.predicate.startswith("sufficient")), None)

    def update(self) -> dict[str, Any]:
        """What goes into the agent's state."""
        return {KEY: self.decisions, "isr_documents": self.documents, "isr_run": self.begun}


def begin(messages: Sequence[BaseMessage]) -> dict[str, Any]:
    """What a run that starts with these messages answers, and after which of them its own ones come, as plain data.

    It is the last message, not the question: a question that is put again takes the place of its first time. Results
    of tools that came along with the question count as found in this run.

    Raises:
        InvalidInputError: if there is no human message.
    """
    asked = [message for message in messages if isinstance(message, HumanMessage)]
    if not asked:
        raise InvalidInputError("the agent was asked nothing: its messages hold no HumanMessage")
    after = asked[-1] if isinstance(messages[-1], ToolMessage) else messages[-1]
    return {"question": str(asked[-1].text), "after": after.id, "follows_up": len(asked) > 1}


def failed_call(name: str, call: str, error: Exception) -> ToolMessage:
    """The message that stands for a tool that raised."""
    detail = f"the retriever raised {type(error).__name__}: {error}"
    return ToolMessage(
        "The search failed.", name=name, tool_call_id=call, status="error", additional_kwargs={_FAILED: detail}
    )


def _documents(message: ToolMessage) -> list[Document]:
    """What a tool found, as the model reads it: the text of its message.

    Where the message holds the text of every document of the tool's artifact, these documents; else the whole text
    as one document, regardless of the artifact.
    """
    text = str(message.text)
    if message.status == "error" or not text.strip():
        return []
    artifact = message.artifact
    if isinstance(artifact, Sequence) and not isinstance(artifact, str):
        listed = [document for document in cast(Sequence[object], artifact) if isinstance(document, Document)]
        rest = one_line(text)
        for document in listed:
            rest = rest.replace(one_line(document.page_content), "", 1)
        if listed and len(listed) == len(artifact) and not any(character.isalnum() for character in rest):
            return listed
    return [Document(text)]
