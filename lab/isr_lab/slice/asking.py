"""The question that an item asks, as a predicate."""

from __future__ import annotations

from isr_lab.slice.schema import SliceItem
from isr_rag.predicates import Sufficient, Supported


def predicate(item: SliceItem) -> Supported | Sufficient:
    """The question that an item asks."""
    if item.claim is not None:
        return Supported(claim=item.claim)
    assert item.question is not None
    if item.answer is not None:
        return Supported(question=item.question, answer=item.answer)
    return Sufficient(item.question)
