"""Deduplication and splits: nothing that settles a test item is seen in training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from isr_lab.slice.records import Record, SourceReport
from isr_lab.slice.schema import Split
from isr_lab.slice.text import digest, fold

SHARES: tuple[tuple[Split, float], ...] = (("train", 0.8), ("val", 0.1), ("test", 0.1))
_PERMUTATIONS = 64


@dataclass(slots=True)
class SplitReport:
    """What tying records together did.

    Attributes:
        exact: records dropped because (question, answer) or the claim was there already.
        near_pairs: pairs of near-duplicates of different pages that were kept together in one split.
        groups: groups of records that must not be parted.
        largest: records in the largest group.
    """

    exact: int = 0
    near_pairs: int = 0
    groups: int = 0
    largest: int = 0
    sizes: dict[str, int] = field(default_factory=dict[str, int])


class _Union:
    """Disjoint sets over 0..size-1; the smallest member stands for its set."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def find(self, one: int) -> int:
        while self._parent[one] != one:
            self._parent[one] = self._parent[self._parent[one]]
            one = self._parent[one]
        return one

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.find(one), self.find(other)))
        self._parent[high] = low


def drop_repeated(records: Iterable[Record], reports: Mapping[str, SourceReport]) -> tuple[list[Record], int]:
    """Records without those whose question and first answer (or claim) came before."""
    seen: set[tuple[str, str]] = set()
    kept: list[Record] = []
    dropped = 0
    for record in records:
        key = (fold(record.text), fold(record.answers[0]) if record.answers else record.form)
        if key in seen:
            dropped += 1
            reports[record.source].skip("(question, answer) or claim is there already")
        else:
            seen.add(key)
            kept.append(record)
    return kept, dropped


def near_pairs(texts: Sequence[str], threshold: float) -> list[tuple[int, int]]:
    """Pairs of positions whose word sets have a Jaccard similarity of at least `threshold`.

    MinHash proposes the pairs, the exact similarity decides.
    """
    from datasketch import MinHash, MinHashLSH

    words = [frozenset(fold(text).split()) for text in texts]
    index = MinHashLSH(threshold=max(0.05, threshold - 0.1), num_perm=_PERMUTATIONS)
    pairs: list[tuple[int, int]] = []
    known: dict[frozenset[str], int] = {}
    hashes = MinHash.generator([[w.encode() for w in sorted(group)] for group in words], num_perm=_PERMUTATIONS)
    for place, (group, signature) in enumerate(zip(words, hashes, strict=True)):
        if group in known:
            pairs.append((known[group], place))
            continue
        known[group] = place
        for other in sorted(int(str(key)) for key in index.query(signature)):
            if len(group & words[other]) >= threshold * len(group | words[other]):
                pairs.append((other, place))
        index.insert(str(place), signature)
    return pairs


def split_of(group: str) -> Split:
    """The split of a group: a hash of its name, read as a fraction of 1, against the shares.

    Hashed anew because names are not uniform: a group is named after its member with the smallest hash.
    """
    place, below = int(digest("split", group)[:12], 16) / 16**12, 0.0
    for split, share in SHARES:
        below += share
        if place < below:
            return split
    return SHARES[-1][0]


def assign(records: Sequence[Record], threshold: float, seed: int) -> tuple[dict[int, tuple[Split, str]], SplitReport]:
    """Split and group of each record, by position.

    Records that share a gold page, or whose claims or questions are near-duplicates, form one group. A group's
    split follows from its name alone, so a record more or less leaves all other groups where they are.

    Args:
        records: deduplicated records.
        threshold: Jaccard similarity of word sets for near-duplicates.
        seed: orders the groups.
    """
    report = SplitReport()
    sets = _Union(len(records))
    first: dict[str, int] = {}
    for place, record in enumerate(records):
        for page in record.pages:
            sets.join(first.setdefault(page, place), place)
    for one, other in near_pairs([record.text for record in records], threshold):
        report.near_pairs += sets.find(one) != sets.find(other)
        sets.join(one, other)
    groups: dict[int, list[int]] = defaultdict(list)
    for place in range(len(records)):
        groups[sets.find(place)].append(place)
    report.groups, report.largest = len(groups), max(map(len, groups.values()), default=0)
    splits: dict[int, tuple[Split, str]] = {}
    for root, members in groups.items():
        name = digest(seed, records[root].source, records[root].key)[:12]
        for place in members:
            splits[place] = (split_of(name), name)
    for split, _ in SHARES:
        report.sizes[split] = sum(s == split for s, _ in splits.values())
    return splits, report
