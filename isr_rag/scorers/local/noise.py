"""How much of a difference between two scores is arithmetic: the numerical noise of a scorer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from isr_rag.core.evidence import Chunk
from isr_rag.core.predicates import Supported
from isr_rag.core.scorer import Scorer, ScoreRequest, Scores


def numerical_noise(scorer: Scorer, *others: Callable[[Sequence[ScoreRequest]], list[Scores]]) -> float:
    """Largest difference in log-odds between ways to score one prompt: alone, with longer ones, and by `others`.

    Differences between orderings below it say nothing about order.

    Args:
        scorer: a scorer whose arithmetic may depend on the batch.
        others: further ways to compute the same scores.
    """
    texts = [f"Port {i} was founded in {1800 + i}." for i in range(9)]
    claim = Supported(claim="Port 1 lies by the sea.")
    requests = [
        ScoreRequest(
            claim.render([Chunk(text) for text in texts[:n]], topic_first=scorer.layout != "late"), (tuple(range(n)),)
        )
        for n in (1, 3, 9)
    ]
    alone = [scorer.score([request])[0] for request in requests]
    ways = [alone, scorer.score(requests), *(other(requests) for other in others)]
    odds = np.asarray([[one.logprobs[0, 0] - one.logprobs[0, 1] for one in way] for way in ways])
    return float(np.ptp(odds, axis=0).max())
