"""Memory over thousands of decisions: resident set size while a file is decided, which must end flat.

    python benchmarks/soak.py --items 4000 --json soak.json --plot soak.png
    python benchmarks/soak.py --items 4000 --engine ray --workers 2

Every item is another one. `tiny` is a small untrained model behind the scorer, tokenizer and gate of a real one, so
that thousands of decisions take minutes; `embedded` takes half an hour of a core. With the engine ray the sizes of
the driver and of the largest worker are counted apart.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from measuring import COLOURS, MARKERS, machine
from tasks import make_gate, write_items

from isr_rag._util.files import write_json
from isr_rag.io import check_file, check_file_on_ray


def main() -> None:
    """Run, print, write, plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--scorer", choices=("embedded", "tiny", "waiting"), default="tiny")
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    series = run(given)
    names = sorted({name for point in series for name in point["megabytes"]})
    growth = {name: late_growth(series, name) for name in names}
    for name, slope in growth.items():
        print(f"{name}: {series[-1]['megabytes'].get(name, 0):.0f} MB at the end, {slope:+.1f} MB per 1,000 decisions")
    settings = {"items": given.items, "scorer": given.scorer, "engine": given.engine}
    if given.json:
        content = {"settings": settings, "late_growth_mb_per_1000": growth, "series": series}
        write_json(given.json, {**content, "machine": machine()})
    if given.plot:
        plot(given.plot, series, names, f"{given.scorer} scorer, engine {given.engine}")


def run(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Decide a file of items, noting the sizes on the way."""
    begun, series = time.perf_counter(), []

    def note(done: int, items: int) -> None:
        if done - (series[-1]["decisions"] if series else -100) >= 64 or done == items:
            series.append({"decisions": done, "seconds": time.perf_counter() - begun, "megabytes": sizes()})

    with tempfile.TemporaryDirectory() as folder:
        source, target = write_items(Path(folder) / "in.jsonl", given.items), Path(folder) / "out.jsonl"
        gate = partial(make_gate, given.scorer)
        if given.engine == "ray":
            check_file_on_ray(gate, source, target, workers=given.workers, progress=note)
        else:
            check_file(gate(), source, target, progress=note)
        decided = sum(1 for line in target.read_text("utf-8").splitlines() if json.loads(line)["decision"])
    assert decided == given.items
    return series


def sizes() -> dict[str, float]:
    """Resident megabytes of this process, and of the largest worker of a cluster started by it."""
    own = psutil.Process()
    found = {"this process": own.memory_info().rss / 2**20}
    workers = [size for child in own.children(recursive=True) if (size := _worker_size(child)) is not None]
    return {**found, "largest worker": max(workers)} if workers else found


def _worker_size(process: psutil.Process) -> float | None:
    try:
        named = " ".join(process.cmdline())
        return process.memory_info().rss / 2**20 if named.startswith("ray::") else None
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def late_growth(series: list[dict[str, Any]], name: str) -> float:
    """Slope over the second half, in megabytes per 1,000 decisions."""
    points = [(point["decisions"], point["megabytes"][name]) for point in series if name in point["megabytes"]]
    half = [(x, y) for x, y in points if x >= points[-1][0] / 2]
    return float(1000 * np.polyfit(*map(np.array, zip(*half, strict=True)), 1)[0]) if len(half) > 1 else 0.0


def plot(path: Path, series: list[dict[str, Any]], names: list[str], title: str) -> None:
    """Sizes against decisions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for i, name in enumerate(names):
        points = [(point["decisions"], point["megabytes"][name]) for point in series if name in point["megabytes"]]
        axes.plot(*zip(*points, strict=True), color=COLOURS[i], marker=MARKERS[i], markersize=3, label=name)
    axes.set(title=title, xlabel="decisions", ylabel="resident memory, MB", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
