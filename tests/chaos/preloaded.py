"""What a web server loads, and uses, before it forks its workers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable

from tests.chaos.forking import CLAIM, EVIDENCE, make_gate

GATE = make_gate()
GATE.decide(EVIDENCE, claim=CLAIM)


def app(environment: dict[str, object], start: Callable[..., object]) -> Iterable[bytes]:
    decision = GATE.decide(EVIDENCE, claim=CLAIM)
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"process": os.getpid(), "q": decision.q[0]}).encode()]
