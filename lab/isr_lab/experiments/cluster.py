"""Scoring trials on a Ray cluster: one scorer per worker, one file of scores, the same bits.

The driver knows which requests have no score yet and hands them to the workers in the groups of the local engine; it
alone writes. So no trial is scored twice, whichever process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from isr_lab.experiments.trials import Group, Score, ScoredTrial, Trial, TrialProgress, gather, score_group
from isr_rag.core.scorer import Layout, Scorer
from isr_rag_server.cluster import ClusterError, Pool, as_isr_error, on_one_thread, started

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
        MissingDependencyError: when it is entered, if Ray is not installed.
    """

    def __init__(self, make_scorer: MakeScorer, *, workers: int | None = None, gpus: bool = True) -> None:
        self._make_scorer, self._workers, self._gpus = make_scorer, workers, gpus
        self._leaving = ExitStack()
        self.identity = ""
        """That of the workers' scorers, once the engine is entered."""
        self.layout: Layout = "full"
        """That of the workers' scorers, once the engine is entered."""
        self.noise_floor: float | None = None
        """What one of them says of its numerical noise in log-odds, if it does."""

    def __enter__(self) -> RayEngine:
        with ExitStack() as entered:
            size, share = entered.enter_context(started(self._workers, self._gpus))
            with as_isr_error("nothing yet"):
                self._pool = Pool(Worker, self._make_scorer, size, share)
                self.identity, self.layout, self.noise_floor = self._pool.describe()
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
        with as_isr_error(path):
            return gather(self.identity, trials, path, self._scored, progress=progress)

    def _scored(self, groups: list[Group]) -> Iterable[Mapping[str, Score]]:
        for identity, scores in self._pool.map(groups):
            if identity != self.identity:
                raise ClusterError(f"workers make different scorers: one {self.identity}, another {identity}")
            yield scores


class Worker:
    """One scorer in a process of its own."""

    def __init__(self, make_scorer: MakeScorer) -> None:
        self.scorer = on_one_thread(make_scorer)

    def describe(self) -> tuple[str, Layout, float | None]:
        """What the scores are kept under: said by a worker, since the driver may lack its device."""
        return self.scorer.identity, self.scorer.layout, getattr(self.scorer, "noise_floor", None)

    def work(self, group: Group) -> tuple[str, Mapping[str, Score]]:
        """The scores of one group."""
        return self.scorer.identity, score_group(self.scorer, group)
