"""One call of an agent's model with the gates around it, as steps that a sync and an async caller can take."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.runnables import ensure_config
from langgraph.types import Command
from pydantic import TypeAdapter, ValidationError

from isr_rag import Action, AnswerAudit, Decision, ISRGate as CoreGate, Reason
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.gate.acquisition import abstain
from isr_rag.gate.adapters import Place, stands_alone
from langchain_isr.agent_run import AgentRun, finds_evidence
from langchain_isr.audit import audited_evidence, trimmed
from langchain_isr.common import KEY, ISRAbstained, item_of, replaced, settled
from langchain_isr.quiet import quietly

When = Place | Literal["both"]
WithoutEvidence = Literal["pass", "abstain"]
Condense: TypeAlias = Callable[[Sequence[BaseMessage]], str]
"""Takes the messages up to a follow-up and returns it as a question that can be understood alone."""

SEARCH_AGAIN = (
    "The evidence found so far does not suffice to answer the question. Search again, with other words. "
    "Do not answer yet."
)
NOT_SUPPORTED = (
    "The evidence found so far does not support that answer. Search again, with other words. Do not answer yet."
)

CONDENSE = (
    "Rewrite the last message of the user as one question that can be understood without the conversation. "
    "Reply with the question alone."
)

_OPENING = re.compile(  # words with which a question begins and that name nothing
    "what|who|whom|whose|which|when|where|why|how|is|are|am|was|were|do|does|did|has|have|had|can|could|may|might|must|"
    "shall|should|will|would|if|in|on|at|of|to|by|as|for|from|with|without|about|after|before|during|since|until|under|"
    "over|between|among|against|according|regarding|given|besides|despite|and|or|but|so|then|also|an?|the|this|that|"
    "these|those|there|any|all|some|each|every|no|not|please|wer|wann|wo|wie|warum|welche[rs]?|ist|sind|war|hat|kann|"
    "qui|que|quel(?:le)?s?|quand|où|comment|pourquoi|combien|est|quién|qué|cuál|cuándo|dónde|cómo|cuánto|chi|che|quale|"
    "quando|dove|come|perché|quanto",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    r"(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|[mbt]r?illion|dozen)s?",
    re.IGNORECASE,
)

_OF_THE_PROVIDER = re.compile(
    r"\w*citation\w*|server_tool\w*|"
    r"(?!(?:invalid_|custom_)?tool_call|tool_use|function_call)\w*(?:search|tool|_call|_result)\w*"
)
"""Types of what a message holds of searches that a provider made; calls of the agent's own tools are none."""
_FOUND = re.compile(r"(?i)\w*(?:search|citation|grounding)\w*|annotations|built_in_tool_calls|executed_tools")
"""Names under which a provider adds to a message that it searched, or what it found."""

_MALFORMED = 3
"""Attempts at structured output before the agent abstains."""


@dataclass(frozen=True)
class Decide:
    """Ask the gate; or state a reason of the agent's own, where there is nothing to ask about."""

    item: dict[str, Any]
    reason: Reason | None = None
    detail: str = ""

    def stated(self, gate: CoreGate) -> Decision | None:
        """The decision where a reason is given; None where the gate has to be asked."""
        return None if self.reason is None else abstain(gate, self.reason, self.detail, question=self.item["question"])


@dataclass(frozen=True)
class Audit:
    """Audit a draft on the evidence of the run."""

    item: dict[str, Any]


@dataclass(frozen=True)
class Draft:
    """Ask the model."""

    request: ModelRequest[Any]
    quiet: bool


