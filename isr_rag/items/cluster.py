"""The same run on a Ray cluster: one replica of the gate per worker, one journal, the same bits.

The driver knows which batches are to do, Ray Data hands them to a pool of actors, and the driver alone writes what
comes back into the journal. So nothing is written twice, and what is in the journal is never decided again, whichever
process dies: Ray restarts a dead worker and gives its batches to the pool once more, and a dead driver's journal is
continued by the next run. Workers compute on one thread each, in the same batches as the local engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from isr_rag.errors import ConfigurationError
from isr_rag.gate import ISRGate
from isr_rag.items.actors import as_isr_error, cluster, load_ray, on_one_thread, pool, tables
from isr_rag.items.journal import encode
from isr_rag.items.lines import Extent
from isr_rag.items.reading import open_items
from isr_rag.items.run import ItemProgress, Run, Summary, decide_lines

MakeGate = Callable[[], ISRGate]
"""Makes a gate; it is pickled, and called once in every worker."""

TASKS = 10_000
"""Ray tasks of one run at most: a larger file puts several batches into a task."""


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
    """As `check_file`, on Ray: the same files, and the same bits where the gate computes in fp32.

    Ray is used as it is where the process has joined a cluster already, else the cluster that `RAY_ADDRESS` names
    (`auto`: the one of this machine) is joined, else a local one is started for the time of the run. The input must
    lie where every worker can read it under the same path; only this process writes.

    Args:
        make_gate: makes a worker's gate; all must have the same `repr`.
        source: the input, JSONL or Parquet.
        target: the output, likewise; replaced when everything is decided.
        workers: replicas of the gate, one CPU each; by default one for each GPU that is to be used, else for each CPU.
        gpus: give each worker a GPU where the cluster has them, or an equal share when there are more workers. Say
            False for a gate that needs none.
        progress: told how many items are done, of how many.
        force: replace a finished output, and drop what a run with another input or gate had begun.

    Raises:
        InvalidInputError: if there is no input file, or a Parquet file has other columns.
        OutputError: if the output is the input, is there already, or another process writes it.
        ConfigurationError: if the cluster is too small for the workers.
        MissingDependencyError: if Ray or pyarrow is not installed.
        ClusterError: if workers make different gates, or Ray gives up; what is done is kept.
        ISRError: if the scorer or a reference fails and the gate's policy is to raise; what is done is kept.
    """
    ray = load_ray()
    open_items(source)  # what is wrong with the input is said before a cluster is started
    with cluster(ray, workers), as_isr_error(ray, f"{target}.part"):
        size, share = pool(ray.cluster_resources(), workers, gpus)
        describe = ray.remote(num_cpus=1, num_gpus=share)(_describe)
        gate: str = ray.get(describe.remote(make_gate))
        with Run(source, target, gate, progress, force=force) as run:
            if tasks := list(_tasks(list(run.to_do()))):
                arguments = (make_gate, gate, str(source.resolve()))
                for table in tables(ray, Worker, arguments, tasks, size, share):
                    for batch, records in zip(table["batch"].to_pylist(), table["records"].to_pylist(), strict=True):
                        run.keep(batch, records)
            return run.finish()


class Worker:
    """One replica of the gate, as Ray Data calls it."""

    def __init__(self, make_gate: MakeGate, expected: str, source: str) -> None:
        self.gate = on_one_thread(make_gate)
        if repr(self.gate) != expected:
            raise ConfigurationError(
                f"workers make different gates, whose decisions would not belong together: one {expected}, "
                f"another {self.gate!r}. Give all the same device, weights and settings"
            )
        self.reader = open_items(Path(source))

    def __call__(self, task: Any) -> Any:
        """Decide the batches of one task: a table with a row of extents in, one row per batch out."""
        import pyarrow as pa

        extents = [Extent(*numbers) for row in task["extents"].to_pylist() for numbers in row]
        records = [encode(decide_lines(self.gate, self.reader.read(extent))) for extent in extents]
        return pa.table({"batch": [extent.batch for extent in extents], "records": records})


def _describe(make_gate: MakeGate) -> str:
    """What the journal must match, as a worker says it: this process may lack a worker's device."""
    return repr(on_one_thread(make_gate))


def _tasks(to_do: list[Extent]) -> Iterator[dict[str, list[list[int]]]]:
    """Rows for Ray Data, one per task."""
    size = -(-len(to_do) // TASKS) or 1
    for start in range(0, len(to_do), size):
        chosen = to_do[start : start + size]
        yield {"extents": [[extent.batch, extent.start, extent.stop, extent.line] for extent in chosen]}
