"""Concurrent callers of one gate against one caller with a batch: throughput as ratios of one run.

python benchmarks/callers.py --json callers.json --plot callers.png
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from measuring import machine, plot_lines, real_chunks
from transformers import AutoTokenizer

from isr_rag import ISRGate
from isr_rag.files import write_json
from isr_rag.scorers import embedded


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, default=32)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    embedded.setup(print)
    gate = ISRGate()
    tokenizer = AutoTokenizer.from_pretrained(embedded.model_directory())
    fresh = 0

    def items() -> list[dict[str, Any]]:
        """Evidence nobody has asked about yet, so that no states are kept."""
        nonlocal fresh
        fresh += 1
        texts = [real_chunks(tokenizer, 40, given.chunks, start=i * given.chunks) for i in range(given.items)]
        return [
            {"evidence": [f"{fresh}: {text}" for text in own], "claim": " ".join(own[0].split()[:10])} for own in texts
        ]

    async def called(concurrency: int, work: list[dict[str, Any]]) -> None:
        free = asyncio.Semaphore(concurrency)

        async def one(item: dict[str, Any]) -> None:
            async with free:
                await gate.adecide(**item)

        await asyncio.gather(*(one(item) for item in work))

    gate.decide_batch(items())
    seconds: dict[str, list[float]] = {}
    threads = 0
    for _ in range(given.rounds):
        work = items()
        begun = time.perf_counter()
        gate.decide_batch(work)
        seconds.setdefault("batch", []).append(time.perf_counter() - begun)
        for concurrency in given.callers:
            work = items()
            begun = time.perf_counter()
            asyncio.run(called(concurrency, work))
            seconds.setdefault(str(concurrency), []).append(time.perf_counter() - begun)
            threads = max(threads, threading.active_count())
    rates = {name: given.items / min(values) for name, values in seconds.items()}
    ratios = {f"{name}_callers_vs_batch": rate / rates["batch"] for name, rate in rates.items() if name != "batch"}
    print(f"decide_batch: {rates['batch']:.2f} decisions a second; at most {threads} threads")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    if given.json:
        write_json(given.json, {"ratios": ratios, "rates": rates, "threads": threads, "machine": machine()})
    if given.plot:
        points = [(float(name), rate) for name, rate in rates.items() if name != "batch"]
        plot_lines(
            given.plot,
            {"adecide": points},
            title=f"Concurrent callers, {given.chunks} chunks an item",
            x="callers",
            y="decisions a second (line: one decide_batch)",
            even=rates["batch"],
        )


if __name__ == "__main__":
    main()
