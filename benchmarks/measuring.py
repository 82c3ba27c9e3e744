"""What the benchmarks share: real text in chunks of a size, interleaved timing, the machine, files and plots."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from isr_lab.plots import COLOURS, MARKERS
from isr_rag.scorers.machine import usable_cores


def real_chunks(tokenizer: Any, size: int, count: int, start: int = 0) -> list[str]:
    """Chunks of about `size` tokens of the texts that come with the package, from chunk `start` on."""
    lines = files("isr_lab").joinpath("data/slice_sample.jsonl").read_text("utf-8").splitlines()
    texts = dict.fromkeys(chunk["text"] for line in lines for chunk in json.loads(line)["chunks"])
    stream = tokenizer.encode(" ".join(texts), add_special_tokens=False)
    room = len(stream) // size
    picked = [(start + i) % room * size for i in range(count)]
    return [" ".join(tokenizer.decode(stream[at : at + size]).split()) for at in picked]


def interleaved(contestants: Mapping[str, Callable[[int], Any]], items: int, warm_up: bool = True) -> dict[str, Any]:
    """Time every contestant on every item in turn, so that all meet the same conditions.

    Returns:
        name -> `seconds` (median over items), `each` (seconds of each item), `last` (last result).
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    results: dict[str, list[Any]] = {name: [] for name in contestants}
    if warm_up:
        for run in contestants.values():
            run(0)
    for item in range(items):
        for name, run in contestants.items():
            begun = time.perf_counter()
            result = run(item)
            seconds[name].append(time.perf_counter() - begun)
            results[name].append(result)
    return {
        name: {"seconds": statistics.median(seconds[name]), "each": seconds[name], "results": results[name]}
        for name in contestants
    }


def matmul_ceiling(dtype: torch.dtype, precision: str, size: int = 1536, seconds: float = 1.0) -> float:
    """Best FLOP/s of a square matrix product within about `seconds`."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
        best, end = 0.0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            begun = time.perf_counter()
            a @ b
            best = max(best, 2 * size**3 / (time.perf_counter() - begun))
        return best
    finally:
        torch.set_float32_matmul_precision(before)


def linear_flop_per_token(model: Any) -> float:
    """Floating-point operations of the linear layers for one token that is not a label row.

    The head is left out, and so is what the last layer computes for label rows alone: all but queries, keys and values.
    """
    layers = model.model.layers
    every = sum(m.weight.numel() for m in layers.modules() if isinstance(m, torch.nn.Linear))
    last = layers[-1]
    spared = (last.self_attn.o_proj, last.mlp.gate_proj, last.mlp.up_proj, last.mlp.down_proj)
    return 2.0 * (every - sum(m.weight.numel() for m in spared))


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    packages = {name: version(name) for name in ("torch", "transformers", "numpy", "isr-rag")}
    return {
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **packages,
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def plot_lines(
    path: Path,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x: str,
    y: str,
    log: bool = False,
    even: float | None = None,
) -> None:
    """One line a series, told apart by colour and marker; `even` draws a horizontal line."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for i, (name, points) in enumerate(series.items()):
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.plot(*zip(*sorted(points), strict=True), label=name, **style)
    if even is not None:
        axes.axhline(even, color=COLOURS[-1], linewidth=1, linestyle="--")
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
