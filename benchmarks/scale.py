"""Throughput of the engine ray against its number of workers, as ratios within one run.

    python benchmarks/scale.py --workers 1 2 4 --items 1600 --json scale.json --plot scale.png
    python benchmarks/scale.py --scorer embedded --workers 1 2 --items 320

`waiting` stands for workers that have a device or a server of their own: each batch takes a fixed time and no CPU,
so that what is measured is what the engine itself lets through. `embedded` computes on the CPU, one thread a
worker, and cannot gain more than the machine has free cores. A run counts from the batch on by which every
worker has had one: starting workers and loading models is left out, and reported apart.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import ray
from measuring import COLOURS, MARKERS, machine
from tasks import make_gate, write_items

from isr_rag._util.files import write_json
from isr_rag.io import check_file
from isr_rag.io.items import BATCH
from isr_rag_server.cluster import check_file_on_ray


def main() -> None:
    """Run, print, write, plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scorer", choices=("waiting", "embedded"), default="waiting")
    parser.add_argument("--seconds", type=float, default=0.5, help="what a batch takes with --scorer waiting")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--items", type=int, default=1600)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112  # what else runs on the machine must not end workers
    ray.init(
        address="local",
        num_cpus=max(given.workers),
        object_store_memory=128 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        source = write_items(Path(folder) / "in.jsonl", given.items)
        gate = partial(make_gate, given.scorer, given.seconds)
        for repeat in range(given.repeats):
            for workers in given.workers:
                runs.append({"workers": workers, **timed(gate, source, Path(folder) / f"{repeat}-{workers}", workers)})
                print(runs[-1])
    ray.shutdown()
    ratios = ratio_by_workers(runs)
    print({workers: round(ratio, 2) for workers, ratio in ratios.items()}, "times the throughput of one worker")
    overhead = without_model()
    print(f"everything but the model: {overhead:.0f} decisions a CPU second in one process")
    if given.json:
        settings = {"scorer": given.scorer, "seconds_a_batch": given.seconds, "items": given.items, "batch": BATCH}
        content = {"settings": settings, "ratios": ratios, "runs": runs, "decisions_a_cpu_second": overhead}
        write_json(given.json, {**content, "machine": machine()})
    if given.plot:
        plot(given.plot, ratios, f"{given.scorer} scorer")


def timed(gate: Any, source: Path, target: Path, workers: int) -> dict[str, float]:
    """Decisions a second of one run once every worker has had a batch, and the seconds until then."""
    begun, marks = time.perf_counter(), []

    def mark(done: int, items: int) -> None:
        if done:
            marks.append((time.perf_counter() - begun, done))

    check_file_on_ray(gate, source, target, workers=workers, progress=mark)
    (start, before), (end, done) = marks[workers - 1], marks[-1]  # every worker has had its first batch
    return {"decisions_a_second": (done - before) / (end - start), "seconds_to_start": start}


def ratio_by_workers(runs: list[dict[str, Any]]) -> dict[int, float]:
    """Median throughput by number of workers, over that of the fewest for each worker."""
    by: dict[int, list[float]] = {}
    for run in runs:
        by.setdefault(run["workers"], []).append(run["decisions_a_second"])
    fewest = min(by)
    unit = statistics.median(by[fewest]) / fewest
    return {workers: statistics.median(found) / unit for workers, found in sorted(by.items())}


def without_model(items: int = 1600) -> float:
    """Decisions a CPU second of the local engine around a scorer that costs nothing."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = write_items(Path(folder) / "in.jsonl", items), Path(folder) / "out.jsonl"
        gate = make_gate("waiting")
        begun = time.process_time()
        check_file(gate, source, target)
        return items / (time.process_time() - begun)


def plot(path: Path, ratios: dict[int, float], title: str) -> None:
    """Throughput against workers, beside what would be ideal."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    workers = list(ratios)
    axes.plot(workers, workers, color=COLOURS[-1], linestyle="--", label="as many times as workers")
    axes.plot(workers, list(ratios.values()), color=COLOURS[0], marker=MARKERS[0], label="measured")
    axes.set(title=title, xlabel="workers", ylabel="throughput over that of one worker", xticks=workers)
    axes.set(xlim=(0, None), ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
