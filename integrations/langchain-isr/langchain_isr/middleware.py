"""The gate as middleware of `langchain.agents.create_agent`: on what tools found, and on the final answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse, OmitFromInput, PrivateStateAttr, ToolCallRequest
from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import Command

from isr_rag import Action, AnswerAudit, Decision, Reason
from isr_rag import ISRGate as CoreGate
from isr_rag.errors import ConfigurationError
from langchain_isr.agent_run import AgentRun, begin, failed_call
from langchain_isr.audit import AUDIT_EVENT, numbered, trimmed
from langchain_isr.common import EVENT, KEY, MESSAGE, ISRAbstained, for_one_look, item_of, settled, text_of
from langchain_isr.quiet import quietly

When = Literal["before", "after", "both"]
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

_MALFORMED = 3
"""Attempts at structured output before the agent abstains."""


class ISRAgentState(AgentState[Any]):
    """What the middleware adds to an agent's state.

    Attributes:
        isr: the decisions of this run as plain data, the last one last.
        isr_documents: the evidence of this thread, in the order it was found.
        isr_kept: the evidence that earlier runs of the thread left.
        isr_run: what this run answers and where in the messages it begins.
    """

    isr: NotRequired[Annotated[list[dict[str, Any]], OmitFromInput]]
    isr_documents: NotRequired[Annotated[list[Document], OmitFromInput]]
    isr_kept: NotRequired[Annotated[list[Document], PrivateStateAttr]]
    isr_run: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


@dataclass(frozen=True)
class _Decide:
    """Ask the gate; or state a reason of the agent's own, where there is nothing to ask about."""

    item: dict[str, Any]
    reason: Reason | None = None
    detail: str = ""

    def stated(self, decision: Decision) -> Decision:
        """The gate's decision, with that reason where there is one."""
        return decision if self.reason is None else replace(decision, reason=self.reason, detail=self.detail)


@dataclass(frozen=True)
class _Audit:
    """Audit a draft on the evidence of the run."""

    item: dict[str, Any]


@dataclass(frozen=True)
class _Draft:
    """Ask the model."""

    request: ModelRequest[Any]
    quiet: bool


@dataclass(frozen=True)
class _Condense:
    """Ask the model for the question that a follow-up means, out of every stream."""

    request: ModelRequest[Any]

    def messages(self) -> list[BaseMessage]:
        """The conversation up to the follow-up, and what is wanted."""
        spoken = [m for m in self.request.messages if isinstance(m, (HumanMessage, AIMessage)) and str(m.text).strip()]
        last = max(i for i, message in enumerate(spoken) if isinstance(message, HumanMessage))
        return [*spoken[: last + 1], HumanMessage(CONDENSE)]


Steps: TypeAlias = Generator[_Decide | _Audit | _Draft | _Condense, Any, ExtendedModelResponse[Any]]


