"""What the audit scores, and its outcomes as items: every ordering's q, the reader's own order, and no evidence."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isr_lab.designs import orderings_from_seeds
from isr_lab.experiments.trials import ScoredTrial, Trial
from isr_lab.slice.asking import predicate, with_support
from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_rag.core.evidence import Chunk
from isr_rag.core.orderings import Family
from isr_rag.core.prompt import Ordering
from isr_rag.core.scorer import TOPIC_LAST, Layout, ScoreRequest

_WITHOUT = "without evidence/"


@dataclass(frozen=True, slots=True)
class AuditItem:
    """One item of the audit, scored.

    Attributes:
        id: of the slice's item.
        split: `test` or `val`.
        group: items that share it are not independent.
        source: benchmark it comes from.
        template: template of its predicate.
        label: 1 if the predicate "supported" holds by the gold label.
        identity: probability of "supported" in the retriever's order.
        seeded: the same for each seed's ordering, in the order of the seeds; None where a seed drew one again.
        without: the same with no evidence at all; None where that was not asked.
    """

    id: str
    split: str
    group: str
    source: str
    template: str
    label: int
    identity: float
    seeded: tuple[float | None, ...]
    without: float | None = None

    def q(self, m: int) -> tuple[float, ...]:
        """Probability of "supported" for the distinct orderings of the first m seeds."""
        return tuple(q for q in self.seeded[:m] if q is not None)

    def q_bar(self, m: int) -> float:
        """Their mean, as the gate's reference takes it."""
        q = self.q(m)
        return math.fsum(q) / len(q)

    def q_label(self, m: int) -> tuple[float, ...]:
        """Probability of the gold label for the same orderings."""
        return tuple(q if self.label == 1 else 1.0 - q for q in self.q(m))

    def agrees(self, m: int) -> bool:
        """Whether the label that the mixture finds likelier is the gold one; the paper's g(Y) = 1."""
        return (self.q_bar(m) >= 0.5) == (self.label == 1)


def sample(items: Iterable[SliceItem], wanted: int | None, seed: int) -> list[SliceItem]:
    """Items in proportion to every source, task and label, the same ones wherever the seed is the same.

    Args:
        items: to choose from.
        wanted: how many; None or more than there are: all.
        seed: of the choice.
    """

    def place(item: SliceItem) -> tuple[str, str, int, str]:
        return item.source, item.task, item.label, hashlib.sha256(f"{seed} {item.id}".encode()).hexdigest()

    pool = sorted(items, key=place)
    if wanted is None or wanted >= len(pool):
        return pool
    return [pool[(2 * i + 1) * len(pool) // (2 * wanted)] for i in range(wanted)]


def cut(chunks: Sequence[SliceChunk], most: int) -> list[SliceChunk] | None:
    """At most `most` chunks in their order: all support and the first others; None where the support alone is more.

    What is left out supports nothing, so the label stays what it is.
    """
    if sum(chunk.is_support for chunk in chunks) > most:
        return None
    return with_support(chunks, most)


def item_trials(
    item: SliceItem, chunks: Sequence[SliceChunk], seeds: Sequence[int], family: Family, layout: Layout
) -> list[Trial]:
    """The trials of one item: its evidence in the retriever's order and in each seed's; for test items, none at all."""
    n, question, topic_first = len(chunks), predicate(item), layout not in TOPIC_LAST
    drawn = [orderings_from_seeds(n, [seed], family=family)[0] for seed in seeds]
    orderings: tuple[Ordering, ...] = tuple(dict.fromkeys((tuple(range(n)), *drawn)))
    facts = {
        "item": item.id,
        "split": item.split,
        "group": item.group,
        "source": item.source,
        "template": question.template,
        "label": item.label,
        "n": n,
        "seeds": " ".join(str(orderings.index(ordering)) for ordering in drawn),
    }
    prompt = question.render([Chunk(chunk.text, chunk.title) for chunk in chunks], topic_first=topic_first)
    trials = [Trial(f"{item.split}/{item.id}", ScoreRequest(prompt, orderings), facts)]
    if item.split == "test":
        bare = ScoreRequest(question.render([], topic_first=topic_first), ((),))
        trials.append(Trial(f"{_WITHOUT}{item.id}", bare, {"item": item.id}))
    return trials


def scored_items(outcomes: Sequence[ScoredTrial]) -> list[AuditItem]:
    """The items behind the outcomes, in their order."""
    without = {str(o.facts["item"]): float(o.q[0]) for o in outcomes if o.name.startswith(_WITHOUT)}
    return [_item(o, without) for o in outcomes if not o.name.startswith(_WITHOUT)]


def _item(outcome: ScoredTrial, without: dict[str, float]) -> AuditItem:
    facts, q = outcome.facts, [float(p) for p in outcome.q]
    places = [int(place) for place in str(facts["seeds"]).split()]
    return AuditItem(
        id=str(facts["item"]),
        split=str(facts["split"]),
        group=str(facts["group"]),
        source=str(facts["source"]),
        template=str(facts["template"]),
        label=int(str(facts["label"])),
        identity=q[0],
        seeded=tuple(q[p] if p not in places[:k] else None for k, p in enumerate(places)),
        without=without.get(str(facts["item"])),
    )
