"""The question that an item asks, as a predicate."""

from __future__ import annotations

from isr_lab.slice.schema import SliceItem
from isr_rag.core.predicates import Refuted, Sufficient, Supported

REFUTED = "refuted:"
"""Sources that begin so ask whether the evidence contradicts the claim; label 1 then means that it does."""


def predicate(item: SliceItem) -> Supported | Sufficient | Refuted:
    """The question that an item asks."""
    if item.claim is not None:
        if item.source.startswith(REFUTED):
            return Refuted(item.claim)
        return Supported(claim=item.claim)
    assert item.question is not None
    if item.answer is not None:
        return Supported(question=item.question, answer=item.answer)
    return Sufficient(item.question)
