"""Scoring trials on a Ray cluster: one scorer per worker, one file of scores, the same bits.

The driver knows which requests have no score yet and hands them to the workers in the groups of the local engine; it
alone writes. So no trial is scored twice, whichever process dies.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from isr_lab.experiments.trials import Group, Score, ScoredTrial, Trial, TrialProgress, gather, score_group
from isr_rag.errors import ConfigurationError
from isr_rag.items.actors import as_isr_error, cluster, load_ray, on_one_thread, pool, tables
from isr_rag.scorers.protocol import Layout, Scorer, noise_floor_of

MakeScorer = Callable[[], Scorer]
"""Makes a scorer; it is pickled, and called once in every worker."""


class RayEngine:
    """Scorers on a Ray cluster, for as many experiments as wanted; a context manager.

    Ray is used as it is where the process has joined a cluster already, else the cluster that `RAY_ADDRESS` names
    is joined, else a local one is started until the engine is left.

    Args:
        make_scorer: makes a worker's scorer.
        workers: scorers, one CPU each; by default one for each GPU that is to be used, else for each CPU.
        gpus: give each worker a GPU where the cluster has them, or an equal share when there are more workers. Say
            False for a scorer that needs none.

    Raises:
        ConfigurationError: when it is entered, if the cluster is too small for the workers.
        MissingDependencyError: when it is entered, if Ray or pyarrow is not installed.
    """

    def __init__(self, make_scorer: MakeScorer, *, workers: int | None = None, gpus: bool = True) -> None:
        self._make_scorer, self._workers, self._gpus = make_scorer, workers, gpus
        self._leaving = ExitStack()
        self._size, self._share = 0, 0.0
        self.identity = ""
        """That of the workers' scorers, once the engine is entered."""
        self.layout: Layout = "full"
        """That of the workers' scorers, once the engine is entered."""
        self.noise_floor: float | None = None
        """What one of them says of its numerical noise in log-odds, if it does."""

    def __enter__(self) -> RayEngine:
        ray = self._ray = load_ray()
        with ExitStack() as entered:
            entered.enter_context(cluster(ray, self._workers))
            with as_isr_error(ray, "nothing yet"):
                self._size, self._share = pool(ray.cluster_resources(), self._workers, self._gpus)
                describe = ray.remote(num_cpus=1, num_gpus=self._share)(_describe)
                self.identity, self.layout, self.noise_floor = ray.get(describe.remote(self._make_scorer))
            self._leaving = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.close()

    def score_trials(self, trials: Sequence[Trial], path: Path, *, progress: TrialProgress) -> list[ScoredTrial]:
        """As `isr_lab.experiments.trials.score_trials`, on Ray: the same bits where the scorer computes in fp32.

        Args:
            trials: what to score.
            path: JSONL file of scores; only this process touches it.
            progress: told as trials are done.

        Raises:
            ClusterError: if workers make different scorers, or Ray gives up; what is done is kept.
            ScorerError: if the scorer fails; what is done is kept.
        """
        with as_isr_error(self._ray, path):
            return gather(self.identity, trials, path, self._scored, progress=progress)

    def _scored(self, groups: list[Group]) -> Iterable[Mapping[str, Score]]:
        if not groups:
            return
        tasks = [{"group": pickle.dumps(group)} for group in groups]
        arguments = (self._make_scorer, self.identity)
        for table in tables(self._ray, Worker, arguments, tasks, self._size, self._share):
            for scores in table["scores"].to_pylist():
                yield {key: Score(tuple(log_odds), *cost) for key, (log_odds, *cost) in json.loads(scores).items()}


class Worker:
    """One scorer, as Ray Data calls it."""

    def __init__(self, make_scorer: MakeScorer, expected: str) -> None:
        self.scorer = on_one_thread(make_scorer)
        if self.scorer.identity != expected:
            raise ConfigurationError(
                f"workers make different scorers, so that their scores would not belong together: one {expected}, "
                f"another {self.scorer.identity}. Give all the same device, weights and settings"
            )

    def __call__(self, task: Any) -> Any:
        """Score the groups of one task: a table with one row per group in, a row of scores for each out."""
        import pyarrow as pa

        groups = [cast(Group, pickle.loads(group)) for group in task["group"].to_pylist()]
        scored = [score_group(self.scorer, group) for group in groups]
        rows = [json.dumps({key: astuple(score) for key, score in scores.items()}) for scores in scored]
        return pa.table({"scores": rows})


def _describe(make_scorer: MakeScorer) -> tuple[str, Layout, float | None]:
    """What the scores are kept under: said by a worker, since this process may lack its device."""
    scorer = on_one_thread(make_scorer)
    return scorer.identity, scorer.layout, noise_floor_of(scorer)
