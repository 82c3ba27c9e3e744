"""An agent whose answer goes out only when the evidence that it found supports it."""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias, cast

from llama_index.core.agent.workflow import AgentOutput, AgentWorkflow, BaseWorkflowAgent, ToolCall, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.base.response.schema import Response
from llama_index.core.memory import BaseMemory, ChatMemoryBuffer
from llama_index.core.workflow import Context, InputRequiredEvent
from pydantic import BaseModel

from isr_rag import ISRGate, Reason
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError
from isr_rag.gate.acquisition import abstain
from isr_rag.gate.adapters import MESSAGE, gate_for, stands_alone
from llama_index.postprocessor.isr.agent import QUESTION, failed_search, kept_nodes
from llama_index.postprocessor.isr.evidence import KEY, Nodes, agather, decided, quietly

WithoutEvidence = Literal["pass", "abstain"]
Condense: TypeAlias = Callable[[Sequence[ChatMessage]], Awaitable[str]]
"""Takes the messages up to a follow-up and returns it as a question that can be understood alone."""

SOUGHT = f"{KEY}_sought"
"""Where a conversation's context keeps whether a run has called a tool."""

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
"""Types of what a reply holds of searches that a provider made; calls of the agent's own tools are none."""
_FOUND = re.compile(r"(?i)\w*(?:search|citation|grounding)\w*|annotations|built_in_tool_calls|executed_tools")
"""Names under which a reply holds them, or what they found."""


