"""The drop-in case: a node postprocessor that lets nodes through only when they carry an answer."""

from __future__ import annotations

import asyncio
import itertools
import warnings
from contextlib import AbstractContextManager
from typing import Annotated, Any, Literal, Self

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.callbacks.base import EventContext
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

import isr_rag
from isr_rag import Decision
from isr_rag.core.settings import OnError
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.gate.adapters import core_gate, default_h_star, gate_for
from isr_rag.gate.defaults import BEFORE_DRAFTING
from llama_index.postprocessor.isr.events import AbstainedError
from llama_index.postprocessor.isr.evidence import KEY, Gathered, Nodes, Widening, agather, check_finds, gather

dispatcher = get_dispatcher(__name__)

OnAbstain = Literal["empty", "raise", "annotate"]
_LIVE = ("gate", "retriever")
_OF_THE_GATE = {"h_star", "on_error"}
_SHOWN = WithJsonSchema({"type": "object"})


class ISRGate(BaseNodePostprocessor):
    """Lets nodes through, in the retriever's order, when they hold enough to answer the question.

    `index.as_query_engine(node_postprocessors=[ISRGate()])` works as it stands. Nodes are let through as copies
    with the decision in `metadata["isr"]`, hidden from the LLM and from embeddings.

    After an abstention a query stops with `AbstainedError`: the next step would answer without the gate. Put the gate
    last in the list, since a postprocessor after it that rewrites nodes changes what it judged. To answer with a
    message instead of an error, use `ISRQueryEngine`.

    Args:
        h_star: target hallucination rate of the embedded gate, in (0, 1): 0.2 by default, since evidence that fails
            costs a draft and not a wrong answer.
        on_error: `raise` or `abstain` when the embedded gate's scorer or a retriever fails.
        gate: a gate of your own (scorer, reference, h*, policy) instead of the embedded one.
        on_abstain: `raise`: `AbstainedError`. `empty`: no nodes; engines then answer the literal `Empty Response`,
            which chat memory keeps; only one in GENERATION mode still calls the LLM, without evidence and ungated.
            `annotate`: the nodes pass, and what to do about the decision is left to you.
        retriever: where to search for more evidence while it is not enough: at `similarity_top_k` times `factor`,
            then deeper. None: what comes in is all there is.
        rounds: with a retriever, rounds at most, the nodes that came in included, >= 1; h* is split over the rounds,
            unless the calibration covers whole loops.
        factor: how much deeper each further round goes, >= 2.

    Raises:
        ValueError: for unknown or contradictory settings, or a target that the calibration can never reach.
        InvalidTypeError: for a gate that is not one of `isr_rag`.
        InvalidInputError: from `postprocess_nodes` without a query.
        AbstainedError: as said.
        ISRError: from the gate, as `isr_rag.ISRGate.decide`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", validate_assignment=True)

    h_star: float = Field(default=BEFORE_DRAFTING, gt=0, lt=1, description="Target rate of wrong answers.")
    on_error: OnError = Field(default="raise", description="What a failing scorer leads to: an error or an abstention.")
    on_abstain: OnAbstain = Field(default="raise", description="What becomes of the nodes after an abstention.")
    rounds: int = Field(default=2, ge=1, description="Rounds of retrieval at most, where a retriever is given.")
    factor: int = Field(default=2, ge=2, description="How much deeper each further round goes.")
    gate: Annotated[isr_rag.ISRGate | None, _SHOWN] = Field(
        default=None, exclude=True, description="The gate of isr_rag that decides; by default the embedded model's."
    )
    retriever: Annotated[BaseRetriever | None, _SHOWN] = Field(
        default=None, exclude=True, description="Searches again, deeper, while the nodes are not enough."
    )

    @field_validator("gate", mode="before")
    @classmethod
    def _is_core(cls, value: object) -> isr_rag.ISRGate | None:
        return None if value is None else core_gate(value)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.gate is not None and (both := _OF_THE_GATE & self.model_fields_set):
            raise ConfigurationError(f"{sorted(both)} belong to the gate that was given: set them there")
        if self.retriever is not None:
            check_finds(self.retriever)
            Widening(self.factor).check(self.retriever, self.rounds)
        if self.gate is None:  # checked without loading the model
            default_h_star("before", self.h_star, on_error=self.on_error, rounds=self._rounds())
        else:
            gate_for("before", self.gate, rounds=self._rounds())
        return self

    @classmethod
    def class_name(cls) -> str:
        """`ISRGate`."""
        return "ISRGate"

    @property
    def core(self) -> isr_rag.ISRGate:
        """The gate that decides; the embedded model is loaded when it is first asked for."""
        if self.gate is not None:
            return self.gate
        return gate_for("before", h_star=self.h_star, on_error=self.on_error, rounds=self._rounds())

    def _postprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        asked, gate, widening = _asked(query_bundle), self.core, Widening(self.factor)

        def fetch(query: str, number: int, previous: Decision | None) -> Nodes:
            if number == 0 or self.retriever is None:
                return nodes
            return widening.widened(self.retriever, number).retrieve(asked)

        with self._telling(nodes, asked, gate) as event:
            passed = self._close(gather(gate, fetch, question=asked.query_str, rounds=self._rounds()), nodes)
            event.on_end(payload={EventPayload.NODES: passed})
            return passed

    @dispatcher.span
    async def _apostprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        asked, widening = _asked(query_bundle), Widening(self.factor)
        gate = await asyncio.to_thread(lambda: self.core)  # the first time a model is loaded

        async def fetch(query: str, number: int, previous: Decision | None) -> Nodes:
            if number == 0 or self.retriever is None:
                return nodes
            return await widening.widened(self.retriever, number).aretrieve(asked)

        with self._telling(nodes, asked, gate) as event:
            passed = self._close(await agather(gate, fetch, question=asked.query_str, rounds=self._rounds()), nodes)
            event.on_end(payload={EventPayload.NODES: passed})
            return passed

    def _rounds(self) -> int:
        return 1 if self.retriever is None else self.rounds

    def _telling(self, nodes: Nodes, asked: QueryBundle, gate: isr_rag.ISRGate) -> AbstractContextManager[EventContext]:
        """Tell the instrumentation, and the callbacks that came before it, that a gate begins."""
        name = gate.scorer.identity
        dispatcher.event(ReRankStartEvent(query=asked, nodes=nodes, top_n=len(nodes), model_name=name))
        payload: dict[str, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: name,
            EventPayload.QUERY_STR: asked.query_str,
            EventPayload.TOP_K: len(nodes),
        }
        return self.callback_manager.event(CBEventType.RERANKING, payload=payload)

    def _close(self, gathered: Gathered, came_in: Nodes) -> Nodes:
        decision, passed = gathered.decision, Nodes()
        nodes = gathered.nodes or came_in  # none are gathered for a question that does not stand alone
        if decision.answered or self.on_abstain == "annotate":
            passed = [_annotated(node, decision) for node in nodes]
        elif self.on_abstain == "raise":
            raise AbstainedError(decision, nodes)
        dispatcher.event(ReRankEndEvent(nodes=passed))
        return passed

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """The settings, for `from_dict`.

        Raises:
            ConfigurationError: if a gate or retriever of one's own was given, which plain data cannot hold.
        """
        live = [name for name in _LIVE if getattr(self, name) is not None]
        if live:
            raise ConfigurationError(
                f"{' and '.join(live)} cannot be written as plain data; give them to ISRGate.from_dict(data, "
                f"{live[0]}=...) beside the settings instead"
            )
        return super().to_dict(**kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # BaseComponent leaves out what cannot be pickled, and another gate would decide after unpickling.
        state: dict[str, Any] = BaseModel.__getstate__(self)
        given = self.model_fields_set - {"callback_manager"}
        return {**state, "__dict__": {name: value for name, value in state["__dict__"].items() if name in given}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["__dict__"])  # type: ignore[misc]  # as BaseComponent does

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        # A gate and an index are shared, not copied: they hold models and locks.
        shared = {id(value): value for name in _LIVE if (value := getattr(self, name)) is not None}
        return super().__deepcopy__({**(memo or {}), **shared})


def warn_unless_last(engine: object) -> None:
    """Warn where a postprocessor follows an `ISRGate` in a query engine, since it may change what was judged."""
    processors: list[object] = getattr(engine, "_node_postprocessors", None) or []
    for gate, after in itertools.pairwise(processors):
        if isinstance(gate, ISRGate):
            warnings.warn(
                f"{type(after).__name__} follows ISRGate and may change what was judged: put ISRGate last",
                stacklevel=3,
            )


def _asked(query_bundle: QueryBundle | None) -> QueryBundle:
    if query_bundle is None:
        raise InvalidInputError("ISRGate decides about a question: give query_bundle= or query_str=")
    return query_bundle


def _annotated(node: NodeWithScore, decision: Decision) -> NodeWithScore:
    """A copy with the decision in its metadata, where no prompt and no embedding shows it."""
    inner = node.node
    hidden = {
        "metadata": {**inner.metadata, KEY: decision.to_dict()},
        "excluded_llm_metadata_keys": [*inner.excluded_llm_metadata_keys, KEY],
        "excluded_embed_metadata_keys": [*inner.excluded_embed_metadata_keys, KEY],
    }
    return NodeWithScore(node=inner.model_copy(update=hidden), score=node.score)
