"""A network that drops, delays, truncates, limits, reorders and corrupts: the right numbers or an error, no answer."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")

from isr_rag import ISRGate
from isr_rag.core.scorer import PartialScoresError
from isr_rag.core.settings import Orderings
from isr_rag.errors import ServerDeadlineError, ServerError, ServerReplyError
from isr_rag.references import Oracle
from isr_rag.scorers.remote import RemoteScorer
from tests.scorers.remote.conftest import Connect, request_about
from tests.scorers.remote.servers import Fault, Proxy

pytestmark = pytest.mark.slow

EVIDENCE = ["Paris is the capital of France.", "Lyon is a city.", "Nice is a city."]


def first_of_each(fault: Fault) -> Callable[[int, dict[str, Any]], Fault | None]:
    """Spoil the first try of every prompt, and leave its repetitions alone."""
    met: set[str] = set()
    lock = threading.Lock()

    def plan(_: int, body: dict[str, Any]) -> Fault | None:
        with lock:
            fresh = str(body["prompt"]) not in met
            met.add(str(body["prompt"]))
        return fault if fresh else None

    return plan


def always(fault: Fault) -> Callable[[int, dict[str, Any]], Fault | None]:
    return lambda n, body: fault


@pytest.fixture
def scorer(proxy: Proxy, connect: Connect):  # type: ignore[no-untyped-def]
    """A scorer behind the proxy, its question asked before anything is spoilt."""
    with proxy.serve() as url:
        yield connect(url, timeout=1.0)
        proxy.plan = lambda n, body: None


@pytest.mark.parametrize(
    "fault",
    [
        Fault(drop=True),
        Fault(cut=True),
        Fault(delay=1.5),
        Fault(status=429, retry_after="0.05"),
        Fault(status=500, retry_after="0.05"),
        Fault(status=503, retry_after="0.05"),
        Fault(status=408, retry_after="0.05"),
    ],
    ids=["drop", "truncate", "delay", "429", "500", "503", "408"],
)
def test_what_passes_is_retried_and_gives_the_same_numbers(proxy: Proxy, scorer: RemoteScorer, fault: Fault) -> None:
    request = request_about(m=3)
    (expected,) = scorer.score([request])
    proxy.plan, before = first_of_each(fault), proxy.requests
    (found,) = scorer.score([request])
    np.testing.assert_array_equal(found.logprobs, expected.logprobs)
    assert proxy.requests - before == 6


def test_retry_after_is_waited_for(proxy: Proxy, scorer: RemoteScorer) -> None:
    arrivals: list[float] = []
    spoil = first_of_each(Fault(status=429, retry_after="1.2"))

    def plan(n: int, body: dict[str, Any]) -> Fault | None:
        arrivals.append(time.monotonic())
        return spoil(n, body)

    proxy.plan = plan
    scorer.score([request_about(m=1)])
    assert len(arrivals) == 2 and arrivals[1] - arrivals[0] >= 1.2


def test_replies_out_of_order_reach_their_own_orderings(proxy: Proxy, scorer: RemoteScorer) -> None:
    requests = [request_about(f"Claim number {i}.", m=4) for i in range(3)]
    expected = scorer.score(requests)
    proxy.plan = lambda n, body: Fault(delay=0.25 if n % 3 == 0 else 0.12 if n % 3 == 1 else 0.0)
    for one, other in zip(scorer.score(requests), expected, strict=True):
        np.testing.assert_array_equal(one.logprobs, other.logprobs)


def _set(value: object) -> Callable[[Any], Any]:
    def rewrite(reply: Any) -> Any:
        logprobs = reply["choices"][0]["logprobs"]
        logprobs["top_logprobs"][0] = dict.fromkeys(logprobs["top_logprobs"][0], value)
        return reply

    return rewrite


def _without_choices(reply: Any) -> Any:
    return {**reply, "choices": []}


def _other_prompt(reply: Any) -> Any:
    return {**reply, "usage": {"prompt_tokens": 3}}


def _no_label(reply: Any) -> Any:
    reply["choices"][0]["logprobs"]["top_logprobs"] = [{"x": -0.5}]
    return reply


@pytest.mark.parametrize(
    "fault",
    [
        Fault(raw=b"{not json"),
        Fault(raw=b'"just text"'),
        Fault(raw=b"[]"),
        Fault(rewrite=_without_choices),
        Fault(rewrite=_set(math.nan)),
        Fault(rewrite=_set(2.0)),
        Fault(rewrite=_set("-0.1")),
        Fault(rewrite=_set(-0.01)),
        Fault(rewrite=_other_prompt),
        Fault(rewrite=_no_label),
    ],
    ids=["no-json", "text", "list", "no-choice", "nan", "above-0", "string", "above-1", "swapped", "no-label"],
)
def test_a_corrupt_reply_is_an_error_and_never_an_answer(proxy: Proxy, scorer: RemoteScorer, fault: Fault) -> None:
    proxy.plan = always(fault)
    with pytest.raises(ServerReplyError):
        scorer.score([request_about(m=2)])
    gate = ISRGate(scorer=scorer, reference=Oracle(1.0), on_error="abstain", orderings=Orderings(m=2))
    decision = gate.decide(EVIDENCE, claim="Paris is the capital.")
    assert (decision.action, decision.reason) == ("abstain", "scorer_failed")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(drop=True), "reached or broke off"),
        (Fault(status=429, retry_after="0.01"), "status 429"),
        (Fault(status=400), "status 400"),
    ],
    ids=["drop", "429", "400"],
)
def test_what_does_not_pass_is_a_typed_error(proxy: Proxy, scorer: RemoteScorer, fault: Fault, kind: str) -> None:
    proxy.plan = always(fault)
    with pytest.raises(ServerError, match=kind):
        scorer.score([request_about(m=1)])
    assert (
        ISRGate(scorer=scorer, reference=Oracle(1.0), on_error="abstain", orderings=Orderings(m=1))
        .decide(EVIDENCE, claim="c")
        .q
        == ()
    )


def test_one_lost_ordering_is_a_lost_decision_and_the_others_keep_theirs(proxy: Proxy, scorer: RemoteScorer) -> None:
    requests = [request_about(f"Claim number {i}.", m=3) for i in range(4)]
    expected = scorer.score(requests)
    bad = scorer.rendering.body(requests[2].prompt, requests[2].orderings[1])["prompt"]
    proxy.plan = lambda n, body: Fault(status=400) if body["prompt"] == bad else None
    with pytest.raises(PartialScoresError) as caught:
        scorer.score(requests)
    outcomes = caught.value.outcomes
    assert [isinstance(outcome, ServerError) for outcome in outcomes] == [False, False, True, False]
    np.testing.assert_array_equal(outcomes[3].logprobs, expected[3].logprobs)  # type: ignore[union-attr]


def test_the_gate_asks_no_request_twice_because_another_failed(proxy: Proxy, scorer: RemoteScorer) -> None:
    items = [{"evidence": EVIDENCE, "claim": f"Claim number {i}."} for i in range(4)]
    proxy.plan = lambda n, body: Fault(status=400) if n % 6 == 0 else None
    gate = ISRGate(scorer=scorer, reference=Oracle(1.0), on_error="abstain", orderings=Orderings(m=3))
    before = proxy.requests
    decisions = gate.decide_batch(items)
    assert proxy.requests - before <= 12
    assert {decision.reason for decision in decisions} > {"scorer_failed"}


def test_the_deadline_of_a_decision_holds_whatever_the_retries(proxy: Proxy, connect: Connect) -> None:
    with proxy.serve() as url:
        scorer = connect(url, timeout=5.0, deadline=0.6)
        proxy.plan = lambda n, body: Fault(delay=3.0) if n % 2 else None
        started = time.monotonic()
        with pytest.raises(ServerDeadlineError, match="within the deadline"):
            scorer.score([request_about(m=4)])
        assert time.monotonic() - started < 2.5
        proxy.plan = lambda n, body: None
        scorer.deadline = 20.0
        assert scorer.score([request_about(m=4)])[0].passes == 4


def test_cancelling_a_decision_ends_its_requests_and_frees_their_slots(proxy: Proxy, connect: Connect) -> None:
    with proxy.serve() as url:
        scorer = connect(url, concurrency=2, timeout=10.0)
        proxy.plan = always(Fault(delay=2.0))
        before = proxy.requests

        async def run() -> None:
            task = asyncio.create_task(scorer.ascore([request_about(m=6)]))
            while proxy.requests - before < 2:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            proxy.plan = lambda n, body: None
            (scores,) = await asyncio.wait_for(scorer.ascore([request_about(m=6)]), timeout=5.0)
            assert scores.passes == 6

        asyncio.run(run())
        assert proxy.requests - before == 8, "two were under way, four never went out"


def test_orderings_that_did_arrive_support_an_exact_early_abstention_through_the_cascade(
    proxy: Proxy, scorer: RemoteScorer
) -> None:
    """After the first stage no other ordering is asked for: a server that fails from then on is not even noticed."""
    before = proxy.requests
    proxy.plan = lambda n, body: Fault(status=400) if n - before > 3 else None
    gate = ISRGate(scorer=scorer, reference=Oracle(0.2), orderings=Orderings(cascade=True, m=12))
    decision = gate.decide([*EVIDENCE, "Metz is a city."], claim="Paris is the capital.")
    assert (decision.action, decision.passes, decision.m) == ("abstain", 3, 12)