class ISRMiddleware(AgentMiddleware[ISRAgentState, Any, Any]):
    """Lets an agent answer only from evidence that carries the answer.

    `before`: after each round of tool calls the gate decides whether the evidence suffices. If it does not, the
    model is told to search again, until `looks` rounds are spent; then the agent abstains without another call of
    the model. `after`: the final answer is released only if the evidence supports it; until then no stream of the
    caller carries any of it. A turn in which no evidence tool is called (a greeting, a thank-you, a question about the
    conversation) passes ungated; with `without_evidence="abstain"` an answer needs evidence in every turn.

    Evidence stays over the turns of a thread: a follow-up is judged on what earlier turns found and this one adds, and
    as a question of its own, which `condense` makes of it.

    The state has `isr` (all decisions of the run) and `isr_documents`; the released message and the abstention
    carry the decision in `response_metadata["isr"]`. Each decision is also streamed as a custom event. The target
    hallucination rate is split over the looks. Put it first in the list of middleware: nothing then changes an
    answer after its release.

    Args:
        gate: the gate of `isr_rag` that decides; by default the embedded model with its calibration. Its
            `on_error` also holds for tools that raise.
        when: gate the evidence `"before"` the answer, the answer `"after"` it is drafted, or `"both"`.
        looks: rounds of evidence at most, >= 1.
        tools: names of the tools that find evidence; by default all. What is judged is the text of a tool's message,
            which the model reads; it is cut into the documents of the artifact where it consists of these.
        without_evidence: what becomes of an answer in a turn in which no evidence tool was called: `"pass"` lets it
            out, `"abstain"` judges it on the evidence of earlier turns, or abstains where there is none.
        condense: makes a follow-up a question that can be understood alone, from the messages up to it; by default
            the agent's own model is asked. It runs once in a turn that is gated, and not in the first.
        on_abstain: `"message"` puts `message` in the place of the answer, `"raise"` raises
            `ISRAbstained`.
        message: what the agent says after an abstention.
        audit: judge a final answer in text statement by statement instead of as a whole: what may go out of it is
            released, with citations `[n]` of `isr_documents`, and `response_metadata["isr_audit"]` holds the audit.
            With `when="after"` or `"both"`; nothing is searched again for the parts that are left out.

    Raises:
        ConfigurationError: for a setting out of range, or when the agent runs, if it has none of the named `tools`.
        InvalidTypeError: if `gate` is not a gate of `isr_rag`.
    """

    state_schema = ISRAgentState

    def __init__(
        self,
        gate: CoreGate | None = None,
        *,
        when: When = "both",
        looks: int = 2,
        tools: Sequence[str] | None = None,
        without_evidence: WithoutEvidence = "pass",
        condense: Condense | None = None,
        on_abstain: Literal["message", "raise"] = "message",
        message: str = MESSAGE,
        audit: bool = False,
    ) -> None:
        super().__init__()
        if audit and when == "before":
            raise ConfigurationError("an audit judges the answer after it is drafted: give when='after' or 'both'")
        if when not in ("before", "after", "both"):
            raise ConfigurationError(f"when must be 'before', 'after' or 'both', got {when!r}")
        if without_evidence not in ("pass", "abstain"):
            raise ConfigurationError(f"without_evidence must be 'pass' or 'abstain', got {without_evidence!r}")
        self.gate = for_one_look(gate, looks)
        self.without_evidence: WithoutEvidence = without_evidence
        self.condense = condense
        self.when: When = when
        self.looks = looks
        self.evidence_tools = None if tools is None else frozenset(tools)
        self.on_abstain = on_abstain
        self.message = message
        self.audit = audit
        self.tools = []

    def before_agent(self, state: ISRAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Start the run afresh: no decisions, the evidence of earlier runs, the last human message as the question."""
        return {"isr": [], "isr_kept": state.get("isr_documents") or [], "isr_run": begin(state["messages"])}

    async def abefore_agent(self, state: ISRAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        """As `before_agent`."""
        return self.before_agent(state, runtime)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Run a tool; where it raises and the policy is to abstain, note that instead."""
        try:
            return handler(request)
        except Exception as error:
            return self._tool_failed(request, error)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """As `wrap_tool_call`."""
        try:
            return await handler(request)
        except Exception as error:
            return self._tool_failed(request, error)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ExtendedModelResponse[Any]:
        """Gate the evidence, draft unseen, gate the draft."""
        steps = self._steps(request)
        result: Any = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as stop:
                return cast(ExtendedModelResponse[Any], stop.value)
            if isinstance(step, _Condense):
                with quietly():
                    result = text_of(step.request.model.invoke(step.messages()))
            elif isinstance(step, _Decide):
                result = step.stated(self.gate.decide_batch([step.item])[0])
                dispatch_custom_event(EVENT, result.to_dict())
            elif isinstance(step, _Audit):
                result = self.gate.audit_batch([step.item])[0]
                dispatch_custom_event(AUDIT_EVENT, result.to_dict())
            elif step.quiet:
                with quietly():
                    result = handler(step.request)
            else:
                result = handler(step.request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ExtendedModelResponse[Any]:
        """As `wrap_model_call`, without blocking the event loop."""
        steps = self._steps(request)
        result: Any = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as stop:
                return cast(ExtendedModelResponse[Any], stop.value)
            if isinstance(step, _Condense):
                with quietly():
                    result = text_of(await step.request.model.ainvoke(step.messages()))
            elif isinstance(step, _Decide):
                result = step.stated((await self.gate.adecide_batch([step.item]))[0])
                await adispatch_custom_event(EVENT, result.to_dict())
            elif isinstance(step, _Audit):
                result = (await self.gate.aaudit_batch([step.item]))[0]
                await adispatch_custom_event(AUDIT_EVENT, result.to_dict())
            elif step.quiet:
                with quietly():
                    result = await handler(step.request)
            else:
                result = await handler(step.request)

    def _steps(self, request: ModelRequest[Any]) -> Steps:
        """One call of the model with its gates; asks for decisions and drafts where it needs them."""
        self._check_tools(request)
        run = AgentRun.of(cast(dict[str, Any], request.state), self.evidence_tools)
        yield from self._understood(request, run)
        if run.failed is not None:
            failure = yield from _decided(request, run, Reason.RETRIEVER_FAILED, run.failed)
            return self._abstention(run, failure)
        enough, decision = True, None
        if self.when != "after":
            decision = run.last_sufficiency()
            if run.fresh:
                decision = yield from _decided(request, run, can_acquire=len(run.rounds) < self.looks)
                if decision.action is Action.ABSTAIN:
                    return self._abstention(run, decision)
            enough = decision is not None and decision.answered
            if decision is not None and not enough:
                request = _said(request, [HumanMessage(SEARCH_AGAIN)])
        ungated = not run.rounds and self.without_evidence == "pass"
        quiet = self.when != "before" or not enough
        response = yield from self._drafted(request, quiet)
        if _calls(response):
            return (yield from self._passed_on(request, run, response, quiet))
        if ungated:
            return ExtendedModelResponse(response, Command(update=run.update()))
        if not enough:  # the model answered from nothing, or although it was told to search
            if decision is None:
                decision = yield from _decided(request, run)
            return self._abstention(run, decision)
        if self.when == "before":
            return self._release(run, response)
        return (yield from self._release_gate(request, run, response))

    def _check_tools(self, request: ModelRequest[Any]) -> None:
        known = {tool["name"] if isinstance(tool, dict) else tool.name for tool in request.tools}
        if missing := sorted((self.evidence_tools or frozenset()) - known):
            raise ConfigurationError(f"the agent has no tools {missing}; its tools are {sorted(known)}")

    def _understood(self, request: ModelRequest[Any], run: AgentRun) -> Generator[_Condense, Any, None]:
        """Make a follow-up a question of its own, once a run, where it is going to be judged."""
        begun = cast(dict[str, Any], request.state.get("isr_run") or {})
        gated = bool(run.rounds) or (self.without_evidence == "abstain" and bool(run.kept))
        if not begun.get("follows_up") or not gated:
            return
        if "condensed" not in begun:
            condensed = self.condense(request.messages) if self.condense else (yield _Condense(request))
            begun = {**begun, "condensed": condensed.strip() or run.question}
        run.question, run.begun = begun["condensed"], begun

    def _drafted(self, request: ModelRequest[Any], quiet: bool) -> Generator[_Draft, Any, ModelResponse[Any]]:
        """The model's response; malformed structured output is asked for again in here, where it is not seen."""
        for _ in range(_MALFORMED):
            response = cast(ModelResponse[Any], (yield _Draft(request, quiet)))
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
        if self.audit and response.structured_response is None:
            return (yield from self._audited(request, run, response, draft))
        decision = yield from _decided(request, run, answer=draft, can_acquire=len(run.rounds) < self.looks)
        if decision.answered:
            return self._release(run, response)
        if decision.action is Action.ABSTAIN:
            return self._abstention(run, decision)
        again = _said(request, [AIMessage(draft), HumanMessage(NOT_SUPPORTED)])
        response = yield from self._drafted(again, True)
        if not _calls(response):
            return self._abstention(run, decision)
        return (yield from self._passed_on(request, run, response, True))

    def _audited(self, request: ModelRequest[Any], run: AgentRun, response: ModelResponse[Any], draft: str) -> Steps:
        """Release what may go out of a draft; abstain where nothing may."""
        item = {"answer": draft, "question": run.question, "evidence": numbered(run.documents)}
        audit = cast(AnswerAudit, (yield _Audit(item)))
        if not audit.releasable().text:
            detail = "no statement of the draft may go out"
            decision = yield from _decided(request, run, Reason.INSUFFICIENT_INFORMATION, detail)
            return self._abstention(run, decision)
        last = [message for message in response.result if isinstance(message, AIMessage)][-1]
        released = cast(AIMessage, trimmed(last, audit, self.message, cite=True))
        return ExtendedModelResponse(ModelResponse(result=[released]), Command(update=run.update()))

    def _passed_on(self, request: ModelRequest[Any], run: AgentRun, response: ModelResponse[Any], quiet: bool) -> Steps:
        """Tool calls go on, within the bound; words beside them could be a draft and do not while it is undecided."""
        asks = [name for name in _calls(response) if run.finds_evidence(name)]
        if asks and len(run.rounds) >= self.looks:
            detail = f"the model asked for more evidence after the last of {self.looks} rounds"
            decision = yield from _decided(request, run, Reason.INSUFFICIENT_INFORMATION, detail)
            return self._abstention(run, decision)
        result = [_without_words(message) if quiet else message for message in response.result]
        return ExtendedModelResponse(ModelResponse(result=result), Command(update=run.update()))

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
        message = AIMessage(self.message, response_metadata={KEY: final.to_dict()})
        return ExtendedModelResponse(
            ModelResponse(result=[message]), Command(update={**run.update(), "jump_to": "end"})
        )

    def _tool_failed(self, request: ToolCallRequest, error: Exception) -> ToolMessage:
        name = request.tool_call["name"]
        ours = self.evidence_tools is None or name in self.evidence_tools
        if isinstance(error, GraphBubbleUp) or not ours or self.gate.on_error == "raise":
            raise error
        return failed_call(name, request.tool_call["id"] or "", error)


def _decided(
    request: ModelRequest[Any],
    run: AgentRun,
    reason: Reason | None = None,
    detail: str = "",
    *,
    answer: str | None = None,
    can_acquire: bool = False,
) -> Generator[_Decide, Any, Decision]:
    """A decision about the run's evidence, kept and streamed; with a reason of the agent's own nothing is scored."""
    documents = run.documents if reason is None else []
    item = item_of({"question": run.question, "documents": documents, "answer": answer}, can_acquire=can_acquire)
    decision = cast(Decision, (yield _Decide(item, reason, detail)))
    run.decisions.append(decision.to_dict())
    request.runtime.stream_writer({KEY: decision.to_dict()})
    return decision


def _said(request: ModelRequest[Any], messages: Sequence[BaseMessage]) -> ModelRequest[Any]:
    """The request with further messages, which the agent's state does not keep."""
    return request.override(messages=[*request.messages, *cast(Sequence[AnyMessage], messages)])


def _calls(response: ModelResponse[Any]) -> list[str]:
    """Names of the tools that a response calls and that still have to run."""
    done = {message.tool_call_id for message in response.result if isinstance(message, ToolMessage)}
    calls = [call for message in response.result if isinstance(message, AIMessage) for call in message.tool_calls]
    return [call["name"] for call in calls if response.structured_response is None and call["id"] not in done]


def _text(response: ModelResponse[Any]) -> str:
    """The answer that a response holds."""
    structured = response.structured_response
    if structured is not None:
        dump = getattr(structured, "model_dump_json", None)
        return str(dump() if callable(dump) else structured)
    return "\n".join(str(m.text) for m in response.result if isinstance(m, AIMessage)).strip()


def _without_words(message: BaseMessage) -> BaseMessage:
    """A message reduced to its tool calls: no text, no reasoning, nothing beside them."""
    if not isinstance(message, AIMessage):
        return message
    return AIMessage(
        "", id=message.id, name=message.name, tool_calls=message.tool_calls, usage_metadata=message.usage_metadata
    )


def _marked(message: BaseMessage, decision: dict[str, Any]) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    return message.model_copy(update={"response_metadata": {**message.response_metadata, KEY: decision}})
