"""Batches drawn from several sets of items by weight, for runs that are bounded by time rather than by passes.

In the late layout a chunk's state depends on the chunk alone. Items of one group (twins, claims and questions about the
same evidence) are therefore kept in one batch, where every distinct chunk is computed once; more distractors are
borrowed from the batch's other groups, which costs only attention; and some groups are asked twice, among few and
among many chunks, which costs only their tails.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from isr_lab.slice.asking import REFUTED
from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_lab.training.data import Example, segments
from isr_rag.core.scorer import ORDERED, Layout
from isr_rag.scorers.local.encoding import EncodedPrompt, PromptEncoder

_TOGETHER = 8
_FULL, _MISFITS, _PAIRS = 0.93, 5, 3


@dataclass(frozen=True, slots=True)
class Showing:
    """How much evidence examples show.

    Attributes:
        counts: chunks of an example, drawn uniformly; the support is always shown.
        own: distractors of the item itself, drawn uniformly; the rest is borrowed.
        twice: share of the groups that are asked a second time among `many` chunks.
        many: chunks of the second time.
        alone: sources whose evidence has no names: among borrowed chunks their claims would be ambiguous.
        longest: tokens of its own evidence that an example shows at most.
    """

    counts: tuple[int, ...] = (1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 12)
    own: tuple[int, ...] = (0, 1, 1, 2, 3)
    twice: float = 0.25
    many: tuple[int, ...] = (8, 10, 14, 20)
    alone: frozenset[str] = frozenset()
    longest: int = 500


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run with its mixture.

    Attributes:
        until: share of the run at which it ends, in (0, 1]; the last phase goes on to the end.
        weights: share of the pieces that come from each file, by the file's name; a file without one is left out.
        showing: how much evidence examples show.
    """

    until: float
    weights: Mapping[str, float]
    showing: Showing = field(default_factory=Showing)


@dataclass(slots=True)
class _Asked:
    """An item of the batch with what it shows of its own."""

    item: SliceItem
    group: str
    chunks: list[SliceChunk]
    seed: int
    counts: tuple[int, ...]


@dataclass(slots=True)
class Drawn:
    """Items in pieces (of one group, a few at a time), taken in turn; begun again when all were taken."""

    pieces: list[list[SliceItem]]
    next: int = 0

    def take(self) -> list[SliceItem]:
        """The next piece."""
        if self.next == len(self.pieces):
            self.next = 0
        self.next += 1
        return self.pieces[self.next - 1]


def pieces(items: Iterable[SliceItem], rng: random.Random, worker: int = 0, workers: int = 1) -> list[list[SliceItem]]:
    """This worker's groups of items, a few items at a time, in random order."""
    groups: dict[str, list[SliceItem]] = defaultdict(list)
    for item in items:
        groups[f"{item.source.removeprefix(REFUTED)}/{item.group}"].append(item)
    found: list[list[SliceItem]] = []
    for name in sorted(groups):
        members = groups[name]
        members.sort(key=lambda item: (sorted(chunk.text for chunk in item.chunks), item.id))
        found += [members[i : i + _TOGETHER] for i in range(0, len(members), _TOGETHER)]
    rng.shuffle(found)
    return found[worker::workers]


def _needed(piece: Sequence[SliceItem]) -> set[str]:
    """Texts that support something in the piece: what a false twin is confused by is shown, too."""
    return {chunk.text for item in piece for chunk in item.chunks if chunk.is_support}


