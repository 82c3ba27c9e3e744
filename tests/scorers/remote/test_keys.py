"""A key goes to the server and nowhere else."""

from __future__ import annotations

import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")

from isr_rag import ISRGate
from isr_rag.core.settings import Orderings
from isr_rag.errors import ConfigurationError, ServerError
from isr_rag.references import Oracle
from isr_rag.scorers.cache import CachedScorer
from tests.scorers.remote.conftest import Connect, request_about
from tests.scorers.remote.servers import Fault, Features, Proxy, Tiny

pytestmark = pytest.mark.slow

CANARY = "sk-canary-4f8a1c77e2d94b60"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISR_RAG_API_KEY", CANARY)


def everything(error: BaseException | None) -> str:
    """All that a report of an error could show: the chain, notes, and the values of the frames' names."""
    shown = []
    while error is not None:
        frames = [str(frame.f_locals) for frame, _ in traceback.walk_tb(error.__traceback__)]
        shown += [repr(error), str(vars(error)), *traceback.format_exception(error), *frames]
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


def test_the_key_reaches_the_server_and_shows_nowhere(
    server: Tiny, connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.features = Features(key=CANARY)
    scorer = connect()
    gate = ISRGate(scorer=CachedScorer(scorer, tmp_path), reference=Oracle(1.0))
    decision = gate.decide(["Paris is big.", "Lyon is small."], claim="Paris is big.")
    assert server.headers[-1]["authorization"] == f"Bearer {CANARY}"
    shown: list[Any] = [scorer, scorer.identity, scorer.client, scorer.served, scorer.rendering, gate, decision]
    assert all(CANARY not in repr(value) + str(value) for value in shown)
    assert CANARY not in decision.to_json() and CANARY not in caplog.text
    assert all(CANARY.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_server_that_repeats_the_key_in_its_refusal_does_not_spread_it(
    server: Tiny, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.features = Features(key="another")
    with pytest.raises(ServerError, match="ISR_RAG_API_KEY") as caught:
        connect()
    assert CANARY not in everything(caught.value) and "[key]" in str(caught.value)


@pytest.mark.parametrize("fault", [Fault(drop=True), Fault(delay=4.0), Fault(status=500), Fault(raw=b"{")])
def test_no_failure_carries_the_key(proxy: Proxy, connect: Connect, fault: Fault) -> None:
    with proxy.serve() as url:
        scorer = connect(url, retries=0, timeout=3.0)
        proxy.plan = lambda n, body: fault
        with pytest.raises(ServerError) as caught:
            scorer.score([request_about(m=1)])
        assert CANARY not in everything(caught.value)
        gate = ISRGate(scorer=scorer, reference=Oracle(1.0), on_error="abstain", orderings=Orderings(m=1))
        assert CANARY not in gate.decide(["a", "b"], claim="c").to_json()


def test_a_scorer_cannot_be_pickled_with_its_key(connect: Connect) -> None:
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(connect())


def test_the_key_of_a_vendor_is_not_sent_to_another_server(
    server: Tiny, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ISR_RAG_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("OPENAI_ORG_ID", CANARY)
    monkeypatch.setenv("OPENAI_PROJECT_ID", CANARY)
    connect().score([request_about(m=1)])
    assert server.headers and all(CANARY not in str(headers) for headers in server.headers)


def test_a_variable_that_holds_no_key_is_refused_without_repeating_it(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISR_RAG_API_KEY", f"{CANARY}\nx")
    with pytest.raises(ConfigurationError, match="ISR_RAG_API_KEY") as caught:
        connect()
    assert CANARY not in str(caught.value)
