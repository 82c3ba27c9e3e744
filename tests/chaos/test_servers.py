"""A network that does something else to every request: the right numbers, or an error that says so, and no answer."""

from __future__ import annotations

import collections
import json
import math
import os
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")

from isr_rag import ISRGate
from isr_rag.core.settings import Orderings
from isr_rag.references import Oracle
from isr_rag.scorers.remote import remote_scorer
from tests.scorers.remote.servers import Fault, Proxy, Tiny

pytestmark = pytest.mark.chaos
REQUESTS = 2000 if os.environ.get("ISR_RAG_CHAOS") == "long" else 300
EVIDENCE = ["Paris is the capital of France.", "Lyon is a city.", "Nice is a city."]


def top(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Fault:
    def rewrite(reply: Any) -> Any:
        logprobs = reply["choices"][0].get("logprobs")
        if logprobs:
            logprobs["top_logprobs"][0] = change(logprobs["top_logprobs"][0])
        return reply

    return Fault(rewrite=rewrite)


def everywhere(value: object) -> Fault:
    return top(lambda listed: dict.fromkeys(listed, value))


FAULTS: dict[str, Fault] = {
    "none": Fault(),
    "drop": Fault(drop=True),
    "delay": Fault(delay=0.05),
    "cut": Fault(cut=True),
    **{
        str(status): Fault(status=status, retry_after="0.01")
        for status in (400, 404, 408, 409, 429, 500, 502, 503, 504)
    },
    "retry after an hour": Fault(status=429, retry_after="3600"),
    "retry never": Fault(status=503, retry_after="nan"),
    "no JSON": Fault(raw=b"{not json"),
    "HTML": Fault(raw=b"<html>busy</html>"),
    "text": Fault(raw=b'"just text"'),
    "list": Fault(raw=b"[]"),
    "nothing": Fault(raw=b""),
    "null": Fault(raw=b"null"),
    "nested": Fault(raw=b"[" * 50_000),
    "a block of zeros": Fault(raw=bytes(1000)),
    "half a pair": Fault(raw=b'{"choices": "\\ud800"}'),
    "no choice": Fault(rewrite=lambda reply: {**reply, "choices": []}),
    "two choices": Fault(rewrite=lambda reply: {**reply, "choices": reply["choices"] * 2}),
    "no logprobs": Fault(rewrite=lambda reply: {**reply, "choices": [{"text": "1"}]}),
    "another prompt": Fault(rewrite=lambda reply: {**reply, "usage": {"prompt_tokens": 3}}),
    "NaN": everywhere(math.nan),
    "infinite": everywhere(math.inf),
    "above one": everywhere(2.0),
    "all sure": everywhere(-0.01),
    "a string": everywhere("-0.1"),
    "a long string": everywhere("x" * 1_000_000),
    "a huge number": everywhere(10**400),
    "true": everywhere(True),
    "one label gone": top(lambda listed: dict(list(listed.items())[:-1])),
    "labels gone": top(lambda listed: {"x": -0.5}),
    "nothing listed": top(lambda listed: {}),
}


def test_no_fault_of_a_network_becomes_a_wrong_number() -> None:
    server = Tiny()
    chance = random.Random(11)
    met: collections.Counter[str] = collections.Counter()
    lock = threading.Lock()
    with server.serve() as upstream:
        proxy = Proxy(upstream)
        with proxy.serve() as url:
            settings = {"top": 1000, "timeout": 2.0, "deadline": 4.0, "retries": 1, "tokenizer": server.tokenizer}
            with remote_scorer(url, **settings) as scorer:
                gate = ISRGate(scorer=scorer, reference=Oracle(1.0), on_error="abstain", orderings=Orderings(m=2))
                claims = [f"Paris is city number {i}." for i in range(12)]
                expected = {claim: gate.decide(EVIDENCE, claim=claim) for claim in claims}

                def plan(_: int, body: dict[str, Any]) -> Fault:
                    with lock:
                        name = chance.choice([*FAULTS, *["none"] * (len(FAULTS) // 2)])
                        met[name] += 1
                    return FAULTS[name]

                proxy.plan = plan
                outcomes: collections.Counter[str] = collections.Counter()
                while met.total() < REQUESTS:
                    items = [{"evidence": EVIDENCE, "claim": claim} for claim in claims]
                    for item, decision in zip(items, gate.decide_batch(items), strict=True):
                        right = expected[str(item["claim"])]
                        if decision.reason == "scorer_failed":
                            assert not decision.answered and decision.detail and len(decision.detail) < 3000
                            json.dumps(decision.to_dict())
                        elif decision.q_high:  # an interval holds the right number, and is decided at its low end
                            assert np.all(np.array(decision.q) <= np.array(right.q) + 1e-6)
                        else:
                            assert decision.q == pytest.approx(right.q, abs=1e-6)
                        outcomes[str(decision.reason)] += 1
                proxy.plan = lambda n, body: None
                assert gate.decide(EVIDENCE, claim=claims[0]).q == expected[claims[0]].q
    assert set(FAULTS) <= set(met) or REQUESTS < 1000
    assert len(outcomes) > 1
