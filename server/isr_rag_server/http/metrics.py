"""Prometheus metrics for `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from isr_rag.core.decision import Decision

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters of one server; several servers of a process do not share them.

    Args:
        gauges: names, what they mean, and how each is read at the time.
    """

    def __init__(self, gauges: dict[str, tuple[str, Callable[[], float]]]) -> None:
        self._registry = CollectorRegistry()
        self._decisions = Counter(
            "isr_rag_decisions", "Decisions made", ["action", "reason", "predicate"], registry=self._registry
        )
        self._passes = Counter("isr_rag_passes", "Forward passes spent", registry=self._registry)
        self._seconds = Histogram(
            "isr_rag_request_seconds", "Seconds of a request", ["path"], buckets=_SECONDS, registry=self._registry
        )
        self._requests = Counter("isr_rag_requests", "Requests", ["path", "status"], registry=self._registry)
        self._unlogged = Counter(
            "isr_rag_unlogged_decisions", "Decisions that the log could not take", registry=self._registry
        )
        self._registry.register(_Gauges(gauges))

    def decided(self, decision: Decision) -> None:
        """Count a decision."""
        self._decisions.labels(decision.action.value, decision.reason.value, decision.predicate).inc()
        self._passes.inc(decision.passes)

    def passed(self, passes: int) -> None:
        """Count passes besides those of the decisions that are counted."""
        self._passes.inc(passes)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request; `path` is a route's template, never what a client wrote."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def unlogged(self) -> None:
        """Count a decision that could not be logged."""
        self._unlogged.inc()

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self._registry)


class _Gauges(Collector):
    """Values that are read when they are asked for."""

    def __init__(self, gauges: dict[str, tuple[str, Callable[[], float]]]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        for name, (meaning, read) in self._gauges.items():
            yield GaugeMetricFamily(name, meaning, value=read())
