"""A chat generator whose drafts never leave it: it drafts, judges, and sends on what the documents support."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterator
from typing import Any, Literal, cast

from haystack import Document, Pipeline, component
from haystack.core.serialization import component_to_dict
from haystack.dataclasses import ChatMessage, ChatRole
from haystack.tools import Toolset, flatten_tools_or_toolsets
from haystack.tools.tool import Tool

from haystack_integrations.components.routers.isr.draft_gate import DRAFT_OUTPUTS, anew, routed, text_of
from haystack_integrations.components.routers.isr.evidence import DOCUMENT_TEMPLATE, KEY, Round
from haystack_integrations.components.routers.isr.settings import GateOrFactory, Gating
from isr_rag import Reason
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError
from isr_rag.gate.acquisition import abstain
from isr_rag.gate.adapters import asked, drafting

WithoutEvidence = Literal["pass", "abstain"]
UNSOUGHT = {"unjudged": "no evidence was sought"}
"""`meta["isr"]` of a reply that went on unjudged."""

_OFFERED = re.compile("search|connectors|data_sources|grounding|mcp_servers|plugins")
"""Names of settings by which the model's provider is told to search."""
_FOUND = re.compile(r"(?i)\w*(?:search|citation|grounding)\w*|annotations|executed_tools")
"""Names under which the metadata of a reply hold a search, or what it found."""