@dataclass(frozen=True)
class AskForQuestion:
    """Ask the model for the question that a follow-up means, out of every stream."""

    request: ModelRequest[Any]
    question: str

    def messages(self) -> list[BaseMessage]:
        """The conversation up to the follow-up, and what is wanted."""
        spoken = [m for m in self.request.messages if isinstance(m, (HumanMessage, AIMessage)) and str(m.text).strip()]
        last = max((i for i, message in enumerate(spoken) if isinstance(message, HumanMessage)), default=-1)
        said = spoken[: last + 1]
        if not said or str(said[-1].text) != self.question:  # it was summarised or trimmed
            said.append(HumanMessage(self.question))
        return [*said, HumanMessage(CONDENSE)]


Steps: TypeAlias = Generator[Decide | Audit | Draft | AskForQuestion, Any, ExtendedModelResponse[Any]]


@dataclass(frozen=True)
class Turns:
    """How each call of the model is gated: the settings of `ISRMiddleware`."""

    when: When
    rounds: int
    evidence_tools: frozenset[str] | None
    without_evidence: WithoutEvidence
    condense: Condense | None
    on_abstain: Literal["message", "raise"]
    message: str
    audit: bool

    def steps(self, request: ModelRequest[Any]) -> Steps:
        """One call of the model with its gates; asks for decisions and drafts where it needs them."""
        self._check_tools(request)
        run = AgentRun.of(cast(dict[str, Any], request.state), self.evidence_tools, _names(request.tools))
        run.offered(search=_can_search(request))
        yield from self._understood(request, run)
        if run.failed is not None:
            failure = yield from _decided(request, run, Reason.RETRIEVER_FAILED, run.failed)
            return self._abstention(run, failure)
        enough, decision = True, None
        if self.when != "after":
            decision = run.last_sufficiency()
            if run.fresh:
                decision = yield from _decided(request, run, can_acquire=run.begun["searches"] < self.rounds)
                if decision.action is Action.ABSTAIN:
                    return self._abstention(run, decision)
            enough = decision is not None and decision.answered
            if decision is not None and not enough:
                request = _said(request, [HumanMessage(SEARCH_AGAIN)])
        quiet = self.when != "before" or not enough
        response = yield from self._drafted(request, run, quiet)
        ungated = self.without_evidence == "pass" and not run.sought
        if _calls(response):
            return (yield from self._passed_on(request, run, response, quiet))
        if ungated:
            return ExtendedModelResponse(response, Command(update=run.update()))
        if not enough:  # the model answered from nothing or earlier evidence, or although it was told to search
            if decision is None:
                decision = yield from _decided(request, run)
            if not decision.answered:
                return self._abstention(run, decision)
        if self.when == "before":
            return self._release(run, response)
        return (yield from self._release_gate(request, run, response))

    def _check_tools(self, request: ModelRequest[Any]) -> None:
        known = _names(request.tools)
        if missing := sorted((self.evidence_tools or frozenset()) - known):
            raise ConfigurationError(f"the agent has no tools {missing}; its tools are {sorted(known)}")
        for tool in request.tools:
            refuse_direct(tool)

    def _understood(self, request: ModelRequest[Any], run: AgentRun) -> Generator[AskForQuestion, Any, None]:
        """Make a follow-up a question of its own, once a run, where it is going to be judged."""
        begun = run.begun
        if not begun["follows_up"] or not (run.rounds or run.kept):
            return
        if "condensed" not in begun:
            if self.condense is not None:
                with quietly():
                    condensed = str(self.condense(request.messages)).strip()
            else:
                asking = AskForQuestion(request, run.question)
                made = str((yield asking)).strip()
                condensed = made if _asks(made, asking.messages()[:-1]) else ""
            begun = begun.copy()
            begun["condensed"] = condensed or run.question
        run.question, run.begun = begun["condensed"], begun

    def _drafted(
        self, request: ModelRequest[Any], run: AgentRun, quiet: bool
    ) -> Generator[Draft, Any, ModelResponse[Any]]:
        """The model's response; malformed structured output is asked for again in here, where it is not seen."""
        for _ in range(_MALFORMED):
            response = cast(ModelResponse[Any], (yield Draft(request, quiet)))
            if _searched(response):
                run.has_searched()
            errors = [message for message in response.result if isinstance(message, ToolMessage)]
            if not quiet or response.structured_response is not None or not errors:
                return response
            request = _said(request, response.result)
        return ModelResponse(result=[AIMessage("")])

    def _release_gate(self, request: ModelRequest[Any], run: AgentRun, response: ModelResponse[Any]) -> Steps:
        """Release a draft that the evidence supports; else search again or abstain."""
        draft = _text(response)
        if not draft:
            detail = "the model drafted no text"
            decision = yield from _decided(request, run, Reason.INSUFFICIENT_INFORMATION, detail)
            return self._abstention(run, decision)
        if self.audit and response.structured_response is None and stands_alone(run.question):
            return (yield from self._audited(request, run, response, draft))
        decision = yield from _decided(request, run, answer=draft, can_acquire=run.spent < self.rounds)
        if decision.answered:
            return self._release(run, _rebuilt(response, draft))
        if decision.action is Action.ABSTAIN:
            return self._abstention(run, decision)
        again = _said(request, [AIMessage(draft), HumanMessage(NOT_SUPPORTED)])
        response = yield from self._drafted(again, run, True)
        if not _calls(response):
            return self._abstention(run, decision)
        return (yield from self._passed_on(request, run, response, True))

    def _audited(self, request: ModelRequest[Any], run: AgentRun, response: ModelResponse[Any], draft: str) -> Steps:
        """Release what may go out of a draft; abstain where nothing may."""
        item = {"answer": draft, "question": run.question, "evidence": audited_evidence(run.documents)}
        audit = cast(AnswerAudit, (yield Audit(item)))
        if not audit.releasable().text:
            detail = "no statement of the draft may go out"
            decision = yield from _decided(request, run, Reason.INSUFFICIENT_INFORMATION, detail)
            return self._abstention(run, decision)
        last = [message for message in response.result if isinstance(message, AIMessage)][-1]
        released = cast(AIMessage, trimmed(last, audit, self.message, cite=True)).model_copy(update={"name": _agent()})
        return ExtendedModelResponse(ModelResponse(result=[released]), Command(update=run.update()))

    def _passed_on(self, request: ModelRequest[Any], run: AgentRun, response: ModelResponse[Any], quiet: bool) -> Steps:
        """Tool calls go on, within the bound; words beside them could be a draft and do not while it is undecided."""
        asks = [name for name in _calls(response) if finds_evidence(self.evidence_tools, name)]
        if asks and run.begun["searches"] >= self.rounds:
            detail = f"the model asked for more evidence after the last of {self.rounds} rounds"
            decision = yield from _decided(request, run, Reason.INSUFFICIENT_INFORMATION, detail)
            return self._abstention(run, decision)
        if asks:
            run.asked_again()
        known = _names(request.tools)
        result = [_without_words(message, known) if quiet else message for message in response.result]
        return ExtendedModelResponse(ModelResponse(result=result), Command(update=run.update(ended=False)))

    def _release(self, run: AgentRun, response: ModelResponse[Any]) -> ExtendedModelResponse[Any]:
        marked = [_marked(message, run.decisions[-1]) for message in response.result]
        return ExtendedModelResponse(
            ModelResponse(result=marked, structured_response=response.structured_response),
            Command(update=run.update()),
        )

    def _abstention(self, run: AgentRun, decision: Decision) -> ExtendedModelResponse[Any]:
        """The agent's last word without an answer; no round follows the decision that led here."""
        final = settled(decision)
        run.decisions[-1] = final.to_dict()
        if self.on_abstain == "raise":
            raise ISRAbstained(final, run.documents)
        message = AIMessage(self.message, name=_agent(), response_metadata={KEY: final.to_dict()})
        return ExtendedModelResponse(
            ModelResponse(result=[message]), Command(update={**run.update(), "jump_to": "end"})
        )


