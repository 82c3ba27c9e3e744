"""One log line for each decision, and a span where OpenTelemetry is in use. Neither holds texts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from isr_rag.core.decision import Decision

if TYPE_CHECKING:
    from opentelemetry.trace import Span

LOGGER = "isr_rag.decisions"
"""The logger that has a line at INFO for each decision."""

_logger = logging.getLogger(LOGGER)
_TEXTS = {"nearest", "detail"}
"""What of a decision may quote the evidence or the question."""


@contextmanager
def traced(scorer: str) -> Generator[Callable[[list[Decision]], list[Decision]], None, None]:
    """Trace the making of decisions; yields a function that records them and hands them back.

    A span `evaluate <scorer>` follows OpenTelemetry's conventions for generative AI. It is made where the application
    has loaded OpenTelemetry (extra "otel"), and has an event `gen_ai.evaluation.result` for each decision. An exception
    ends it as failed.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        yield _log
        return
    attributes = {
        "gen_ai.operation.name": "evaluate",
        "gen_ai.provider.name": "isr_rag",
        "gen_ai.request.model": scorer,
    }
    with trace.get_tracer("isr_rag").start_as_current_span(f"evaluate {scorer}", attributes=attributes) as span:

        def record(decisions: list[Decision]) -> list[Decision]:
            _record(span, decisions)
            return _log(decisions)

        try:
            yield record
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise


def record(decision: Decision) -> None:
    """Record a decision that was made around a gate, without scoring."""
    with traced(decision.settings.scorer) as records:
        records([decision])


def _log(decisions: list[Decision]) -> list[Decision]:
    for decision in decisions if _logger.isEnabledFor(logging.INFO) else ():
        numbers = {name: getattr(decision, name) for name in ("p_ref", "q_bar", "isr")}
        known = " ".join(f"{name}={value:.4g}" for name, value in numbers.items() if value is not None)
        _logger.info(
            "%s %s %s h_star=%.4g chunks=%d passes=%d seconds=%.3f",
            decision.action.value,
            decision.reason.value,
            known or "not scored",
            decision.h_star,
            decision.chunks,
            decision.passes,
            decision.seconds,
            extra={"isr": {name: value for name, value in decision.to_dict().items() if name not in _TEXTS}},
        )
    return decisions


def _record(span: Span, decisions: Sequence[Decision]) -> None:
    span.set_attribute("isr.decisions", len(decisions))
    span.set_attribute("isr.passes", sum(decision.passes for decision in decisions))
    for decision in decisions:
        result: dict[str, str | float | int] = {
            "gen_ai.evaluation.name": f"isr {decision.predicate}",
            "gen_ai.evaluation.score.label": decision.action.value,
            "gen_ai.evaluation.explanation": decision.reason.value,
            "isr.h_star": decision.h_star,
            "isr.chunks": decision.chunks,
            "isr.passes": decision.passes,
            "isr.seconds": decision.seconds,
        }
        if decision.p_ref is not None:
            result["gen_ai.evaluation.score.value"] = decision.p_ref
        if decision.isr is not None:
            result["isr.ratio"] = decision.isr
        span.add_event("gen_ai.evaluation.result", result)
