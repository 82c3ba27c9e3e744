"""Scores that are known already are not computed again: within one call, or from one process to the next."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import AsyncScorer, IndexingScorer, Layout, PartialScoresError, Scorer, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError, ISRError, needed_for

Outcomes = Sequence[Scores | ISRError]


class _Caching:
    """Asks another scorer only for what is not known; in all else it is that scorer."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.identity, self.focus_words = scorer.identity, getattr(scorer, "focus_words", None)
        self.layout: Layout = scorer.layout

    @property
    def kept_bytes(self) -> int | None:
        """Bytes of chunk states that the inner scorer has in memory; None where it keeps none."""
        return getattr(self.scorer, "kept_bytes", None)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts that the inner scorer's server has read so far; 0 where none counts them."""
        return getattr(self.scorer, "prompt_tokens", 0)

    @property
    def noise_floor(self) -> float | None:
        """The inner scorer's numerical noise in log-odds, if it knows it."""
        return getattr(self.scorer, "noise_floor", None)

    def index(self, prompts: Sequence[Prompt]) -> int:
        """As the inner scorer's; ConfigurationError if that keeps no states."""
        if not isinstance(self.scorer, IndexingScorer):
            raise ConfigurationError(f"{type(self.scorer).__name__} keeps no states of chunks")
        return self.scorer.index(prompts)

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As the inner scorer; a PartialScoresError also holds the scores that were known already."""
        known, wanted = self._look_up(requests)
        try:
            fresh: Outcomes = self.scorer.score(wanted) if wanted else []
        except PartialScoresError as error:
            fresh = error.outcomes
        return scores_or_error(self._complete(known, wanted, fresh))

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, awaiting the inner scorer where it can be awaited."""
        if not isinstance(self.scorer, AsyncScorer):
            return await asyncio.to_thread(self.score, requests)
        known, wanted = await asyncio.to_thread(self._look_up, requests)
        try:
            fresh: Outcomes = await self.scorer.ascore(wanted) if wanted else []
        except PartialScoresError as error:
            fresh = error.outcomes
        return scores_or_error(await asyncio.to_thread(self._complete, known, wanted, fresh))

    def _look_up(self, requests: Sequence[ScoreRequest]) -> tuple[Any, list[ScoreRequest]]:
        """What is known of the requests, and what must be scored."""
        raise NotImplementedError

    def _complete(self, known: Any, wanted: list[ScoreRequest], fresh: Outcomes) -> Outcomes:
        """Keep what is fresh; the outcome of every request."""
        raise NotImplementedError


class RememberedScores(_Caching):
    """Asks a scorer once for each request, and remembers the scores for as long as it lives.

    Scores come back as they were, `passes` included. What failed is asked again.
    """

    def __init__(self, scorer: Scorer) -> None:
        super().__init__(scorer)
        self._known: dict[ScoreRequest, Scores] = {}

    def _look_up(self, requests: Sequence[ScoreRequest]) -> tuple[Any, list[ScoreRequest]]:
        return requests, [request for request in dict.fromkeys(requests) if request not in self._known]

    def _complete(self, known: Any, wanted: list[ScoreRequest], fresh: Outcomes) -> Outcomes:
        outcomes = dict(zip(wanted, fresh, strict=True))
        self._known.update({request: one for request, one in outcomes.items() if isinstance(one, Scores)})
        return [self._known.get(request) or outcomes[request] for request in known]


