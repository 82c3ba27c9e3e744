"""The calls of a scorer: what fails alone must not spoil the others."""

from __future__ import annotations

from collections.abc import Sequence

from isr_rag.batch import ScoresOrError, as_scorer_error
from isr_rag.errors import ISRError, ScorerError
from isr_rag.scorers.protocol import AsyncScorer, PartialScoresError, Scorer, ScoreRequest, Scores


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