@dataclass(slots=True)
class Mixture:
    """An endless stream of batches.

    Attributes:
        encoder: of the model in training.
        sets: items by name.
        weights: share of the pieces that come from each set.
        showing: how much evidence examples show.
        tokens: computed tokens a batch, about, as in the late layout.
        rng: draws everything.
        unmarked: sources whose items are only right with all their chunks.
        layout: late; or row or full: a batch's chunks are in one random order, and borrowed ones are computed anew. In
            a row examples share what they begin with.
    """

    encoder: PromptEncoder
    sets: Mapping[str, Drawn]
    weights: Mapping[str, float]
    showing: Showing
    tokens: int
    rng: random.Random
    unmarked: Collection[str] = ()
    layout: Layout = "late"
    _left: list[list[SliceItem]] = field(default_factory=list[list[SliceItem]])

    def _piece(self) -> list[SliceItem]:
        names = sorted(name for name in self.sets if self.weights.get(name, 0) > 0)
        return self.sets[self.rng.choices(names, [self.weights[name] for name in names])[0]].take()

    def _own(self, piece: Sequence[SliceItem]) -> list[_Asked]:
        """The piece's items with the chunks of their own that they show, the same for twins."""
        showing, rng = self.showing, self.rng
        needed, seed = _needed(piece), rng.getrandbits(48)
        most = max(sum(chunk.text in needed for chunk in item.chunks) for item in piece)
        total = most + rng.choice(showing.own)  # the same for all, so their number tells nothing
        asked: list[_Asked] = []
        order: dict[str, float] = {}
        for item in piece:
            must = [chunk for chunk in item.chunks if chunk.is_support or chunk.text in needed]
            rest = [chunk for chunk in item.chunks if not (chunk.is_support or chunk.text in needed)]
            for chunk in rest:
                order.setdefault(chunk.text, rng.random())
            rest.sort(key=lambda chunk: order[chunk.text])
            whole = item.source in self.unmarked
            chosen = must + (rest if whole else rest[: max(total - len(must), 0 if must else 1)])
            while not whole and len(chosen) > max(len(must), 1) and self._length(chosen) > showing.longest:
                chosen.pop()
            if self._length(chosen) > showing.longest:
                return []  # the others of the piece alone would be of one label too often
            asked.append(_Asked(item, item.group, chosen, seed, showing.counts))
        if asked and rng.random() < showing.twice and not self._alone(piece[0]):
            asked += [_Asked(one.item, one.group, one.chunks, seed + 1, showing.many) for one in asked]
        return asked

    def _alone(self, item: SliceItem) -> bool:
        return item.source.removeprefix(REFUTED) in self.showing.alone

    def _length(self, chunks: Sequence[SliceChunk]) -> int:
        return sum(len(chunk.text) for chunk in chunks) // 4

    def _shown(self, one: _Asked, pool: Sequence[tuple[str, SliceChunk]]) -> list[SliceChunk]:
        """What an example shows: its own chunks, and borrowed ones that are the same for twins."""
        if self._alone(one.item):
            return one.chunks
        rng = random.Random(one.seed)
        wanted = rng.choice(one.counts) - len(one.chunks)
        texts = {chunk.text for chunk in one.item.chunks}
        others = [chunk for group, chunk in pool if group != one.group and chunk.text not in texts]
        return one.chunks + rng.sample(others, max(min(wanted, len(others)), 0))

    def __iter__(self) -> Iterator[list[Example]]:
        """Batches without end."""
        while True:
            batch: list[_Asked] = []
            known: set[str] = set()
            used, waiting, self._left = 60, self._left, []
            # What does not fit waits for the next batch, so all are nearly full: workers wait for one another.
            while used < _FULL * self.tokens and len(self._left) < _MISFITS:
                piece = waiting.pop(0) if waiting else self._piece()
                asked = self._own(piece)
                if not asked:
                    continue
                new = {c.text: c for one in asked for c in one.chunks if c.text not in known}
                tails = [segments(one.item, one.chunks[:1], self.encoder, "late").tail for one in asked]
                cost = sum(map(len, tails)) + sum(
                    len(segments(asked[0].item, [chunk], self.encoder, "late").chunks[0]) for chunk in new.values()
                )
                if cost > 3 * self.tokens:
                    continue
                if batch and used + cost > self.tokens:
                    self._left.append(piece)
                    continue
                batch += asked
                known |= set(new)
                used += cost
            self._left += waiting
            pool = list({c.text: (one.group, c) for one in batch for c in one.chunks}.values())
            shown = [segments(one.item, self._shown(one, pool), self.encoder, self.layout) for one in batch]
            if self.layout in ORDERED:
                order = {ids: self.rng.random() for ids in dict.fromkeys(ids for made in shown for ids in made.chunks)}
                shown = [
                    EncodedPrompt(made.head, tuple(sorted(set(made.chunks), key=order.__getitem__)), made.tail)
                    for made in shown
                ]
            yield [Example(one.item, made) for one, made in zip(batch, shown, strict=True)]


def twins(batch: Sequence[Example]) -> list[tuple[int, int]]:
    """Pairs of places in the batch of the same group and kind of question, the true one first.

    An example appears in at most `_PAIRS` pairs.
    """
    groups: dict[tuple[str, str, str, bool], list[int]] = defaultdict(list)
    for place, example in enumerate(batch):
        item = example.item
        groups[item.source, item.group, item.task, item.label == 1].append(place)
    pairs: list[tuple[int, int]] = []
    for (source, group, task, right), places in groups.items():
        if right:
            wrong = groups.get((source, group, task, False), [])
            pairs += [(above, below) for above in places[:_PAIRS] for below in wrong[:_PAIRS]]
    return pairs
