"""Batches of items: what they want scored, and what follows from the scores. Failures of one do not spoil others."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TypeAlias

from isr_rag._util.printable import printable
from isr_rag.core.algorithm import decide, plan
from isr_rag.core.items import CheckedItem, note_position
from isr_rag.core.scorer import AsyncScorer, PartialScoresError, Scorer, ScoreRequest, Scores
from isr_rag.core.settings import OnError, Settings
from isr_rag.core.work import Work
from isr_rag.errors import ISRError, PromptTooLongError, ReferenceFailedError, ScorerError

ScoresOrError: TypeAlias = Scores | ISRError
"""What came of one request."""


def wanted(works: Sequence[Work]) -> list[ScoreRequest]:
    """What the undecided items want scored next; nothing once all are decided."""
    requests: list[ScoreRequest] = []
    for work in works:
        if work.decision is None:
            work.requests = plan(work)
            requests += work.requests
    return requests


def settle(works: Sequence[Work], results: Sequence[ScoresOrError], on_error: OnError) -> None:
    """Take in what came of the wanted requests, in their order, and decide the items that need no more.

    Raises:
        ISRError: for the first item that cannot be decided; a note names its position. With `on_error="abstain"` a
            scorer or reference that fails makes an abstention instead.
    """
    at = 0
    for position, work in enumerate(works):
        if work.decision is not None:
            continue
        own = results[at : at + len(work.requests)]
        at += len(own)
        try:
            _settle(work, own, on_error)
        except ISRError as error:
            note_position(error, position, len(works))
            raise


def _settle(work: Work, results: Sequence[ScoresOrError], on_error: OnError) -> None:
    try:
        scores: list[Scores] = []
        for result in results:
            if isinstance(result, ISRError):
                raise result
            scores.append(result)
        work.add(scores)
        work.decision = decide(work)
    except PromptTooLongError as error:
        if not error.without:
            raise
        work.read(work.reading.without(error.without), printable(str(error)))
    except (ScorerError, ReferenceFailedError) as error:
        if on_error == "raise":
            raise
        work.decision = work.failed(error)


def score(scorer: Scorer, requests: Sequence[ScoreRequest]) -> Sequence[ScoresOrError]:
    """Score requests together; where that fails, score each alone."""
    try:
        results = scorer.score(requests)
        if len(results) != len(requests):
            raise ScorerError(f"the scorer returned {len(results)} results for {len(requests)} requests")
        return results
    except PartialScoresError as error:
        if len(error.outcomes) == len(requests):
            return error.outcomes
        return [as_scorer_error(error)] * len(requests)
    except Exception as error:
        if len(requests) == 1:
            return [as_scorer_error(error)]
        return [score(scorer, [request])[0] for request in requests]


async def ascore(scorer: AsyncScorer, request: ScoreRequest) -> ScoresOrError:
    """Score one request without blocking the event loop."""
    try:
        results = await scorer.ascore([request])
        if len(results) != 1:
            raise ScorerError(f"the scorer returned {len(results)} results for 1 request")
        return results[0]
    except PartialScoresError as error:
        return error.outcomes[0] if len(error.outcomes) == 1 else error
    except Exception as error:
        return as_scorer_error(error)


def scores_or_raise(scorer: Scorer, requests: Sequence[ScoreRequest]) -> list[Scores]:
    """Scores of all requests.

    Raises:
        ISRError: the first failure among them.
    """
    found: list[Scores] = []
    for result in score(scorer, requests) if requests else []:
        if isinstance(result, ISRError):
            raise result
        found.append(result)
    return found


def as_scorer_error(error: Exception) -> ISRError:
    """What a scorer raised, as an error of this package."""
    if isinstance(error, ISRError):
        return error
    wrapped = ScorerError(f"the scorer raised {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


_preparing = threading.Lock()


def prepare(settings: Settings, scorer: Scorer, items: Sequence[CheckedItem]) -> tuple[list[Work], list[ScoreRequest]]:
    """Begin a batch in a thread of its own: its items, and what they want scored first.

    One batch at a time: several threads that compute in Python at once would starve the event loop.
    """
    with _preparing:
        works = [Work(settings, scorer, item) for item in items]
        return works, wanted(works)


def _renew_lock() -> None:
    """A fork may find the lock taken by a thread that it does not have."""
    global _preparing
    _preparing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
