"""Decisions per second through an inference server, against the number of requests in flight.

    python benchmarks/remote.py --server http://127.0.0.1:8000/v1 --tokenizer FOLDER --json r.json --plot r.png

Every decision is about another claim, so that only the evidence of one decision shares beginnings. The levels of
concurrency are measured in turns, several rounds, and compared by the medians of their ratios to the lowest one in the
same round: a machine with other work slows all levels of a round alike.

A server on the cores of the client cannot be faster for more requests at once. `--waiting 0.05` starts one that waits
that long and computes nothing, as a far server with room does: what is left is the client's own cost.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from measuring import machine, plot_lines

from isr_rag import Supported
from isr_rag._util.files import write_json
from isr_rag.core.evidence import Chunk
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.scorer import ScoreRequest
from isr_rag.scorers.remote import RemoteScorer, remote_scorer


def main() -> None:
    """Run, print, write, plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server")
    where.add_argument("--waiting", type=float)
    parser.add_argument("--model")
    parser.add_argument("--tokenizer")
    parser.add_argument("--decisions", type=int, default=8, help="a level and round")
    parser.add_argument("--chunks", type=int, default=5)
    parser.add_argument("--m", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    chosen = {"model": given.model, "tokenizer": given.tokenizer, "timeout": 300.0, "deadline": 3600.0}
    with nullcontext(given.server) if given.server else waiting(given.waiting) as url:
        levels = {level: remote_scorer(url, concurrency=level, **chosen) for level in given.concurrency}
        rounds = [
            {level: rate(one, requests(given, f"{number}.{level}")) for level, one in levels.items()}
            for number in range(given.rounds + 1)
        ][1:]  # the first round warms up
        identity = next(iter(levels.values())).identity
        for one in levels.values():
            one.close()
    lowest = given.concurrency[0]
    ratios = {
        level: float(np.median([rates[level] / rates[lowest] for rates in rounds])) for level in given.concurrency
    }
    for level, ratio in ratios.items():
        fastest = max(rates[level] for rates in rounds)
        print(f"{level:>3} in flight: {ratio:5.2f} x, at best {fastest:.3g} decisions a second")
    if given.json:
        settings = {name: value for name, value in vars(given).items() if name not in ("json", "plot", "server")}
        content = {"scorer": identity, "settings": settings, "decisions_per_second": rounds, "ratios": ratios}
        write_json(given.json, {**content, "machine": machine()})
    if given.plot:
        plot_lines(
            given.plot,
            {"median over rounds": list(ratios.items())},
            title=identity,
            x="requests in flight at most",
            y=f"decisions a second, relative to {lowest}",
            even=1.0,
        )


def requests(given: argparse.Namespace, name: str) -> list[ScoreRequest]:
    """Decisions about claims that no other level or round asks about."""
    orderings = draw_orderings(given.chunks, given.m)
    return [
        ScoreRequest(
            Supported(claim=f"Town {name}.{i} lies on the river.").render(
                [Chunk(f"Town {name}.{i}.{k} was founded by the river in {1900 + k}.") for k in range(given.chunks)]
            ),
            orderings,
        )
        for i in range(given.decisions)
    ]


def rate(one: RemoteScorer, asked: list[ScoreRequest]) -> float:
    """Decisions per second."""
    started = time.perf_counter()
    one.score(asked)
    return len(asked) / (time.perf_counter() - started)


@contextmanager
def waiting(seconds: float) -> Iterator[str]:
    """A chat server that gives the same logprobs to everything after a while."""
    top = [{"token": token, "logprob": logprob} for token, logprob in (("1", -0.1), ("0", -2.5))]
    content = {"content": [{**top[0], "top_logprobs": top}]}
    reply = json.dumps({"choices": [{"logprobs": content}], "usage": {"prompt_tokens": 1}}).encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(b'{"data": [{"id": "waiting"}]}')

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            time.sleep(seconds)
            self._send(reply)

        def _send(self, data: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
