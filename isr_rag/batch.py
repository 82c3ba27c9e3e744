"""The items of one call, each at its own step of Algorithm 1, and what their arguments mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypedDict

from isr_rag.decision import Decision, Reason
from isr_rag.errors import (
    InvalidInputError,
    InvalidTypeError,
    ISRError,
    NoReferenceError,
    ReferenceFailedError,
    ScorerError,
)
from isr_rag.evidence import Chunk, EvidenceLike, as_chunks
from isr_rag.predicates import Predicate, predicate_for
from isr_rag.references.protocol import Reference
from isr_rag.scorers.protocol import ScoreRequest, Scores

OnError = Literal["raise", "abstain"]
Steps: TypeAlias = Generator[ScoreRequest, Scores, Decision]
"""Algorithm 1 for one item: asks for scores, receives them, returns the decision."""

ScoresOrError: TypeAlias = Scores | ISRError
"""What came of one request."""


class Item(TypedDict, total=False):
    """One item of a batch: the arguments of :meth:`isr_rag.ISRGate.decide`."""

    evidence: Sequence[EvidenceLike]
    question: str | None
    answer: str | None
    claim: str | None
    predicate: Predicate | None
    reference: Reference | None
    can_acquire: bool


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """One item, checked."""

    predicate: Predicate
    chunks: tuple[Chunk, ...]
    reference: Reference
    can_acquire: bool


class Batch:
    """The items of one call.

    Args:
        items: as the caller gave them.
        default: reference of the items that bring none.
        on_error: policy for a scorer or reference that fails.
        blank: a decision about an item before anything is known.
        steps: Algorithm 1 for an item.

    Raises:
        ISRError: for the first item that cannot be decided; a note names its position.
    """

    def __init__(
        self,
        items: Sequence[Item | Mapping[str, Any]],
        default: Reference | None,
        on_error: OnError,
        blank: Callable[[CheckedItem], Decision],
        steps: Callable[[CheckedItem], Steps],
    ) -> None:
        self._on_error, self._blank = on_error, blank
        self._started = time.perf_counter()
        self._done: dict[int, Decision] = {}
        self._waiting: dict[int, ScoreRequest] = {}
        self._size = len(items)
        self._asked: list[CheckedItem] = []
        for position, item in enumerate(items):
            try:
                self._asked.append(read_item(item, default))
            except ISRError as error:
                self._note(error, position)
                raise
        self._steps = [steps(asked) for asked in self._asked]
        for position in range(self._size):
            self._step(position, None)

    def requests(self) -> list[ScoreRequest]:
        """What must be scored next; empty when every item is decided."""
        return list(self._waiting.values())

    def receive(self, results: Sequence[ScoresOrError]) -> None:
        """Go on with the scores of the requests, in their order."""
        positions = list(self._waiting)
        self._waiting.clear()
        for position, result in zip(positions, results, strict=True):
            self._step(position, result)

    def decisions(self) -> list[Decision]:
        """The decisions, in the order of the items."""
        return [self._done[position] for position in range(self._size)]

    def _step(self, position: int, result: ScoresOrError | None) -> None:
        steps = self._steps[position]
        try:
            if result is None:
                self._waiting[position] = next(steps)
            elif isinstance(result, ISRError):
                self._waiting[position] = steps.throw(result)
            else:
                self._waiting[position] = steps.send(result)
        except StopIteration as stop:
            self._finish(position, stop.value)
        except (ScorerError, ReferenceFailedError) as error:
            if self._on_error == "raise":
                self._note(error, position)
                raise
            reason = Reason.SCORER_FAILED if isinstance(error, ScorerError) else Reason.REFERENCE_FAILED
            blank = self._blank(self._asked[position])
            self._finish(position, replace(blank, reason=reason, detail=str(error)))
        except ISRError as error:
            self._note(error, position)
            raise

    def _finish(self, position: int, decision: Decision) -> None:
        self._done[position] = replace(decision, seconds=time.perf_counter() - self._started)

    def _note(self, error: ISRError, position: int) -> None:
        if self._size > 1:
            error.add_note(f"in item {position} of the batch of {self._size}")


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
            f"{type(predicate).__name__} is no predicate: use Supported, Sufficient, Choice or Custom"
        )
    elif not question is answer is claim is None:
        raise InvalidInputError("give a predicate, or question, answer and claim, not both")
    reference = checked_reference(item.get("reference")) or default
    if reference is None:
        raise NoReferenceError(
            "a gate without a reference has nothing to trust: give reference=Oracle(...), ToolChoice(...), "
            "Verifier(...), CalibratedMixture(...) or CrossEncoder(...) from isr_rag.references, "
            "or use the embedded model with its shipped calibration (ISRGate() with no scorer)"
        )
    return CheckedItem(predicate, chunks, reference, bool(item.get("can_acquire", False)))


def checked_reference(reference: object) -> Reference | None:
    """A reference or None; anything else raises InvalidTypeError."""
    if reference is None or isinstance(reference, Reference):
        return reference
    raise InvalidTypeError(
        f"{type(reference).__name__} is no reference: wrap a value or function in Oracle(...) or Verifier(...)"
    )


def as_scorer_error(error: Exception) -> ISRError:
    """What a scorer raised, as an error of this package."""
    if isinstance(error, ISRError):
        return error
    wrapped = ScorerError(f"the scorer raised {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
