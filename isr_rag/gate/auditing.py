"""An audit with a gate: what `isr_rag.audit.auditor` asks is decided and scored here, sync or async."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from isr_rag.audit.asking import Ask, Steps, Told
from isr_rag.audit.result import AnswerAudit
from isr_rag.gate.scoring import scores_or_raise

if TYPE_CHECKING:
    from isr_rag.gate.gate import ISRGate


def run(gate: ISRGate, steps: Steps) -> list[AnswerAudit]:
    """Answer what an audit asks until it is done."""
    told: Told | None = None
    while True:
        ask, done = _next(steps, told)
        if ask is None:
            return done
        told = (gate.decide_batch(ask.items) if ask.items else [], scores_or_raise(gate.scorer, ask.requests))


async def arun(gate: ISRGate, steps: Steps) -> list[AnswerAudit]:
    """As `run`, without blocking the event loop."""
    told: Told | None = None
    while True:
        ask, done = await asyncio.to_thread(_next, steps, told)
        if ask is None:
            return done
        decisions = await gate.adecide_batch(ask.items) if ask.items else []
        told = decisions, await asyncio.to_thread(scores_or_raise, gate.scorer, ask.requests) if ask.requests else []


def _next(steps: Steps, told: Told | None) -> tuple[Ask | None, list[AnswerAudit]]:
    """The next question of an audit, or what it found."""
    try:
        return (next(steps) if told is None else steps.send(told)), []
    except StopIteration as stop:
        return None, cast(list[AnswerAudit], stop.value)
