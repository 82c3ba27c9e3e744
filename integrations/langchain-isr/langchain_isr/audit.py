"""An audit as a runnable: what may go out of an answer takes its place in a chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, ConfigDict, Field, create_model

from isr_rag import AnswerAudit
from isr_rag.core.evidence import Chunk, one_line
from isr_rag.errors import InvalidInputError
from isr_rag.gate.adapters import MESSAGE, gate_for, stands_alone
from langchain_isr.batched import Judging, StateOrError, checked_state
from langchain_isr.common import (
    DOCUMENT_PROMPT,
    KEY,
    Core,
    DocumentPrompt,
    State,
    chunks_of,
    refuse_unknown_drafts,
    replaced,
    text_of,
)

AUDIT_EVENT = "isr_audit"
"""Name of the custom event that carries each audit."""

AUDIT_KEY = "isr_audit"
"""Where an audit is: in a runnable's output, and in a message's response metadata."""


class ISRAudit(Judging[AnswerAudit]):
    """Audits `{"answer", "documents", "question"?}`: adds `"isr_audit"` and leaves of the answer what may go out.

    `"isr_audit"` is the audit as plain data (`isr_rag.AnswerAudit.from_dict` reads it), in which blocks take the place
    of what is left out. The answer keeps its type, a string or a message; a message is made anew. Where nothing of it
    may go out, `message` takes its place. Everything else in the input passes through, and the input itself is not
    changed. A batch is scored together.

    ```python
    chain = chain | ISRAudit(cite=True)
    chain.invoke({"question": question, "documents": documents})["answer"]  # with [n] after each statement
    ```

    Args:
        gate: the gate of `isr_rag` that decides; by default the embedded model with its calibration.
        h_star: error budget of an answer in (0, 1); the gate's own by default.
        on_unsupported: `"trim"` leaves what may go out; `"annotate"` leaves the answer as it is, and the audit,
            with all its words, is yours to heed.
        cite: add citation markers `[n]` to statements that bring none that is right; n counts the documents from 1.
        message: takes the place of an answer of which nothing may go out.
        document_prompt: how your chain renders a document for its model; the audit reads exactly that text.
        question_key: where the input holds the question, if it does.
        documents_key: where the input holds the documents.
        answer_key: where the input holds the answer.
        other_texts: `"refuse"` an input that holds the answer, or what a model said last, under another key too, where
            nothing would be left out of it; or let it `"pass"`.

    Raises:
        InvalidInputError: for an input without answer or documents, with an empty answer, or with a second one.
        ISRError: as `isr_rag.ISRGate.audit`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    event: ClassVar[str] = AUDIT_EVENT
    gate: Core = Field(default_factory=lambda: gate_for("after"))
    h_star: float | None = Field(default=None, gt=0.0, lt=1.0)
    on_unsupported: Literal["trim", "annotate"] = "trim"
    cite: bool = False
    message: str = MESSAGE
    document_prompt: DocumentPrompt = DOCUMENT_PROMPT
    question_key: str = "question"
    documents_key: str = "documents"
    answer_key: str = "answer"
    other_texts: Literal["refuse", "pass"] = "refuse"

    def get_input_schema(self, config: RunnableConfig | None = None) -> type[BaseModel]:
        """What the audit reads of its input; everything else passes through."""
        fields: dict[str, Any] = {
            self.answer_key: (str, ...),
            self.documents_key: (list[Document], ...),
            self.question_key: (str | None, None),
        }
        return create_model("ISRAuditInput", **fields)

    def _judge(self, inputs: Sequence[Mapping[str, Any]]) -> list[AnswerAudit]:
        return self.gate.audit_batch([self._item(state) for state in inputs])

    async def _ajudge(self, inputs: Sequence[Mapping[str, Any]]) -> list[AnswerAudit]:
        return await self.gate.aaudit_batch([self._item(state) for state in inputs])

    def _item(self, state: Mapping[str, Any]) -> dict[str, Any]:
        given = checked_state(state)
        missing = [key for key in (self.answer_key, self.documents_key) if given.get(key) is None]
        if missing:
            raise InvalidInputError(f"the audit needs {missing} in its input: set the keys that your chain uses")
        if self.other_texts == "refuse" and self.on_unsupported == "trim":
            known = (self.question_key, self.documents_key, self.answer_key, AUDIT_KEY, KEY)
            refuse_unknown_drafts(given, known, self.answer_key)
        return {
            "answer": text_of(given[self.answer_key]),
            "question": _alone(given.get(self.question_key)),
            "evidence": audited_evidence(given[self.documents_key], self.document_prompt),
            "h_star": self.h_star,
        }

    def _told(self, judged: AnswerAudit) -> dict[str, Any]:
        return (judged.masked() if self.on_unsupported == "trim" else judged).to_dict()

    def _outcome(self, state: State, judged: AnswerAudit) -> StateOrError:
        outcome = {**state, AUDIT_KEY: self._told(judged)}
        if self.on_unsupported == "trim":
            outcome[self.answer_key] = trimmed(state[self.answer_key], judged, self.message, cite=self.cite)
        return outcome


def _alone(question: Any) -> Any:
    """A question that stands alone. Another says nothing about a statement without the conversation."""
    return None if not question or (isinstance(question, str) and not stands_alone(question)) else question


def audited_evidence(documents: Any, document_prompt: DocumentPrompt = DOCUMENT_PROMPT) -> list[Chunk]:
    """Documents as evidence of an audit, in their order; one without text keeps its place, since markers count it."""
    return [chunk if one_line(chunk.text) else Chunk("…") for chunk in chunks_of(documents, document_prompt)]


def trimmed(answer: object, audit: AnswerAudit, message: str, *, cite: bool) -> object:
    """What may go out of an answer, of the answer's own type: a string or a message."""
    text = audit.releasable(cite=cite).text or message
    return replaced(answer, text, {AUDIT_KEY: audit.masked().to_dict()})
