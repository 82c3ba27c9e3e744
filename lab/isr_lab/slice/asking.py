"""The question that an item asks, as a predicate, and a shorter set of evidence to ask it about."""

from __future__ import annotations

from collections.abc import Sequence

from isr_lab.slice.schema import SliceChunk, SliceItem
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


def with_support(chunks: Sequence[SliceChunk], most: int) -> list[SliceChunk]:
    """All support and the first other chunks, in their order; `most` in all, or as many as support."""
    room, kept = most - sum(chunk.is_support for chunk in chunks), list[SliceChunk]()
    for chunk in chunks:
        if chunk.is_support or room > 0:
            kept.append(chunk)
            room -= not chunk.is_support
    return kept
