"""Where the time of scoring six orderings goes, by kind of operation, and how close the products come to the ceiling.

python benchmarks/breakdown.py --chunks 20 --json breakdown.json
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import torch
from measuring import machine, matmul_ceiling
from scoring import Bench
from torch.profiler import ProfilerActivity, profile

from isr_rag._util.files import write_json

KINDS = {
    "aten::mm": "linear layers",
    "mkldnn::_linear_pointwise": "linear layers",
    "aten::bmm": "attention products",
    "aten::baddbmm": "attention products",
    "aten::_softmax": "softmax",
    "aten::index_select": "gathering keys and values",
    "aten::index": "gathering keys and values",
    "aten::index_copy_": "gathering keys and values",
    "aten::copy_": "copies",
    "aten::cat": "copies",
}


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    bench = Bench()
    report = {}
    for scorer in filter(None, (bench.precise, bench.bf16)):
        dtype = scorer.engine.network.dtype
        name = str(dtype).removeprefix("torch.")
        precision = "medium" if dtype == torch.float32 and scorer.engine.medium else "highest"
        ceiling = matmul_ceiling(dtype, precision)
        request = bench.request(48, given.chunks, 6, "banded", 0)
        scorer.score([request])  # kernels are made once
        before = scorer.engine.computed_tokens
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            scorer.score([request])
        seconds: defaultdict[str, float] = defaultdict(float)
        for event in profiler.key_averages():
            seconds[KINDS.get(event.key, "element-wise steps and the rest")] += event.self_cpu_time_total / 1e6
        total = sum(seconds.values())
        linear = (scorer.engine.computed_tokens - before) * bench.flop / seconds["linear layers"] / ceiling
        products = bench.attention_flop(request) / seconds["attention products"] / ceiling
        report[name] = {
            "seconds": total,
            "shares": {kind: part / total for kind, part in seconds.items()},
            "of_ceiling": {"linear layers": linear, "attention products that count": products},
        }
        print(f"{name}, n={given.chunks}: {total:.2f} s, matmul ceiling {ceiling / 1e9:.0f} GFLOP/s")
        for kind, part in sorted(seconds.items(), key=lambda pair: -pair[1]):
            print(f"  {kind}: {part / total:.0%}")
        print(f"  linear layers run at {linear:.0%} of the ceiling, attention's unmasked products at {products:.0%}")
    if given.json:
        write_json(given.json, {"results": report, "chunks": given.chunks, "machine": machine()})


if __name__ == "__main__":
    main()
