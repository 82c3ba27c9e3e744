"""Balance candidates, hold out by group and by text, and put items of a group side by side."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from isr_lab.mix.build import item_of
from isr_lab.mix.records import Candidate
from isr_lab.mix.text import normal, sentences, tokens
from isr_lab.slice.asking import REFUTED
from isr_lab.slice.schema import SliceItem, Split
from isr_lab.slice.text import fold

_NEGATION = re.compile(r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot)\b|n['’]t\b", re.I)
_LONG_SENTENCE = 13


def part_of(group: str, val: float, calibration: float) -> str:
    """`val`, `calib` or `train` for a group, by a hash of its name."""
    place = int(hashlib.sha256(f"part:{group}".encode()).hexdigest()[:12], 16) / 16**12
    return "val" if place < val else "calib" if place < val + calibration else "train"


def wording(one: Candidate, *, pooled: bool = False) -> tuple[object, ...]:
    """What is balanced within: source and task, whether the claim is negated, holds a number, and how long it is.

    With `pooled` the source is left out, for kinds that balance each other (negation added here, dropped there).
    """
    text = one.claim or f"{one.question} {one.answer or ''}"
    length = len(text.split())
    band = next(i for i, most in enumerate((6, 9, 12, 16, 22, 30, 10_000)) if length <= most)
    short = (one.answer or "").lower() if (one.answer or "").lower() in {"yes", "no"} else ""
    return (
        "" if pooled else one.source,
        one.task,
        bool(_NEGATION.search(text)),
        bool(re.search(r"\d", text)),
        band,
        short,
    )


def evidence_band(one: Candidate) -> int:
    """A coarse size of the evidence, for sets whose labels differ in it."""
    return min(8, sum(tokens(chunk.text) for chunk in one.chunks) // 25)


def balanced(
    candidates: Sequence[Candidate], most: int, rng: random.Random, *, by_evidence: bool = False, pooled: bool = False
) -> list[Candidate]:
    """At most `most` candidates, as many of either label within every `wording`; whole units first."""
    cells: dict[tuple[object, ...], list[list[Candidate]]] = defaultdict(lambda: [[], []])
    units = Counter((one.unit, one.label) for one in candidates)
    for one in candidates:
        cell = (*wording(one, pooled=pooled), evidence_band(one) if by_evidence else 0)
        cells[cell][one.label].append(one)
    chosen: list[Candidate] = []
    for cell in sorted(cells, key=repr):
        zero, ones = cells[cell]
        for side in (zero, ones):
            rng.shuffle(side)
            side.sort(key=lambda one: units[one.unit, 1 - one.label] == 0)
        fewest = min(len(zero), len(ones))
        chosen += [*zero[:fewest], *ones[:fewest]]
    if len(chosen) <= most:
        return chosen
    return _thinned(chosen, most, rng, pooled=pooled)


def _thinned(chosen: Sequence[Candidate], most: int, rng: random.Random, *, pooled: bool) -> list[Candidate]:
    cells: dict[tuple[object, ...], list[list[Candidate]]] = defaultdict(lambda: [[], []])
    for one in chosen:
        cells[wording(one, pooled=pooled)][one.label].append(one)
    kept: list[Candidate] = []
    for cell in sorted(cells, key=repr):
        zero, ones = cells[cell]
        share = most * len(zero) / len(chosen)
        take = int(share) + (rng.random() < share - int(share))
        kept += [*zero[:take], *ones[:take]]
    return kept


def items_of(chosen: Iterable[Candidate], split: Split, licences: Mapping[str, str]) -> list[SliceItem]:
    """Candidates as items; the group is the first key."""
    found: dict[str, SliceItem] = {}
    for one in chosen:
        unit, license_ = one.unit.removeprefix(f"{one.source}:"), licences[one.source.removeprefix(REFUTED)]
        item = item_of(one, unit, split, one.keys[0], license_)
        found.setdefault(item.id, item)
    return list(found.values())


def by_group(items: Iterable[SliceItem], rng: random.Random) -> list[SliceItem]:
    """Groups in random order, items of a group side by side."""
    groups: dict[str, list[SliceItem]] = defaultdict(list)
    for item in items:
        groups[item.group].append(item)
    order = sorted(groups)
    rng.shuffle(order)
    return [item for group in order for item in groups[group]]


class HeldOut:
    """What training may not contain: groups, claims and questions, and evidence sentences of 13 or more words."""

    def __init__(self) -> None:
        self.groups: set[str] = set()
        self.texts: set[str] = set()
        self.sentences: set[str] = set()

    def add(self, items: Iterable[SliceItem], *, only_support: bool = False) -> None:
        """Hold out their groups, what they ask, and what their evidence says (only the support, where it is marked)."""
        for item in items:
            self.groups.add(item.group)
            self.texts.add(fold(item.claim or item.question or ""))
            marked = any(chunk.is_support for chunk in item.chunks)
            for chunk in item.chunks:
                if chunk.is_support or not (only_support and marked):
                    self.sentences |= long_sentences(chunk.text)

    def holds(self, item: SliceItem | Candidate) -> bool:
        """Whether an item belongs to a group held out, or asks or shows something held out."""
        group = item.group if isinstance(item, SliceItem) else item.keys[0]
        return (
            group in self.groups
            or fold(item.claim or item.question or "") in self.texts
            or any(not self.sentences.isdisjoint(long_sentences(chunk.text)) for chunk in item.chunks)
        )


def long_sentences(text: str) -> set[str]:
    """The normalised sentences of 13 or more words of a text, and the text itself."""
    return {normal(part) for part in (text, *sentences(text)) if len(normal(part).split()) >= _LONG_SENTENCE}
