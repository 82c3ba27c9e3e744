"""The items of a call: what their arguments mean, and how they are checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from isr_rag.core.evidence import Chunk, EvidenceLike, as_chunks
from isr_rag.core.predicates import Predicate, predicate_for
from isr_rag.core.reference import Reference
from isr_rag.errors import (
    InvalidInputError,
    InvalidTypeError,
    ISRError,
    NoReferenceError,
)


class Asked(TypedDict, total=False):
    """What a decision is asked about: the arguments that `isr_rag.ISRGate.decide` and the loops share.

    Attributes:
        question: with `answer`: does the evidence support the answer? Alone: does it suffice to answer?
        answer: a drafted answer to the question.
        claim: instead of a question: does the evidence support the claim?
        predicate: a predicate of one's own, instead of question, answer and claim.
        reference: overrides the gate's reference for this item.
    """

    question: str | None
    answer: str | None
    claim: str | None
    predicate: Predicate | None
    reference: Reference | None


class Item(Asked, total=False):
    """One item of a batch: the arguments of `isr_rag.ISRGate.decide`."""

    evidence: Sequence[EvidenceLike]
    can_acquire: bool


Decides = TypeVar("Decides", bound=Callable[..., Any])


def spelled_out(function: Decides) -> Decides:
    """Show `**asked: Unpack[Asked]` argument by argument to `inspect` and `help`."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation.__forward_arg__)
        for name, annotation in Asked.__annotations__.items()
    ]
    function.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """One item, checked."""

    predicate: Predicate
    chunks: tuple[Chunk, ...]
    reference: Reference
    can_acquire: bool


def note_position(error: ISRError, position: int, size: int) -> None:
    """Add to an error which item of a batch it is about."""
    if size > 1:
        error.add_note(f"in item {position} of the batch of {size}")


def read_items(items: Sequence[Item | Mapping[str, Any]], default: Reference | None) -> list[CheckedItem]:
    """Check the items of one call.

    Raises:
        ISRError: as `read_item`, for the first bad item; a note names its position.
    """
    checked: list[CheckedItem] = []
    for position, item in enumerate(items):
        try:
            checked.append(read_item(item, default))
        except ISRError as error:
            note_position(error, position, len(items))
            raise
    return checked


def read_item(item: Item | Mapping[str, Any], default: Reference | None) -> CheckedItem:
    """Check an item.

    Raises:
        InvalidInputError: for unknown, missing, empty or contradictory arguments.
        InvalidTypeError: for arguments of the wrong type.
        NoReferenceError: if neither the item nor the default is a reference.
    """
    if not isinstance(item, Mapping):
        raise InvalidTypeError(f"an item is a mapping of the arguments of decide(), not {type(item).__name__}")
    unknown = sorted(set(item) - set(Item.__annotations__))
    if unknown:
        raise InvalidInputError(f"unknown arguments {unknown}; an item has {sorted(Item.__annotations__)}")
    if "evidence" not in item:
        raise InvalidInputError("an item needs evidence: a list of chunks, which may be empty")
    chunks = as_chunks(item["evidence"])
    question, answer, claim = item.get("question"), item.get("answer"), item.get("claim")
    predicate = item.get("predicate")
    if predicate is None:
        predicate = predicate_for(question=question, answer=answer, claim=claim)
    elif not isinstance(predicate, Predicate):
        raise InvalidTypeError(
            f"{type(predicate).__name__} is not a predicate: use Supported, Sufficient, Choice or Custom"
        )
    elif not question is answer is claim is None:
        raise InvalidInputError("give a predicate, or question, answer and claim, not both")
    reference = checked_reference(item.get("reference")) or default
    if reference is None:
        raise NoReferenceError(
            "a gate without a reference has nothing to trust: give reference=Oracle(...), ToolReference(...), "
            "Verifier(...), CalibratedMixture(...) or CrossEncoder(...) from isr_rag.references, "
            "or use the judge that comes with the package (ISRGate() with no scorer)"
        )
    can_acquire: object = item.get("can_acquire", False)
    if not isinstance(can_acquire, bool):  # the string "false" is true
        raise InvalidTypeError(f"can_acquire is True or False, not {can_acquire!r:.80}")
    return CheckedItem(predicate, chunks, reference, can_acquire)


def checked_reference(reference: object) -> Reference | None:
    """A reference or None; anything else raises InvalidTypeError."""
    if reference is None or isinstance(reference, Reference):
        return reference
    raise InvalidTypeError(
        f"{type(reference).__name__} is not a reference: wrap a value or function in Oracle(...) or Verifier(...)"
    )
