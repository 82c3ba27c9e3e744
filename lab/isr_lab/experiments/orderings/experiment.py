"""What the paper leaves open on orderings: which to draw, what they move, if it matters, what a cascade loses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from isr_lab.experiments.orderings.cascades import analyse_cascades
from isr_lab.experiments.orderings.families import Drawing, analyse_families
from isr_lab.experiments.orderings.flips import analyse_flips
from isr_lab.experiments.orderings.parts import Sizes, choose
from isr_lab.experiments.orderings.variance import Design, analyse_variance
from isr_lab.experiments.orderings.wordings import LABEL_MAPS, WORDINGS, LabelMap, Wording, shipped_prompt
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.sections import Section
from isr_lab.experiments.trials import Fact, ScoredTrial, Trial
from isr_lab.slice.schema import SliceItem
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import TOPIC_LAST, Layout, ScoreRequest
from isr_rag.core.settings import Rule, Settings
from isr_rag.errors import ConfigurationError, InvalidInputError

FAMILIES, WORDING, PRACTICE = "families", "wording", "practice"
_MISSING = {
    FAMILIES: "Which orderings to draw: not settled, no item with a number of chunks asked for ({wanted}).",
    WORDING: "Order or wording: not settled, fewer than two items with a number of chunks asked for ({wanted}).",
    PRACTICE: "Whether the order matters, and the cascade: not settled, no item of the sizes asked for ({wanted}).",
}


@dataclass(frozen=True, slots=True)
class OrderingStudy:
    """Four questions about orderings, on items of chosen numbers of chunks.

    The sizes are meant for a model of 135 million parameters on two cores, which computes about 700 tokens per second:
    about 15 minutes. With a head of H, a closing of S and chunks of L tokens, m orderings that share no beginning take
    H + m (n L + S) tokens; all permutations share theirs, and take L for each distinct beginning of one (15, 64 and
    325 of them for n = 3, 4 and 5) and S for each permutation. At most, with L = 50, S = 50 and H = 70, and as counted
    on 5,000 items of real data, where they are 33, 42 and 67 on average, in thousands of tokens:

    | set of trials | items x tokens at L = 50, by n | real data |
    |---|---|---|
    | families | 12 x 1.1 (3), 10 x 4.5 (4), 4 x 22 (5), 1 x 83 (10), 1 x 170 (20): 400 | 265 |
    | wordings and copies | 12 prompts x 4 orderings: 4 x 9 (3), 4 x 12 (4), 2 x 14 (5): 112 | 89 |
    | practice, cascade | 60 x 1.1 (3), 30 x 3 (5), 8 x 5 (8), 5 x 8 (12), 3 x 13 (20): 275 | 196 |
    | in all | 790, or 19 minutes | 550, or 13 |

    Attributes:
        limit: at most so many items for each of the three sets of trials; None: as the sizes say.
        seed: of the choice of items and of the orderings drawn in practice.
        family_items: number of chunks and items for the comparison of families.
        sizes: numbers of orderings m at which families are compared.
        family_seeds: draws of each family where every permutation is scored; more of them cost no scoring.
        sampled_seeds: draws of each family where the truth is sampled; each is scored.
        enumerate_up_to: every permutation is scored up to this n; at 6 an item costs 720 orderings.
        truth_draws: uniform orderings that make the truth above it.
        wording_items: number of chunks and items for the variance components.
        wording_orderings: orderings of each item there.
        copies: how often the shipped prompt in the retriever's order is scored in all, for the noise.
        wordings: templates, the shipped one first.
        label_maps: label words, the shipped ones first.
        noise_floor: what the scorer states as its own noise, in log-odds; None where it states none.
        practice_items: number of chunks and items for the flips, the gains and the cascade.
        m: orderings of the gate there.
        threshold: probability from which an answer goes through, for the flips.
        h_star: target hallucination rate of the cascade's gate.
        clip: its B, in nats.
        resamples: of every bootstrap.

    Raises:
        ConfigurationError: for settings that make no design.
    """

    name: ClassVar[str] = "orderings"
    title: ClassVar[str] = "Orderings: which to draw, what they move, and what a cascade loses"

    limit: int | None = None
    seed: int = 0
    family_items: Sizes = ((3, 12), (4, 10), (5, 4), (10, 1), (20, 1))
    sizes: tuple[int, ...] = (3, 6, 12)
    family_seeds: int = 40
    sampled_seeds: int = 1
    enumerate_up_to: int = 5
    truth_draws: int = 120
    wording_items: Sizes = ((3, 4), (4, 4), (5, 2))
    wording_orderings: int = 4
    copies: int = 3
    wordings: tuple[Wording, ...] = WORDINGS
    label_maps: tuple[LabelMap, ...] = LABEL_MAPS
    noise_floor: float | None = None
    practice_items: Sizes = ((3, 60), (5, 30), (8, 8), (12, 5), (20, 3))
    m: int = 12
    threshold: float = 0.95
    h_star: float = 0.05
    clip: float = 6.0
    resamples: int = 1000

    def __post_init__(self) -> None:
        if min(len(self.wordings), len(self.label_maps), self.wording_orderings, self.copies) < 2:
            raise ConfigurationError("variance components need two or more wordings, label maps, orderings and copies")
        few = [n for n, _ in self.wording_items if math.factorial(n) < self.wording_orderings]
        if few:
            raise ConfigurationError(f"{few[0]} chunks do not have {self.wording_orderings} orderings")
        if self.copies > self.wording_orderings + 1:
            raise ConfigurationError(f"{self.copies} copies need as many orderings of company; give fewer")
        if not self.sizes or min(self.sizes) < 1 or min(self.family_seeds, self.sampled_seeds) < 1:
            raise ConfigurationError("families need sizes and seeds of at least 1")
        if self.truth_draws < 2:
            raise ConfigurationError("a truth of fewer than two draws has no known variance")

    @property
    def drawing(self) -> Drawing:
        """How orderings are drawn for the comparison of families."""
        return Drawing(self.sizes, self.family_seeds, self.sampled_seeds, self.enumerate_up_to, self.truth_draws)

    def trials(self, items: Sequence[SliceItem], layout: Layout) -> list[Trial]:
        """Each chosen item under the orderings of its question.

        Raises:
            InvalidInputError: if the slice has no item of any size asked for.
        """
        compared = choose(items, self.family_items, self.seed, self.limit)
        worded = choose(items, self.wording_items, self.seed, self.limit)
        practised = choose(items, self.practice_items, self.seed, self.limit)
        if not (compared or len(worded) > 1 or practised):
            sizes = sorted({n for n, _ in (*self.family_items, *self.wording_items, *self.practice_items)})
            raise InvalidInputError(f"the study of orderings needs items with {sizes} chunks, and there are none")
        drawn = {n: self.drawing.draws(n).orderings for n in {len(item.chunks) for item in compared}}
        first = layout not in TOPIC_LAST
        trials = [
            self._trial(FAMILIES, item, layout, shipped_prompt(item, topic_first=first), drawn[len(item.chunks)])
            for item in compared
        ]
        for item in practised:
            orderings = draw_orderings(len(item.chunks), self.m, seed=self.seed)
            trials.append(self._trial(PRACTICE, item, layout, shipped_prompt(item, topic_first=first), orderings))
        if len(worded) > 1:
            trials += [trial for item in worded for trial in self._worded(item, layout)]
        return trials

    def _worded(self, item: SliceItem, layout: Layout) -> list[Trial]:
        first = layout not in TOPIC_LAST
        orderings = draw_orderings(len(item.chunks), self.wording_orderings, family="uniform", seed=self.seed)
        trials = [
            self._trial(
                WORDING, item, layout, wording.prompt(item, labels, topic_first=first), orderings,
                target=labels.target, template=wording.name, label_map=labels.name, copy=0,
            )
            for wording in self.wordings
            for labels in self.label_maps
        ]  # fmt: skip
        wording, labels = self.wordings[0], self.label_maps[0]
        prompt = wording.prompt(item, labels, topic_first=first)
        for copy in range(1, self.copies):  # the retriever's order last, after copy - 1 others
            trials.append(
                self._trial(
                    WORDING, item, layout, prompt, orderings[:copy][::-1],
                    target=labels.target, template=wording.name, label_map=labels.name, copy=copy,
                )
            )  # fmt: skip
        return trials

    def _trial(
        self, part: str, item: SliceItem, layout: Layout, prompt: Prompt, orderings: tuple[Ordering, ...],
        target: int = 0, **more: Fact,
    ) -> Trial:  # fmt: skip
        facts: dict[str, Fact] = {
            "part": part, "item": item.id, "group": item.group, "label": item.label, "task": item.task,
            "n": len(item.chunks), "layout": layout, **more,
        }  # fmt: skip
        name = "/".join([part, item.id, *(str(value) for value in more.values())])
        return Trial(name, ScoreRequest(prompt, orderings), facts, target)

    def analyse(self, outcomes: Sequence[ScoredTrial]) -> Analysis:
        """The four answers, those that the items allow."""
        by_part = {part: [o for o in outcomes if o.facts["part"] == part] for part in _MISSING}
        found: dict[str, Analysis] = {}
        if by_part[FAMILIES]:
            found["families"] = analyse_families(by_part[FAMILIES], self.drawing, self.resamples)
        if by_part[WORDING]:
            names = [wording.name for wording in self.wordings], [labels.name for labels in self.label_maps]
            design = Design.of(by_part[WORDING], *names)
            found["variance"] = analyse_variance(design, self.resamples, self.noise_floor)
        if by_part[PRACTICE]:
            found["flips"] = analyse_flips(by_part[PRACTICE], self.threshold, self.resamples)
            found["cascade"] = analyse_cascades(
                by_part[PRACTICE], Settings(h_star=self.h_star, rule=Rule(self.clip, "safe"))
            )
        asked = {FAMILIES: self.family_items, WORDING: self.wording_items, PRACTICE: self.practice_items}
        missing = [
            text.format(wanted=", ".join(f"n = {n}" for n, _ in asked[part]))
            for part, text in _MISSING.items()
            if not by_part[part]
        ]
        sections = [section for one in found.values() for section in one.sections]
        return Analysis(
            {name: one.figures for name, one in found.items()},
            [*(sentence for one in found.values() for sentence in one.summary), *missing],
            [*sections, *([Section("Not settled", missing)] if missing else [])],
        )
