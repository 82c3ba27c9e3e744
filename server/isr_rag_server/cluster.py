"""Decide about a file on a Ray cluster: one gate per worker, and the same files and numbers as in one process.

The driver alone reads the input and writes what comes back, so no batch is written twice and none that is in the
journal is decided again, whichever process dies.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from isr_rag.errors import ConfigurationError, ISRError, MissingDependencyError
from isr_rag.gate import ISRGate
from isr_rag.io.items import Items, RawLine
from isr_rag.io.journal import Record
from isr_rag.io.run import Batches, Finished, ItemProgress, Summary, decide_lines, run
from isr_rag.scorers.adjudicators import BASELINES, NAMES
from isr_rag.scorers.machine import usable_cores

Value = TypeVar("Value")
MakeGate = Callable[[], ISRGate]
"""Makes a gate; it is pickled, and called once in every worker."""

RETRIES = 3
"""How often a task is retried if its worker died; workers are restarted without limit."""
_OBJECT_STORE = 128 * 2**20  # bytes of a local cluster: only lines and decisions pass through it


class ClusterError(ISRError, RuntimeError):
    """Ray could not finish the run; what is done is kept."""


def check_file_on_ray(
    make_gate: MakeGate,
    source: Path,
    target: Path,
    *,
    workers: int | None = None,
    gpus: bool = True,
    progress: ItemProgress = lambda done, items: None,
    force: bool = False,
) -> Summary:
    """Decide about every item of a file as `isr_rag.io.check_file` does, on Ray; each can resume a run of the other.

    The cluster is the one that this process has joined, else the one that `RAY_ADDRESS` names (`auto`: the one on this
    machine), else a local one for the time of the run.

    Args:
        make_gate: makes a worker's gate; all must have the same `repr`.
        source, target, progress, force: as for `check_file`.
        workers: number of gates, one CPU each; by default one for each GPU that is used, else for each CPU.
        gpus: give each worker a GPU if the cluster has them, or an equal share if there are more workers.

    Raises:
        ConfigurationError: if the cluster has fewer CPUs than workers.
        MissingDependencyError: if Ray is not installed.
        ClusterError: if workers make different gates, or Ray gives up; what is done is kept.
        ISRError: as for `check_file`.
    """
    items = Items(source)  # a bad input is reported before a cluster is started
    with started(workers, gpus) as (size, share), as_isr_error(f"{target}.part"):
        pool = Pool(Worker, make_gate, size, share)
        settings: str = pool.describe()

        def work(batches: Batches) -> Finished:
            for gate, number, records in pool.map(batches):
                if gate != settings:
                    raise ClusterError(f"workers make different gates: one {settings}, another {gate}")
                yield number, records

        return run(items, target, settings, work, progress=progress, force=force)


class Worker:
    """A gate in a process of its own."""

    def __init__(self, make_gate: MakeGate) -> None:
        self._gate = on_one_thread(make_gate)

    def describe(self) -> str:
        """What the decisions depend on; the driver may lack a worker's device."""
        return repr(self._gate)

    def work(self, task: tuple[int, list[RawLine]]) -> tuple[str, int, list[Record]]:
        """Decide about one batch."""
        return self.describe(), task[0], decide_lines(self._gate, *task)


class Pool:
    """Workers on Ray, made as `worker(make)`, each with a `share` of a GPU; one that dies is restarted."""

    def __init__(self, worker: type[Any], make: Callable[[], Any], size: int, share: float) -> None:
        options = {"num_cpus": 1, "num_gpus": share, "max_restarts": -1, "max_task_retries": RETRIES}
        remote = load_ray().remote(**options)(worker)
        self._actors = [remote.remote(make) for _ in range(size)]

    def describe(self) -> Any:
        """What the first worker says of itself."""
        return load_ray().get(self._actors[0].describe.remote())

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """The results of `work` for each task, in the order in which they are finished."""
        from ray.util import ActorPool

        pool: Any = ActorPool(self._actors)
        for task in tasks:
            if not pool.has_free():
                yield pool.get_next_unordered()
            pool.submit(lambda actor, value: actor.work.remote(value), task)
        while pool.has_next():
            yield pool.get_next_unordered()


def load_ray() -> Any:
    """The module ray, without usage reports; a MissingDependencyError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError("a Ray cluster", error.name or "ray", "ray", "isr-rag-server") from error
    return ray


@contextmanager
def started(workers: int | None, gpus: bool) -> Generator[tuple[int, float]]:
    """The cluster that exists, or a local one while the context lasts; gives what `shares` returns."""
    ray = load_ray()
    local = {"address": "local", "num_cpus": workers or usable_cores(), "include_dashboard": False}
    settings = {} if "RAY_ADDRESS" in os.environ else {**local, "object_store_memory": _OBJECT_STORE}
    silent = {"log_to_driver": False, "logging_level": "warning"}
    with nullcontext() if ray.is_initialized() else ray.init(**silent, **settings):
        yield shares(ray.cluster_resources(), workers, gpus)


def shares(resources: dict[str, float], workers: int | None, gpus: bool) -> tuple[int, float]:
    """Number of workers and each one's share of a GPU; a ConfigurationError if there are fewer CPUs than workers."""
    cpus, cards = int(resources.get("CPU", 0)), int(resources.get("GPU", 0)) if gpus else 0
    size = workers if workers is not None else cards or cpus
    if not 1 <= size <= cpus:
        raise ConfigurationError(f"{size} workers need a CPU each; the cluster has {cpus}")
    return size, min(1.0, cards / size)


def on_gpus(
    *,
    model: str | None = None,
    server: str | None = None,
    decisions: str | None = None,
    cross_encoder: str | None = None,
    device: str = "auto",
    **_: object,
) -> bool:
    """Whether what `isr_rag.scorers.load.load_scorer` loads by these is computed on a GPU, where there is one."""
    if server is not None or decisions is not None or (model in BASELINES and cross_encoder is None):
        return False
    return device != "cpu" if device != "auto" else cross_encoder is not None or model not in (None, *NAMES)


def on_one_thread(make: Callable[[], Value]) -> Value:
    """Make a gate or scorer that computes on one thread: the number of threads can change the last bits of a sum."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    made = make()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    return made


@contextmanager
def as_isr_error(kept: object) -> Generator[None]:
    """Raise a worker's error as it is, and Ray's own errors as ClusterError; `kept` is the file of what is done."""
    ray = load_ray()
    try:
        yield
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, ISRError):
            raise cause from error
        raise ClusterError(
            f"Ray gave up: {error}\nWhat is done is kept in {kept}; the same command goes on from there"
        ) from error
