"""Every decision leaves one line in the log, and a span where OpenTelemetry is in use; no text is in either."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from isr_rag import ISRGate, acquire
from isr_rag.core.algorithm import LOGGER
from isr_rag.errors import ScorerError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

EVIDENCE = ["The Seine flows through Paris.", "The Loire is long."]


def gate(p_ref: float = 1.0, **settings: Any) -> ISRGate:
    return ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(p_ref), h_star=0.2, **settings)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    for name in (LOGGER, "isr_rag"):  # whatever a program or server of an earlier test set
        monkeypatch.setattr(logging.getLogger(name), "disabled", False)
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    return caplog


def test_passes_and_abstentions_have_a_line_each_with_score_reason_and_cost(lines: pytest.LogCaptureFixture) -> None:
    passed = gate().decide(EVIDENCE, claim="The Seine flows through Paris.")
    gate(0.0).decide(EVIDENCE, claim="The Seine flows through Paris.")
    gate().decide([], claim="The Seine flows through Paris.")
    first, second, third = (record.getMessage() for record in lines.records)
    assert first.startswith("answer sufficient p_ref=1 q_bar=0.97 isr=") and "passes=2 seconds=" in first
    assert second.startswith("abstain reference_below_target p_ref=0")
    assert third.startswith("abstain no_evidence not scored h_star=0.2 chunks=0 passes=0")
    numbers = lines.records[0].isr  # type: ignore[attr-defined]
    assert numbers == {name: value for name, value in passed.to_dict().items() if name in numbers}
    assert {"p_ref", "isr", "passes", "seconds"} <= set(numbers)
    assert "Seine" not in lines.text + repr(numbers)


def test_sync_async_and_batched_decisions_have_the_same_lines(lines: pytest.LogCaptureFixture) -> None:
    item: dict[str, Any] = {"evidence": EVIDENCE, "claim": "The Seine flows through Paris."}
    core = gate()
    core.decide(**item)
    asyncio.run(core.adecide(**item))
    core.decide_batch([item, item])
    assert len({record.getMessage().split(" seconds")[0] for record in lines.records}) == 1
    assert len(lines.records) == 4


def test_a_loop_has_a_line_per_look_and_none_for_checking_its_arguments(lines: pytest.LogCaptureFixture) -> None:
    def failing(query: str, round_number: int, previous: object) -> list[str]:
        if round_number:
            raise OSError("gone")
        return EVIDENCE

    acquire(gate(0.0, on_error="abstain"), failing, question="Which river?", rounds=3)
    assert [record.getMessage().split()[:2] for record in lines.records] == [
        ["acquire", "reference_below_target"],
        ["abstain", "retriever_failed"],
    ]


@pytest.fixture(scope="module")
def exporter() -> Any:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


@pytest.fixture
def spans(exporter: Any) -> Iterator[Any]:
    exporter.clear()
    yield exporter.get_finished_spans
    exporter.clear()


@pytest.mark.parametrize("path", ["decide", "adecide"])
def test_a_decision_is_a_span_under_the_conventions_for_generative_ai(spans: Any, path: str) -> None:
    from opentelemetry import trace

    with trace.get_tracer("application").start_as_current_span("request") as request:
        if path == "decide":
            gate(0.0).decide(EVIDENCE, claim="The Seine flows through Paris.")
        else:
            asyncio.run(gate(0.0).adecide(EVIDENCE, claim="The Seine flows through Paris."))
    span = spans()[0]
    assert span.name == "evaluate fixed"
    assert span.parent.span_id == request.get_span_context().span_id
    assert span.attributes["gen_ai.operation.name"] == "evaluate"
    assert span.attributes["gen_ai.request.model"] == "fixed"
    (event,) = span.events
    assert event.name == "gen_ai.evaluation.result"
    assert event.attributes["gen_ai.evaluation.score.label"] == "abstain"
    assert event.attributes["gen_ai.evaluation.score.value"] == 0.0
    assert event.attributes["gen_ai.evaluation.explanation"] == "reference_below_target"
    assert "Seine" not in span.to_json()


def test_a_failure_ends_the_span_as_failed(spans: Any) -> None:
    def broken(prompt: object, ordering: object) -> float:
        raise RuntimeError("cannot read: The Seine.")

    with pytest.raises(ScorerError):
        ISRGate(scorer=FixedScorer(broken), reference=Oracle(1.0)).decide(EVIDENCE, claim="The Seine.")
    assert spans()[0].attributes["error.type"] == "ScorerError"
    assert not spans()[0].status.is_ok and "Seine" not in spans()[0].to_json()


def test_opentelemetry_is_not_loaded_by_a_decision() -> None:
    code = (
        "import sys; from isr_rag import ISRGate; from isr_rag.references import Oracle\n"
        "from isr_rag.testing import FixedScorer\n"
        "ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1)).decide(['a'], claim='b')\n"
        "print('opentelemetry' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_bm25_writes_no_debug_lines_into_a_log_at_info() -> None:
    code = (
        "import logging; logging.basicConfig(level=logging.INFO)\n"
        "from isr_rag._util.bm25 import Bm25; print(Bm25(['the river Seine', 'Loire']).best('Seine', 1))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0]"
    assert "DEBUG" not in done.stderr
