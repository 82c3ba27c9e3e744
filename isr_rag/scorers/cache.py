"""An exact-result cache around any scorer, on disk, safe to share between threads and processes."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isr_rag.errors import ConfigurationError, ISRError
from isr_rag.prompt import Ordering, Prompt
from isr_rag.scorers.protocol import (
    AsyncScorer,
    IndexingScorer,
    Layout,
    PartialScoresError,
    Scorer,
    ScoreRequest,
    Scores,
    focus_words_of,
    kept_bytes_of,
    noise_floor_of,
)
from isr_rag.scorers.store import PrivateStore


@dataclass(slots=True)
class _Lookup:
    """One request against the cache: what was found, and what must be scored."""

    keys: list[str]
    rows: dict[int, NDArray[np.float64]]
    missing: list[int]
    request: ScoreRequest
    bounds: dict[int, NDArray[np.float64]] = field(default_factory=dict[int, NDArray[np.float64]])

    def scores(self, passes: int) -> Scores:
        """All rows, once they are there; those of the cache are exact."""
        rows = [self.rows[k] for k in range(len(self.keys))]
        if not self.bounds:
            return Scores(np.stack(rows), passes)
        ends = [self.bounds.get(k, np.stack([np.exp(row)] * 2)) for k, row in enumerate(rows)]
        return Scores(np.stack(rows), passes, np.minimum(np.stack(ends, axis=1), 1.0))


class CachedScorer:
    """Remembers the label log-probabilities of each prompt and ordering.

    The key is a hash of the scorer's identity and the assembled prompt, so nothing stale can be found after a change
    of model, adapter, template, chunk or ordering. Orderings that assemble to the same text share an entry.

    The directory belongs to its user alone: entries that somebody else wrote, changed or copied there are not found. A
    cache that cannot be read or written costs time and nothing else.

    Args:
        scorer: the scorer to ask when something is not there.
        directory: where the cache lies; made when missing.
        size_limit: bytes above which the entries stored first go; 1 GiB by default.

    Raises:
        ConfigurationError: if somebody else owns the directory or may write there.
        MissingDependencyError: if platformdirs is not installed.
    """

    def __init__(self, scorer: Scorer, directory: str | Path, *, size_limit: int = 2**30) -> None:
        self._store = PrivateStore(directory, "scores", size_limit=size_limit)
        self.scorer = scorer

    @property
    def identity(self) -> str:
        """The inner scorer's."""
        return self.scorer.identity

    @property
    def layout(self) -> Layout:
        """The inner scorer's."""
        return self.scorer.layout

    @property
    def focus_words(self) -> int | None:
        """The inner scorer's limit on evidence, if it has one."""
        return focus_words_of(self.scorer)

    @property
    def kept_bytes(self) -> int | None:
        """Bytes of chunk states that the inner scorer has in memory; None where it keeps none."""
        return kept_bytes_of(self.scorer)

    @property
    def noise_floor(self) -> float | None:
        """The inner scorer's numerical noise in log-odds, if it knows it."""
        return noise_floor_of(self.scorer)

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As the inner scorer, with `passes` counting only what was computed.

        Raises:
            PartialScoresError: as the inner scorer; it also holds the scores that were there already.
        """
        lookups = [self._look_up(request) for request in requests]
        wanted = _wanted(lookups)
        try:
            fresh: Sequence[Scores | ISRError] = self.scorer.score(wanted) if wanted else []
        except PartialScoresError as error:
            fresh = error.outcomes
        return _whole(self._merge(lookups, fresh))

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, awaiting the inner scorer where it can be awaited."""
        lookups = await asyncio.to_thread(lambda: [self._look_up(request) for request in requests])
        wanted = _wanted(lookups)
        fresh: Sequence[Scores | ISRError] = []
        try:
            if wanted and isinstance(self.scorer, AsyncScorer):
                fresh = await self.scorer.ascore(wanted)
            elif wanted:
                fresh = await asyncio.to_thread(self.scorer.score, wanted)
        except PartialScoresError as error:
            fresh = error.outcomes
        return _whole(await asyncio.to_thread(self._merge, lookups, fresh))

    def index(self, prompts: Sequence[Prompt]) -> int:
        """As the inner scorer's.

        Raises:
            ConfigurationError: if the inner scorer keeps no states.
        """
        if not isinstance(self.scorer, IndexingScorer):
            raise ConfigurationError(f"{type(self.scorer).__name__} keeps no states of chunks")
        return self.scorer.index(prompts)

    def _look_up(self, request: ScoreRequest) -> _Lookup:
        labels = len(request.prompt.labels)
        keys = [self._key(request.prompt, ordering) for ordering in request.orderings]
        rows: dict[int, NDArray[np.float64]] = {}
        missing: list[int] = []
        kept = self._store.get(keys)
        for k, key in enumerate(keys):
            if len(found := kept.get(key, b"")) == 8 * labels:
                rows[k] = np.frombuffer(found, dtype="<f8").astype(np.float64)
            else:
                missing.append(k)
        return _Lookup(keys, rows, missing, request)

    def _merge(self, lookups: list[_Lookup], fresh: Sequence[Scores | ISRError]) -> list[Scores | ISRError]:
        answers = iter(fresh)
        results: list[Scores | ISRError] = []
        entries: dict[str, bytes] = {}
        for lookup in lookups:
            passes = 0
            if lookup.missing:
                scores = next(answers)
                if isinstance(scores, ISRError):
                    results.append(scores)
                    continue
                passes = scores.passes
                for i, (k, row) in enumerate(zip(lookup.missing, scores.logprobs, strict=True)):
                    lookup.rows[k] = row
                    if scores.bounds is not None:  # an interval may be narrower another time: not for the disk
                        lookup.bounds[k] = scores.bounds[:, i]
                    elif np.isfinite(row).all():
                        entries[lookup.keys[k]] = np.asarray(row, dtype="<f8").tobytes()
            results.append(lookup.scores(passes))
        self._store.put(entries)
        return results

    def _key(self, prompt: Prompt, ordering: Ordering) -> str:
        segments = [
            self.scorer.identity,
            self.scorer.layout,
            prompt.instruction,
            prompt.prefix,
            [prompt.chunks[i] for i in ordering],
            prompt.suffix,
            prompt.labels,
        ]
        return hashlib.sha256(json.dumps(segments, ensure_ascii=False).encode()).hexdigest()


def _whole(outcomes: list[Scores | ISRError]) -> list[Scores]:
    """The scores of every request; an error where some of them have none."""
    failed = [outcome for outcome in outcomes if isinstance(outcome, ISRError)]
    if failed:
        if len(outcomes) == 1:
            raise failed[0]
        raise PartialScoresError(f"{len(failed)} of {len(outcomes)} requests failed: {failed[0]}", outcomes)
    return [outcome for outcome in outcomes if isinstance(outcome, Scores)]


def _wanted(lookups: list[_Lookup]) -> list[ScoreRequest]:
    return [
        ScoreRequest(lookup.request.prompt, tuple(lookup.request.orderings[k] for k in lookup.missing))
        for lookup in lookups
        if lookup.missing
    ]
