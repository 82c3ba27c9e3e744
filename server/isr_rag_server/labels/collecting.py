"""Collecting from items: scored by a gate without a reference, kept, and not acted on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from isr_rag.core.settings import Case, Estimate
from isr_rag.errors import InvalidInputError, InvalidTypeError
from isr_rag.gate import ISRGate
from isr_rag_server.labels.log import ShadowLog

BATCH = 16
_TEXTS = ("question", "answer", "claim")


class _ScoreOnly:
    """Says nothing about a case, and has each chunk read alone where that costs little: where chunks are read apart."""

    needs_scores = False

    def __init__(self, gate: ISRGate) -> None:
        self._closely = gate.settings.invariant

    def reads_alone(self, predicate: str) -> bool:
        """Whether each chunk is read by itself."""
        return self._closely

    def estimate(self, case: Case) -> Estimate:
        """0: shadow mode answers nothing."""
        return Estimate(0.0, "none: shadow mode")


def collect(
    gate: ISRGate,
    items: Iterable[Mapping[str, Any]],
    log: ShadowLog,
    *,
    progress: Callable[[int], None] = lambda done: None,
    on_bad: Callable[[str, InvalidInputError | InvalidTypeError], None] | None = None,
) -> int:
    """Score items with a gate and keep what it found; items whose id is there already, or comes again, are passed over.

    Args:
        gate: whose scores are collected; its reference is not asked.
        items: mappings with `id` and `evidence`, some of `question`, `answer` and `claim`, and `group` where cases may
            be right or wrong together (see `ShadowLog.record`).
        log: made with `ShadowLog.for_gate(gate, path)`.
        progress: told how many items are done.
        on_bad: told the id and the error of an item that cannot be decided about, which is then passed over; without
            it the error is raised.

    Returns:
        How many are new.

    Raises:
        ISRError: as the gate's `decide`, with a note that names the item's position in its batch of 16; what came
            before that batch is kept.
    """
    known, without = log.known(), {"reference": _ScoreOnly(gate)}
    new = done = 0
    source = iter(items)
    while batch := list(islice(source, BATCH)):
        fresh: list[Mapping[str, Any]] = []
        for item in batch:
            if str(item["id"]) not in known:
                known.add(str(item["id"]))
                fresh.append(item)
        asked = [{k: v for k, v in item.items() if k not in ("id", "group")} | without for item in fresh]
        try:
            decided = list(zip(fresh, gate.decide_batch(asked), strict=True))
        except (InvalidInputError, InvalidTypeError):
            if on_bad is None:
                raise
            decided = []
            for item, one in zip(fresh, asked, strict=True):
                try:
                    decided.append((item, gate.decide_batch([one])[0]))
                except (InvalidInputError, InvalidTypeError) as error:
                    on_bad(str(item["id"]), error)
        new += log.record_many(
            (decision, item["evidence"], {name: item.get(name) for name in _TEXTS}, str(item["id"]), item.get("group"))
            for item, decision in decided
        )
        done += len(batch)
        progress(done)
    return new
