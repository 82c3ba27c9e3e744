"""What was scored within one call is not scored again in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from isr_rag.errors import ISRError
from isr_rag.scorers.protocol import (
    AsyncScorer,
    Layout,
    PartialScoresError,
    Scorer,
    ScoreRequest,
    Scores,
    noise_floor_of,
)


class RememberedScores:
    """Asks a scorer once for each request, and remembers the scores for as long as it lives.

    Scores come back as they were, `passes` included: a decision is the same whoever asked first. What failed is asked
    again.

    Args:
        scorer: the scorer to ask.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._known: dict[ScoreRequest, Scores] = {}

    @property
    def identity(self) -> str:
        """The inner scorer's."""
        return self.scorer.identity

    @property
    def layout(self) -> Layout:
        """The inner scorer's."""
        return self.scorer.layout

    @property
    def noise_floor(self) -> float | None:
        """The inner scorer's numerical noise in log-odds, if it knows it."""
        return noise_floor_of(self.scorer)

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As the inner scorer."""
        new = self._new(requests)
        try:
            self._known.update(zip(new, self.scorer.score(new) if new else [], strict=True))
        except PartialScoresError as error:
            raise self._partly(requests, new, error) from error
        return [self._known[request] for request in requests]

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, awaiting the inner scorer where it can be awaited."""
        if not isinstance(self.scorer, AsyncScorer):
            return await asyncio.to_thread(self.score, requests)
        new = self._new(requests)
        try:
            self._known.update(zip(new, await self.scorer.ascore(new) if new else [], strict=True))
        except PartialScoresError as error:
            raise self._partly(requests, new, error) from error
        return [self._known[request] for request in requests]

    def _new(self, requests: Sequence[ScoreRequest]) -> list[ScoreRequest]:
        return [request for request in dict.fromkeys(requests) if request not in self._known]

    def _partly(
        self, requests: Sequence[ScoreRequest], new: Sequence[ScoreRequest], error: PartialScoresError
    ) -> PartialScoresError:
        """The error about all requests, with what is known of each."""
        outcomes: dict[ScoreRequest, Scores | ISRError] = dict(zip(new, error.outcomes, strict=True))
        self._known.update({request: one for request, one in outcomes.items() if isinstance(one, Scores)})
        return PartialScoresError(str(error), [self._known.get(one) or outcomes[one] for one in requests])
