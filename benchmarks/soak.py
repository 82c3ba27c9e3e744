"""Memory over thousands of decisions or requests: resident set size, which must end flat.

    python benchmarks/soak.py --items 4000 --json soak.json --plot soak.png
    python benchmarks/soak.py --items 4000 --engine ray --workers 2
    python benchmarks/soak.py --server 120 --json soak-server.json

`--server MINUTES` asks a server with its default limits and a scorer that answers at once, on the loopback address:
good requests, hostile ones, and some that are broken off. Its memory, threads and descriptors are noted every 10 s.

Every item is another one. `tiny` is a small untrained model behind the scorer, tokenizer and gate of a real one, so
that thousands of decisions take minutes; `embedded` takes half an hour of a core. With the engine ray the sizes of
the driver and of the largest worker are counted apart.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from measuring import COLOURS, MARKERS, machine
from tasks import make_gate, write_items

from isr_rag._util.files import write_json
from isr_rag.io import check_file
from isr_rag_server.cluster import check_file_on_ray


def main() -> None:
    """Run, print, write, plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--scorer", choices=("embedded", "tiny", "waiting"), default="tiny")
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--server", type=float, metavar="MINUTES", help="soak a server instead, for so long")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    if given.server:
        soak_server(given.server, given.json)
        return
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


SERVER = """
from serve import make_gate
from isr_rag_server.http import Settings, serve
serve(make_gate("fixed"), Settings(port=0), started=lambda address: print(address, flush=True))
"""
EVERY = 10.0
"""Seconds between two looks at the server."""
LARGE = 4 * 2**20 - 100


