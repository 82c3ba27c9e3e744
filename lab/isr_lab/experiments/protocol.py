"""What an experiment is: trials to score, and what follows from their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from isr_lab.experiments.sections import Section
from isr_lab.experiments.trials import ScoredTrial, Trial
from isr_lab.slice.schema import SliceItem
from isr_rag.core.scorer import Layout


@dataclass(frozen=True, slots=True)
class Analysis:
    """What an experiment found.

    Attributes:
        figures: everything computed, as plain values for JSON; None where a figure is undefined.
        summary: plain sentences for the top of the report: what came out, beside what the paper reports.
        sections: tables and plots.
    """

    figures: dict[str, Any]
    summary: list[str]
    sections: list[Section]


class Experiment(Protocol):
    """One experiment; its settings are the fields of the dataclass that implements it."""

    @property
    def name(self) -> str:
        """How it is called on the command line and in files."""
        ...

    @property
    def title(self) -> str:
        """Heading of its report."""
        ...

    def trials(self, items: Sequence[SliceItem], layout: Layout) -> list[Trial]:
        """What to score.

        Args:
            items: the slice.
            layout: how the scorer sees the evidence; decides whether the question comes before it.

        Raises:
            InvalidInputError: if the slice lacks what the experiment needs.
        """
        ...

    def analyse(self, outcomes: Sequence[ScoredTrial]) -> Analysis:
        """What follows from the outcomes of all trials."""
        ...