@component
class ISRChatGenerator(Gating):
    """Drafts with a chat generator or an agent, and sends the reply on if the documents support it.

    The draft exists only inside of `run`: no stream, snapshot, trace of the pipeline or result holds it before it is
    released, and after an abstention nothing does. What goes on is a new message with the text that was judged.

    An `Agent` brings its own evidence: the documents in its state under `documents`, where its search tools put them
    (`outputs_to_state={"documents": {"source": "documents"}}`).
    """

    place = "after"

    def __init__(
        self,
        chat_generator: Any,
        gate: GateOrFactory = None,
        *,
        h_star: float | None = None,
        rounds: int = 1,
        document_template: str = DOCUMENT_TEMPLATE,
        without_evidence: WithoutEvidence = "abstain",
    ) -> None:
        """Set what drafts and how it is judged.

        Args:
            chat_generator: a component with the input `messages` and the output `replies` (a chat generator, a
                `SuperComponent` of a pipeline) or `last_message` (an `Agent`).
            gate: as for `ISRDraftGate`, like `h_star`, `rounds` and `document_template`.
            h_star: see `gate`.
            rounds: see `gate`; each round drafts anew.
            document_template: see `gate`.
            without_evidence: what becomes of an agent's reply (to a greeting) in a run in which it called no tool and
                was given no documents: `"abstain"`, or `"pass"` to send it on unjudged, with `meta["isr"]` `UNSOUGHT`,
                where `messages` show that nothing was sought before: no call of a tool or its result, and no earlier
                turn but those whose replies carry that mark. Where its generator offers tools that the model's provider
                runs (a search of the web), every reply is judged, since not every one says whether one was called; and
                so is a reply whose metadata say that one was.

        Raises:
            ConfigurationError: as for `ISRDraftGate`; for a generator that streams by itself, or an agent that may end
                with the result of a tool.
            InvalidTypeError: as for `ISRDraftGate`, or for what is no component.
        """
        Gating.__init__(self, gate, h_star=h_star, rounds=rounds, document_template=document_template)
        if without_evidence not in ("pass", "abstain"):
            raise ConfigurationError(f"without_evidence must be 'pass' or 'abstain', got {without_evidence!r}")
        if isinstance(chat_generator, type) or not hasattr(chat_generator, "__haystack_input__"):
            kind = type(chat_generator).__name__
            raise InvalidTypeError(
                f"chat_generator must be a component, made, not a {kind}: a SuperComponent makes one of a pipeline"
            )
        if "messages" not in (inputs := chat_generator.__haystack_input__._sockets_dict):
            kind, names = type(chat_generator).__name__, sorted(inputs)
            raise InvalidTypeError(
                f"chat_generator must take messages, and {kind} takes {names}: a SuperComponent takes what its "
                "input_mapping names"
            )
        self.chat_generator, self.without_evidence = chat_generator, without_evidence
        self._check()

    def _check(self) -> None:
        """Refuse what would send words out past the gate; again at each run, since attributes can be set."""
        for part in _parts(self.chat_generator, set()):
            name = type(part).__name__
            if getattr(part, "streaming_callback", None) is not None:
                raise ConfigurationError(f"{name} streams what nobody has judged: leave out its streaming_callback")
            if tools := sorted(set(getattr(part, "exit_conditions", None) or ()) - {"text"}):
                raise ConfigurationError(
                    f"{name} may end with the result of {tools}, which is no answer: leave out its exit_conditions"
                )

    def warm_up(self) -> None:
        """Make the gate, and warm up what drafts."""
        Gating.warm_up(self)
        if hasattr(self.chat_generator, "warm_up"):
            self.chat_generator.warm_up()

    async def warm_up_async(self) -> None:
        """As `warm_up`, without blocking the event loop."""
        await Gating.warm_up_async(self)
        if hasattr(self.chat_generator, "warm_up_async"):
            await self.chat_generator.warm_up_async()
        elif hasattr(self.chat_generator, "warm_up"):
            await asyncio.to_thread(self.chat_generator.warm_up)

    def close(self) -> None:
        """Release what drafts."""
        if hasattr(self.chat_generator, "close"):
            self.chat_generator.close()

    async def close_async(self) -> None:
        """As `close`, on the event loop."""
        if hasattr(self.chat_generator, "close_async"):
            await self.chat_generator.close_async()
        else:
            self.close()

    @component.output_types(**DRAFT_OUTPUTS)
    def run(
        self,
        messages: list[ChatMessage],
        query: str,
        documents: list[Document] | None = None,
        trail: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Draft a reply, and decide whether documents support it.

        Args:
            messages: for the generator.
            query: the question that was searched for, in words that stand alone.
            documents: what the prompt holds, in the retriever's order; an agent's own come after them.
            trail: as for `ISRDraftGate`.

        Returns:
            As `ISRDraftGate.run`; without `decision` where an agent's reply was passed on unjudged.

        Raises:
            InvalidInputError: for outputs of the generator that hold no single reply with text.
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        self._check()
        self.warm_up()
        with drafting("haystack"):
            drafted = self.chat_generator.run(messages=copy.deepcopy(messages))
        found = Round(query, _evidence(drafted, documents), trail, self.rendering, self.rounds)
        if (early := self._unjudged(drafted, found, documents, messages)) is not None:
            return early
        draft = text_of(_replies(drafted))
        return routed(found, found.decide(self.core, draft), _replies(drafted)[0], draft)

    @component.output_types(**DRAFT_OUTPUTS)
    async def run_async(
        self,
        messages: list[ChatMessage],
        query: str,
        documents: list[Document] | None = None,
        trail: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """As `run`, without blocking the event loop."""
        self._check()
        await self.warm_up_async()
        with drafting("haystack"):
            if hasattr(self.chat_generator, "run_async"):
                drafted = await self.chat_generator.run_async(messages=copy.deepcopy(messages))
            else:
                drafted = await asyncio.to_thread(self.chat_generator.run, messages=copy.deepcopy(messages))
        found = Round(query, _evidence(drafted, documents), trail, self.rendering, self.rounds)
        if (early := self._unjudged(drafted, found, documents, messages)) is not None:
            return early
        draft = text_of(_replies(drafted))
        return routed(found, await found.adecide(self.core, draft), _replies(drafted)[0], draft)

    def _unjudged(
        self, drafted: dict[str, Any], found: Round, documents: list[Document] | None, messages: list[ChatMessage]
    ) -> dict[str, Any] | None:
        """The outputs where there is nothing to judge: of an agent that did not answer, or did not need to search."""
        last = drafted.get("last_message")
        unfinished = isinstance(last, ChatMessage) and (last.tool_calls or not last.is_from(ChatRole.ASSISTANT))
        if unfinished or drafted.get("exit_reason", "text") != "text":
            detail = "the agent ended without an answer"
            stated = abstain(self.core, Reason.INSUFFICIENT_INFORMATION, detail, question=found.query)
            return found.outputs(asked(stated, found.query))
        counts = drafted.get("tool_call_counts")
        unsought = isinstance(counts, dict) and not any(counts.values()) and documents is None and not found.documents
        unsought = unsought and not _calls_tools(drafted.get("messages") or [])  # a rejected call is not counted
        if self.without_evidence == "abstain" or not unsought or not _nothing_sought(messages):
            return None
        replies = _replies(drafted)
        said = [message for message in drafted.get("messages") or () if message.is_from(ChatRole.ASSISTANT)]
        told = [message.meta for message in (*said, *replies)]
        if _tells_of_search(told) or any(map(_offers_search, _parts(self.chat_generator, set()))):
            return None
        return {"answered": [anew(text_of(replies), replies[0], **{KEY: UNSOUGHT})], "documents": []}

    def to_dict(self) -> dict[str, Any]:
        """The component with its generator as plain data, as `Pipeline.dump` writes it.

        Raises:
            SerializationError: as for `ISRDraftGate`, or if the generator cannot be written.
        """
        plain = Gating.to_dict(self)
        plain["init_parameters"] |= {
            "chat_generator": component_to_dict(self.chat_generator, "chat_generator"),
            "without_evidence": self.without_evidence,
        }
        return plain


def _replies(drafted: dict[str, Any]) -> list[ChatMessage]:
    """What a generator or an agent says last."""
    if "replies" in drafted:
        return cast(list[ChatMessage], drafted["replies"])
    if "last_message" in drafted:
        return [drafted["last_message"]]
    raise InvalidInputError(f"the generator gave {sorted(drafted)}: the gate judges replies or last_message")


def _nothing_sought(messages: list[ChatMessage]) -> bool:
    """Whether a conversation shows that no evidence was sought in it: every earlier turn has a reply that says so."""
    asked = sum(message.is_from(ChatRole.USER) for message in messages)
    said = [message for message in messages if message.is_from(ChatRole.ASSISTANT)]
    unjudged = all(message.meta.get(KEY) == UNSOUGHT for message in said)
    return not _calls_tools(messages) and asked <= len(said) + 1 and unjudged


def _calls_tools(messages: list[ChatMessage]) -> bool:
    return any(message.tool_calls or message.tool_call_results for message in messages)


def _evidence(drafted: dict[str, Any], documents: list[Document] | None) -> list[Document]:
    """The documents that were given, and those that an agent found."""
    return [*(documents or ()), *(drafted.get("documents") or ())]


def _parts(drafts: Any, seen: set[int]) -> Iterator[Any]:
    """What drafts, and the components and hooks inside it: what it holds, in lists and dicts too, tools, a pipeline."""
    if id(drafts) in seen:
        return
    seen.add(id(drafts))
    yield drafts
    inner = list(_inside(drafts, seen))
    inner += [getattr(drafts, "chat_generator", None), *(getattr(drafts, "chat_generators", None) or ())]
    tools = [tool for tool in _tools(getattr(drafts, "tools", None)) if isinstance(tool, (Tool, Toolset))]
    inner += [getattr(tool, "_component", None) for tool in flatten_tools_or_toolsets(tools)]
    for part in inner:
        if part is not None:
            yield from _parts(part, seen)


def _offers_search(part: Any) -> bool:
    """Whether a generator offers a tool that the model's provider runs: not every reply says whether it was called."""
    settings = getattr(part, "generation_kwargs", None)
    given = [settings] if isinstance(settings, dict) else []
    given += [one["extra_body"] for one in given if isinstance(one.get("extra_body"), dict)]
    plain = [tool for tool in _tools(getattr(part, "tools", None)) if isinstance(tool, dict)]
    offered = [*plain, *(tool for one in given for tool in _tools(one.get("tools")))]
    functions = [tool for tool in offered if isinstance(tool, dict) and tool.get("type") == "function"]
    return len(functions) < len(offered) or any(_OFFERED.search(str(name)) for one in given for name in one)


def _tells_of_search(meta: Any, named: bool = False) -> bool:
    """Whether the metadata of a reply tell of a search; an empty list and a count of none do not."""
    if isinstance(meta, dict):
        return any(_tells_of_search(one, named or bool(_FOUND.fullmatch(str(name)))) for name, one in meta.items())
    if isinstance(meta, (list, tuple)):
        return any(_tells_of_search(one, named) for one in meta)
    return named and bool(meta)


def _tools(given: Any) -> list[Any]:
    return [*given] if isinstance(given, (list, tuple)) else [] if given is None else [given]


def _inside(holder: object, seen: set[int]) -> Iterator[object]:
    """The components that something holds, also those of a pipeline and of what runs but is none, such as a hook."""
    held = list(_each(getattr(holder, "__dict__", {}), seen))
    held += [part for own in held if isinstance(own, Pipeline) for _, part in own.walk()]
    for part in held:
        if hasattr(part, "__haystack_input__"):
            yield part
        elif id(part) not in seen and callable(getattr(type(part), "run", None)):
            seen.add(id(part))
            yield from _inside(part, seen)


def _each(held: object, seen: set[int]) -> Iterator[object]:
    """What is in lists, dicts and the like, however deep; not the numbers or words of a long list."""
    if not isinstance(held, (dict, list, tuple, set, frozenset)):
        yield held
    elif id(held) not in seen:
        seen.add(id(held))
        inner = held.values() if isinstance(held, dict) else held
        if isinstance(held, dict) or not isinstance(next(iter(held), None), (str, bytes, int, float)):
            for own in inner:
                yield from _each(own, seen)