def _decided(
    request: ModelRequest[Any],
    run: AgentRun,
    reason: Reason | None = None,
    detail: str = "",
    *,
    answer: str | None = None,
    can_acquire: bool = False,
) -> Generator[Decide, Any, Decision]:
    """A decision about the run's evidence, kept and streamed; with a reason of the agent's own nothing is scored."""
    documents = run.documents if reason is None else []
    item = item_of({"question": run.question, "documents": documents, "answer": answer}, can_acquire=can_acquire)
    decision = cast(Decision, (yield Decide(item, reason, detail)))
    run.decisions.append(decision.to_dict())
    request.runtime.stream_writer({KEY: decision.to_dict()})
    return decision


def _asks(made: str, said: Sequence[BaseMessage]) -> bool:
    """Whether a model made a question that stands alone, without names and numbers that the conversation does not have.

    No gate has judged what it made, and it goes into the agent's state: it may be an answer.
    """
    known = {word.lower() for message in said for word in re.findall(r"\w+", str(message.text))}
    words = re.findall(r"\w+", made)
    named = [w for i, w in enumerate(words) if w != "I" and not w.islower() and (i or not _OPENING.fullmatch(w))]
    told = named + [w for w in words if any(c.isdigit() for c in w) or _NUMBER.fullmatch(w)]
    return made.endswith("?") and stands_alone(made) and all(word.lower() in known for word in told)


