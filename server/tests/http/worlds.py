"""Gates and servers for the tests: a scorer whose probability says which request it answered."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from isr_rag import ISRGate
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import ScoreRequest, Scores
from isr_rag.core.settings import Orderings
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.http import Limits, Settings, serve

MODULUS = 997
KEY = "correct-horse-battery-staple"


class CountingScorer(FixedScorer):
    """q is the number in the claim over 1,000, or that of 0, after some seconds; notes how many were scored."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(self._read)
        self.seconds, self.scored = seconds, 0
        self.may_go = threading.Event()
        self.may_go.set()

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        time.sleep(self.seconds)
        self.may_go.wait(20)
        self.scored += len(requests)
        return super().score(requests)

    @staticmethod
    def _read(prompt: Prompt, ordering: Ordering) -> float:
        found = re.search(r"number (\d+)", prompt.suffix)
        return expected_q(int(found[1]) if found else 0)


def expected_q(number: int) -> float:
    return (number % MODULUS + 1) / 1000


def gate(seconds: float = 0.0, p_ref: float = 1.0) -> ISRGate:
    return ISRGate(scorer=CountingScorer(seconds), reference=Oracle(p_ref), orderings=Orderings(m=1))


def item(number: int, **more: Any) -> dict[str, Any]:
    return {"claim": f"This is number {number}.", "evidence": [f"It says {number}."], **more}


async def asgi(app: Any, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://127.0.0.1", headers=headers
    )


def library(folder: Path) -> Path:
    """A folder of three documents."""
    for number, river in enumerate(("Seine", "Loire", "Rhône")):
        (folder / f"{river}.txt").write_text(f"The {river} is river number {number}.", "utf-8")
    return folder


if __name__ == "__main__":  # a process of its own: seconds per turn, queue, running, further settings
    seconds, queue, running = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    limits = Limits(queue=queue, running=running, body_seconds=1.0, seconds=30.0, body=100_000)
    serve(
        gate(seconds, p_ref=0.5),
        Settings(port=0, limits=limits, folder=None if len(sys.argv) < 5 else Path(sys.argv[4])),
        started=lambda address: print(address, flush=True),
    )