class GatedAgent:
    """Runs an agent that has an `evidence_tool`, and releases its answer only if what that found supports it.

    The agent may ignore what the tool tells it; its answer is judged all the same, and after an abstention `message`
    takes its place. It runs in a context and with a memory of its own, which nobody else sees: of a run, the context
    that you give keeps the user's message and what was released, made anew from the text that was judged. A run that
    fails, is cancelled or takes too long leaves the user's message in it, and may be tried again.

    A follow-up ("and when did it end?") is judged as a question that stands alone, into which the agent's own LLM
    rewrites it; `response.metadata["isr"]["question"]` says what was judged.

    ```python
    agent = FunctionAgent(tools=[evidence_tool(index.as_retriever())], llm=llm)
    response = await GatedAgent(agent).run("Which river flows through Paris?")
    ```

    Args:
        agent: a `FunctionAgent`, `ReActAgent` or `AgentWorkflow` with an `evidence_tool` among its tools, and without
            structured output, which is made after the answer and which nobody would judge.
        gate: decides; the embedded model with its shipped calibration by default.
        without_evidence: what becomes of an answer (to a greeting) where no tool was called, be it one of the LLM's
            provider, in this run or an earlier one of the conversation: `"abstain"`, or `"pass"` to let it out ungated.
            The conversation's context says whether one was; where it does not, only the first run may pass.
        message: what the reader gets after an abstention.
        condense: rewrites a follow-up, instead of the agent's LLM.

    Raises:
        ConfigurationError: for another `without_evidence`, an agent with structured output, or a gate that could never
            answer.
        InvalidTypeError: if `gate` is not a gate of `isr_rag`, or `agent` is none.
    """

    def __init__(
        self,
        agent: BaseWorkflowAgent | AgentWorkflow,
        *,
        gate: ISRGate | None = None,
        without_evidence: WithoutEvidence = "abstain",
        message: str = MESSAGE,
        condense: Condense | None = None,
    ) -> None:
        if without_evidence not in ("pass", "abstain"):
            raise ConfigurationError(f"without_evidence must be 'pass' or 'abstain', got {without_evidence!r}")
        if not isinstance(cast(object, agent), (BaseWorkflowAgent, AgentWorkflow)):
            raise InvalidTypeError(f"agent must be an agent or an AgentWorkflow, not {type(agent).__name__}")
        parts: list[Any] = [agent, *agent.agents.values()] if isinstance(agent, AgentWorkflow) else [agent]
        for one in parts:
            if one.output_cls is not None or one.structured_output_fn is not None:
                raise ConfigurationError(
                    f"{type(one).__name__} makes a structured output of its answer, which nobody would judge and which "
                    "may be quoted in warnings: leave out output_cls and structured_output_fn"
                )
        self._agent, self._without_evidence, self._message = agent, without_evidence, message
        self._gate, self._condense = gate_for("after", gate), condense
        root = agent.agents[agent.root_agent] if isinstance(agent, AgentWorkflow) else agent
        self._llm = root.llm

    async def run(self, user_msg: str, *, ctx: Context | None = None, **settings: Any) -> Response:
        """Run the agent on a user's message.

        Args:
            user_msg: what the user says; the question that the evidence is judged by.
            ctx: the conversation, to carry it on: its memory is read, and written after the decision.
            settings: of the agent's own `run`, such as `max_iterations` and `memory`.

        Returns:
            The answer with its evidence in `source_nodes` and the decision in `metadata["isr"]`; `metadata` is None
            where nothing was judged.

        Raises:
            InvalidInputError: where a tool asks a human, whom it cannot reach, since its question may quote the draft;
                for a `start_event` in `settings`, or an empty message.
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        if not isinstance(cast(object, user_msg), str):
            raise InvalidTypeError(f"what the user says must be a string, not {type(user_msg).__name__}")
        if not user_msg.strip():
            raise InvalidInputError("the user says nothing: give user_msg a text")
        if settings.get("start_event") is not None:
            raise InvalidInputError("a start_event holds another message and memory than are judged: give its fields")
        elsewhere = bool(settings.get("chat_history"))
        memory = await self._memory(ctx, settings)
        history = list(await memory.aget(input=user_msg))
        sought = bool(history)
        if ctx is not None:
            alone = await ctx.store.get(KEY, default=None) is not None  # the agent searched in it without this one
            alone = alone or any(message.role == MessageRole.TOOL for message in history)
            sought = elsewhere or alone or await ctx.store.get(SOUGHT, default=sought)
            await ctx.store.set(SOUGHT, sought)
        if history and _asks(history[-1], user_msg):  # a run that did not end is tried again
            history = history[:-1]
        try:
            response = await self._judged(ctx, memory, history, user_msg, settings, sought=sought)
        except BaseException:  # cancelled runs too
            await self._keep(ctx, memory, user_msg)
            raise
        await self._keep(ctx, memory, user_msg, response.response)
        return response

    async def _judged(
        self,
        ctx: Context | None,
        memory: BaseMemory,
        history: list[ChatMessage],
        user_msg: str,
        settings: dict[str, Any],
        *,
        sought: bool,
    ) -> Response:
        """What goes out of a run, which leaves nothing of itself behind but whether evidence was sought."""
        private: Context = Context(self._agent)
        limit = getattr(memory, "token_limit", None)
        own = [message.model_copy(deep=True) for message in history]
        copied = ChatMemoryBuffer.from_defaults(chat_history=own, llm=self._llm, token_limit=limit)
        if ctx is not None and (state := await ctx.store.get("state", default=None)) is not None:
            await private.store.set("state", copy.deepcopy(state))
        question = await self._question(user_msg, history)
        await private.store.set(QUESTION, question)
        with quietly():
            draft, called = await self._drafted(private, ctx, user_msg, {**settings, "memory": copied})
        nodes = await kept_nodes(private)
        if nodes is None and not (called or sought) and self._without_evidence == "pass":
            return Response(draft)

        async def found(query: str, number: int, previous: object) -> Nodes:
            return nodes or []

        if not draft.strip():
            detail = "the agent drafted no text"
            stated = abstain(self._gate, Reason.INSUFFICIENT_INFORMATION, detail, question=question)
            gathered = decided((stated,), nodes or [], question)
        elif nodes is None:
            detail = "the agent called no evidence_tool, and what other tools return is no evidence"
            stated = abstain(self._gate, Reason.NO_EVIDENCE, detail, question=question, answer=draft)
            gathered = decided((stated,), [], question, draft)
        elif not nodes and (kind := await failed_search(private)) is not None:
            stated = abstain(self._gate, Reason.RETRIEVER_FAILED, kind, question=question, answer=draft)
            gathered = decided((stated,), [], question, draft)
        else:
            gathered = await agather(self._gate, found, question=question, answer=draft)
        text = draft if gathered.decision.answered else self._message
        return Response(text, source_nodes=gathered.nodes, metadata=gathered.metadata())

    async def _memory(self, ctx: Context | None, settings: dict[str, Any]) -> BaseMemory:
        """The conversation's memory, which the agent does not get."""
        given, history = settings.pop("memory", None), settings.pop("chat_history", None)
        kept = None if ctx is None else await ctx.store.get("memory", default=None)
        memory = cast(BaseMemory, kept or given or ChatMemoryBuffer.from_defaults(llm=self._llm))
        if history:
            await memory.aset(history)
        return memory

    async def _question(self, user_msg: str, history: Sequence[ChatMessage]) -> str:
        """The message as a question that stands alone, where earlier messages came before it."""
        if not history:
            return user_msg
        said = [*history, ChatMessage(role=MessageRole.USER, content=user_msg)]
        with quietly():
            if self._condense is not None:
                return (await self._condense(said)).strip() or user_msg
            wanted = ChatMessage(role=MessageRole.USER, content=CONDENSE)
            made = ((await self._llm.achat([*said, wanted])).message.content or "").strip()
        return made if _is_question(made, said) else user_msg

    async def _drafted(
        self, private: Context, ctx: Context | None, user_msg: str, settings: dict[str, Any]
    ) -> tuple[str, bool]:
        """What the agent answers in a context of its own, and whether it called a tool, which `ctx` keeps at once."""
        run: Any = self._agent.run  # its overloads do not know settings passed on
        handler, called = run(user_msg=user_msg, ctx=private, **settings), False
        try:
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    raise InvalidInputError(
                        "a tool asks a human and would wait forever, since a GatedAgent passes on nothing that is not "
                        "judged: let the human decide before the run or after it"
                    )
                if not called and (isinstance(event, (ToolCall, ToolCallResult)) or _searched(event)):
                    called = True
                    if ctx is not None:
                        await ctx.store.set(SOUGHT, True)
            return str(await handler), called
        except BaseException:  # cancelled runs too
            if not handler.done():
                await handler.cancel_run()
            raise

    async def _keep(self, ctx: Context | None, memory: BaseMemory, user_msg: str, said: str | None = None) -> None:
        """Keep in the conversation what the user said, once where a run is tried again, and what goes out."""
        held = await memory.aget_all()
        if not held or not _asks(held[-1], user_msg):
            await memory.aput(ChatMessage(role=MessageRole.USER, content=user_msg))
        if said is not None:
            await memory.aput(ChatMessage(role=MessageRole.ASSISTANT, content=said))
        if ctx is not None:
            await ctx.store.set("memory", memory)