def _said(request: ModelRequest[Any], messages: Sequence[BaseMessage]) -> ModelRequest[Any]:
    """The request with further messages, which the agent's state does not keep."""
    return request.override(messages=[*request.messages, *cast(Sequence[AnyMessage], messages)])


def _calls(response: ModelResponse[Any]) -> list[str]:
    """Names of the tools that a response calls and that still have to run."""
    done = {message.tool_call_id for message in response.result if isinstance(message, ToolMessage)}
    calls = [call for message in response.result if isinstance(message, AIMessage) for call in message.tool_calls]
    return [call["name"] for call in calls if response.structured_response is None and call["id"] not in done]


def _can_search(request: ModelRequest[Any]) -> bool:
    """Whether the provider is offered a tool that the agent does not run, such as a search of the web."""
    bound = [getattr(request.model, name, None) for name in ("kwargs", "model_kwargs")]
    settings = [given for given in (*bound, request.model_settings) if isinstance(given, dict)]
    tools = [*request.tools, *(tool for given in settings for tool in given.get("tools") or [])]
    return any(isinstance(tool, dict) and tool.get("type") != "function" for tool in tools)


def _searched(response: ModelResponse[Any]) -> bool:
    """Whether the provider called tools of its own, such as a search of the web, or says or cites what it found."""
    said = [message for message in response.result if isinstance(message, AIMessage)]
    blocks = [cast(dict[str, Any], block) for message in said for block in message.content_blocks]
    kinds = [str(block["type"]) for block in blocks]
    held = [block.get("value") for block in blocks if block["type"] == "non_standard"]
    held += [note for block in blocks for note in block.get("annotations") or []]
    kinds += [str(one.get("type")) for one in held if isinstance(one, dict)]
    added = [given for message in said for given in (message.additional_kwargs, message.response_metadata)]
    return any(_OF_THE_PROVIDER.fullmatch(kind) for kind in kinds) or _tells_of_search(added)


def _tells_of_search(added: Any, named: bool = False) -> bool:
    """Whether what a provider adds to a message tells of a search; an empty list and a count of none do not."""
    if isinstance(added, dict):
        kind = named or bool(_OF_THE_PROVIDER.fullmatch(str(added.get("type"))))
        return any(_tells_of_search(one, kind or bool(_FOUND.fullmatch(str(name)))) for name, one in added.items())
    if isinstance(added, (list, tuple)):
        return any(_tells_of_search(one, named) for one in added)
    return named and bool(added)


