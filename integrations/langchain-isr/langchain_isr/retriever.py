"""A retriever around another one: it gates what was found, searches deeper while that is not enough, and tags it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Self, TypeAlias, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from isr_rag import Chunk, Decision, aacquire, acquire
from isr_rag.errors import ConfigurationError
from isr_rag.gate.acquisition import SUFFICIENT, require_answerable
from isr_rag.gate.adapters import asked, gate_for, not_alone
from langchain_isr.batched import checked_state
from langchain_isr.common import (
    DOCUMENT_PROMPT,
    EVENT,
    KEY,
    Core,
    DocumentPrompt,
    OnAbstain,
    State,
    evidence_of,
    gathered,
    question_of,
    released,
    step,
)

RetrieverLike: TypeAlias = Runnable[str, list[Document]]
Deepen: TypeAlias = Callable[[RetrieverLike, int], RetrieverLike]
"""Takes the retriever and a number of documents; returns a retriever that finds so many. The first is not changed."""

Rewrite: TypeAlias = Callable[[str, int, Decision], str]
"""Takes the query, the number of the round from 1 on, and the decision before it; returns the new query."""


DEPTH = 4
"""Documents of a first round where neither the retriever nor its user says how many."""


def depth_of(retriever: RetrieverLike) -> int:
    """How many documents a retriever finds, as its own settings say."""
    settings = getattr(retriever, "search_kwargs", None)
    own = settings.get("k") if isinstance(settings, dict) else getattr(retriever, "k", None)
    return own if isinstance(own, int) else DEPTH


def deeper(retriever: RetrieverLike, k: int) -> RetrieverLike:
    """A copy of a retriever that finds `k` documents: a vector store's retriever, or one with a field `k`.

    Raises:
        ConfigurationError: for a retriever whose depth cannot be set this way.
    """
    if isinstance(retriever, BaseRetriever):
        if isinstance(settings := getattr(retriever, "search_kwargs", None), dict):
            return retriever.model_copy(update={"search_kwargs": {**settings, "k": k}})
        if "k" in type(retriever).model_fields:
            return retriever.model_copy(update={"k": k})
    raise ConfigurationError(
        f"{type(retriever).__name__} has neither k nor search_kwargs: say with deepen=... how it finds more documents, "
        "or give rounds=1, or factor=1 with rewrite=..."
    )


class ISRRetriever(BaseRetriever):
    """Retrieves until the gate finds the evidence sufficient for the query, within a bounded number of rounds.

    The acquisition loop is the one of `isr_rag.gate.acquisition`: evidence accumulates, the target hallucination rate
    is split over the rounds, and a round that brings nothing new ends it. The documents come in the order they were
    found, as copies with the decision in `metadata["isr"]`. A query that does not stand alone, such as "and when did it
    end?", is an abstention, and nothing is searched for.

    Args:
        retriever: finds documents: any retriever or runnable from a string to documents or strings.
        gate: the gate of `isr_rag` that decides; by default the embedded model with its calibration, at h* = 0.2.
        k: documents of the first round; by default what the retriever finds by itself.
        factor: how many times deeper each further round goes, >= 1; with 1 only `rewrite` changes what is found.
        rounds: rounds of retrieval at most, >= 1; with more than one the retriever has to know how to search deeper.
        rewrite: rewords the query for each further round.
        deepen: how the retriever finds more documents; by default its `k` or `search_kwargs["k"]`.
        on_abstain: `"raise"` stops with `ISRAbstained`; `"empty"` returns no documents, and a chain that calls its
            model all the same then answers without evidence; `"annotate"` returns all of them with the decision in
            `metadata["isr"]`.
        document_prompt: how your chain renders a document for its model; the gate judges exactly that text.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    retriever: Annotated[
        RetrieverLike, BeforeValidator(step), WithJsonSchema({"type": "object", "title": "a retriever or runnable"})
    ]
    gate: Core = Field(default_factory=lambda: gate_for("before"))
    k: int | None = Field(default=None, ge=1)
    factor: int = Field(default=2, ge=1)
    rounds: int = Field(default=2, ge=1)
    rewrite: Annotated[Rewrite | None, WithJsonSchema({"title": "a function"})] = None
    deepen: Annotated[Deepen, WithJsonSchema({"title": "a function"})] = deeper
    on_abstain: OnAbstain = "raise"
    document_prompt: DocumentPrompt = DOCUMENT_PROMPT

    @model_validator(mode="after")
    def _can_answer(self) -> Self:
        require_answerable(self.gate, SUFFICIENT, self.rounds)
        if self.deepen is deeper and (self.k or (self.rounds > 1 and self.factor > 1)):
            deeper(
                self.retriever, 1
            )  # one that cannot is refused here, and not by the first question without an answer
        return self

    def as_gate(self) -> Runnable[State, State]:
        """As a step of a chain: takes `{"question"}` and adds `"documents"` and `"isr"`, whatever was decided."""
        return RunnableLambda(self._step, afunc=self._astep, name="ISRRetriever")

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        documents, decision = self._acquire(query, RunnableConfig(callbacks=run_manager.get_child()), k)
        return released(documents, decision, self.on_abstain)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        documents, decision = await self._aacquire(query, RunnableConfig(callbacks=run_manager.get_child()), k)
        return released(documents, decision, self.on_abstain)

    def _step(self, state: State, config: RunnableConfig) -> State:
        documents, decision = self._acquire(question_of(checked_state(state)), config, None)
        return {**state, "documents": documents, KEY: decision.to_dict()}

    async def _astep(self, state: State, config: RunnableConfig) -> State:
        documents, decision = await self._aacquire(question_of(checked_state(state)), config, None)
        return {**state, "documents": documents, KEY: decision.to_dict()}

    def _acquire(self, query: str, config: RunnableConfig, k: int | None) -> tuple[list[Document], Decision]:
        search = _Search(self, k or self.k)

        def retrieve(_: str, round_number: int, previous: Decision | None, /) -> list[Chunk]:
            if previous is not None:
                dispatch_custom_event(EVENT, asked(previous, query).to_dict(), config=config)
            found = search.retriever(round_number).invoke(search.query(query, round_number, previous), config)
            return search.found(found)

        made = not_alone(self.gate, query)
        if made is None:
            made = acquire(self.gate, retrieve, question=query, rounds=self.rounds).decision
        decision = asked(made, query)
        dispatch_custom_event(EVENT, decision.to_dict(), config=config)
        return gathered(search.rounds, self.document_prompt), decision

    async def _aacquire(self, query: str, config: RunnableConfig, k: int | None) -> tuple[list[Document], Decision]:
        search = _Search(self, k or self.k)

        async def retrieve(_: str, round_number: int, previous: Decision | None, /) -> list[Chunk]:
            if previous is not None:
                await adispatch_custom_event(EVENT, asked(previous, query).to_dict(), config=config)
            found = await search.retriever(round_number).ainvoke(search.query(query, round_number, previous), config)
            return search.found(found)

        made = not_alone(self.gate, query)
        if made is None:
            made = (await aacquire(self.gate, retrieve, question=query, rounds=self.rounds)).decision
        decision = asked(made, query)
        await adispatch_custom_event(EVENT, decision.to_dict(), config=config)
        return gathered(search.rounds, self.document_prompt), decision


@dataclass
class _Search:
    """The retrievals of one call, fresh for each."""

    settings: ISRRetriever
    k: int | None
    rounds: list[list[Document]] = field(default_factory=list[list[Document]])

    def retriever(self, round_number: int) -> RetrieverLike:
        """The retriever of this round."""
        own, factor = self.settings.retriever, self.settings.factor
        if self.k is None and (round_number == 0 or factor == 1):
            return own
        return self.settings.deepen(own, (self.k or depth_of(own)) * factor**round_number)

    def query(self, asked: str, round_number: int, previous: Decision | None) -> str:
        """The query of this round."""
        rewrite = self.settings.rewrite
        return asked if rewrite is None or previous is None else rewrite(asked, round_number, previous)

    def found(self, documents: Any) -> list[Chunk]:
        """Note what was found, as evidence; a string becomes a document."""
        if isinstance(documents, list):
            documents = [Document(one) if isinstance(one, str) else one for one in cast(list[object], documents)]
        evidence = evidence_of(documents, self.settings.document_prompt)
        self.rounds.append(list(cast(list[Document], documents)))
        return evidence
