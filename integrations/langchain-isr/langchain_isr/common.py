"""What the adapters share: documents as evidence, a decision as plain data, the text of a draft."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import fields, is_dataclass, replace
from numbers import Number
from typing import Annotated, Any, Literal, TypeAlias, cast

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.prompts import BasePromptTemplate, PromptTemplate, format_document
from langchain_core.runnables import Runnable
from pydantic import BaseModel, BeforeValidator, WithJsonSchema

from isr_rag import Action, Decision, ISRGate, Reason
from isr_rag.core.evidence import Chunk, one_line
from isr_rag.errors import InvalidInputError, InvalidTypeError, ISRError, RetrieverFailedError
from isr_rag.gate.acquisition import abstain
from isr_rag.gate.adapters import core_gate

EVENT = "isr_decision"
"""Name of the custom event that carries each decision."""

KEY = "isr"
"""Where a decision is: in a runnable's output, a document's metadata, a message's response metadata, a state."""

OnAbstain = Literal["empty", "raise", "annotate"]
"""What becomes of documents after an abstention.

`raise` stops the chain with `ISRAbstained`, which `with_fallbacks(exceptions_to_handle=(ISRAbstained,))` understands.
`empty` returns no documents: a chain that calls its model all the same then answers without evidence and without a
gate. `annotate` returns all documents with the decision in their metadata.
"""

DOCUMENT_PROMPT: BasePromptTemplate[str] = PromptTemplate.from_template("{page_content}")
"""How a document reaches the model by default, as in LangChain's own stuff-documents chain."""

DocumentPrompt: TypeAlias = Annotated[
    BasePromptTemplate[str], WithJsonSchema({"type": "object", "title": "a prompt template for one document"})
]

OTHER_NAMES = (
    "where a state has other names, put a step before the node, such as RunnableLambda(lambda state: "
    '{"question": state["question"], "documents": state["context"], "answer": state["generation"]}) | isr_node()'
)
"""What to do where a node cannot be told the keys."""

State: TypeAlias = dict[str, Any]


class ISRAbstained(ISRError):
    """A gate abstained, and the policy is to raise.

    Attributes:
        decision: the decision with its numbers.
        documents: the evidence it was made about.
    """

    def __init__(self, decision: Decision, documents: Sequence[Document] = ()) -> None:
        said = replace(decision, nearest=None).explain()  # no text of the evidence gets into a log
        super().__init__(f"the gate abstained: {decision.reason.value}. {said}")
        self.decision = decision
        self.documents = list(documents)

    def __reduce__(self) -> tuple[type[ISRAbstained], tuple[Decision, list[Document]]]:
        return type(self), (self.decision, self.documents)


def chunk_of(document: object, document_prompt: BasePromptTemplate[str] = DOCUMENT_PROMPT) -> Chunk:
    """A document as a chunk of evidence: the text that the model reads. A string counts as it is.

    Args:
        document: a document or a string.
        document_prompt: how the chain renders a document for its model.

    Raises:
        InvalidTypeError: if it is neither a document nor a string.
        InvalidInputError: if the prompt cannot render the document, such as for want of metadata.
    """
    if isinstance(document, str):
        return Chunk(document)
    if not isinstance(document, Document):
        raise InvalidTypeError(f"evidence must be documents or strings, not {type(document).__name__}")
    try:
        return Chunk(format_document(document, document_prompt))
    except Exception as error:  # whatever a template raises about a value
        raise InvalidInputError(f"document_prompt cannot render a document: {error}") from error


def evidence_of(documents: object, document_prompt: BasePromptTemplate[str] = DOCUMENT_PROMPT) -> list[Chunk]:
    """Documents as evidence, in their order; those without any text hold none and are left out.

    Raises:
        InvalidTypeError: if it is not a list of documents or strings.
        InvalidInputError: if the prompt cannot render a document.
    """
    return [chunk for chunk in chunks_of(documents, document_prompt) if one_line(chunk.text)]


def chunks_of(documents: object, document_prompt: BasePromptTemplate[str] = DOCUMENT_PROMPT) -> list[Chunk]:
    """As `evidence_of`, with those that have no text."""
    if isinstance(documents, (str, Mapping)) or not isinstance(documents, Sequence):
        raise InvalidTypeError(f"documents must be a list of documents, not {type(documents).__name__}")
    return [chunk_of(document, document_prompt) for document in cast(Sequence[object], documents)]


