"""A process that forks while its threads score: its children report what they decided, as lines of JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time

from isr_rag import ISRGate
from isr_rag.references import Oracle
from isr_rag.scorers.local.states import StateCache
from tests.scorers import tiny

EVIDENCE = ["Paris is the capital of France.", "Lyon is its third city."] * 4
CLAIM = "Paris is the capital of France."


def make_gate() -> ISRGate:
    return ISRGate(scorer=tiny.scorer(states=StateCache()), reference=Oracle(1.0))


def report(gate: ISRGate, how: str, expected: float) -> None:
    if how == "index":
        gate.index(["Nice lies at the sea."])
    if how == "adecide":
        decision = asyncio.run(gate.adecide(EVIDENCE, claim=CLAIM))
    else:
        decision = gate.decide(EVIDENCE, claim=CLAIM)
    line = json.dumps({"how": how, "q": decision.q[0], "expected": expected}) + "\n"
    os.write(1, line.encode())  # whole, among those of the other children


def main() -> int:
    gate = make_gate()
    expected = gate.decide(EVIDENCE, claim=CLAIM).q[0]
    stop = threading.Event()

    def score() -> None:
        for i in range(10**9):
            if stop.is_set():
                return
            gate.decide([f"{text} {i}" for text in EVIDENCE], claim=CLAIM)

    threads = [threading.Thread(target=score, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    children = []
    for how in ("decide", "adecide", "index") * 2:
        time.sleep(0.05)
        child = os.fork()
        if child == 0:
            stop.set()
            try:
                report(gate, how, expected)
            finally:
                os._exit(0)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    stop.set()
    for thread in threads:
        thread.join()
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
