"""What every decision leaves behind: one line in the log, and a span where OpenTelemetry is in use. No texts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from isr_rag.decision import Decision

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["LOGGER"]

LOGGER = "isr_rag.decisions"
"""The logger that has a line at INFO for each decision."""

_logger = logging.getLogger(LOGGER)
_TEXTS = {"nearest", "detail"}
"""What of a decision may quote the evidence or the question."""

_quiet: ContextVar[bool] = ContextVar("isr_rag_quiet", default=False)


@contextmanager
def quiet() -> Generator[None, None, None]:
    """Decisions made in here are checks of the caller's arguments, and nobody is told of them."""
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)


@contextmanager
def telling(scorer: str) -> Generator[Callable[[Sequence[Decision]], None], None, None]:
    """Around the making of decisions: hands out what is to be told of each.

    A span `evaluate <scorer>` follows OpenTelemetry's conventions for generative AI. It is made where the application
    has loaded OpenTelemetry (extra "otel"), and has an event `gen_ai.evaluation.result` for each decision. An exception
    ends it as failed.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or _quiet.get():
        yield _log
        return
    attributes = {
        "gen_ai.operation.name": "evaluate",
        "gen_ai.provider.name": "isr_rag",
        "gen_ai.request.model": scorer,
    }
    with trace.get_tracer("isr_rag").start_as_current_span(f"evaluate {scorer}", attributes=attributes) as span:

        def tell(decisions: Sequence[Decision]) -> None:
            _log(decisions)
            _record(span, decisions)

        try:
            yield tell
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise


def tell(decision: Decision) -> None:
    """Tell of a decision that something around a gate made, without scoring."""
    with telling(decision.scorer) as told:
        told([decision])


def _log(decisions: Sequence[Decision]) -> None:
    if _quiet.get() or not _logger.isEnabledFor(logging.INFO):
        return
    for decision in decisions:
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
