"""Concurrent callers of one gate against one after another, and against one batch: throughput as ratios of one run.

python benchmarks/callers.py --json callers.json --plot callers.png
python benchmarks/callers.py --items 50 --callers 50 --chunks 4 --tokens 16 --known  # short chunks, asked about before
python benchmarks/callers.py --items 50 --callers 50 --chunks 4 --tokens 16 --known --ask question  # one closing each
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import machine, plot_lines, real_chunks
from transformers import AutoTokenizer

from isr_rag import ISRGate
from isr_rag._util.files import write_json
from isr_rag.scorers import embedded


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, default=32)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=40, help="of a chunk")
    parser.add_argument("--known", action="store_true", help="chunks whose states are kept: only the questions are new")
    parser.add_argument(
        "--ask", choices=("claim", "question"), default="claim", help="a claim reads each chunk alone too"
    )
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
        size, many = given.tokens, given.chunks
        texts = [real_chunks(tokenizer, size, many, start=i * many) for i in range(given.items)]
        name = 0 if given.known else fresh
        return [
            {"evidence": [f"{name}: {text}" for text in own], given.ask: f"{fresh} {' '.join(own[0].split()[:10])}?"}
            for own in texts
        ]

    async def called(concurrency: int, work: list[dict[str, Any]]) -> None:
        free = asyncio.Semaphore(concurrency)

        async def one(item: dict[str, Any]) -> None:
            async with free:
                await gate.adecide(**item)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(one(item) for item in work))
        watching.cancel()

    async def watch() -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.005)
            late.append(time.perf_counter() - begun - 0.005)

    gate.decide_batch(items())
    computed: dict[str, float] = {}
    seconds: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    late: list[float] = []
    threads = 0

    def timed(name: str, work: Callable[[], object]) -> None:
        begun, used, tokens = time.perf_counter(), time.process_time(), gate.scorer.engine.computed_tokens
        work()
        computed[name] = (gate.scorer.engine.computed_tokens - tokens) / given.items
        seconds.setdefault(name, []).append(time.perf_counter() - begun)
        spent.setdefault(name, []).append(time.process_time() - used)

    for _ in range(given.rounds):
        work = items()
        timed("one after another", lambda work=work: [gate.decide(**item) for item in work])
        work = items()
        timed("batch", lambda work=work: gate.decide_batch(work))
        for concurrency in given.callers:
            work = items()
            timed(str(concurrency), lambda n=concurrency, work=work: asyncio.run(called(n, work)))
            threads = max(threads, threading.active_count())
    rates = {name: given.items / min(values) for name, values in seconds.items()}
    callers = [str(concurrency) for concurrency in given.callers]
    ratios = {f"{name}_callers_vs_batch": rates[name] / rates["batch"] for name in callers}
    ratios |= {f"{name}_callers_vs_one_after_another": rates[name] / rates["one after another"] for name in callers}
    # On a machine with other work the CPU's seconds say more than the wall's.
    ratios |= {f"{name}_callers_cpu_saved": min(spent["one after another"]) / min(spent[name]) for name in callers}
    late.sort()
    lag = {"median": late[len(late) // 2], "p99": late[len(late) * 99 // 100], "most": late[-1]}
    print(
        f"tokens computed for a decision: {computed['one after another']:.0f}, with callers {computed[callers[-1]]:.0f}"
    )
    print(f"decide_batch: {rates['batch']:.2f} decisions a second; at most {threads} threads")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    print("the event loop was late by", ", ".join(f"{1e3 * value:.0f} ms ({name})" for name, value in lag.items()))
    if given.json:
        found = {
            "ratios": ratios,
            "rates": rates,
            "tokens": computed,
            "late": lag,
            "threads": threads,
            "machine": machine(),
        }
        write_json(
            given.json, found | {"settings": {k: v for k, v in vars(given).items() if k not in ("json", "plot")}}
        )
    if given.plot:
        points = [(float(name), rates[name]) for name in callers]
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
