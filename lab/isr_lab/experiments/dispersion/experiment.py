"""Experiment 1: how far predictions move with the order of the evidence, and what averaging over orderings gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from isr_lab.experiments.dispersion import depths, mixtures, positional, report, scaling
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.trials import ScoredTrial, Trial
from isr_lab.slice.schema import SliceItem
from isr_rag.core.orderings import FAMILIES, Family
from isr_rag.core.scorer import Layout
from isr_rag.errors import ConfigurationError, InvalidInputError


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Experiment 1 (Section 4.2, Appendices C and E). The defaults are the paper's, with the uniform family beside.

    Attributes:
        limit: items wanted in all, spread evenly over n; None for no limit. Each is scored under every family.
        seed: of the draw of items, the orderings, and everything resampled.
        m: orderings per item at most, the identity among them.
        bands: bands of the banded family.
        sizes: least and greatest n.
        grid: the n to ask with; None for every n of `sizes`. A thin grid makes a short run.
        per_size: items for each n; None for all that belong there. An item with more chunks than its n is cut to it:
            all support and the best-ranked others stay, in their order.
        families: families of orderings.
        permutations: draws of the permutation test.
        resamples: bootstrap samples.

    Raises:
        ConfigurationError: if a setting is out of range.
    """

    name: ClassVar[str] = "dispersion"
    title: ClassVar[str] = "Experiment 1: dispersion over orderings, and mixtures"

    limit: int | None = None
    seed: int = 0
    m: int = 16
    bands: int = 6
    sizes: tuple[int, int] = (3, 60)
    grid: tuple[int, ...] | None = None
    per_size: int | None = None
    families: tuple[Family, ...] = ("banded", "uniform")
    permutations: int = 2000
    resamples: int = 1000

    def __post_init__(self) -> None:
        low, high = self.sizes
        if not 1 <= low <= high:
            raise ConfigurationError(f"sizes must be 1 <= least <= greatest, got {self.sizes}")
        if not self._depths():
            raise ConfigurationError(f"no n of the grid {self.grid} lies within sizes {self.sizes}")
        if self.m < 2 or self.bands < 1:
            raise ConfigurationError(f"need m >= 2 orderings and at least 1 band, got m={self.m}, bands={self.bands}")
        if not self.families or not set(self.families) <= set(FAMILIES):
            raise ConfigurationError(f"families must be some of {', '.join(FAMILIES)}, got {self.families}")
        for setting in ("limit", "per_size"):
            value = getattr(self, setting)
            if value is not None and value < 1:
                raise ConfigurationError(f"{setting} must be at least 1, or None for all; got {value}")
        if self.permutations < 1 or self.resamples < 0:
            raise ConfigurationError("need at least 1 permutation and no negative number of resamples")

    def _depths(self) -> list[int]:
        low, high = self.sizes
        return sorted({n for n in (self.grid or range(low, high + 1)) if low <= n <= high})

    def trials(self, items: Sequence[SliceItem], layout: Layout) -> list[Trial]:
        """One trial for each chosen item and family, in ascending n.

        Args:
            items: the slice.
            layout: how the scorer sees the evidence; decides whether the question comes before it.

        Raises:
            InvalidInputError: if no item has as many chunks as the least n.
        """
        placed = depths.choose(items, self._depths(), per_size=self.per_size, limit=self.limit, seed=self.seed)
        return depths.trials(placed, self.families, m=self.m, bands=self.bands, seed=self.seed, layout=layout)

    def analyse(self, outcomes: Sequence[ScoredTrial]) -> Analysis:
        """Everything the experiment reports, from the outcomes of its trials.

        Raises:
            InvalidInputError: if there are no outcomes.
        """
        if not outcomes:
            raise InvalidInputError("there are no outcomes to analyse: score the trials of the experiment first")
        families = scaling.read(outcomes)
        figures: dict[str, Any] = {
            "settings": {"m": self.m, "bands": self.bands, "seed": self.seed},
            "passes": sum(outcome.passes for outcome in outcomes),
            "families": {name: self._family(name, items) for name, items in families.items()},
        }
        return report.report(figures, families)

    def _family(self, name: str, items: Sequence[scaling.Permuted]) -> dict[str, Any]:
        return {
            "dispersion": scaling.dispersion(items, self.bands if name == "banded" else None),
            "mixtures": mixtures.cross_entropies(items),
            "gold": mixtures.against_gold(items, resamples=self.resamples, seed=self.seed),
            "information": mixtures.ordering_information(
                items, m=self.m, permutations=self.permutations, seed=self.seed
            ),
            "positional": positional.analyse(items, resamples=self.resamples, seed=self.seed),
        }
