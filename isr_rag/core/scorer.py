"""What a scorer is: structured prompts and orderings in, label log-probabilities out.

It receives the segments of a prompt rather than finished strings, and so can share what the orderings have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.errors import ISRError, ScorerError

Layout = Literal["full", "row", "set", "late"]
"""How a model sees the evidence.

`full`  one causal sequence, so the order of the chunks matters (every ordinary language model);
`row`   as `full`, with the claim or question after the evidence only, so that several share what was read;
`set`   every chunk attends to the instruction, the claim and itself, all chunks are at the same positions, and
          only the closing part attends to everything: exactly invariant to order;
`late`  as `set`, with the claim only in the closing part: a chunk's state depends on the chunk alone.
"""
ORDERED: frozenset[Layout] = frozenset({"full", "row"})
"""Layouts in which the order of the chunks matters."""
TOPIC_LAST: frozenset[Layout] = frozenset({"row", "late"})
"""Layouts in which the claim or question stands after the evidence only."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """One prompt and the orderings of its chunks to score, one at least."""

    prompt: Prompt
    orderings: tuple[Ordering, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a scorer says about one request.

    Attributes:
        logprobs: natural-log probabilities of the labels, renormalised over the label set; float64, shape
            (m, labels), one row per ordering of the request.
        passes: forward passes spent, counted as orderings really computed (0 when all came from a cache).
        bounds: where a server lists only its most probable tokens: the least and the most that each label's
            renormalised probability can be; float64, shape (2, m, labels). None: every probability is exact.
    """

    logprobs: NDArray[np.float64]
    passes: int
    bounds: NDArray[np.float64] | None = None


class PartialScoresError(ScorerError):
    """Some requests of one call failed for good; `outcomes` has the scores or the error of each."""

    def __init__(self, message: str, outcomes: Sequence[Scores | ISRError]) -> None:
        super().__init__(message)
        self.outcomes = outcomes

    def __reduce__(self) -> tuple[type[PartialScoresError], tuple[str, Sequence[Scores | ISRError]]]:
        return type(self), (str(self), self.outcomes)


@runtime_checkable
class Scorer(Protocol):
    """Anything that turns prompts and orderings into label probabilities.

    `identity` names everything that a score depends on beyond the request (model, revision, adapter, dtype, chat
    template): calibrations and caches are tied to it. A `layout` not among `ORDERED` promises that no ordering matters.

    Further members are optional, and None where nothing is known: `focus_words`, the words of evidence to read with
    `max_words="auto"`; `noise_floor`, its numerical noise in log-odds; `kept_bytes`, bytes of chunk states in memory.
    """

    @property
    def identity(self) -> str:
        """Name and hash of all that determines a score."""
        ...

    @property
    def layout(self) -> Layout:
        """How the model sees the evidence."""
        ...

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Score every request; the result of one does not depend on the others."""
        ...


@runtime_checkable
class AsyncScorer(Scorer, Protocol):
    """A scorer that can also be awaited: nothing blocks while a server answers."""

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, without blocking the event loop."""
        ...


@runtime_checkable
class IndexingScorer(Scorer, Protocol):
    """A scorer that can compute what depends on the evidence alone ahead of any question."""

    def index(self, prompts: Sequence[Prompt]) -> int:
        """Prepare the prompts' chunks; returns the tokens computed."""
        ...
