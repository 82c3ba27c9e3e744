"""The same run on a Ray cluster: one replica of the gate a worker, one journal, the same bits.

The driver knows which batches are to do, Ray Data hands them to a pool of actors, and the driver alone writes what
comes back into the journal. So nothing is written twice, and what is in the journal is never decided again, whichever
process dies: Ray restarts a dead worker and gives its batches to the pool once more, and a dead driver's journal is
continued by the next run. Workers compute on one thread each, in the same batches as the local engine.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isr_rag.audit.journal import encode
from isr_rag.audit.lines import Extent
from isr_rag.audit.reading import open_items
from isr_rag.audit.run import Progress, Run, Summary, decide_lines
from isr_rag.errors import ConfigurationError, ISRError, MissingDependencyError
from isr_rag.gate import ISRGate

MakeGate = Callable[[], ISRGate]
"""Makes a gate; it is pickled, and called once in every worker."""

RETRIES = 3
"""How often batches are tried again whose worker died; workers themselves are restarted without limit."""

TASKS = 10_000
"""Ray tasks of one run at most: a larger file puts several batches into a task."""

OBJECT_STORE = 128 * 2**20
"""Bytes of the object store of a cluster started here: only decisions pass through it."""

_QUEUED = 2
"""Tasks given to a worker at a time, so that the next is there when one is done."""


class ClusterError(ISRError, RuntimeError):
    """Ray could not finish the run; what is done is kept."""


def check_file_on_ray(
    make_gate: MakeGate,
    source: Path,
    target: Path,
    *,
    workers: int | None = None,
    gpus: bool = True,
    progress: Progress = lambda done, items: None,
) -> Summary:
    """As :func:`~isr_rag.audit.check_file`, on Ray: the same files, and the same bits where the gate computes in fp32.

    Ray is used as it is where the process has joined a cluster already, else the cluster that ``RAY_ADDRESS`` names
    (``auto``: the one of this machine) is joined, else a local one is started for the time of the run. The input must
    lie where every worker can read it under the same path; only this process writes.

    Args:
        make_gate: makes a worker's gate; all must have the same ``repr``.
        source: the input, JSONL or Parquet.
        target: the output, likewise; replaced when everything is decided.
        workers: replicas of the gate, one CPU each; by default one for each GPU that is to be used, else for each CPU.
        gpus: give each worker a GPU where the cluster has them, or an equal share when there are more workers. Say
            False for a gate that needs none.
        progress: told how many items are done, of how many.

    Raises:
        InvalidInputError: if there is no input file, or a Parquet file has other columns.
        ConfigurationError: if the cluster is too small for the workers.
        MissingDependencyError: if Ray or pyarrow is not installed.
        ClusterError: if workers make different gates, or Ray gives up; what is done is kept.
        ISRError: if the scorer or a reference fails and the gate's policy is to raise; what is done is kept.
    """
    ray = _ray()
    open_items(source)  # what is wrong with the input is said before a cluster is started
    with _cluster(ray, workers), _as_isr_error(ray, target):
        size, share = _pool(ray.cluster_resources(), workers, gpus)
        describe = ray.remote(num_cpus=1, num_gpus=share)(_describe)
        gate: str = ray.get(describe.remote(make_gate))
        with Run(source, target, gate, progress) as run:
            if tasks := list(_tasks(list(run.to_do()))):
                arguments = (make_gate, gate, str(source.resolve()))
                for table in _decided(ray, tasks, arguments, size, share):
                    for batch, records in zip(table["batch"].to_pylist(), table["records"].to_pylist(), strict=True):
                        run.keep(batch, records)
            return run.finish()


class Worker:
    """One replica of the gate, as Ray Data calls it."""

    def __init__(self, make_gate: MakeGate, expected: str, source: str) -> None:
        self.gate = _on_one_thread(make_gate)
        if repr(self.gate) != expected:
            raise ConfigurationError(
                f"workers make different gates, so that their decisions would not belong together: one {expected}, "
                f"another {self.gate!r}. Give all the same device, weights and settings"
            )
        self.reader = open_items(Path(source))

    def __call__(self, task: Any) -> Any:
        """Decide the batches of one task: a table with a row of extents in, a row a batch out."""
        import pyarrow as pa

        extents = [Extent(*numbers) for row in task["extents"].to_pylist() for numbers in row]
        records = [encode(decide_lines(self.gate, self.reader.read(extent))) for extent in extents]
        return pa.table({"batch": [extent.batch for extent in extents], "records": records})


def _describe(make_gate: MakeGate) -> str:
    """What the journal must be held against: said by a worker, since this process may lack its device."""
    return repr(_on_one_thread(make_gate))


def _on_one_thread(make_gate: MakeGate) -> ISRGate:
    """A gate whose sums are split among one thread: how they are split moves their last bits."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    gate = make_gate()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    return gate


def _tasks(to_do: list[Extent]) -> Iterator[dict[str, list[list[int]]]]:
    """Rows for Ray Data, one a task."""
    size = -(-len(to_do) // TASKS) or 1
    for start in range(0, len(to_do), size):
        chosen = to_do[start : start + size]
        yield {"extents": [[extent.batch, extent.start, extent.stop, extent.line] for extent in chosen]}


def _decided(
    ray: Any, tasks: list[dict[str, list[list[int]]]], arguments: tuple[Any, ...], size: int, share: float
) -> Iterator[Any]:
    """Tables of finished batches, as soon as they are there and in no order."""
    data = ray.data
    with _quiet(data), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ray names no other way to limit the retries
        dataset = data.from_items(tasks, override_num_blocks=len(tasks)).map_batches(
            Worker,
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


def _pool(resources: dict[str, float], workers: int | None, gpus: bool) -> tuple[int, float]:
    """Number of workers, and what each gets of a GPU.

    Raises:
        ConfigurationError: if there is not one CPU for each worker, or not one worker.
    """
    cpus, cards = int(resources.get("CPU", 0)), int(resources.get("GPU", 0)) if gpus else 0
    size = workers if workers is not None else cards or cpus
    if not 1 <= size <= cpus:
        raise ConfigurationError(f"{size} workers need a CPU each; the cluster has {cpus}")
    return size, min(1.0, cards / size)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import pyarrow  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import ray
        import ray.data  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise MissingDependencyError("the engine ray", error.name or "ray", "ray") from error
    return ray


@contextmanager
def _cluster(ray: Any, workers: int | None) -> Generator[None]:
    """The cluster that is there, or a local one for the time of the run."""
    if ray.is_initialized():
        yield
        return
    if "RAY_ADDRESS" in os.environ:
        ray.init(log_to_driver=False, logging_level="warning")
    else:
        ray.init(
            address="local",
            num_cpus=workers or os.cpu_count(),
            object_store_memory=OBJECT_STORE,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="warning",
        )
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _quiet(data: Any) -> Generator[None]:
    """Ray Data without its progress bars and notes, and with errors as the gate raised them."""
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


@contextmanager
def _as_isr_error(ray: Any, target: Path) -> Generator[None]:
    """What a worker raised, as the local engine would; what Ray raised, as ClusterError."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, ISRError):
            raise cause from error
        raise ClusterError(
            f"Ray gave up: {error}\nWhat is done is kept in {target}.part; the same command goes on from there"
        ) from error
