"""Within one call nothing is scored twice, and nothing else changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from isr_rag.core.evidence import Chunk
from isr_rag.core.predicates import Supported
from isr_rag.core.scorer import PartialScoresError, ScoreRequest, Scores
from isr_rag.core.settings import Orderings
from isr_rag.errors import ScorerError
from isr_rag.scorers.cache import RememberedScores
from isr_rag.testing import FixedScorer
from tests.audit.audit_world import RIVERS, gate


def request(claim: str) -> ScoreRequest:
    return ScoreRequest(Supported(claim=claim).render([Chunk("The Rhine flows through Basel.")]), ((0,),))


def test_what_was_asked_is_not_asked_again() -> None:
    scorer = FixedScorer([0.7, 0.2])
    remembered = RememberedScores(scorer)
    first = remembered.score([request("a"), request("b"), request("a")])
    again = asyncio.run(remembered.ascore([request("b"), request("c")]))
    assert len(scorer.requests) == 3
    assert first[0] is first[2] and first[1] is again[0]
    assert (remembered.identity, remembered.layout, remembered.noise_floor) == ("fixed", "full", None)


class Half(FixedScorer):
    """Fails for good at one claim."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        good = super().score(requests)
        if any("bad" in one.prompt.suffix + one.prompt.prefix for one in requests):
            outcomes = [
                ScorerError("no") if "bad" in one.prompt.suffix + one.prompt.prefix else scores
                for one, scores in zip(requests, good, strict=True)
            ]
            raise PartialScoresError("one failed", outcomes)
        return good


def test_what_failed_is_asked_again_and_the_others_are_kept() -> None:
    scorer = Half([0.7])
    remembered = RememberedScores(scorer)
    kept = remembered.score([request("known")])[0]
    with pytest.raises(PartialScoresError) as caught:
        remembered.score([request("bad"), request("known"), request("good")])
    failed, known, good = caught.value.outcomes
    assert isinstance(failed, ScorerError) and known is kept and isinstance(good, Scores)
    remembered.score([request("good")])
    assert len(scorer.requests) == 3
    assert np.isfinite(good.logprobs).all()


def test_an_audit_scores_nothing_twice_and_decides_as_before() -> None:
    own = gate(orderings=Orderings(m=2))
    answer = "The Rhine flows through Basel. The Seine flows through Paris. The Rhine flows through Basel."
    found = own.audit(answer=answer, evidence=list(RIVERS))
    asked = own.scorer.requests  # type: ignore[attr-defined]
    assert len(set(asked)) == len(asked)
    assert found.statements[0].decision == own.decide(claim=found.statements[0].claim, evidence=list(RIVERS))
