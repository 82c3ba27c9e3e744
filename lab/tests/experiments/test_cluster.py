"""On a Ray cluster of two workers: one score per trial, whoever is killed, and the bits of the local engine."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from isr_lab.experiments.cluster import RayEngine
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.run import run_experiment
from isr_lab.experiments.trials import BATCH, ScoredTrial, Trial, TrialProgress, score_trials
from isr_lab.slice.asking import predicate
from isr_lab.slice.sample import load_sample
from isr_lab.slice.schema import SliceItem
from isr_rag.core.evidence import Chunk
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError, ScorerError
from isr_rag.testing import FixedScorer
from isr_rag_server.cluster import ClusterError

pytestmark = pytest.mark.slow

ray = pytest.importorskip("ray", reason="the engine ray needs Ray: pip install './server[ray]'")

HERE = sys.modules[__name__]


def score_trials_on_ray(
    make_scorer: Any,
    trials: Sequence[Trial],
    path: Path,
    *,
    workers: int,
    gpus: bool = True,
    progress: TrialProgress = lambda done, trials, passes: None,
) -> list[ScoredTrial]:
    with RayEngine(make_scorer, workers=workers, gpus=gpus) as engine:
        return engine.score_trials(trials, path, progress=progress)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two workers of one CPU, no dashboard, nothing reported to anyone."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112  # what else runs on the machine must not end workers
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=100 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    ray.cloudpickle.register_pickle_by_value(HERE)  # the workers cannot import the tests
    yield
    ray.shutdown()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


def make_trials(number: int, m: int = 3, chunks: int = 3) -> list[Trial]:
    short = [item for item in load_sample() if len(item.chunks) >= chunks]
    trials = []
    for k in range(number):
        item = short[k % len(short)]
        evidence = [Chunk(chunk.text, chunk.title) for chunk in item.chunks[:chunks]]
        orderings = draw_orderings(chunks, m, family="uniform", seed=k)
        prompt = predicate(item).render(evidence)
        trials.append(Trial(f"{k}", ScoreRequest(prompt, tuple(orderings)), {"k": k}, target=k % 2))
    return trials


def probability(prompt: Prompt, ordering: Ordering) -> float:
    """Some number that depends on the prompt and the ordering, and on nothing else."""
    return (zlib.crc32(f"{prompt}{ordering}".encode()) % 1000 + 1) / 1002


class Noting(FixedScorer):
    """Notes in a directory which process scores which request; slow enough to be killed on the way."""

    def __init__(self, notes: str, pause: float) -> None:
        super().__init__(probability, identity="noting")
        self.notes, self.pause = Path(notes), pause

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        with (self.notes / f"{os.getpid()}").open("a") as file:
            file.writelines(f"{Trial('', request, {}).key}\n" for request in requests)
        time.sleep(self.pause)
        return super().score(requests)


def scored(notes: Path) -> Counter[str]:
    return Counter(key for file in notes.iterdir() for key in file.read_text().split())


def keys(path: Path) -> list[str]:
    return [json.loads(line)["key"] for line in path.read_text("utf-8").splitlines()]


def test_a_killed_worker_costs_no_trial_and_doubles_none(cluster: None, tmp_path: Path, notes: Path) -> None:
    trials, path = make_trials(12 * BATCH), tmp_path / "scores.jsonl"
    finished: set[str] = set()
    killed: list[int] = []

    def kill_one(done: int, trials: int, passes: int) -> None:
        if done >= 4 * BATCH and not killed:
            victim = max(notes.iterdir(), key=lambda file: file.stat().st_mtime)
            finished.update(keys(path))
            killed.append(int(victim.name))
            os.kill(killed[0], signal.SIGKILL)

    found = score_trials_on_ray(partial(Noting, str(notes), 0.2), trials, path, workers=2, progress=kill_one)
    assert killed and len(list(notes.iterdir())) >= 3, "nobody took the dead worker's place"
    assert sorted(keys(path)) == sorted({trial.key for trial in trials})
    times = scored(notes)
    assert finished and all(times[key] == 1 for key in finished)
    assert found == score_trials(FixedScorer(probability, identity="noting"), trials, tmp_path / "local.jsonl")


def test_what_one_engine_began_the_other_finishes(cluster: None, tmp_path: Path, notes: Path) -> None:
    trials, path = make_trials(3 * BATCH), tmp_path / "scores.jsonl"

    def stop(done: int, trials: int, passes: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_trials(Noting(str(notes), 0.0), trials, path, progress=stop)
    told: list[tuple[int, int, int]] = []
    make = partial(Noting, str(notes), 0.0)
    found = score_trials_on_ray(make, trials, path, workers=1, progress=lambda *now: told.append(now))
    assert told[0] == (BATCH, 3 * BATCH, 0) and told[-1] == (3 * BATCH, 3 * BATCH, 2 * BATCH * 3)
    assert set(scored(notes).values()) == {1}
    assert [outcome.name for outcome in found] == [trial.name for trial in trials]
    again = score_trials_on_ray(make, trials, path, workers=1)
    assert again == found and set(scored(notes).values()) == {1}


class Count:
    """How often its item was scored, as an experiment."""

    name, title = "count", "Count"

    def trials(self, items: Sequence[SliceItem], layout: Layout) -> list[Trial]:
        assert layout == "set"
        return make_trials(len(items))

    def analyse(self, outcomes: Sequence[ScoredTrial]) -> Analysis:
        return Analysis({"q": [outcome.q.tolist() for outcome in outcomes]}, ["Done."], [])


def test_an_experiment_runs_on_the_cluster_as_it_runs_here(cluster: None, tmp_path: Path) -> None:
    from dataclasses import dataclass

    experiment = dataclass(Count)()

    def make() -> FixedScorer:
        return FixedScorer(probability, layout="set", identity="elsewhere")

    items = load_sample()[:6]
    with RayEngine(make, workers=2, gpus=False) as engine:
        assert (engine.identity, engine.layout) == ("elsewhere", "set")
        there = run_experiment(experiment, engine, items, tmp_path / "ray")
    here = run_experiment(experiment, make(), items, tmp_path / "local")
    on_ray, local = (json.loads((folder / "result.json").read_text("utf-8")) for folder in (there, here))
    assert on_ray["figures"] == local["figures"] and on_ray["config_sha256"] == local["config_sha256"]


class Broken(FixedScorer):
    def score(self, requests: Any) -> Any:
        raise ScorerError("power cut")


def test_a_worker_that_fails_gives_the_error_of_the_local_engine(cluster: None, tmp_path: Path) -> None:
    with pytest.raises(ScorerError, match="power cut"):
        score_trials_on_ray(partial(Broken, [0.5]), make_trials(2), tmp_path / "scores.jsonl", workers=1)


def test_workers_with_different_scorers_and_small_clusters_are_refused(cluster: None, tmp_path: Path) -> None:
    def own() -> FixedScorer:
        return FixedScorer([0.5], identity=f"device of {os.getpid()}")

    with pytest.raises(ClusterError, match="different scorers"):
        score_trials_on_ray(own, make_trials(4 * BATCH), tmp_path / "scores.jsonl", workers=2)
    with pytest.raises(ConfigurationError, match="3 workers need a CPU each; the cluster has 2"):
        score_trials_on_ray(own, make_trials(1), tmp_path / "scores.jsonl", workers=3)


@pytest.fixture
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_model_gives_the_same_bits_on_two_workers(cluster: None, tmp_path: Path, one_thread: None) -> None:
    """A tiny one; the embedded one does on the same workers in `server/tests/test_cluster.py`."""
    from tests.scorers import tiny

    from isr_rag.scorers.transformers import TransformersScorer

    tokenizer = tiny.tokenizer("chatml")
    for one in (tokenizer, tiny.model("llama", len(tokenizer))):
        one.save_pretrained(tmp_path / "model")
    trials, make = make_trials(2 * BATCH, m=2, chunks=2), partial(TransformersScorer, tmp_path / "model", device="cpu")
    on_ray = score_trials_on_ray(make, trials, tmp_path / "ray.jsonl", workers=2, gpus=False)
    assert on_ray == score_trials(make(), trials, tmp_path / "local.jsonl")
    assert len({outcome.log_odds for outcome in on_ray}) == 2 * BATCH
