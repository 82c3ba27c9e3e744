"""What an experiment has scored: one trial per prompt, resumable, never scored twice.

An experiment says what to score (trials), a scorer says the log-odds of each ordering (outcomes), and everything
else is computed from the outcomes. Scores lie in a JSONL file under a key of their content, so a stopped run goes
on, a finished one is not scored again, and experiments that ask the same thing share the answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from isr_rag.core.bounds import EPS
from isr_rag.core.scorer import Layout, Scorer, ScoreRequest
from isr_rag.core.work import checked_probabilities
from isr_rag.errors import InvalidInputError, ScorerError

Fact = str | int | float | bool | None
TrialProgress = Callable[[int, int, int], None]
"""Told how many trials are done, of how many, and the forward passes spent so far; at the start and as they come."""

MOST = math.log((1.0 - EPS) / EPS)
"""Log-odds are kept in [-MOST, MOST], 20.7 nats: a server that does not list a label would give infinite ones."""

BATCH = 4
"""Requests per call of the scorer; the same for every engine, so all come to the same bits."""

Group = list[tuple[str, ScoreRequest]]
"""Requests that are scored together, each with its key."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One prompt to score under some orderings.

    Attributes:
        name: of this trial within its experiment; unique there.
        request: what the scorer is asked; two labels.
        facts: what the analysis needs to know about it (item, label, n, arm, ...), plain values.
        target: the label that means g = 1.
    """

    name: str
    request: ScoreRequest
    facts: Mapping[str, Fact]
    target: int = 0

    @property
    def key(self) -> str:
        """Hash of all that the scorer is asked."""
        prompt = self.request.prompt
        content = [prompt.instruction, prompt.prefix, prompt.chunks, prompt.suffix, prompt.labels]
        text = json.dumps([*content, self.request.orderings], ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Score:
    """What a scorer said about one request.

    Attributes:
        log_odds: of the first label, for each ordering.
        passes: forward passes spent.
        seconds: share of the scorer's time; requests of one call share it equally.
    """

    log_odds: tuple[float, ...]
    passes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ScoredTrial:
    """What came of a trial.

    Attributes:
        name: of the trial.
        log_odds: log-odds of g = 1 for each ordering, natural logarithm, in the order of the request.
        passes: forward passes that it took when it was scored.
        facts: of the trial.
    """

    name: str
    log_odds: tuple[float, ...]
    passes: int
    facts: Mapping[str, Fact]

    @property
    def q(self) -> NDArray[np.float64]:
        """Probability of g = 1 for each ordering, shape (m,)."""
        q: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.asarray(self.log_odds, dtype=np.float64)))
        return q


class ScoreFile:
    """Scores by content, a JSON object per line; a line that a crash cut short is dropped.

    Args:
        path: the file; made if needed.
        identity: of the scorer. Scores of another scorer are left alone and not used.

    Raises:
        InvalidInputError: for a whole line that is not a score.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self._path, self._identity = path, identity
        self._known: dict[str, Score] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._read()

    def _read(self) -> None:
        if not self._path.exists():
            return
        whole = 0
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                try:
                    entry: dict[str, Any] = json.loads(line)
                    if entry["scorer"] == self._identity:
                        score = Score(tuple(entry["log_odds"]), entry["passes"], entry["seconds"])
                        self._known[entry["key"]] = score
                except (ValueError, KeyError, TypeError) as error:
                    raise InvalidInputError(
                        f"{self._path}, line {number} is not a score ({error!r}): remove the line, and what it said is "
                        "scored again"
                    ) from error
        if whole < self._path.stat().st_size:
            with self._path.open("r+b") as file:
                file.truncate(whole)

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Score:
        return self._known[key]

    def add(self, scores: Mapping[str, Score]) -> None:
        """Append scores; those of a key that is there already are dropped."""
        fresh = {key: score for key, score in scores.items() if key not in self._known}
        lines = [
            {"key": key, "scorer": self._identity, "log_odds": s.log_odds, "passes": s.passes, "seconds": s.seconds}
            for key, s in fresh.items()
        ]
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))
        self._known.update(fresh)


