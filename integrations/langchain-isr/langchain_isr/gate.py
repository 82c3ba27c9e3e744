"""The gate as a runnable: composes in LCEL on question, documents and, after drafting, the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from isr_rag import Decision, ISRGate as CoreGate, Reason
from isr_rag.core.evidence import one_line
from isr_rag.errors import ConfigurationError
from isr_rag.gate.acquisition import SUFFICIENT, SUPPORTED, abstain, require_answerable
from isr_rag.gate.adapters import MESSAGE, Place, asked, gate_for, not_alone
from langchain_isr.batched import Judging, StateOrError, checked_state
from langchain_isr.common import (
    DOCUMENT_PROMPT,
    EVENT,
    KEY,
    Core,
    DocumentPrompt,
    ISRAbstained,
    State,
    item_of,
    refuse_unknown_drafts,
    replaced,
    text_of,
)
from langchain_isr.quiet import judging


class ISRGate(Judging[Decision]):
    """Decides about `{"question", "documents", "answer"?}` and adds `"isr"`, the decision as plain data.

    Without an answer it decides whether the documents suffice to answer the question; with one, whether they support
    it. Everything else in the input passes through, and the input itself is not changed. A batch is scored together.
    An answer that is a message is released as a new message with the text that was judged and nothing else.

    ```python
    chain = RunnablePassthrough.assign(documents=itemgetter("question") | retriever) | ISRGate() | prompt | model
    ISRGate().invoke({"question": question, "documents": documents, "answer": "The Seine."})["isr"]["action"]
    ```

    Args:
        gate: the gate of `isr_rag` that decides. By default the embedded model with its calibration, at h* = 0.2
            without an answer and at 0.05 with one.
        h_star: overrides the gate's target hallucination rate in (0, 1); made for `configurable_fields`.
        on_abstain: after an abstention `"withhold"` the answer: `message` takes its place, in its own type (a string
            or a message), and where there is no answer yet the chain stops with `ISRAbstained`, and no model
            answers ungated. `"raise"`: `ISRAbstained` in either case. `"annotate"`: the answer stays, the chain goes
            on, and the decision is yours to heed.
        message: takes the place of a withheld answer.
        document_prompt: how your chain renders a document for its model; the gate judges exactly that text. By
            default `{page_content}`, as in LangChain's stuff-documents chain.
        question_key: where the input holds the question, such as `"input"`. In a conversation, the question as it was
            searched for, in words that stand alone: one that does not, such as "and when did it end?", is an
            abstention (`isr_rag.gate.adapters.stands_alone` is the rule).
        documents_key: where the input holds the documents, such as `"context"`.
        answer_key: where the input holds the draft.
        history_key: where the input holds the conversation so far, if it does.
        other_texts: `"refuse"` an input that holds under another key what may be a draft: anything but numbers,
            documents and a conversation that ends with a question, where there is no answer; a model's message or the
            answer once more, where there is one. Or let such texts `"pass"`.

    Raises:
        ValidationError: for a target that the gate could never reach, neither before drafting nor after it.
        InvalidInputError: for an input without question or documents, or with empty ones, or with a text under a key
            that the gate does not know in place of an answer.
        ISRAbstained: after an abstention before drafting, or with `on_abstain="raise"`.
        ISRError: as `isr_rag.ISRGate.decide`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    event: ClassVar[str] = EVENT
    gate: Core | None = None
    h_star: float | None = Field(default=None, gt=0.0, lt=1.0)
    on_abstain: Literal["withhold", "raise", "annotate"] = "withhold"
    message: str = MESSAGE
    document_prompt: DocumentPrompt = DOCUMENT_PROMPT
    question_key: str = "question"
    documents_key: str = "documents"
    answer_key: str = "answer"
    history_key: str = "chat_history"
    other_texts: Literal["refuse", "pass"] = "refuse"

    @model_validator(mode="after")
    def _load(self) -> Self:
        require_some_answer(self.gate, self.h_star)  # the embedded model is loaded here, and not by the first request
        return self

    def get_input_schema(self, config: RunnableConfig | None = None) -> type[BaseModel]:
        """What the gate reads of its input; everything else passes through."""
        fields: dict[str, Any] = {
            self.question_key: (str, ...),
            self.documents_key: (list[Document], ...),
            self.answer_key: (str | None, None),
        }
        return create_model("ISRGateInput", **fields)

    def core(self, place: Place) -> CoreGate:
        """The gate that decides before drafting or after it, at this runnable's own target."""
        return gate_at(place, self.gate, self.h_star)

    def _judge(self, inputs: Sequence[Mapping[str, Any]]) -> list[Decision]:
        items = [self.item(state) for state in inputs]
        made = self._refused(items)
        for place, positions in placed(items, made):
            decisions = self.core(place).decide_batch([items[i] for i in positions])
            made.update(zip(positions, decisions, strict=True))
        return told(items, made)

    async def _ajudge(self, inputs: Sequence[Mapping[str, Any]]) -> list[Decision]:
        items = [self.item(state) for state in inputs]
        made = self._refused(items)
        for place, positions in placed(items, made):
            decisions = await self.core(place).adecide_batch([items[i] for i in positions])
            made.update(zip(positions, decisions, strict=True))
        return told(items, made)

    def _refused(self, items: Sequence[Mapping[str, Any]]) -> dict[int, Decision]:
        """The abstentions about questions that do not stand alone, by the places of their items."""
        made: dict[int, Decision] = {}
        for place, positions in placed(items, made):
            refused = {i: not_alone(self.core(place), items[i]["question"], items[i]["answer"]) for i in positions}
            made.update({i: decision for i, decision in refused.items() if decision is not None})
        return made

    def item(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The item for the core gate.

        Raises:
            InvalidInputError: if question or documents are missing.
            InvalidTypeError: for values of the wrong type.
        """
        keys = {"question": self.question_key, "documents": self.documents_key, "answer": self.answer_key}
        given = checked_state(state)
        if self.other_texts == "refuse":
            refuse_unknown_drafts(given, [*keys.values(), self.history_key, KEY], self.answer_key)
        renamed = {name: given[key] for name, key in keys.items() if key in given}
        return item_of(renamed, document_prompt=self.document_prompt, keys=keys)

    def _outcome(self, state: State, judged: Decision) -> StateOrError:
        answer = state.get(self.answer_key)
        stops = self.on_abstain == "raise" or (self.on_abstain == "withhold" and answer is None)
        if not judged.answered and stops:
            return ISRAbstained(judged, state[self.documents_key])
        outcome = {**state, KEY: judged.to_dict()}
        if answer is not None and (judged.answered or self.on_abstain == "withhold"):
            text = text_of(answer) if judged.answered else self.message
            outcome[self.answer_key] = replaced(answer, text, {KEY: judged.to_dict()})
        return outcome


def gate_at(place: Place, gate: CoreGate | None, h_star: float | None = None) -> CoreGate:
    """The gate that decides at a place that only the input tells; so nothing is refused for what it may be asked."""
    if gate is None:
        return gate_for(place) if h_star is None else gate_for("after").with_h_star(h_star)
    return gate if h_star is None else gate.with_h_star(h_star)


def require_some_answer(gate: CoreGate | None, h_star: float | None = None, *, rounds: int = 1) -> None:
    """Refuse a gate that could never answer, neither with a draft nor without one.

    Raises:
        ConfigurationError: as `isr_rag.gate.acquisition.require_answerable`.
    """
    try:
        require_answerable(gate_at("after", gate, h_star), SUPPORTED, rounds)
    except ConfigurationError:
        require_answerable(gate_at("before", gate, h_star), SUFFICIENT, rounds)


def decided(gate: CoreGate, item: dict[str, Any], stated: Decision | None = None) -> Decision:
    """The decision about an item: what is stated already, or that its question does not stand alone, or the gate's."""
    question, draft = item["question"], item["answer"]
    with judging(draft):
        made = not_alone(gate, question, draft) if stated is None else stated
        return asked(gate.decide_batch([item])[0] if made is None else made, question, draft)


async def adecided(gate: CoreGate, item: dict[str, Any], stated: Decision | None = None) -> Decision:
    """As `decided`, without blocking the event loop."""
    question, draft = item["question"], item["answer"]
    with judging(draft):
        made = not_alone(gate, question, draft) if stated is None else stated
        return asked((await gate.adecide_batch([item]))[0] if made is None else made, question, draft)


def no_text(gate: CoreGate, question: str, draft: str | None) -> Decision | None:
    """The abstention about a draft of a model that says nothing; None for any other, and where there is none."""
    if draft is None or one_line(draft):
        return None
    made = abstain(gate, Reason.INSUFFICIENT_INFORMATION, "the model drafted no text", question=question)
    return asked(made, question)


def told(items: Sequence[Mapping[str, Any]], made: Mapping[int, Decision]) -> list[Decision]:
    """The decisions in the order of their items, each with the question that it is about."""
    return [asked(made[i], item["question"], item["answer"]) for i, item in enumerate(items)]


def placed(items: Sequence[Mapping[str, Any]], made: Mapping[int, Decision]) -> list[tuple[Place, list[int]]]:
    """The positions of the items without a draft and of those with one, but for those that are decided about."""
    before = [i for i, item in enumerate(items) if item["answer"] is None and i not in made]
    after = [i for i, item in enumerate(items) if item["answer"] is not None and i not in made]
    both: list[tuple[Place, list[int]]] = [("before", before), ("after", after)]
    return [(place, positions) for place, positions in both if positions]
