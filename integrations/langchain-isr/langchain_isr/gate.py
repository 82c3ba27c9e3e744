"""The gate as a runnable: composes in LCEL on question, documents and, after drafting, the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, ConfigDict, Field, create_model

from isr_rag import Decision
from isr_rag import ISRGate as CoreGate
from langchain_isr.batched import Judging, StateOrError, checked_state
from langchain_isr.common import (
    DOCUMENT_PROMPT,
    EVENT,
    KEY,
    MESSAGE,
    Core,
    DocumentPrompt,
    ISRAbstained,
    State,
    item_of,
    withheld,
)


class ISRGate(Judging[Decision]):
    """Decides about `{"question", "documents", "answer"?}` and adds `"isr"`, the decision as plain data.

    Without an answer it decides whether the documents suffice to answer the question; with one, whether they support
    it. Everything else in the input passes through, and the input itself is not changed. A batch is scored together.

    Args:
        gate: the gate of `isr_rag` that decides; by default the embedded model with its calibration.
        h_star: overrides the gate's target hallucination rate in (0, 1); made for `configurable_fields`.
        on_abstain: after an abstention `"withhold"` the answer: `message` takes its place, in its own type (a string
            or a message), and where there is no answer yet the chain stops with `ISRAbstained`, and no model
            answers ungated. `"raise"`: `ISRAbstained` in either case. `"annotate"`: the answer stays, the chain goes
            on, and the decision is yours to heed.
        message: takes the place of a withheld answer.
        document_prompt: how your chain renders a document for its model; the gate judges exactly that text. By
            default `{page_content}`, as in LangChain's stuff-documents chain.
        question_key: where the input holds the question, such as `"input"`.
        documents_key: where the input holds the documents, such as `"context"`.
        answer_key: where the input holds the draft.

    Raises:
        InvalidInputError: for an input without question or documents, or with empty ones.
        ISRAbstained: after an abstention before drafting, or with `on_abstain="raise"`.
        ISRError: as `isr_rag.ISRGate.decide`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    event: ClassVar[str] = EVENT
    gate: Core = Field(default_factory=CoreGate)
    h_star: float | None = Field(default=None, gt=0.0, lt=1.0)
    on_abstain: Literal["withhold", "raise", "annotate"] = "withhold"
    message: str = MESSAGE
    document_prompt: DocumentPrompt = DOCUMENT_PROMPT
    question_key: str = "question"
    documents_key: str = "documents"
    answer_key: str = "answer"

    def get_input_schema(self, config: RunnableConfig | None = None) -> type[BaseModel]:
        """What the gate reads of its input; everything else passes through."""
        fields: dict[str, Any] = {
            self.question_key: (str, ...),
            self.documents_key: (list[Document], ...),
            self.answer_key: (str | None, None),
        }
        return create_model("ISRGateInput", **fields)

    @property
    def core(self) -> CoreGate:
        """The gate that decides, at this runnable's own target."""
        return self.gate if self.h_star is None else self.gate.with_h_star(self.h_star)

    def _judge(self, inputs: Sequence[Mapping[str, Any]]) -> list[Decision]:
        return self.core.decide_batch([self.item(state) for state in inputs])

    async def _ajudge(self, inputs: Sequence[Mapping[str, Any]]) -> list[Decision]:
        return await self.core.adecide_batch([self.item(state) for state in inputs])

    def item(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The item for the core gate.

        Raises:
            InvalidInputError: if question or documents are missing.
            InvalidTypeError: for values of the wrong type.
        """
        keys = {"question": self.question_key, "documents": self.documents_key, "answer": self.answer_key}
        given = checked_state(state)
        renamed = {name: given[key] for name, key in keys.items() if key in given}
        return item_of(renamed, document_prompt=self.document_prompt, keys=keys)

    def _outcome(self, state: State, judged: Decision) -> StateOrError:
        answer = state.get(self.answer_key)
        stops = self.on_abstain == "raise" or (self.on_abstain == "withhold" and answer is None)
        if not judged.answered and stops:
            return ISRAbstained(judged, state[self.documents_key])
        outcome = {**state, KEY: judged.to_dict()}
        if not judged.answered and self.on_abstain == "withhold":
            outcome[self.answer_key] = withheld(answer, self.message, judged)
        return outcome
