"""A pool of workers on Ray: the cluster, its size, and tasks in, tables out, even when workers die meanwhile."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from isr_rag.errors import ConfigurationError, ISRError, MissingDependencyError
from isr_rag.machine import usable_cores

Value = TypeVar("Value")

RETRIES = 3
"""How often a task is tried again whose worker died; workers themselves are restarted without limit."""

OBJECT_STORE = 128 * 2**20
"""Bytes of the object store of a cluster started here: only decisions and scores pass through it."""

_QUEUED = 2
"""Tasks given to a worker at a time: the next one is there when one is done."""


class ClusterError(ISRError, RuntimeError):
    """Ray could not finish the run; what is done is kept."""


def load_ray() -> Any:
    """Ray with its data library.

    Raises:
        MissingDependencyError: if Ray or pyarrow is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import pyarrow  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import ray
        import ray.data  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise MissingDependencyError("the engine ray", error.name or "ray", "ray") from error
    return ray


@contextmanager
def cluster(ray: Any, workers: int | None) -> Generator[None]:
    """The cluster that is there, or a local one for the time of the run."""
    if ray.is_initialized():
        yield
        return
    if "RAY_ADDRESS" in os.environ:
        ray.init(log_to_driver=False, logging_level="warning")
    else:
        ray.init(
            address="local",
            num_cpus=workers or usable_cores(),
            object_store_memory=OBJECT_STORE,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="warning",
        )
    try:
        yield
    finally:
        ray.shutdown()


def pool(resources: dict[str, float], workers: int | None, gpus: bool) -> tuple[int, float]:
    """Number of workers, and what each gets of a GPU.

    Raises:
        ConfigurationError: if there is not one CPU for each worker, or not one worker.
    """
    cpus, cards = int(resources.get("CPU", 0)), int(resources.get("GPU", 0)) if gpus else 0
    size = workers if workers is not None else cards or cpus
    if not 1 <= size <= cpus:
        raise ConfigurationError(f"{size} workers need a CPU each; the cluster has {cpus}")
    return size, min(1.0, cards / size)


def on_one_thread(make: Callable[[], Value]) -> Value:
    """What a worker computes with, its sums kept on one thread: how they are split moves their last bits."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    made = make()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    return made


def tables(
    ray: Any, worker: type[Any], arguments: tuple[Any, ...], tasks: Sequence[Any], size: int, share: float
) -> Iterator[Any]:
    """What the workers return for each task, as soon as it is there and in no order.

    Args:
        ray: as `load_ray` gives it.
        worker: class of the workers; called with a table of one row, a task, and returns a table.
        arguments: of its constructor.
        tasks: rows, one per task.
        size: number of workers.
        share: what each gets of a GPU.
    """
    data = ray.data
    with _quiet(data), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ray names no other way to limit the retries
        dataset = data.from_items(list(tasks), override_num_blocks=len(tasks)).map_batches(
            worker,
            fn_constructor_args=arguments,
            batch_size=1,
            batch_format="pyarrow",
            compute=data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=_QUEUED),
            num_cpus=1,
            num_gpus=share,
            max_restarts=-1,
            max_task_retries=RETRIES,
        )
        yield from dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)


@contextmanager
def as_isr_error(ray: Any, kept: object) -> Generator[None]:
    """What a worker raised, as the local engine would; what Ray raised, as ClusterError.

    Args:
        ray: as `load_ray` gives it.
        kept: the file that keeps what is done.
    """
    try:
        yield
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, ISRError):
            raise cause from error
        raise ClusterError(
            f"Ray gave up: {error}\nWhat is done is kept in {kept}; the same command goes on from there"
        ) from error


@contextmanager
def _quiet(data: Any) -> Generator[None]:
    """Ray Data without its progress bars and notes, and with errors as the worker raised them."""
    context = data.DataContext.get_current()
    wanted = {"enable_progress_bars": False, "print_on_execution_start": False, "raise_original_map_exception": True}
    before = {name: getattr(context, name) for name in wanted}
    for name, value in wanted.items():
        setattr(context, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)
