"""Chunks of other items beside an item's own, so that calibration sees every number of chunks."""

from __future__ import annotations

import random
from collections.abc import Sequence

from isr_lab.mix.evidence import Document, Pool
from isr_lab.mix.text import contains, normal, tokens
from isr_lab.slice.schema import SliceChunk, SliceItem

BINS = ((1, 1), (2, 2), (3, 6), (7, 12), (13, 20))
"""Numbers of chunks over which calibration items are spread."""


class Distractors:
    """Chunks of other items, searched by BM25, to put beside an item's own."""

    def __init__(self, items: Sequence[SliceItem]) -> None:
        self._of: dict[str, tuple[SliceChunk, str]] = {}
        for item in items:
            for chunk in item.chunks:
                if tokens(chunk.text) <= 90:
                    self._of.setdefault(chunk.text, (chunk, item.group))
        self._pool = Pool([Document((text,), chunk.title) for text, (chunk, _) in self._of.items()])

    def pad(self, item: SliceItem, rng: random.Random) -> SliceItem:
        """The item with so many distractors that its number of chunks falls into a bin drawn at random."""
        own, asked = len(item.chunks), item.claim or item.question or ""
        fitting = [bounds for bounds in BINS if bounds[1] >= own]
        wanted = max(own, rng.randint(*rng.choice(fitting))) if fitting else own
        if wanted == own:
            return item
        have, words = {chunk.text for chunk in item.chunks}, set(normal(asked).split())

        def fits(other: Document) -> bool:
            text = other.sentences[0]
            said = item.answer and item.answer.lower() not in {"yes", "no"} and contains(text, item.answer)
            shared = len(words & set(normal(text).split()))
            return text not in have and self._of[text][1] != item.group and not said and 2 * shared <= len(words)

        near = self._pool.near(f"{asked} {item.chunks[0].text[:200]}", wanted - own, fits)
        added = [self._of[doc.sentences[0]][0].model_copy(update={"is_support": False}) for doc in near]
        chunks = [*item.chunks, *added]
        rng.shuffle(chunks)
        return item.model_copy(update={"chunks": tuple(chunks), "support_spans": (), "id": f"{item.id}:{len(chunks)}"})