class CachedScorer(_Caching):
    """Remembers the label log-probabilities of each prompt and ordering on disk.

    The key is a hash of the scorer's identity and the assembled prompt, so nothing stale can be found after a change of
    model, adapter, template, chunk or ordering. `passes` counts only what was computed. Entries are raw numbers in an
    SQLite file, and nothing is ever unpickled; whoever may write to the directory can change scores. A cache that
    cannot be read or written costs time and nothing else.

    Args:
        scorer: the scorer to ask when something is not there.
        directory: where the cache lies; made when missing.
        size_limit: bytes above which the entries stored first go; 1 GiB by default.
    """

    def __init__(self, scorer: Scorer, directory: str | Path, *, size_limit: int = 2**30) -> None:
        with needed_for("a cache on disk", "cache"):
            from diskcache import Cache, Timeout

            from isr_rag.scorers.raw_disk import RawDisk
        super().__init__(scorer)
        self._directory, self._warned = Path(directory), False
        self._failures = (OSError, sqlite3.Error, Timeout)
        self._cache: Any = None
        with self._never_failing():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._cache = Cache(str(directory), disk=RawDisk, size_limit=size_limit, timeout=5)

    @contextmanager
    def _never_failing(self) -> Generator[None, None, None]:
        try:
            yield
        except self._failures as error:
            if not self._warned:
                message = f"the cache in {self._directory} does not work and is done without: {error}"
                warnings.warn(message, RuntimeWarning, stacklevel=4)
            self._warned = True

    def _look_up(self, requests: Sequence[ScoreRequest]) -> tuple[Any, list[ScoreRequest]]:
        known: list[tuple[list[str], dict[int, NDArray[np.float64]]]] = []
        wanted: list[ScoreRequest] = []
        for request in requests:
            keys = [self._key(request.prompt, ordering) for ordering in request.orderings]
            rows: dict[int, NDArray[np.float64]] = {}
            with self._never_failing():
                for k, key in enumerate(keys):
                    stored = b"" if self._cache is None else self._cache.get(key, b"")
                    if len(stored) == 8 * len(request.prompt.labels):
                        rows[k] = np.frombuffer(stored, "<f8").astype(np.float64)
            known.append((keys, rows))
            if missing := tuple(ordering for k, ordering in enumerate(request.orderings) if k not in rows):
                wanted.append(ScoreRequest(request.prompt, missing))
        return known, wanted

    def _complete(self, known: Any, wanted: list[ScoreRequest], fresh: Outcomes) -> Outcomes:
        answers = iter(fresh)
        outcomes: list[Scores | ISRError] = []
        entries: dict[str, bytes] = {}
        for keys, rows in known:
            missing = [k for k in range(len(keys)) if k not in rows]
            scores = next(answers) if missing else Scores(np.empty((0, 0)), 0)
            if isinstance(scores, ISRError):
                outcomes.append(scores)
                continue
            for i, k in enumerate(missing):
                rows[k] = scores.logprobs[i]
                if scores.bounds is None and np.isfinite(rows[k]).all():  # an interval may be narrower another time
                    entries[keys[k]] = np.asarray(rows[k], dtype="<f8").tobytes()
            logprobs, bounds = np.stack([rows[k] for k in range(len(keys))]), None
            if scores.bounds is not None:
                bounds = np.exp([logprobs, logprobs]).clip(max=1.0)  # what is kept is exact
                bounds[:, missing] = scores.bounds
            outcomes.append(Scores(logprobs, scores.passes, bounds))
        if entries and self._cache is not None:
            with self._never_failing(), self._cache.transact():
                for key, value in entries.items():
                    self._cache.set(key, value)
        return outcomes

    def _key(self, prompt: Prompt, ordering: Ordering) -> str:
        chunks = [prompt.chunks[i] for i in ordering]
        segments = [self.identity, self.layout, prompt.instruction, prompt.prefix, chunks, prompt.suffix, prompt.labels]
        return hashlib.sha256(json.dumps(segments, ensure_ascii=False).encode()).hexdigest()


def scores_or_error(outcomes: Outcomes) -> list[Scores]:
    """The scores of every request; the error of one that was alone, PartialScoresError if some of several failed."""
    failed = [outcome for outcome in outcomes if isinstance(outcome, ISRError)]
    if failed and len(outcomes) == 1:
        raise failed[0]
    if failed:
        raise PartialScoresError(f"{len(failed)} of {len(outcomes)} requests failed, the first: {failed[0]}", outcomes)
    return [outcome for outcome in outcomes if isinstance(outcome, Scores)]