@runtime_checkable
class TrialScorer(Protocol):
    """A scorer that lies elsewhere and scores trials by its own means, such as a cluster."""

    @property
    def identity(self) -> str:
        """As the scorer's."""
        ...

    @property
    def layout(self) -> Layout:
        """As the scorer's."""
        ...

    @property
    def noise_floor(self) -> float | None:
        """As the scorer's."""
        ...

    def score_trials(self, trials: Sequence[Trial], path: Path, *, progress: TrialProgress) -> list[ScoredTrial]:
        """As `score_trials`."""
        ...


def score_trials(
    scorer: Scorer,
    trials: Sequence[Trial],
    path: Path,
    *,
    progress: TrialProgress = lambda done, trials, passes: None,
) -> list[ScoredTrial]:
    """Score what `path` does not hold yet, `BATCH` requests at a time, and return all outcomes in the trials' order.

    Args:
        scorer: any scorer.
        trials: what to score; equal requests are scored once.
        path: JSONL file of scores, see `ScoreFile`.
        progress: see `TrialProgress`.

    Raises:
        ScorerError: if the scorer fails, or says something that is not a probability; what is done is kept.
        InvalidInputError: for a prompt that does not fit the model.
    """

    def scored(groups: list[Group]) -> Iterable[Mapping[str, Score]]:
        return (score_group(scorer, group) for group in groups)

    return gather(scorer.identity, trials, path, scored, progress=progress)


def gather(
    identity: str,
    trials: Sequence[Trial],
    path: Path,
    scored: Callable[[list[Group]], Iterable[Mapping[str, Score]]],
    *,
    progress: TrialProgress,
) -> list[ScoredTrial]:
    """What every engine does around its scoring: leave out what is known, keep what comes, tell the progress.

    Args:
        identity: of the scorer.
        trials: as for `score_trials`.
        path: as for `score_trials`.
        scored: the engine: groups in, the scores of each out, in any order.
        progress: as for `score_trials`.
    """
    known = ScoreFile(path, identity)
    keys = [trial.key for trial in trials]
    times = Counter(keys)
    missing = {key: trial.request for key, trial in zip(keys, trials, strict=True) if key not in known}
    passes, done = 0, sum(times[key] for key in times if key in known)
    progress(done, len(trials), passes)
    pairs = list(missing.items())
    for scores in scored([pairs[start : start + BATCH] for start in range(0, len(pairs), BATCH)]):
        fresh = {key: score for key, score in scores.items() if key not in known}
        known.add(fresh)
        passes += sum(score.passes for score in fresh.values())
        done += sum(times[key] for key in fresh)
        progress(done, len(trials), passes)
    return [_outcome(trial, known[key]) for key, trial in zip(keys, trials, strict=True)]


def score_group(scorer: Scorer, group: Group) -> dict[str, Score]:
    """Score requests together.

    Raises:
        ScorerError: if the scorer fails, or says something that is not a probability.
    """
    started = time.perf_counter()
    results = scorer.score([request for _, request in group])
    seconds = (time.perf_counter() - started) / len(group)
    if len(results) != len(group):
        raise ScorerError(f"the scorer returned {len(results)} results for {len(group)} requests")
    found: dict[str, Score] = {}
    for (key, request), scores in zip(group, results, strict=True):
        checked_probabilities(scores, len(request.orderings), len(request.prompt.labels))
        log_odds = np.clip(scores.logprobs[:, 0] - scores.logprobs[:, 1], -MOST, MOST)
        found[key] = Score(tuple(float(z) for z in log_odds), scores.passes, seconds)
    return found


def _outcome(trial: Trial, score: Score) -> ScoredTrial:
    signed = score.log_odds if trial.target == 0 else tuple(-z for z in score.log_odds)
    return ScoredTrial(trial.name, signed, score.passes, dict(trial.facts))
