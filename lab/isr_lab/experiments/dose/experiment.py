"""Experiment 2: what a randomised dose of supporting evidence does at a fixed length of the prompt (Appendix D).

Every item is in four arms. Each arm shows four chunks, d of them support and 4 - d not, for d = 0, 1, 2, 3.

*Which items.* Gold label 1 (supported, or sufficient), at least three support chunks and at least four non-support
chunks of the item's own. A chunk counts as support where the slice marks it: gold evidence, or a sentence that holds
the answer (Appendix H.4); a piece of a long sentence that was cut is a chunk like any other. A chunk that is not marked
and yet holds the draft's answer is used as neither. The paper speaks of "items with exactly 4 chunks", from which four
arms with the same content cannot be made; here items have seven chunks or more and an *arm* has exactly four.
Of the slice built from all records 1,325 items qualify, 129 of them in validation and 126 in test; two in three are
HotpotQA's, which need two facts or more, so they are also reported apart.

*Same content across arms.* Each item's supports and its distractors are put into one random order, and arm d takes the
first d and the first 4 - d: a higher dose adds a support chunk and takes one distractor away.

*Positions.* The four chunks of an arm are shuffled, and m uniform orderings of them are scored. (Six bands of four
chunks have a single member, so the paper's banded shuffle would move nothing.)

*Randomisation* draws on nothing but the seed and the item's identifier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar

from isr_lab.experiments.dose.findings import Settings, find
from isr_lab.experiments.dose.report import report
from isr_lab.experiments.dose.statistics import DOSES, read_study
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.trials import Fact, ScoredTrial, Trial
from isr_lab.slice.asking import predicate
from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_lab.slice.text import contains, digest, fold, generator
from isr_rag.core.evidence import Chunk
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.prompt import Ordering
from isr_rag.core.scorer import TOPIC_LAST, Layout, ScoreRequest
from isr_rag.errors import ConfigurationError, InvalidInputError

LENGTH = 4
"""Chunks in every arm."""


@dataclass(frozen=True, slots=True)
class Dose:
    """The support-dose experiment.

    Attributes:
        limit: number of items, spread evenly over sources and tasks; None for all that qualify.
        seed: of the choice of items, of the content of the arms, of the positions and of the resamples.
        m: orderings per prompt, at most 24 exist.
        h_star: tolerated risk.
        clip: B in nats.
        resamples: of every bootstrap.

    Raises:
        ConfigurationError: for a setting out of range.
    """

    name: ClassVar[str] = "dose"
    title: ClassVar[str] = "Experiment 2: dose-response of supporting evidence"

    limit: int | None = None
    seed: int = 0
    m: int = 6
    h_star: float = 0.05
    clip: float = 6.0
    resamples: int = 1000

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ConfigurationError(f"limit must be at least 1, or None for all items, not {self.limit}")
        if self.m < 1 or self.resamples < 1:
            raise ConfigurationError(f"need at least 1 ordering and 1 resample, not {self.m} and {self.resamples}")
        if not 0.0 < self.h_star < 1.0 or not self.clip > 0.0:
            raise ConfigurationError(f"need h* in (0, 1) and a clip above 0 nats, not {self.h_star} and {self.clip}")

    def trials(self, items: Sequence[SliceItem], layout: Layout) -> list[Trial]:
        """Four trials an item, one an arm.

        Raises:
            InvalidInputError: if no item has the chunks that four arms take.
        """
        chosen = choose(items, self.limit, self.seed)
        if not chosen:
            raise InvalidInputError(
                f"none of the {len(items)} items has label 1 with at least {DOSES[-1]} support chunks and {LENGTH} "
                "others, which four arms of the support-dose experiment take: give more items, or a slice with longer "
                "contexts"
            )
        orderings = draw_orderings(LENGTH, self.m, family="uniform", seed=self.seed)
        return [self._trial(item, dose, layout, orderings) for item in chosen for dose in DOSES]

    def _trial(self, item: SliceItem, dose: int, layout: Layout, orderings: tuple[Ordering, ...]) -> Trial:
        question = predicate(item)
        chunks = [Chunk(chunk.text, chunk.title) for chunk in arm(item, dose, self.seed)]
        prompt = question.render(chunks, topic_first=layout not in TOPIC_LAST)
        facts: dict[str, Fact] = {
            "item": item.id,
            "group": item.group,
            "source": item.source,
            "task": item.task,
            "dose": dose,
            "multi_hop": item.multi_hop,
            "supports": len(_sides(item)[0]),
        }
        return Trial(f"{item.id}/dose-{dose}", ScoreRequest(prompt, orderings), facts, target=question.target)

    def analyse(self, outcomes: Sequence[ScoredTrial]) -> Analysis:
        """Rates an arm, trend, regressions, instrument and net changes, beside the paper's figures.

        Raises:
            InvalidInputError: if an item lacks an arm.
        """
        study = read_study(outcomes, h_star=self.h_star, clip=self.clip)
        settings = Settings(self.h_star, self.clip, self.resamples, self.seed)
        return report(find(study, settings), settings)


def qualifies(item: SliceItem) -> bool:
    """Whether four arms can be made of an item; see the module's text."""
    supports, others = _sides(item)
    return item.label == 1 and len(supports) >= DOSES[-1] and len(others) >= LENGTH


def choose(items: Iterable[SliceItem], limit: int | None, seed: int) -> list[SliceItem]:
    """The qualifying items, at most `limit`, by turns from every source and task, in an order of the seed."""
    kinds: dict[tuple[str, str], list[SliceItem]] = defaultdict(list)
    for item in items:
        if qualifies(item):
            kinds[item.source, item.task].append(item)
    ordered = [sorted(kinds[kind], key=lambda item: digest(seed, item.id)) for kind in sorted(kinds)]
    turns = [item for turn in zip_longest(*ordered) for item in turn if item is not None]
    return turns[:limit]


def arm(item: SliceItem, dose: int, seed: int) -> list[SliceChunk]:
    """The four chunks that a qualifying item shows at a dose, in a random order of their own."""
    supports, others = _sides(item)
    content = generator("content", seed, item.id)
    content.shuffle(supports)
    content.shuffle(others)
    shown = supports[:dose] + others[: LENGTH - dose]
    generator("positions", seed, item.id, dose).shuffle(shown)
    return shown


def _sides(item: SliceItem) -> tuple[list[SliceChunk], list[SliceChunk]]:
    """Support chunks, and chunks that are none and do not hold the draft's answer either."""
    answer = fold(item.answer or "")
    supports = [chunk for chunk in item.chunks if chunk.is_support]
    return supports, [c for c in item.chunks if not c.is_support and not contains(fold(c.text), answer)]
