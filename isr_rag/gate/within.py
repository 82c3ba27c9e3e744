"""Algorithm 1 within the model's window, and under the gate's policy for a scorer or reference that fails."""

from __future__ import annotations

from dataclasses import replace

from isr_rag.batch import CheckedItem, Steps
from isr_rag.decision import Reason
from isr_rag.errors import PromptTooLongError, ReferenceFailedError, ScorerError
from isr_rag.focus import choose
from isr_rag.gate.algorithm_1 import algorithm_1
from isr_rag.gate.record import undecided
from isr_rag.gate.settings import GateSettings
from isr_rag.printable import printable


def within_policy(gate: GateSettings, item: CheckedItem) -> Steps:
    """Decide about an item; with `on_error="abstain"` a failure becomes an abstention with its reason."""
    try:
        return (yield from within_window(gate, item))
    except (ScorerError, ReferenceFailedError) as error:
        if gate.on_error == "raise":
            raise
        reason = Reason.SCORER_FAILED if isinstance(error, ScorerError) else Reason.REFERENCE_FAILED
        return replace(undecided(gate, item), reason=reason, detail=printable(str(error)))


def within_window(gate: GateSettings, item: CheckedItem) -> Steps:
    """Decide by what the focus leaves of the evidence, without chunks that do not fit the model's window."""
    reading, detail = choose(item.chunks, item.predicate.query, gate.focus), ""
    while True:
        try:
            decision = yield from algorithm_1(gate, item, reading)
            return replace(decision, detail="; ".join(part for part in (decision.detail, detail) if part))
        except PromptTooLongError as error:
            if not error.without:
                raise
            reading, detail = reading.without(error.without), printable(str(error))
