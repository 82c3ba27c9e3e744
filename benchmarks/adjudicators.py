"""Seconds per decision of the adjudicator: chunks read for the first time, and chunks whose states are kept.

    taskset -c 2,3 python benchmarks/adjudicators.py --json adjudicators.json

One process per precision and number of threads, so that memory is that of one model. An item is a claim
and four chunks of 120 words. `ceiling` is the best of square matrix products in the same process, and `share` what
the linear layers reach of it while chunks are read for the first time (attention and all else counted as their time).
Both are of processor time, which other work on the machine changes less than wall time: with T threads on free cores
a decision takes a T-th of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from isr_rag._util.files import write_json

CHUNKS, WORDS = 4, 120


def measure(adapter: Path | None, items: int, precision: str) -> dict[str, Any]:
    """Figures of the adjudicator in this process."""
    import psutil
    import torch

    from isr_lab.slice.sample import load_sample
    from isr_rag import Chunk, Supported
    from isr_rag.core.scorer import ScoreRequest
    from isr_rag.scorers import embedded
    from isr_rag.scorers.local import lean

    if precision == "float32":
        lean.computes_bfloat16 = lambda: False
    begun = time.perf_counter()
    scorer = embedded.embedded_scorer(adapter)
    loading = time.perf_counter() - begun
    loaded = psutil.Process().memory_info().rss
    words = " ".join(chunk.text for item in load_sample() for chunk in item.chunks).split()
    seconds: dict[str, list[float]] = {"first": [], "known": []}
    processor: dict[str, list[float]] = {"first": [], "known": []}
    rates: list[float] = []
    dtype = scorer.engine.network.dtype
    sizes = json.loads((embedded.model_directory() / "config.json").read_text("utf-8"))
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    query = 2 * sizes["head_dim"] * sizes["num_key_value_heads"] + hidden  # queries are as wide as the residual stream
    per_token = 2.0 * (sizes["num_hidden_layers"] * (query * hidden + hidden * hidden + 3 * hidden * inner))
    spared = 2.0 * (hidden * hidden + 3 * hidden * inner)  # of the last layer, but for the labels' tokens
    for item in range(items + 1):
        at = item * CHUNKS * WORDS
        texts = [Chunk(" ".join(words[at + i * WORDS : at + (i + 1) * WORDS])) for i in range(CHUNKS)]
        order = (tuple(range(CHUNKS)),)
        for kind, claim in (("first", "This was known in the year 1901."), ("known", "Nobody has written about it.")):
            prompt = Supported(claim=claim).render(texts, topic_first=False)
            before, begun, worked = scorer.engine.computed_tokens, time.perf_counter(), time.process_time()
            scorer.score([ScoreRequest(prompt, order)])
            spent, worked = time.perf_counter() - begun, time.process_time() - worked
            if item == 0:  # warm up
                continue
            seconds[kind].append(spent)
            processor[kind].append(worked)
            if kind == "first":
                done = (scorer.engine.computed_tokens - before) * (per_token - spared)
                rates.append(done / min(spent, worked / torch.get_num_threads()))
    tokens = len(scorer.encoder.encode(prompt).chunks[0])
    assert scorer.states is not None
    return {
        "precision": str(dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "tokens_of_a_chunk": tokens,
        "loading_seconds": loading,
        "first_seconds": statistics.median(seconds["first"]),
        "known_seconds": statistics.median(seconds["known"]),
        "first_processor_seconds": min(processor["first"]),
        "known_processor_seconds": min(processor["known"]),
        "linear_gflops": max(rates) / 1e9,
        "ceiling_gflops": (ceiling := _ceiling(dtype)) / 1e9,
        "share": max(rates) / ceiling,
        "loaded_gb": loaded / 1e9,
        "peak_gb": _peak() / 1e9,
        "state_bytes_per_token": scorer.engine.network.state_bytes_per_token,
        "identity": scorer.identity,
    }


def _ceiling(dtype: Any, size: int = 1536, seconds: float = 2.0) -> float:
    """Best FLOP/s of a square matrix product: of processor time, as other work may be present."""
    import torch

    torch.set_float32_matmul_precision("medium")
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun, worked = time.perf_counter(), time.process_time()
        a @ b
        spent = min(time.perf_counter() - begun, (time.process_time() - worked) / torch.get_num_threads())
        best = max(best, 2 * size**3 / spent)
    return best


def _peak() -> int:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--adapter", type=Path, help="Another adapter, before it is shipped.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(measure(given.adapter, given.items, given.one)))
        return
    rows: list[dict[str, Any]] = []
    for threads in given.threads:
        for precision in ("default", "float32"):
            command = [sys.executable, __file__, "--items", str(given.items), "--one", precision]
            command += ["--adapter", str(given.adapter)] if given.adapter else []
            waiting = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}  # or waiting counts as work
            environment = {**os.environ, **waiting, "OMP_NUM_THREADS": str(threads)}
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            rows.append(row := json.loads(done.stdout.splitlines()[-1]))
            print(
                f"{row['precision']}, {threads} threads: first {row['first_seconds']:.2f} s "
                f"(processor {row['first_processor_seconds']:.2f}), known {row['known_seconds']:.2f} s "
                f"(processor {row['known_processor_seconds']:.2f}), {row['linear_gflops']:.0f} of "
                f"{row['ceiling_gflops']:.0f} GFLOP/s ({row['share']:.0%}), {row['loaded_gb']:.2f} GB loaded, "
                f"peak {row['peak_gb']:.2f} GB, loaded in {row['loading_seconds']:.1f} s",
                flush=True,
            )
    if given.json:
        from measuring import machine

        write_json(given.json, {"rows": rows, "machine": machine()})


if __name__ == "__main__":
    main()
