"""What the adapters share: documents as evidence, a decision as plain data, the text of a draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

from isr_rag.decision import Action, Decision, Reason
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError, ISRError, RetrieverFailedError
from isr_rag.evidence import Chunk, one_line
from isr_rag.gate import ISRGate

EVENT = "isr_decision"
"""Name of the custom event that carries each decision."""

KEY = "isr"
"""Where a decision stands: in a runnable's output, a document's metadata, a message's response metadata, a state."""

MESSAGE = "I cannot answer this from the evidence at hand."
"""What stands in the place of an answer after an abstention, by default."""

OnAbstain = Literal["empty", "raise", "annotate"]
"""What becomes of documents after an abstention: none are returned, an error, or all of them with the decision."""

State: TypeAlias = dict[str, Any]


class ISRAbstained(ISRError):
    """A gate abstained, and the policy is to raise.

    Attributes:
        decision: the decision with its numbers.
        documents: the evidence it was made about.
    """

    def __init__(self, decision: Decision, documents: Sequence[Document] = ()) -> None:
        super().__init__(f"the gate abstained: {decision.reason.value}. {decision.detail}".rstrip())
        self.decision = decision
        self.documents = list(documents)

    def __reduce__(self) -> tuple[type[ISRAbstained], tuple[Decision, list[Document]]]:
        return type(self), (self.decision, self.documents)


def chunk_of(document: object) -> Chunk:
    """A document as a chunk of evidence, with its title where the metadata hold one; a string as it is.

    Raises:
        InvalidTypeError: if it is neither.
    """
    if isinstance(document, str):
        return Chunk(document)
    if not isinstance(document, Document):
        raise InvalidTypeError(f"evidence must be documents or strings, not {type(document).__name__}")
    title = document.metadata.get("title")
    return Chunk(document.page_content, title if isinstance(title, str) else None)


def evidence_of(documents: object) -> list[Chunk]:
    """Documents as evidence, in their order; those without any text hold none and are left out.

    Raises:
        InvalidTypeError: if it is no list of documents or strings.
    """
    if isinstance(documents, (str, Mapping)) or not isinstance(documents, Sequence):
        raise InvalidTypeError(f"documents must be a list of documents, not {type(documents).__name__}")
    chunks = [chunk_of(document) for document in cast(Sequence[object], documents)]
    return [chunk for chunk in chunks if one_line(chunk.text)]


def key_of(document: Document) -> tuple[str, str]:
    """What tells documents of several rounds apart: title and text. Ids repeat, so they do not."""
    chunk = chunk_of(document)
    return chunk.title or "", one_line(chunk.text)


def gathered(rounds: Sequence[Sequence[Document]]) -> list[Document]:
    """The documents of several rounds: each round adds those that no round before it had; twins in a round survive."""
    documents: list[Document] = []
    for found in rounds:
        known = {key_of(document) for document in documents}
        documents += [document for document in found if key_of(document) not in known]
    return documents


def annotated(documents: Sequence[Document], decision: Decision) -> list[Document]:
    """Copies that carry the decision in their metadata; the retriever's own documents stay as they are."""
    plain = decision.to_dict()
    return [d.model_copy(update={"metadata": {**d.metadata, KEY: plain}}) for d in documents]


def released(documents: Sequence[Document], decision: Decision, on_abstain: OnAbstain) -> list[Document]:
    """The documents after a decision, as the policy wants them.

    Raises:
        ISRAbstained: if the gate did not answer and the policy is to raise.
    """
    if decision.answered or on_abstain == "annotate":
        return annotated(documents, decision)
    if on_abstain == "raise":
        raise ISRAbstained(decision, documents)
    return []


def item_of(state: Mapping[str, Any], *, can_acquire: bool = False) -> dict[str, Any]:
    """The item for a core gate from ``question``, ``documents`` and, where there is one, ``answer``.

    Raises:
        InvalidInputError: if question or documents are missing.
        InvalidTypeError: for values of the wrong type.
    """
    missing = [name for name in ("question", "documents") if name not in state]
    if missing:
        raise InvalidInputError(f"the gate needs {missing}; it got {sorted(map(str, state))}")
    answer = state.get("answer")
    return {
        "question": state["question"],
        "evidence": evidence_of(state["documents"]),
        "answer": None if answer is None else text_of(answer),
        "can_acquire": can_acquire,
    }


def text_of(value: object) -> str:
    """The text of what a drafting model returned.

    Raises:
        InvalidTypeError: if it is neither a string nor a message.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, BaseMessage):
        return str(value.text)
    raise InvalidTypeError(f"a draft must be a string or a message, not {type(value).__name__}")


def retriever_failed(gate: ISRGate, question: str, error: Exception) -> Decision:
    """The abstention that a failed retriever leads to, where the gate's policy is to abstain.

    Raises:
        ISRError: the package's own errors, as they are.
        RetrieverFailedError: if the policy is to raise.
    """
    if isinstance(error, ISRError):
        raise error
    detail = f"the retriever raised {type(error).__name__}: {error}"
    if gate.on_error == "raise":
        raise RetrieverFailedError(detail) from error
    return replace(gate.decide([], question=question), reason=Reason.RETRIEVER_FAILED, detail=detail)


def for_one_look(gate: ISRGate | None, looks: int) -> ISRGate:
    """The gate (by default the embedded model's) at the share of its target that each of several looks has.

    Raises:
        ConfigurationError: if looks < 1.
        InvalidTypeError: if the gate is none of :mod:`isr_rag`.
    """
    if looks < 1:
        raise ConfigurationError(f"looks must be at least 1, got {looks}")
    whole = ISRGate() if gate is None else gate
    if not isinstance(whole, ISRGate):
        raise InvalidTypeError(f"gate must be an isr_rag.ISRGate, not {type(whole).__module__}.{type(whole).__name__}")
    return whole.with_h_star(whole.h_star / looks)


def settled(decision: Decision) -> Decision:
    """The decision where no further round follows: ABSTAIN takes the place of ACQUIRE."""
    return replace(decision, action=Action.ABSTAIN) if decision.action is Action.ACQUIRE else decision
