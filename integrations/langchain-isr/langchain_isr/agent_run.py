"""The present run of an agent: the question, the evidence by rounds, what failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, cast

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from typing_extensions import TypedDict

from isr_rag import Decision
from isr_rag.core.evidence import one_line
from isr_rag.errors import InvalidInputError
from langchain_isr.common import KEY, gathered

PLANS = "write_todos"
"""LangChain's tool for the agent's own plans, which are no evidence."""

MOST = 20
"""Up to how many documents those of earlier runs count: with more than are calibrated a thread would fall silent."""


def merged(old: dict[str, Found] | None, new: dict[str, Found] | None) -> dict[str, Found]:
    """What tools found, by the ids of their calls; None begins anew."""
    return {} if new is None else {**(old or {}), **new}


class Found(TypedDict):
    """What one call of a tool found.

    Attributes:
        round: number of the model's search that it belongs to, from 1.
        documents: the evidence.
        failed: what the tool raised; None if it did not.
    """

    round: int
    documents: list[Document]
    failed: str | None


class Begun(TypedDict):
    """What a run of an agent began with, and how far it has come.

    Attributes:
        question: the text of the message that the run answers.
        follows_up: an earlier message of the user came before it.
        given: evidence that came along with the question.
        along: results of tools that came along, by their tools, until it is known which of these the agent has.
        searches: how often the model has asked for evidence, results that came along included.
        sought: an earlier run of the thread asked for evidence, or the messages hold some.
        condensed: the question in words that stand alone, where it was asked for.
        open: the run has not come to an end: a reply that a later failure took along is known to nobody.
        lost: an earlier run of the thread never came to its end.
    """

    question: str
    follows_up: bool
    given: list[Document]
    along: NotRequired[dict[str, list[Document]]]
    searches: int
    sought: bool
    condensed: NotRequired[str]
    open: NotRequired[bool]
    lost: NotRequired[bool]


@dataclass
class AgentRun:
    """One run of an agent so far, read from its private state at each call of the model.

    Messages are not read: they may have been summarised or trimmed since.

    Attributes:
        question: what the run answers.
        rounds: the documents found, by rounds of tool calls.
        failed: what a tool raised; None when none did.
        decisions: the decisions so far, as plain data.
        kept: evidence of earlier runs of the same thread.
        begun: what the run began with.
    """

    question: str
    rounds: list[list[Document]]
    failed: str | None
    decisions: list[dict[str, Any]]
    kept: list[Document]
    begun: Begun

    @classmethod
    def of(cls, state: Mapping[str, Any], tools: frozenset[str] | None, has: Collection[str] | None = None) -> AgentRun:
        """The run that a state describes, of an agent that `has` these tools; None where they are not known yet."""
        # A thread that was interrupted before the middleware was there goes on without a beginning.
        begun = _met(cast(Begun, state.get("isr_run") or begin(state["messages"], tools)), tools, has)
        found = cast(list[Found], list((state.get("isr_found") or {}).values()))
        rounds = {0: list(begun["given"])} if begun["given"] else {}
        for one in found:
            rounds.setdefault(one["round"], []).extend(one["documents"])
        failed = next((one["failed"] for one in found if one["failed"]), None)
        kept = list(cast(Sequence[Document], state.get("isr_kept") or []))
        decisions = list(state.get(KEY) or [])
        return cls(begun["question"], [rounds[i] for i in sorted(rounds)], failed, decisions, kept, begun)

    @property
    def fresh(self) -> bool:
        """Whether evidence has come that was not judged yet, where it is judged before an answer is drafted."""
        return len(self.rounds) > sum(_about_evidence(plain) for plain in self.decisions)

    @property
    def sought(self) -> bool:
        """Whether this run or an earlier one of the thread has asked for evidence, or came with some."""
        return bool(self.begun["searches"] or self.rounds or self.kept or self.begun["sought"])

    def offered(self, *, search: bool) -> None:
        """Note whether the model's provider can search by itself: what it did in a run that was lost is unknown."""
        if search and self.begun.get("lost"):
            self.has_searched()

    def has_searched(self) -> None:
        """Note that evidence was sought without a tool of the agent."""
        self.begun = {**self.begun, "sought": True}

    def asked_again(self) -> None:
        """Note that the model asks for evidence once more."""
        self.begun = self.begun.copy()
        self.begun["searches"] += 1

    @property
    def documents(self) -> list[Document]:
        """The newest evidence of earlier runs of the thread, as far as `MOST` has room, then that of all rounds."""
        own = gathered(self.rounds)
        earlier = gathered([own, self.kept])[len(own) :]
        return [*earlier[max(0, len(earlier) + len(own) - MOST) :], *own]

    @property
    def spent(self) -> int:
        """How many rounds are spent once a draft is judged: a draft on earlier evidence alone takes one, too."""
        drafts = [plain for plain in self.decisions if not _about_evidence(plain) and plain["chunks"]]
        return max(self.begun["searches"], len(drafts) + bool(self.documents))

    def last_sufficiency(self) -> Decision | None:
        """The last decision about the evidence alone."""
        made = [plain for plain in self.decisions if _about_evidence(plain)]
        return Decision.from_dict(made[-1]) if made else None

    def update(self, *, ended: bool = True) -> dict[str, Any]:
        """What goes into the agent's state."""
        begun = {**self.begun, "open": not ended}
        return {KEY: self.decisions, "isr_documents": self.documents, "isr_run": begun}


