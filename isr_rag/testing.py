"""Fakes for testing code around a gate: never a replacement for a model in production."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError

__all__ = [
    "FixedScorer",
]


class FixedScorer:
    """A scorer with given probabilities.

    Args:
        q: probability of the first label for each ordering of a prompt, in the order in which they first come, cycled
            when there are more; or a function of the prompt and one ordering. One row per ordering gives all labels'
            probabilities instead.
        layout: what the fake model promises about order.
        identity: its name.

    Attributes:
        requests: every request received, in order.
    """

    def __init__(
        self,
        q: Sequence[float] | Sequence[Sequence[float]] | Callable[[Prompt, Ordering], float],
        *,
        layout: Layout = "full",
        identity: str = "fixed",
    ) -> None:
        if not callable(q) and len(q) == 0:
            raise ConfigurationError("FixedScorer needs at least one probability")
        self._q = q
        self.layout: Layout = layout
        self.identity = identity
        self.requests: list[ScoreRequest] = []
        self._seen: dict[Prompt, dict[Ordering, int]] = {}
        self._lock = threading.Lock()

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """The given probabilities as log-probabilities."""
        with self._lock:
            self.requests.extend(requests)
        return [self._one(request) for request in requests]

    def _one(self, request: ScoreRequest) -> Scores:
        rows = [self._row(request, k) for k in range(len(request.orderings))]
        with np.errstate(divide="ignore"):
            return Scores(np.log(np.asarray(rows, dtype=np.float64)), passes=len(rows))

    def _number(self, prompt: Prompt, ordering: Ordering) -> int:
        """How many other orderings of this prompt came before this one did first."""
        with self._lock:
            known = self._seen.setdefault(prompt, {})
            return known.setdefault(ordering, len(known))

    def _row(self, request: ScoreRequest, k: int) -> list[float]:
        labels = len(request.prompt.labels)
        if callable(self._q):
            value: float | Sequence[float] = self._q(request.prompt, request.orderings[k])
        else:
            value = self._q[self._number(request.prompt, request.orderings[k]) % len(self._q)]
        if isinstance(value, Sequence):
            return [float(p) for p in value]
        return [float(value)] + [(1.0 - float(value)) / (labels - 1)] * (labels - 1)