def gathered(rounds: Sequence[Sequence[Document]], document_prompt: DocumentPrompt = DOCUMENT_PROMPT) -> list[Document]:
    """The documents of several rounds: each round adds those that no round before it had; twins in a round survive.

    Title and rendered text tell documents apart. Ids repeat, so they do not.
    """

    def key(document: Document | str) -> tuple[str, str]:
        title = "" if isinstance(document, str) else str(document.metadata.get("title", ""))
        return one_line(title), one_line(chunk_of(document, document_prompt).text)

    documents: list[Document] = []
    for found in rounds:
        known = set(map(key, documents))
        documents += [document for document in found if key(document) not in known]
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


def question_of(state: Mapping[str, Any]) -> str:
    """The question of a state.

    Raises:
        InvalidInputError: if there is none.
        InvalidTypeError: if it is no string.
    """
    if "question" not in state:
        raise InvalidInputError(f"the input has no 'question', but {list(state)}")
    if not isinstance(state["question"], str):
        raise InvalidTypeError(f"a question must be a string, not {type(state['question']).__name__}")
    return state["question"]


def item_of(
    state: Mapping[str, Any],
    *,
    can_acquire: bool = False,
    document_prompt: BasePromptTemplate[str] = DOCUMENT_PROMPT,
    keys: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The item for a core gate from `question`, `documents` and, where there is one, `answer`.

    Args:
        state: the three by these names.
        can_acquire: another round of retrieval is possible.
        document_prompt: how the chain renders a document for its model.
        keys: what the caller calls the three, for the error message; None for a node, which has names of its own.

    Raises:
        InvalidInputError: if question or documents are missing.
        InvalidTypeError: for values of the wrong type.
    """
    missing = [(keys or {}).get(name, name) for name in ("question", "documents") if name not in state]
    if missing:
        hint = OTHER_NAMES if keys is None else "set the keys that your chain uses"
        raise InvalidInputError(f"the gate needs {missing} in its input: {hint}")
    answer = state.get("answer")
    return {
        "question": question_of(state),
        "evidence": evidence_of(state["documents"], document_prompt),
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


def replaced(answer: object, text: str, metadata: dict[str, Any]) -> object:
    """A text in the place of an answer, of the answer's own type: a string or a message.

    A message is made anew and holds nothing of the old one but its id and its numbers of tokens: reasoning, refusals,
    calls of tools, names and what a provider adds were not judged.
    """
    if not isinstance(answer, BaseMessage):
        return text
    usage = _counts(answer.usage_metadata) if isinstance(answer, AIMessage) else None
    return AIMessage(text, id=answer.id, usage_metadata=usage, response_metadata=metadata)


def _counts(usage: Any) -> Any:
    """What is a number in a report of tokens."""
    if isinstance(usage, dict):
        counted = {key: _counts(one) for key, one in cast(State, usage).items()}
        return {key: one for key, one in counted.items() if one is not None}
    return usage if isinstance(usage, Number) else None


def refuse_unknown_drafts(
    state: Mapping[str, Any], known: Sequence[str], answer_key: str, hint: str = "name its key with answer_key=..."
) -> None:
    """Refuse an input that may hold a draft under a key that the gate does not know.

    It would go on unjudged, with nothing but the evidence judged where there is no answer. Without an answer anything
    but numbers, documents and a conversation that ends with a question may be one; beside an answer, what a model said,
    or the answer once more.

    Args:
        state: the input.
        known: the keys that the gate knows.
        answer_key: which of them is the draft's.
        hint: how to say that another one is.

    Raises:
        InvalidInputError: if there is one.
    """
    answer = state.get(answer_key)
    text = None if answer is None else one_line(text_of(answer))
    found = [key for key, value in state.items() if key not in known and _may_be_draft(value, text)]
    if found:
        raise InvalidInputError(
            f"the keys {found} may hold a draft, which is judged under {answer_key!r} only: {hint}, or give "
            'other_texts="pass" where none is a draft'
        )


def handed(state: State) -> State:
    """The state for a draft: what it writes into its dicts, lists, sets and structured objects goes nowhere.

    Documents and messages are such objects. Runnables are none: they hold what cannot be copied.
    """
    done: dict[int, Any] = {}
    return {key: _copied(value, done) for key, value in state.items()}


def _copied(value: Any, done: dict[int, Any]) -> Any:
    """A copy with all that it holds; `done` has the copies so far, since objects may hold each other."""
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, tuple):
        copied = [_copied(one, done) for one in cast(Iterable[Any], value)]
        return cast(Any, type(value))._make(copied) if hasattr(value, "_make") else tuple(copied)
    structured = is_dataclass(value) and not isinstance(value, type)
    if not (structured or isinstance(value, (list, set, dict, deque, BaseModel))) or isinstance(value, Runnable):
        return value
    own = done[id(value)] = copy(cast(Any, value))  # of its own type, such as a defaultdict
    if isinstance(own, BaseModel):
        parts: list[dict[str, Any]] = [vars(own), own.__pydantic_extra__ or {}]
        for held in parts:
            held.update({name: _copied(one, done) for name, one in held.items()})
    elif isinstance(own, dict):  # not its own `update`, which adds in a Counter
        dict.update(own, {key: _copied(one, done) for key, one in dict[Any, Any].items(own)})
    elif isinstance(own, (list, deque)):
        copied = [_copied(one, done) for one in own]
        own.clear()
        own.extend(copied)
    elif structured:
        for one in fields(own):
            object.__setattr__(own, one.name, _copied(getattr(own, one.name), done))  # it may be frozen
    return own


def _may_be_draft(value: object, answer: str | None, seen: dict[int, object] | None = None) -> bool:
    if value is None or isinstance(value, (Number, Document)):
        return False
    if isinstance(value, (str, bytes, bytearray)):
        text = value if isinstance(value, str) else value.decode(errors="replace")
        return bool(text) if answer is None else one_line(text) == answer != ""
    seen = {} if seen is None else seen  # objects may hold each other
    if id(value) in seen:
        return False
    seen[id(value)] = value
    if isinstance(value, Collection) and not isinstance(value, Mapping):
        try:
            listed = list(cast(Iterable[object], value))
        except TypeError:  # a tensor or an array of one number
            return answer is None or one_line(str(value)) == answer
        if listed and all(isinstance(one, BaseMessage) for one in listed):
            last = listed[-1]
            return isinstance(last, AIMessage) and (not last.tool_calls or one_line(str(last.text)) == answer)
        return any(_may_be_draft(one, answer, seen) for one in listed)
    if isinstance(value, Mapping):
        held = cast(Mapping[object, object], value)
        named = [] if answer is None else held  # where there is no answer yet, any name would be one
        return any(_may_be_draft(one, answer, seen) for one in (*held.values(), *named))
    if answer is None or isinstance(value, AIMessage):
        return True
    return any(_may_be_draft(one, answer, seen) for one in _held(value))


def _held(value: object) -> list[object]:
    """What a structured object holds; of any other only the texts and messages: it may hold a whole program."""
    if isinstance(value, BaseModel):
        return [one for _, one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, one.name) for one in fields(value)]
    return [one for one in getattr(value, "__dict__", {}).values() if isinstance(one, (str, bytes, BaseMessage))]


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
    return abstain(gate, Reason.RETRIEVER_FAILED, detail, question=question)


Core: TypeAlias = Annotated[
    ISRGate, BeforeValidator(core_gate), WithJsonSchema({"type": "object", "title": "isr_rag.ISRGate"})
]
"""A core gate as the field of a component; its JSON schema says no more than what it is."""


def step(value: Any) -> Any:
    """What a component takes as a part of a chain, unless it is a core gate or a function.

    Raises:
        InvalidTypeError: if it is.
    """
    if isinstance(value, ISRGate):
        raise InvalidTypeError(
            "an isr_rag.ISRGate is no part of a chain: from langchain_isr import ISRGate, and give ISRGate(gate=...)"
        )
    if callable(value) and not isinstance(value, Runnable):
        kind = type(value).__name__
        raise InvalidTypeError(f"a part of a chain must be a runnable, not {kind}: RunnableLambda makes one")
    return value


def settled(decision: Decision) -> Decision:
    """The decision where no further round follows: ABSTAIN takes the place of ACQUIRE."""
    return replace(decision, action=Action.ABSTAIN) if decision.action is Action.ACQUIRE else decision
