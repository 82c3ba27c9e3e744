"""The items of one call, each at its own step of Algorithm 1, and what their arguments mean."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from isr_rag.decision import Decision
from isr_rag.errors import (
    InvalidInputError,
    InvalidTypeError,
    ISRError,
    NoReferenceError,
    ScorerError,
)
from isr_rag.evidence import Chunk, EvidenceLike, as_chunks
from isr_rag.predicates import Predicate, predicate_for
from isr_rag.references.protocol import Reference
from isr_rag.scorers.protocol import ScoreRequest, Scores

OnError = Literal["raise", "abstain"]
Steps: TypeAlias = Generator[Sequence[ScoreRequest], Sequence[Scores], Decision]
"""Algorithm 1 for one item: asks for scores, receives one for each request, returns the decision."""

ScoresOrError: TypeAlias = Scores | ISRError
"""What came of one request."""


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


class Batch:
    """The items of one call. Nothing runs before `start`.

    Args:
        items: the items, checked.
        steps: Algorithm 1 for an item.
    """

    def __init__(self, items: Sequence[CheckedItem], steps: Callable[[CheckedItem], Steps]) -> None:
        self._items, self._of_item = items, steps
        self._started = 0.0
        self._steps: list[Steps] = []
        self._done: dict[int, Decision] = {}
        self._waiting: dict[int, int] = {}  # how many results each waiting item asked for

    def start(self) -> list[ScoreRequest]:
        """Take every item to its first request; returns the requests, none when every item is decided.

        Raises:
            ISRError: for the first item that cannot be decided; a note names its position.
        """
        self._started = time.perf_counter()
        self._steps = [self._of_item(item) for item in self._items]
        return self._advance([(position, next) for position in range(len(self._steps))])

    def resume(self, results: Sequence[ScoresOrError]) -> list[ScoreRequest]:
        """Go on with the results of the requests, in their order; returns the next requests.

        Raises:
            ISRError: as `start`.
        """
        if len(results) != sum(self._waiting.values()):
            raise ValueError(f"{len(results)} results for {sum(self._waiting.values())} requests")
        left = iter(results)
        return self._advance([(at, _handing(list(islice(left, asked)))) for at, asked in self._waiting.items()])

    def decisions(self) -> list[Decision]:
        """The decisions, in the order of the items."""
        return [self._done[position] for position in range(len(self._steps))]

    def _advance(self, steps: Sequence[tuple[int, Callable[[Steps], Sequence[ScoreRequest]]]]) -> list[ScoreRequest]:
        """Take items one step on; those that ask for scores wait for them."""
        requests: dict[int, Sequence[ScoreRequest]] = {}
        for position, step in steps:
            try:
                requests[position] = step(self._steps[position])
            except StopIteration as stop:
                self._done[position] = replace(stop.value, seconds=time.perf_counter() - self._started)
            except ISRError as error:
                _note(error, position, len(self._steps))
                raise
        self._waiting = {position: len(asked) for position, asked in requests.items()}
        return [request for asked in requests.values() for request in asked]


def _handing(results: Sequence[ScoresOrError]) -> Callable[[Steps], Sequence[ScoreRequest]]:
    """The step that hands results to an item's algorithm, or the first error among them."""
    scores: list[Scores] = []
    for result in results:
        if isinstance(result, ISRError):
            return partial(_throwing, result)
        scores.append(result)
    return lambda steps: steps.send(scores)


def _throwing(error: ISRError, steps: Steps) -> Sequence[ScoreRequest]:
    return steps.throw(error)


def _note(error: ISRError, position: int, size: int) -> None:
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
            _note(error, position, len(items))
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
            "a gate without a reference has nothing to trust: give reference=Oracle(...), ToolChoice(...), "
            "Verifier(...), CalibratedMixture(...) or CrossEncoder(...) from isr_rag.references, "
            "or use an adjudicator with its shipped calibration (ISRGate() with no scorer)"
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


def as_scorer_error(error: Exception) -> ISRError:
    """What a scorer raised, as an error of this package."""
    if isinstance(error, ISRError):
        return error
    wrapped = ScorerError(f"the scorer raised {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