def begin(messages: Sequence[BaseMessage], tools: frozenset[str] | None, last: Begun | None = None) -> Begun:
    """What a run that starts with these messages answers: the last message of the user.

    Results of tools that find evidence count as found in this run where they came along with the question and the agent
    has these tools; a result of which nothing says whose it is counts as sought. So does an earlier turn of which no
    state is known.

    Args:
        messages: all messages of the thread.
        tools: names of the tools that find evidence; None for all but `PLANS`.
        last: what the last run of the thread began with.

    Raises:
        InvalidInputError: if there is no human message.
    """
    asked = [i for i, message in enumerate(messages) if isinstance(message, HumanMessage)]
    if not asked:
        raise InvalidInputError("the agent was asked nothing: its messages hold no HumanMessage")
    # A question that is put again takes its first place, before the messages of earlier runs.
    came_along = messages[asked[-1] + 1 :] if isinstance(messages[-1], ToolMessage) else []
    calls = [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    named = {call["id"]: call["name"] for call in calls}

    def by(message: ToolMessage) -> str | None:
        return message.name or named.get(message.tool_call_id)

    along: dict[str, list[Document]] = {}
    for one in came_along:
        if isinstance(one, ToolMessage) and finds_evidence(tools, by(one) or ""):
            along.setdefault(by(one) or "", []).extend(documents_of(one))
    question = str(messages[asked[-1]].text)
    lost = last is not None and bool(last.get("open") or last.get("lost"))
    if last is not None:
        sought = bool(last["sought"] or last["searches"])
    else:  # nothing says what was sought in earlier turns, whose messages of tools may be gone
        sought = any(not isinstance(message, SystemMessage) for message in messages[: asked[-1]])
    found = [by(message) for message in messages if isinstance(message, ToolMessage)]
    sought = sought or any(tool is None or finds_evidence(tools, tool) for tool in found)
    follows_up = len(asked) > 1
    return Begun(
        question=question, follows_up=follows_up, given=[], along=along, searches=0, sought=sought, open=True, lost=lost
    )


def _met(begun: Begun, tools: frozenset[str] | None, has: Collection[str] | None) -> Begun:
    """What a run began with, once it is known which tools the agent has.

    What another agent's tools said, such as that it hands over, is no evidence, unless this one has none that find any.
    """
    if has is None or "along" not in begun:
        return begun
    known = begun.copy()
    along = known.pop("along")
    own = [tool for tool in has if finds_evidence(tools, tool)] or list(along)
    known["given"] = [document for tool in along if tool in own for document in along[tool]]
    known["searches"] = int(any(tool in own for tool in along))
    return known


def finds_evidence(tools: frozenset[str] | None, tool: str) -> bool:
    """Whether a tool is one of those that find evidence; None for all but `PLANS`."""
    return tool != PLANS if tools is None else tool in tools


def _about_evidence(plain: Mapping[str, Any]) -> bool:
    return str(plain["predicate"]).startswith("sufficient")


def documents_of(message: ToolMessage) -> list[Document]:
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
