"""An agent whose answer goes out only when the evidence that it found supports it."""

from __future__ import annotations

from typing import Any, Literal, cast

from llama_index.core.agent.workflow import BaseWorkflowAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.base.response.schema import Response
from llama_index.core.memory import BaseMemory
from llama_index.core.workflow import Context

from isr_rag import ISRGate
from isr_rag.errors import ConfigurationError
from isr_rag.gate.adapters import MESSAGE, gate_for
from llama_index.postprocessor.isr.agent import kept_nodes
from llama_index.postprocessor.isr.evidence import Nodes, agather

WithoutEvidence = Literal["pass", "abstain"]


class GatedAgent:
    """Runs an agent that has an `evidence_tool`, and releases its answer only if what that found supports it.

    The agent may ignore what the tool tells it; its answer is judged all the same, and after an abstention `message`
    takes its place, in the response and in the agent's memory. Nothing of a run is streamed before the decision, and
    a run that fails or is cancelled leaves nothing of its answer in the memory.

    ```python
    agent = FunctionAgent(tools=[evidence_tool(index.as_retriever())], llm=llm)
    response = await GatedAgent(agent).run("Which river flows through Paris?")
    ```

    Args:
        agent: a `FunctionAgent` or `ReActAgent` with an `evidence_tool` among its tools.
        gate: decides; the embedded model with its shipped calibration by default.
        without_evidence: what becomes of an answer in a run in which the tool was not called (a greeting, a
            thank-you): `"abstain"`, or `"pass"` to let it out ungated.
        message: what the reader gets after an abstention.

    Raises:
        ConfigurationError: for another `without_evidence`, or a gate that could never answer.
        InvalidTypeError: if `gate` is not a gate of `isr_rag`.
    """

    def __init__(
        self,
        agent: BaseWorkflowAgent,
        *,
        gate: ISRGate | None = None,
        without_evidence: WithoutEvidence = "abstain",
        message: str = MESSAGE,
    ) -> None:
        if without_evidence not in ("pass", "abstain"):
            raise ConfigurationError(f"without_evidence must be 'pass' or 'abstain', got {without_evidence!r}")
        self._agent, self._without_evidence, self._message = agent, without_evidence, message
        self._gate = gate_for("after", gate)

    async def run(self, user_msg: str, *, ctx: Context | None = None, **settings: Any) -> Response:
        """Run the agent on a user's message.

        Args:
            user_msg: what the user says; the question that the evidence is judged by.
            ctx: the agent's context, to carry a conversation on.
            settings: of the agent's own `run`, such as `max_iterations`.

        Returns:
            The answer with its evidence in `source_nodes` and the decision in `metadata["isr"]`; `metadata` is None
            where nothing was judged.

        Raises:
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        context: Context = Context(self._agent) if ctx is None else ctx
        run: Any = self._agent.run  # its overloads do not know settings passed on
        handler = run(user_msg=user_msg, ctx=context, **settings)
        try:
            draft = str(await handler)
            nodes = await kept_nodes(context)
            if nodes is None and self._without_evidence == "pass":
                return Response(draft)

            async def found(query: str, number: int, previous: object) -> Nodes:
                return nodes or []

            decided = await agather(self._gate, found, question=user_msg, answer=draft)
        except BaseException:  # cancelled runs too
            if not handler.done():
                await handler.cancel_run()
            await self._forget(context)
            raise
        if not decided.decision.answered:
            await self._forget(context, self._message)
        text = draft if decided.decision.answered else self._message
        return Response(text, source_nodes=decided.nodes, metadata=decided.metadata())

    async def _forget(self, context: Context, instead: str | None = None) -> None:
        """Leave of this run only the user's message in the agent's memory, and what the agent says instead."""
        memory = cast(BaseMemory | None, await context.store.get("memory", default=None))
        if memory is None:
            return
        messages = await memory.aget_all()
        asked = max((i for i, one in enumerate(messages) if one.role == MessageRole.USER), default=-1)
        said = [] if instead is None else [ChatMessage(role=MessageRole.ASSISTANT, content=instead)]
        await memory.aset([*messages[: asked + 1], *said])
        for scratch in ("scratchpad", "current_reasoning"):  # of function and ReAct agents that did not end
            if await context.store.get(scratch, default=None):
                await context.store.set(scratch, [])
