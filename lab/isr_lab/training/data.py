"""Training examples from items: which chunks are shown, which examples share a batch.

In the late layout a chunk's state depends on the chunk alone, so examples about the same evidence are put into one
batch and every distinct chunk is computed once. Which distractors are shown follows from one random priority a
text and pass over the data: two examples with overlapping evidence keep the same ones.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from isr_lab.slice.asking import predicate
from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_rag.core.evidence import Chunk
from isr_rag.core.scorer import ORDERED, TOPIC_LAST, Layout
from isr_rag.scorers.local.encoding import EncodedPrompt, PromptEncoder
from isr_rag.scorers.local.packed.pack import Pack, pack_full, pack_invariant

_COUNTS = (1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6, 6, 8, 10, 14, 20)
"""How many chunks an example shows, drawn uniformly from these."""
_OWN = (0, 1, 1, 2, 2, 3)
"""How many of its own distractors an example shows where it can borrow others."""
_TOGETHER = 8
"""Examples of one group that stay beside one another at most."""
_LONGEST = 640
"""Tokens of evidence in an example at most."""


@dataclass(frozen=True, slots=True)
class Example:
    """One tokenised question about some of an item's chunks."""

    item: SliceItem
    segments: EncodedPrompt

    @property
    def label(self) -> int:
        """1 for yes."""
        return self.item.label


def data_hash(items: Sequence[SliceItem]) -> str:
    """sha256 over the items' ids, labels and sources, in order."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(f"{item.source}\t{item.id}\t{item.label}\n".encode())
    return digest.hexdigest()


def segments(item: SliceItem, chunks: Sequence[SliceChunk], encoder: PromptEncoder, layout: Layout) -> EncodedPrompt:
    """The item's prompt with these chunks, in this order."""
    shown = [Chunk(chunk.text, chunk.title) for chunk in chunks]
    return encoder.encode(predicate(item).render(shown, topic_first=layout not in TOPIC_LAST))


def packed(prompts: Sequence[EncodedPrompt], layout: Layout) -> Pack:
    """The prompts as one sequence, one read each."""
    if layout in ORDERED:
        return pack_full(prompts, [[tuple(range(len(one.chunks)))] for one in prompts])
    return pack_invariant(prompts)


def label_ids(item: SliceItem, encoder: PromptEncoder) -> tuple[int, int]:
    """The tokens that mean yes and no.

    Raises:
        LabelError: if the tokenizer has no single token for one of them.
    """
    (yes, *_), (no, *_) = encoder.encode(predicate(item).render([Chunk("evidence")])).labels
    return yes, no


def _priority(text: str, seed: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(8, "little")).digest()


def unmarked_sources(items: Iterable[SliceItem]) -> frozenset[str]:
    """Sources that do not say which chunk supports: their items are only right with all their chunks."""
    return frozenset(item.source for item in items if item.label and not any(chunk.is_support for chunk in item.chunks))


def shown_chunks(
    item: SliceItem, rng: random.Random, seed: int, others: Sequence[SliceChunk] = (), *, whole: bool = False
) -> list[SliceChunk]:
    """The chunks to show, in the item's order: all support, then distractors up to a drawn count.

    Args:
        item: the item.
        rng: draws the counts.
        seed: of this pass over the data; decides the priorities of the item's own distractors.
        others: chunks of unrelated items that are computed anyway; with them, few of the item's own distractors
            are shown, and the rest come from here at next to no cost.
        whole: show every chunk of the item.
    """
    support = [chunk for chunk in item.chunks if chunk.is_support]
    rest = sorted(
        (chunk for chunk in item.chunks if not chunk.is_support), key=lambda chunk: _priority(chunk.text, seed)
    )
    least = 0 if support else 1
    wanted = max(rng.choice(_COUNTS) - len(support), least)
    own = rest[: min(wanted, max(rng.choice(_OWN), least))] if others else rest[:wanted]
    if whole:
        own = rest
    borrowed = rng.sample(others, max(min(wanted - len(own), len(others)), 0))
    return [chunk for chunk in item.chunks if chunk.is_support or chunk in own] + borrowed


def _pieces(items: Sequence[SliceItem], rng: random.Random) -> list[list[SliceItem]]:
    """Items of one group beside one another, a few at a time, in random order."""
    groups: dict[str, list[SliceItem]] = defaultdict(list)
    for item in items:
        groups[f"{item.source}/{item.group}"].append(item)
    pieces: list[list[SliceItem]] = []
    for name in sorted(groups):
        members = groups[name]
        rng.shuffle(members)
        pieces += [members[i : i + _TOGETHER] for i in range(0, len(members), _TOGETHER)]
    rng.shuffle(pieces)
    return pieces


def passes(
    items: Sequence[SliceItem],
    encoder: PromptEncoder,
    layout: Layout,
    seed: int,
    tokens: int,
    *,
    fixed: bool,
) -> Iterator[list[Example]]:
    """One pass over the data in batches of about `tokens` computed tokens, groups kept together.

    Examples with more than `_LONGEST` tokens of evidence lose their distractors, or are left out.
    """
    rng = random.Random(seed)
    unmarked = unmarked_sources(items)
    batch: list[Example] = []
    pool: dict[str, list[SliceChunk]] = {}
    known: set[tuple[tuple[int, ...], ...]] = set()
    used = 0
    for item in (item for piece in _pieces(items, rng) for item in piece):
        own = f"{item.source}/{item.group}"
        others = [chunk for name, chunks in pool.items() if name != own for chunk in chunks]
        whole = item.source in unmarked
        chosen = shown_chunks(item, rng, seed, others if layout == "late" else (), whole=whole)
        if layout == "row" and not fixed:  # one order for all items about the same chunks, which are computed once
            chosen.sort(key=lambda chunk: _priority(chunk.text, seed + 1))
        elif not fixed:
            rng.shuffle(chosen)
        made = segments(item, chosen, encoder, layout)
        if sum(map(len, made.chunks)) > _LONGEST:
            if whole:
                continue
            chosen = [chunk for chunk in chosen if chunk.is_support] or chosen[:2]
            made = segments(item, chosen, encoder, layout)
            if sum(map(len, made.chunks)) > _LONGEST:
                continue
        evidence = [made.chunks] if layout == "row" else [(ids,) for ids in made.chunks]
        new = {ids for ids in evidence if layout in ("full", "set") or ids not in known}
        cost = sum(len(ids) for chunks in new for ids in chunks) + len(made.tail)
        cost += len(made.head) // 3 if layout not in TOPIC_LAST else 0
        if batch and used + cost > tokens:
            yield batch
            batch, pool, known, used = [], {}, set(), 0
        batch.append(Example(item, made))
        pool.setdefault(own, []).extend(chunk for chunk in chosen if chunk in item.chunks)
        known.update(evidence)
        used += cost
    if batch:
        yield batch
