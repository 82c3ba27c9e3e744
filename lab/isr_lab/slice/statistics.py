"""Figures of a build, for the data card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from isr_lab.slice.schema import SliceItem
from isr_lab.slice.text import contains, fold

SIZE_BANDS = ((1, 2), (3, 5), (6, 10), (11, 20), (21, 40), (41, 60))


@dataclass(slots=True)
class Statistics:
    """Counts over all items of a build."""

    items: int = 0
    by_source_split: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    by_source_kind: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    by_source_task: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    by_construction: Counter[tuple[str, str, int]] = field(default_factory=Counter[tuple[str, str, int]])
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter[tuple[int, int]])
    snapshots: Counter[str] = field(default_factory=Counter[str])
    licenses: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    chunks: int = 0
    supported_drafts: int = 0
    answer_covered: int = 0
    false_drafts: int = 0
    false_in_context: int = 0
    hotpot: int = 0
    hotpot_multi: int = 0

    @property
    def positive(self) -> int:
        """Items with label 1."""
        return sum(count for (_, _, label), count in self.by_construction.items() if label)


def gather(items: Sequence[SliceItem]) -> Statistics:
    """Count everything the card tells."""
    found = Statistics(items=len(items))
    for item in items:
        found.by_source_split[item.source, item.split] += 1
        found.by_source_kind[item.source, item.kind] += 1
        found.by_source_task[item.source, item.task] += 1
        found.by_construction[item.source, item.provenance.construction, item.label] += 1
        found.licenses[item.provenance.dataset, item.provenance.license] += 1
        size = len(item.chunks)
        found.sizes[next((band for band in SIZE_BANDS if size <= band[1]), (61, size))] += 1
        found.chunks += size
        found.snapshots.update(chunk.snapshot[:4] if chunk.snapshot else "unknown" for chunk in item.chunks)
        _coverage(item, found)
    return found


def _coverage(item: SliceItem, found: Statistics) -> None:
    """Whether answers are in the contexts, and how many facts multi-hop items need."""
    if item.source == "hotpotqa" and item.kind == "supported":
        facts = {(c.title, c.sentence_id) for c in item.chunks if c.is_support}
        found.hotpot += 1
        found.hotpot_multi += len(facts) >= 2
    if item.task != "draft" or item.source == "controls":
        return
    there = any(contains(fold(chunk.text), fold(item.answer or "")) for chunk in item.chunks)
    if item.kind == "supported":
        found.supported_drafts += 1
        found.answer_covered += there
    elif item.kind == "refuted":
        found.false_drafts += 1
        found.false_in_context += there
