"""The gate as middleware of `langchain.agents.create_agent`: on what tools found, and on the final answer."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse, OmitFromInput, PrivateStateAttr, ToolCallRequest
from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.graph import END
from langgraph.runtime import Runtime
from langgraph.types import Command

from isr_rag import ISRGate as CoreGate
from isr_rag.errors import ConfigurationError
from isr_rag.gate.acquisition import gate_of_round
from isr_rag.gate.adapters import MESSAGE, TEMPLATES, Place, gate_for
from langchain_isr.agent_run import AgentRun, Begun, Found, begin, documents_of, finds_evidence, merged
from langchain_isr.agent_turn import (
    AskForQuestion,
    Audit,
    Condense,
    Decide,
    Draft,
    Turns,
    When,
    WithoutEvidence,
    refuse_direct,
)
from langchain_isr.audit import AUDIT_EVENT
from langchain_isr.common import EVENT, handed, text_of
from langchain_isr.gate import adecided, decided
from langchain_isr.quiet import judging, muted, quietly, refuse_telling


class ISRAgentState(AgentState[Any]):
    """What the middleware adds to an agent's state.

    Attributes:
        isr: the decisions of this run as plain data, the last one last.
        isr_documents: the evidence of this thread, as far as it counts, in the order it was last found.
        isr_kept: the evidence that earlier runs of the thread left.
        isr_run: what this run answers, and how often it has searched.
        isr_found: what its tools found, by the rounds and ids of their calls.
    """

    isr: NotRequired[Annotated[list[dict[str, Any]], OmitFromInput]]
    isr_documents: NotRequired[Annotated[list[Document], OmitFromInput]]
    isr_kept: NotRequired[Annotated[list[Document], PrivateStateAttr]]
    isr_run: NotRequired[Annotated[Begun, PrivateStateAttr]]
    isr_found: NotRequired[Annotated[dict[str, Found], PrivateStateAttr, merged]]


class ISRMiddleware(AgentMiddleware[ISRAgentState, Any, Any]):
    """Lets an agent answer only from evidence that carries the answer.

    `before`: after each round of tool calls the gate decides whether the evidence suffices. If it does not, the
    model is told to search again, until `rounds` rounds are spent; then the agent abstains without another call of
    the model. `after`: the final answer is released only if the evidence supports it; until then no stream of the
    caller carries any of it, and what is released is a new message with what was judged. An answer needs evidence in
    every turn; with `without_evidence="pass"` a turn (a greeting) passes ungated until evidence is asked for the first
    time in the thread. What tools find is noted in the agent's private state when they return, so that it counts
    although messages are summarised or trimmed later. Tools with `return_direct` are refused.

    Evidence stays over the turns of a thread: a follow-up is judged on what it adds and the newest of what earlier
    turns found, 20 documents in all, and as a question of its own, which `condense` makes of it. The one that was
    judged is `decision["question"]`. Where a follow-up does not stand alone and no question was made of it, the agent
    abstains.

    The state has `isr` (all decisions of the run) and `isr_documents`; the released message and the abstention
    carry the decision in `response_metadata["isr"]`. Each decision is also streamed as a custom event. The target
    hallucination rate is split over the rounds. Put it first in the list of middleware: no other one that wraps the
    model's calls then changes an answer after its release. Hooks (`after_model`, `after_agent`) that write messages
    can, wherever they are in the list.

    Args:
        gate: the gate of `isr_rag` that decides. By default the embedded model with its calibration, at h* = 0.2
            before the answer and at 0.05 after it. Its `on_error` also holds for tools that raise.
        when: gate the evidence `"before"` the answer, the answer `"after"` it is drafted, or `"both"`.
        rounds: rounds of evidence at most, >= 1. A further round has to pay for itself: each may spend h* / rounds. A
            draft on the evidence of earlier turns takes one, too.
        tools: names of the tools that find evidence; by default all but `write_todos`, the agent's own plans. What is
            judged is the text of a tool's message, which the model reads; it is cut into the documents of the artifact
            where it consists of these.
        without_evidence: what becomes of an answer where no evidence was asked for, in this turn or an earlier one of
            the thread: `"abstain"`, or let it `"pass"` ungated. Once evidence was asked for, answers are judged on it.
        condense: makes a follow-up a question that can be understood alone, from the messages up to it; by default
            the agent's own model is asked. It runs once in a turn that is gated, and not in the first.
        on_abstain: `"message"` puts `message` in the place of the answer, `"raise"` raises
            `ISRAbstained`.
        message: what the agent says after an abstention.
        audit: judge a final answer in text statement by statement instead of as a whole: what may go out of it is
            released, with citations `[n]` of `isr_documents`, and `response_metadata["isr_audit"]` holds the audit, in
            which blocks take the place of what is left out.
            With `when="after"` or `"both"`; nothing is searched again for the parts that are left out.

    Raises:
        ConfigurationError: for a setting out of range, for rounds that could never lead to an answer with the gate's
            calibration, or when the agent runs, if it has none of the named `tools`.
        InvalidTypeError: if `gate` is not a gate of `isr_rag`.
    """

    state_schema = ISRAgentState

    def __init__(
        self,
        gate: CoreGate | None = None,
        *,
        when: When = "after",
        rounds: int = 1,
        tools: Sequence[str] | None = None,
        without_evidence: WithoutEvidence = "abstain",
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
        if isinstance(tools, str):
            raise ConfigurationError(f"tools must be a list of names: give tools=[{tools!r}]")
        if without_evidence not in ("pass", "abstain"):
            raise ConfigurationError(f"without_evidence must be 'pass' or 'abstain', got {without_evidence!r}")
        places: tuple[Place, ...] = ("before", "after") if when == "both" else (when,)
        self.gates = {
            place: gate_of_round(gate_for(place, gate, rounds=rounds), rounds, TEMPLATES[place]) for place in places
        }
        self._last = self.gates[places[-1]]
        self.evidence_tools = None if tools is None else frozenset(tools)
        self._turns = Turns(
            when=when,
            rounds=rounds,
            evidence_tools=self.evidence_tools,
            without_evidence=without_evidence,
            condense=condense,
            on_abstain=on_abstain,
            message=message,
            audit=audit,
        )
        self.tools = []

    def before_agent(self, state: ISRAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Start the run afresh: no decisions, the evidence of earlier runs, the last human message as the question."""
        last = AgentRun.of(state, self.evidence_tools) if state.get("isr_run") else None
        begun = begin(state["messages"], self.evidence_tools, last.begun if last else None)
        fresh = {"isr": [], "isr_kept": last.documents if last else [], "isr_run": begun, "isr_found": None}
        # LangChain keeps an earlier run's structured answer where another middleware asks for the format.
        return fresh if state.get("structured_response") is None else {**fresh, "structured_response": None}

    async def abefore_agent(self, state: ISRAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        """As `before_agent`."""
        return self.before_agent(state, runtime)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Run a tool and note what it found; where it raises and the policy is to abstain, note that instead."""
        refuse_direct(request.tool)
        try:
            result = handler(request)
        except Exception as error:
            return self._tool_failed(request, error)
        return cast("ToolMessage | Command[Any]", self._noted(request, result))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """As `wrap_tool_call`."""
        refuse_direct(request.tool)
        try:
            result = await handler(request)
        except Exception as error:
            return self._tool_failed(request, error)
        return cast("ToolMessage | Command[Any]", self._noted(request, result))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ExtendedModelResponse[Any]:
        """Gate the evidence, draft unseen, gate the draft."""
        steps = self._turns.steps(request)
        result: Any = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as stop:
                return cast(ExtendedModelResponse[Any], stop.value)
            if isinstance(step, AskForQuestion):
                refuse_telling(step.request.model)
                with quietly():
                    result = text_of(step.request.model.invoke(step.messages()))
            elif isinstance(step, Decide):
                gate = self._gate(step)
                result = decided(gate, step.item, step.stated(gate))
                dispatch_custom_event(EVENT, result.to_dict())
            elif isinstance(step, Audit):
                with judging(step.item["answer"]):
                    result = self._last.audit_batch([step.item])[0]
                dispatch_custom_event(AUDIT_EVENT, result.masked().to_dict())
            elif step.quiet:
                with quietly():
                    result = handler(_unseen(step, handler))
                _refuse_commands(handler)
            else:
                result = handler(step.request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ExtendedModelResponse[Any]:
        """As `wrap_model_call`, without blocking the event loop."""
        steps = self._turns.steps(request)
        result: Any = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as stop:
                return cast(ExtendedModelResponse[Any], stop.value)
            if isinstance(step, AskForQuestion):
                refuse_telling(step.request.model)
                with quietly():
                    result = text_of(await step.request.model.ainvoke(step.messages()))
            elif isinstance(step, Decide):
                gate = self._gate(step)
                result = await adecided(gate, step.item, step.stated(gate))
                await adispatch_custom_event(EVENT, result.to_dict())
            elif isinstance(step, Audit):
                with judging(step.item["answer"]):
                    result = (await self._last.aaudit_batch([step.item]))[0]
                await adispatch_custom_event(AUDIT_EVENT, result.masked().to_dict())
            elif step.quiet:
                with quietly():
                    result = await handler(_unseen(step, handler))
                _refuse_commands(handler)
            else:
                result = await handler(step.request)

    def _gate(self, step: Decide) -> CoreGate:
        """The gate of a step: drafts are judged by the one after drafting."""
        return self.gates.get("before" if step.item["answer"] is None else "after", self._last)

    def _tool_failed(self, request: ToolCallRequest, error: Exception) -> Command[Any]:
        if isinstance(error, ParentCommand) and error.args[0].goto:  # of a graph in the tool: the agent is its parent
            raise _leads_past(request) from None
        if isinstance(error, GraphBubbleUp) or not self._finds_evidence(request) or self._last.on_error == "raise":
            raise error
        name, call = request.tool_call["name"], request.tool_call["id"] or ""
        message = ToolMessage("The search failed.", name=name, tool_call_id=call, status="error")
        detail = f"the retriever raised {type(error).__name__}: {error}"
        return Command(update={"messages": [message], **_record(request, None, detail)})

    def _noted(self, request: ToolCallRequest, result: Any) -> Any:
        """The result of a tool with what it found, for the agent's private state."""
        results: list[Any] = result if isinstance(result, list) else [result]
        for one in results:
            if isinstance(one, Command) and one.goto:
                places = one.goto if isinstance(one.goto, (list, tuple)) else [one.goto]
                if one.graph is None or END in places:
                    raise _leads_past(request)
        if not self._finds_evidence(request):
            return result
        if isinstance(result, ToolMessage):
            return Command(update={"messages": [result], **_record(request, result)})
        updates = [one.update for one in results if isinstance(one, Command) and isinstance(one.update, dict)]
        messages = [one for one in results if isinstance(one, ToolMessage)]
        messages += [m for update in updates for m in update.get("messages", []) if isinstance(m, ToolMessage)]
        return [*results, Command(update=_record(request, messages[0] if messages else None))]

    def _finds_evidence(self, request: ToolCallRequest) -> bool:
        return finds_evidence(self.evidence_tools, request.tool_call["name"])


def _leads_past(request: ToolCallRequest) -> ConfigurationError:
    name = request.tool_call["name"]
    return ConfigurationError(f"{name!r} says where the agent goes next, past the gate: make it without goto")


def _record(request: ToolCallRequest, message: ToolMessage | None, failed: str | None = None) -> dict[str, Any]:
    number = (request.state.get("isr_run") or {"searches": 0})["searches"]
    found = Found(round=number, documents=[] if message is None else documents_of(message), failed=failed)
    return {"isr_found": {f"{number}/{request.tool_call['id']}": found}}


def _unseen(step: Draft, handler: Callable[..., object]) -> ModelRequest[Any]:
    """The request of a draft that nothing may write into a stream or the state, not even another middleware."""
    refuse_telling([step.request.model, _composed(handler).get("inner")])  # a middleware inside may have its own model
    own = handed({"messages": step.request.messages, "state": step.request.state})
    return replace(step.request, runtime=muted(step.request.runtime), **own)


def _refuse_commands(handler: Callable[..., object]) -> None:
    """Refuse what a middleware inside of this one would write to the state beside a draft, whatever becomes of it.

    Raises:
        ConfigurationError: if there is such a command.
    """
    if _composed(handler).get("accumulated_commands"):
        raise ConfigurationError(
            "a middleware after ISRMiddleware writes to the state what nobody has judged: put it before ISRMiddleware"
        )


def _composed(handler: Callable[..., object]) -> Mapping[str, Any]:
    """What the function knows that LangChain composed of the middleware inside: nothing else knows of them."""
    return inspect.getclosurevars(handler).nonlocals if inspect.isfunction(handler) else {}