def _text(response: ModelResponse[Any]) -> str:
    """The answer that a response holds; a structured one as JSON."""
    structured = response.structured_response
    if structured is not None:
        return _dumped(structured)
    return "\n".join(str(m.text) for m in response.result if isinstance(m, AIMessage)).strip()


def _adapter(structured: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type(structured))


def _dumped(structured: Any) -> str:
    return _adapter(structured).dump_json(structured, warnings=False).decode()


def _held(structured: Any) -> Any:
    return _adapter(structured).dump_python(structured, warnings=False)


def _rebuilt(response: ModelResponse[Any], judged: str) -> ModelResponse[Any]:
    """A response made anew from what was judged of it.

    Raises:
        InvalidInputError: for a structured answer of which its JSON, which is what was judged, makes another or none.
    """
    said = [message for message in response.result if isinstance(message, AIMessage)]
    if response.structured_response is None:
        return ModelResponse([cast(AIMessage, replaced(said[-1], judged, {}))])
    plain: Any = json.loads(judged)
    made: list[BaseMessage] = []
    done = {message.tool_call_id for message in response.result if isinstance(message, ToolMessage)}
    for message in response.result:
        if isinstance(message, ToolMessage):
            made.append(ToolMessage(judged, name=message.name, tool_call_id=message.tool_call_id))
        elif isinstance(message, AIMessage):
            calls = [tool_call(name=c["name"], id=c["id"], args=plain) for c in message.tool_calls if c["id"] in done]
            anew = cast(AIMessage, replaced(message, "" if calls else judged, {}))
            made.append(anew.model_copy(update={"tool_calls": calls}))
    draft = response.structured_response
    try:
        structured = _adapter(draft).validate_json(judged)
    except ValidationError:
        structured = None
    # A set may come in another order in JSON.
    if structured is None or (_dumped(structured) != judged and _held(structured) != _held(draft)):
        kind = type(draft).__name__
        raise InvalidInputError(f"{kind} cannot be made from its own JSON, which is what the gate judges")
    return ModelResponse(made, structured_response=structured)


def refuse_direct(tool: object) -> None:
    """Refuse a tool whose result would be the agent's last word, which no gate sees.

    Raises:
        ConfigurationError: for a tool with `return_direct=True`.
    """
    if getattr(tool, "return_direct", False):
        name = getattr(tool, "name", tool)
        raise ConfigurationError(f"the result of {name!r} would go out ungated: make the tool without return_direct")


def _names(tools: Sequence[Any]) -> set[str]:
    """Names of tools, as a call has them; a provider's own tool may have a type alone."""
    plain = [tool.get("function") or tool for tool in tools if isinstance(tool, dict)]
    named = {str(tool.get("name") or tool.get("type")) for tool in plain}
    return named | {tool.name for tool in tools if not isinstance(tool, dict)}


def _without_words(message: BaseMessage, known: set[str]) -> BaseMessage:
    """A message reduced to its tool calls: no text, no reasoning, nothing beside them.

    Of a call of a tool that the agent does not have nothing is kept but its id, with which it is told so: such a tool
    is often called `final_answer`.
    """
    if not isinstance(message, AIMessage):
        return message
    named = [
        (c["name"], c["args"], c["id"]) if c["name"] in known else ("unknown", {}, c["id"]) for c in message.tool_calls
    ]
    calls = [tool_call(name=name, args=args, id=call) for name, args, call in named]
    bare = cast(AIMessage, replaced(message, "", {}))
    return bare.model_copy(update={"name": _agent(), "tool_calls": calls})


def _marked(message: BaseMessage, decision: dict[str, Any]) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    marked = {**message.response_metadata, KEY: decision}
    return message.model_copy(update={"response_metadata": marked, "name": message.name or _agent()})


def _agent() -> str | None:
    """The name of the agent, by which agents are told apart."""
    return (ensure_config().get("metadata") or {}).get("lc_agent_name")
