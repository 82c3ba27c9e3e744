"""Fakes for testing code around a gate: never a replacement for a model in production."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError


class FixedScorer:
    """A scorer with given probabilities.

    Args:
        q: probability of the first label for each ordering of a prompt, in the order in which they first come, cycled
            when there are more; or a function of the prompt and one ordering; or per ordering a row for all labels.
        layout: what the fake model promises about order.
        identity: its name.

    Attributes:
        requests: every request received, in order.

    Examples:
        >>> from isr_rag import ISRGate
        >>> from isr_rag.references import Oracle
        >>> from isr_rag.testing import FixedScorer
        >>> gate = ISRGate(FixedScorer([0.9, 0.2]), Oracle(1.0))
        >>> gate.decide(["Paris lies on the Seine.", "Lyon is a city."], claim="The Seine flows through Paris.").q
        (0.9, 0.2)
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
        others = len(request.prompt.labels) - 1
        rows: list[Sequence[float]] = []
        for ordering in request.orderings:
            if callable(self._q):
                value: float | Sequence[float] = self._q(request.prompt, ordering)
            else:
                with self._lock:  # how many other orderings of this prompt came before this one did first
                    known = self._seen.setdefault(request.prompt, {})
                    value = self._q[known.setdefault(ordering, len(known)) % len(self._q)]
            rows.append(value if isinstance(value, Sequence) else [value] + [(1.0 - value) / others] * others)
        with np.errstate(divide="ignore"):
            return Scores(np.log(np.asarray(rows, dtype=np.float64)), passes=len(rows))