def soak_server(minutes: float, target: Path | None) -> None:
    """Ask a server for some minutes, and tell by how much its memory, threads and descriptors grew per hour."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip().removeprefix("http://")
            host, port = address.split(":")
            found = watch(psutil.Process(process.pid), Callers(host, int(port)), 60.0 * minutes)
        finally:
            process.terminate()
            process.wait(70)
    slopes = {name: hourly(found["series"], name) for name in ("megabytes", "threads", "descriptors")}
    for name, slope in slopes.items():
        values = [point[name] for point in found["series"]]
        print(f"{name}: {values[0]:.0f} at first, {max(values):.0f} at most, {values[-1]:.0f} at the end; "
              f"{slope:+.2f} per hour over the second half")  # fmt: skip
    print(f"{sum(found['outcomes'].values())} requests: {found['outcomes']}; ended with {process.returncode}")
    if target:
        write_json(target, {"minutes": minutes, "slopes_per_hour": slopes, **found, "machine": machine()})


def watch(server: psutil.Process, callers: Callers, seconds: float) -> dict[str, Any]:
    """What the server held, every so often, while it was asked; the first look is after a minute or a tenth."""
    threads = [threading.Thread(target=callers.ask_on, args=(kind,), daemon=True) for kind in callers.kinds]
    for thread in threads:
        thread.start()
    begun, series = time.monotonic(), []
    time.sleep(min(60.0, seconds / 10))
    while time.monotonic() - begun < seconds:
        size = server.memory_info().rss / 2**20
        held = {"megabytes": size, "threads": server.num_threads(), "descriptors": server.num_fds()}
        series.append({"seconds": time.monotonic() - begun, **held})
        time.sleep(min(EVERY, seconds / 20))
    callers.over.set()
    for thread in threads:
        thread.join(30)
    return {"series": series, "outcomes": dict(sorted(callers.outcomes.items()))}


def hourly(series: list[dict[str, Any]], name: str) -> float:
    """Slope over the second half, per hour."""
    half = series[len(series) // 2 :]
    return float(3600 * np.polyfit([point["seconds"] for point in half], [point[name] for point in half], 1)[0])


class Callers:
    """Those who ask: good, hostile, and gone before they are answered.

    Attributes:
        outcomes: how many requests of each kind got which status; 0 for none.
    """

    def __init__(self, host: str, port: int) -> None:
        self.at, self.over = (host, port), threading.Event()
        self.kinds: dict[str, Callable[[random.Random], int]] = {
            "good": self.good, "hostile": self.hostile, "broken off": self.broken_off,
        }  # fmt: skip
        self.outcomes: Counter[str] = Counter()

    def ask_on(self, kind: str) -> None:
        """Ask until it is over."""
        chance = random.Random(kind)
        while not self.over.wait(0.01):
            try:
                status = self.kinds[kind](chance)
            except OSError:
                status = 0
            self.outcomes[f"{kind}: {status}"] += 1

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> int:
        """The status of the response to a request."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.closing(http.client.HTTPConnection(*self.at, timeout=90)) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, content, {"Content-Type": "application/json", **named})
            response = connection.getresponse()
            response.read()
            return response.status

    def good(self, chance: random.Random) -> int:
        """A request as clients send them."""
        number = chance.randrange(10**9)
        item = {"claim": f"It is number {number}.", "evidence": [f"Report {number} says {i}." for i in range(20)]}
        answer = {"answer": f"It is number {number}. It is long.", "evidence": item["evidence"]}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "judge_claim", "arguments": item}}
        accept = "application/json, text/event-stream"
        return chance.choice((
            lambda: self.send("POST", "/v1/decide", item),
            lambda: self.send("POST", "/v1/audit?html=true", answer),
            lambda: self.send("POST", "/v1/audit", answer, Accept="text/event-stream"),
            lambda: self.send("POST", "/v1/index", {"evidence": item["evidence"]}),
            lambda: self.send("POST", "/v1/documents?name=a.txt", f"Number {number}.\n\n".encode() * 200),
            lambda: self.send("POST", "/mcp", call, Accept=accept, MCP_Protocol_Version="2025-06-18"),
            lambda: self.send("GET", chance.choice(("/", "/healthz", "/readyz", "/metrics", "/v1/models"))),
        ))()  # fmt: skip

    def hostile(self, chance: random.Random) -> int:
        """A request that no client sends by mistake."""
        large = chance.choice((b"[" * LARGE, b'{"evidence": [' + b"0," * (LARGE // 2), b'"' * LARGE, b" " * LARGE))
        claim = {"claim": "c", "evidence": ["e"]}
        return chance.choice((
            lambda: self.send("POST", chance.choice(("/v1/decide", "/v1/audit", "/mcp")), large),
            lambda: self.send("POST", "/healthz", large),
            lambda: self.send("POST", "/v1/decide", {"claim": "c" * 200_000, "evidence": []}),
            lambda: self.send("POST", "/v1/decide", {"claim": "c", "evidence": [0] * 3000}),
            lambda: self.send("POST", "/v1/decide", claim, Origin="https://evil.example"),
            lambda: self.send("POST", "/v1/decide", claim, Host="evil.example"),
            lambda: self.send(chance.choice(("PUT", "DELETE", "OPTIONS")), f"/{chance.randrange(10**6)}"),
            lambda: self.raw(chance.randbytes(200)),
            lambda: self.raw(b"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                             + b"1\r\na\r\n" * 5000),
        ))()  # fmt: skip

    def broken_off(self, chance: random.Random) -> int:
        """A request whose sender is gone before its end, or before the response."""
        body = json.dumps({"answer": "It is so. " * 50, "evidence": ["e"]}).encode()
        accept = chance.choice(("application/json", "text/event-stream"))
        head = f"POST /v1/audit HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Type: application/json\r\n"
        whole = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        with socket.create_connection(self.at, timeout=30) as connection:
            connection.sendall(whole[: chance.choice((1, 20, len(whole) // 2, len(whole) - 1, len(whole)))])
            time.sleep(chance.choice((0.0, 0.0, 0.05)))
        return 0

    def raw(self, sent: bytes) -> int:
        """The status of the response to bytes that need not be a request."""
        with socket.create_connection(self.at, timeout=30) as connection:
            connection.sendall(sent + b"\r\n\r\n")
            head = connection.recv(12)
            return int(head[9:12]) if head[9:12].isdigit() else 0


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