def _asks(message: ChatMessage, user_msg: str) -> bool:
    return message.role == MessageRole.USER and message.content == user_msg


def _searched(event: object) -> bool:
    """Whether the LLM's provider searched by itself for what an agent says, or cites what it found."""
    if not isinstance(event, AgentOutput):
        return False
    held: list[Any] = [event.response.blocks, event.response.additional_kwargs, event.raw]
    seen: set[int] = set()
    for one in held:
        if id(one) in seen:  # objects may hold each other
            continue
        seen.add(id(one))
        if isinstance(one, (list, tuple)):
            held += one
        elif isinstance(one, (dict, BaseModel)):
            named: dict[str, Any] = one if isinstance(one, dict) else {**vars(one), **(one.model_extra or {})}
            kinds = str(named.get("type")), str(named.get("block_type"))
            found = [own for name, own in named.items() if _FOUND.fullmatch(str(name))]
            if any(map(_OF_THE_PROVIDER.fullmatch, kinds)) or any(found):
                return True
            held += [own for name, own in named.items() if name not in ("tools", "tool_choice")]  # offered, not called
    return False


def _is_question(made: str, said: Sequence[ChatMessage]) -> bool:
    """Whether a model made a question that stands alone, without names and numbers that the conversation does not have.

    No gate has judged what it made, and it goes out with the decision: it may be an answer.
    """
    known = {word.lower() for message in said for word in re.findall(r"\w+", message.content or "")}
    words = re.findall(r"\w+", made)
    named = [w for i, w in enumerate(words) if w != "I" and not w.islower() and (i or not _OPENING.fullmatch(w))]
    told = named + [w for w in words if any(c.isdigit() for c in w) or _NUMBER.fullmatch(w)]
    return made.endswith("?") and stands_alone(made) and all(word.lower() in known for word in told)
