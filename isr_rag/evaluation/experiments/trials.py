"""What an experiment has scored: one trial a prompt, resumable, never scored twice.

An experiment says what to score (trials), a scorer says the log-odds of each ordering (outcomes), and everything
else is computed from the outcomes. Scores lie in a JSONL file under a key of their content, so that a stopped run goes
on, a finished one is not scored again, and experiments that ask the same thing share the answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isr_rag.batch import checked_probabilities
from isr_rag.errors import ScorerError
from isr_rag.scorers.protocol import Scorer, ScoreRequest

Fact = str | int | float | bool | None
Progress = Callable[[int, int, int], None]
"""Told how many trials are done, of how many, and the forward passes spent so far; at the start and as they come."""


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
class Outcome:
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
        z = np.asarray(self.log_odds)
        return cast(NDArray[np.float64], 1.0 / (1.0 + np.exp(-z)))


class ScoreFile:
    """Scores by content, a JSON object a line; a line that a crash cut short is dropped.

    Args:
        path: the file; made if needed.
        identity: of the scorer. Scores of another scorer are left alone and not used.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self._path, self._identity = path, identity
        self._known: dict[str, tuple[tuple[float, ...], int]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._read()

    def _read(self) -> None:
        if not self._path.exists():
            return
        whole = 0
        with self._path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                entry: dict[str, Any] = json.loads(line)
                if entry["scorer"] == self._identity:
                    self._known[entry["key"]] = (tuple(entry["log_odds"]), entry["passes"])
        if whole < self._path.stat().st_size:
            with self._path.open("r+b") as file:
                file.truncate(whole)

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> tuple[tuple[float, ...], int]:
        """Log-odds of the first label for each ordering, and the passes spent."""
        return self._known[key]

    def add(self, entries: Mapping[str, tuple[tuple[float, ...], int]]) -> None:
        """Append scores."""
        with self._path.open("a", encoding="utf-8") as file:
            for key, (log_odds, passes) in entries.items():
                line = {"key": key, "scorer": self._identity, "log_odds": log_odds, "passes": passes}
                file.write(json.dumps(line, allow_nan=False) + "\n")
        self._known.update(entries)


def score_trials(
    scorer: Scorer,
    trials: Sequence[Trial],
    path: Path,
    *,
    batch: int = 4,
    progress: Progress = lambda done, trials, passes: None,
) -> list[Outcome]:
    """Score what ``path`` does not hold yet, and return every outcome, in the order of the trials.

    Args:
        scorer: any scorer.
        trials: what to score; equal requests are scored once.
        path: JSONL file of scores, see :class:`ScoreFile`.
        batch: trials a call of the scorer; what is finished stays when the run is stopped.
        progress: see :data:`Progress`.

    Raises:
        ScorerError: if the scorer fails, or says something that is no probability; what is done is kept.
        InvalidInputError: for a prompt that does not fit the model.
    """
    known = ScoreFile(path, scorer.identity)
    missing = {trial.key: trial.request for trial in trials if trial.key not in known}
    passes, done = 0, sum(trial.key in known for trial in trials)
    progress(done, len(trials), passes)
    for group in _groups(list(missing.items()), batch):
        results = scorer.score([request for _, request in group])
        if len(results) != len(group):
            raise ScorerError(f"the scorer returned {len(results)} results for {len(group)} requests")
        entries: dict[str, tuple[tuple[float, ...], int]] = {}
        for (key, request), scores in zip(group, results, strict=True):
            checked_probabilities(scores, len(request.orderings), len(request.prompt.labels))
            rows = scores.logprobs
            entries[key] = tuple(float(z) for z in rows[:, 0] - rows[:, 1]), scores.passes
            passes += scores.passes
        known.add(entries)
        done = sum(trial.key in known for trial in trials)
        progress(done, len(trials), passes)
    return [_outcome(trial, *known[trial.key]) for trial in trials]


def _outcome(trial: Trial, log_odds: tuple[float, ...], passes: int) -> Outcome:
    signed = log_odds if trial.target == 0 else tuple(-z for z in log_odds)
    return Outcome(trial.name, signed, passes, dict(trial.facts))


def _groups(entries: list[tuple[str, ScoreRequest]], size: int) -> Iterator[list[tuple[str, ScoreRequest]]]:
    for start in range(0, len(entries), size):
        yield entries[start : start + size]
