"""A running server against the library: throughput, latency, overhead, pairing, and memory over thousands of requests.

    python benchmarks/serve.py --json serve.json
    python benchmarks/serve.py --scorer fixed --requests 2000 --memory 0

The server is a process of its own on the loopback address, with the default adjudicator (`embedded`) or a scorer that
answers at once (`fixed`, which leaves what HTTP costs). Every claim has a number and the reply must fit it: same
identifier, same probability as the library's. One caller asks the library and the server in turns, so that both meet
the same conditions; the difference of the medians is the overhead of a decision.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil
from measuring import machine

from isr_rag import ISRGate
from isr_rag._util.files import write_json
from isr_rag.core.settings import Orderings
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.http import Limits, Settings, serve

CLIENTS = (1, 8, 32)
PLACES = ("Paris", "Lyon", "Nantes", "Lille", "Bordeaux", "Grenoble", "Dijon")


def make_gate(scorer: str) -> ISRGate:
    if scorer == "embedded":
        return ISRGate()
    scorer = FixedScorer(lambda prompt, ordering: hash_of(prompt.suffix))
    scorer.requests = deque(maxlen=0)  # type: ignore[assignment]  # it would remember them all
    return ISRGate(scorer=scorer, reference=Oracle(0.9), orderings=Orderings(m=1))


def hash_of(text: str) -> float:
    return 0.001 + 0.998 * (sum(map(ord, text)) % 9973) / 9973


def item(number: int, fresh: bool) -> dict[str, Any]:
    """A claim with its number, about evidence of three sentences of its own, or of everybody's."""
    of = number if fresh else 0
    evidence = [
        f"Report {of}: the bridge near {PLACES[(of + i) % 7]} is {100 + of % 800 + i} metres long and was built in "
        f"{1850 + (of + i) % 150}. It is repaired every {2 + i} years."
        for i in range(3)
    ]
    return {"claim": f"Claim {number}: the bridge near {PLACES[number % 7]} is long.", "evidence": evidence}


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scorer", choices=("embedded", "fixed"), default="embedded")
    parser.add_argument("--requests", type=int, default=200, help="for each number of clients")
    parser.add_argument("--memory", type=int, default=5000, help="requests over which memory is watched; 0 for none")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(
            make_gate(given.scorer), Settings(port=0, limits=Limits(queue=200)), started=lambda a: print(a, flush=True)
        )
        return
    command = [sys.executable, __file__, "--serve", "--scorer", given.scorer]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            found = asyncio.run(measure(given, address, psutil.Process(process.pid)))
        finally:
            process.terminate()
            process.wait(60)
    if given.json:
        write_json(given.json, {"scorer": given.scorer, **found, "machine": machine()})


async def measure(given: argparse.Namespace, address: str, server: psutil.Process) -> dict[str, Any]:
    """Everything that is measured."""
    gate = make_gate(given.scorer)
    found: dict[str, Any] = {"overhead": {}, "load": []}
    wrong = 0
    # Not httpx: among 32 callers its pool makes some of them wait for seconds.
    async with aiohttp.ClientSession(base_url=address) as client:

        async def served(number: int, fresh: bool) -> float:
            async with client.post("/v1/decide", json={**item(number, fresh), "id": number}) as response:
                plain = await response.json(content_type=None)
            if response.status != 200 or plain["id"] != number:
                raise AssertionError(f"request {number}: {response.status} {plain}")
            return float(plain["decision"]["q"][0])

        async def direct(number: int, fresh: bool) -> float:
            return (await gate.adecide(**item(number, fresh))).q[0]

        def cpu() -> float:
            times = server.cpu_times()
            return float(times.user + times.system)

        for number in range(20):
            await served(number, False), await direct(number, False)
        for fresh in (False, True):
            seconds: dict[str, list[float]] = {"served": [], "direct": []}
            spent = {"served": 0.0, "direct": 0.0}  # of the processor: what else runs here does not count
            for number in range(given.requests):
                values = []
                for name, ask in (("served", served), ("direct", direct)):
                    before = cpu() if name == "served" else time.process_time()
                    begun = time.perf_counter()
                    values.append(await ask(number + 1000, fresh))
                    seconds[name].append(time.perf_counter() - begun)
                    spent[name] += (cpu() if name == "served" else time.process_time()) - before
                wrong += abs(values[0] - values[1]) > 2e-3
            kind = "fresh" if fresh else "repeated"
            medians = {name: 1000 * statistics.median(values) for name, values in seconds.items()}
            overhead = medians["served"] - medians["direct"]
            processor = {name: 1000 * total / given.requests for name, total in spent.items()}
            found["overhead"][kind] = {**medians, "overhead_ms": overhead, "processor_ms": processor}
            print(
                f"{kind}: served {medians['served']:.2f} ms, direct {medians['direct']:.2f} ms, {overhead:+.2f} ms; of "
                f"the processor {processor['served']:.2f} and {processor['direct']:.2f} ms"
            )
        base = 10_000
        for clients in CLIENTS:
            for fresh in (False, True):
                for name, ask in (("served", served), ("direct", direct)):
                    base += given.requests
                    row, values = await load(ask, clients, given.requests, base, fresh)
                    found["load"].append({"clients": clients, "fresh": fresh, "by": name, **row})
                    print(f"{clients} clients, {'fresh' if fresh else 'repeated'}, {name}: " + shown(row))
                    if name == "served":
                        again = [await direct(base + i, fresh) for i in range(0, given.requests, 10)]
                        wrong += sum(abs(values[10 * i] - q) > 2e-3 for i, q in enumerate(again))
        found["wrong_pairings"] = wrong
        print(f"wrong pairings: {wrong}")
        if given.memory:
            found["memory"] = await memory(served, given.memory, server)
    return found


async def load(
    ask: Callable[[int, bool], Awaitable[float]], clients: int, requests: int, base: int, fresh: bool
) -> tuple[dict[str, float], list[float]]:
    """So many clients, each of which asks again as soon as it has its answer."""
    seconds, values = [0.0] * requests, [0.0] * requests
    numbers = iter(range(requests))

    async def one() -> None:
        for number in numbers:
            begun = time.perf_counter()
            values[number] = await ask(base + number, fresh)
            seconds[number] = time.perf_counter() - begun

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    wall = time.perf_counter() - begun
    p50, p95, p99 = (1000 * float(q) for q in np.quantile(seconds, (0.5, 0.95, 0.99)))
    return {"per_second": requests / wall, "p50_ms": p50, "p95_ms": p95, "p99_ms": p99}, values


def shown(row: dict[str, float]) -> str:
    return "{per_second:.1f} a second, p50 {p50_ms:.1f}, p95 {p95_ms:.1f}, p99 {p99_ms:.1f} ms".format(**row)


async def memory(ask: Callable[[int, bool], Awaitable[float]], requests: int, server: psutil.Process) -> dict[str, Any]:
    """Resident memory of the server over requests with fresh evidence, 8 at a time, after a fifth to warm up."""
    series: list[tuple[int, float]] = []
    for done in range(0, requests, requests // 20):
        await load(ask, 8, requests // 20, 1_000_000 + done, True)
        series.append((done + requests // 20, server.memory_info().rss / 2**20))
    late = series[len(series) // 5 :]
    slope = 1000 * float(np.polyfit([n for n, _ in late], [m for _, m in late], 1)[0])
    print(f"memory: {series[0][1]:.0f} MB at first, {series[-1][1]:.0f} MB after {requests}; {slope:+.2f} MB per 1,000")
    return {"series": series, "late_mb_per_1000": slope}


if __name__ == "__main__":
    main()
