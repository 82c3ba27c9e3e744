"""Experiment 3: the pre-specified held-out audit of the boundary ISR = 1 (Section 4.4, Appendix E)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from isr_lab.experiments.audit import paper, report
from isr_lab.experiments.audit.baselines import (
    COVERAGES,
    compare_selectors,
    risk_at_coverage,
    selector_scores,
)
from isr_lab.experiments.audit.boundary import (
    READINGS,
    Decisions,
    Reading,
    canonical_jensen_gap,
    decide,
    label_jensen_gap,
    orderings_disagree,
    rates,
    triple,
)
from isr_lab.experiments.audit.deployable import DeployableReference, fit_reference
from isr_lab.experiments.audit.items import AuditItem, cut, item_trials, sample, scored_items
from isr_lab.experiments.literal_rule import answered_range
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.trials import ScoredTrial, Trial
from isr_lab.metrics import brier, expected_calibration_error, wilson_interval
from isr_lab.slice.schema import SliceItem
from isr_rag.core.orderings import Family
from isr_rag.core.scorer import Layout
from isr_rag.core.settings import Convention, Rule, Settings
from isr_rag.errors import CalibrationError, ConfigurationError, InvalidInputError

CONVENTIONS: tuple[Convention, ...] = ("paper", "safe")
DecisionsBySetting = Mapping[tuple[int, float, Reading, Convention], Decisions]
"""(m, clip, reading, convention) -> decisions about the test items."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit's settings; those of the paper where it states them.

    Attributes:
        limit: test items; None for all.
        calibration_limit: calibration items (split val) for the deployable reference; None for all.
        seed: of the choice of items and of the bootstrap.
        seeds: one ordering each; the audit uses the first `m`, the sweep more of them.
        m: number of seeds behind a decision.
        h_star: target hallucination rate.
        clip: B in nats.
        sweep_m: numbers of seeds of the sweep.
        sweep_clip: clips of the sweep in nats.
        family: family of the orderings. The paper's banded ones leave up to six chunks as they are, so most
            items of this length would have one ordering only.
        most_chunks: items are cut to this many chunks, all support kept; those with more support are left out.
        resamples: bootstrap resamples behind each interval of the selectors.

    Raises:
        ConfigurationError: if the seeds do not suffice for m and the sweep, or a number is out of range.
    """

    name: ClassVar[str] = "audit"
    title: ClassVar[str] = "Experiment 3: pre-specified held-out audit"

    limit: int | None = paper.ITEMS
    calibration_limit: int | None = 600
    seed: int = 0
    seeds: tuple[int, ...] = tuple(range(12))
    m: int = 6
    h_star: float = 0.05
    clip: float = 6.0
    sweep_m: tuple[int, ...] = (3, 6, 12)
    sweep_clip: tuple[float, ...] = (4.0, 6.0, 8.0)
    family: Family = "uniform"
    most_chunks: int = 8
    resamples: int = 1000

    def __post_init__(self) -> None:
        counts = (self.m, *self.sweep_m)
        if min(counts) < 1 or max(counts) > len(self.seeds) or len(set(self.seeds)) < len(self.seeds):
            raise ConfigurationError(f"{len(self.seeds)} distinct seeds do not give m = {counts} orderings")
        if not 0.0 < self.h_star < 1.0 or min(self.clip, *self.sweep_clip) <= 0.0:
            raise ConfigurationError(f"h_star must lie in (0, 1) and clips above 0, not {self.h_star}, {self.clip}")
        least = {"most_chunks": 1, "resamples": 1, "limit": 1, "calibration_limit": 0}
        for name, value in least.items():
            given: int | None = getattr(self, name)
            if given is not None and given < value:
                raise ConfigurationError(f"{name} must be at least {value}, not {given}")

    def trials(self, items: Sequence[SliceItem], layout: Layout) -> list[Trial]:
        """Calibration items under every seed's ordering, and test items under these and without evidence.

        Raises:
            InvalidInputError: if no item of split test is left.
        """
        fitting = {item.id: chunks for item in items if (chunks := cut(item.chunks, self.most_chunks)) is not None}
        wanted = {"val": self.calibration_limit, "test": self.limit}
        chosen = [
            item
            for split, limit in wanted.items()
            for item in sample([i for i in items if i.split == split and i.id in fitting], limit, self.seed)
        ]
        if not any(item.split == "test" for item in chosen):
            raise InvalidInputError("the audit needs items of split test, and the slice has none that fits")
        return [
            trial for item in chosen for trial in item_trials(item, fitting[item.id], self.seeds, self.family, layout)
        ]

    def analyse(self, outcomes: Sequence[ScoredTrial]) -> Analysis:
        """Rates, sweep, selectors and calibration.

        Raises:
            InvalidInputError: if there is no outcome of a test item.
        """
        scored = scored_items(outcomes)
        test = [item for item in scored if item.split == "test"]
        val = [item for item in scored if item.split == "val"]
        if not test:
            raise InvalidInputError("no test item was scored: there is nothing to audit")
        references, missing = self._references(val)
        reference = references.get(self.m)
        made = self._decisions(test, references)
        figures: dict[str, Any] = {
            "items": len(test),
            "groups": len({item.group for item in test}),
            "calibration_items": len(val),
            "supported": sum(item.label for item in test) / len(test),
            "accuracy_of_all": sum(item.agrees(self.m) for item in test) / len(test),
            "most_chunks": self.most_chunks,
            "mean_distinct_orderings": sum(len(item.q(self.m)) for item in test) / len(test),
            "reference": reference.note if reference else None,
            "reference_missing": missing,
            "boundary": {reading: self._at(made, self.m, self.clip, reading) for reading in READINGS},
            "tied": self._tied(test, made),
            "jensen_gap": self._jensen_gap(test),
            "sweep": [self._sweep_row(test, made, m, clip) for m, clip in self._settings],
            "selectors": self._selectors(test, made),
            "calibration": self._calibration(test, reference) if reference else None,
            "by_source": self._by_source(test, made),
        }
        return Analysis(figures, report.summary(figures), report.sections(figures))

    @property
    def _settings(self) -> list[tuple[int, float]]:
        """The pairs (m, clip): the audit's own, and one of the two varied, as in Appendix E."""
        varied = [*((m, self.clip) for m in self.sweep_m), *((self.m, clip) for clip in self.sweep_clip)]
        return list(dict.fromkeys([*varied, (self.m, self.clip)]))

    def _references(self, val: Sequence[AuditItem]) -> tuple[dict[int, DeployableReference], str | None]:
        """A reference for every m, since a calibration belongs to one; or why there is none."""
        try:
            return {m: fit_reference(val, m) for m in sorted({self.m, *self.sweep_m})}, None
        except CalibrationError as error:
            return {}, f"There is no deployable reference: {str(error).rstrip('.')}."

    def _decisions(
        self, test: Sequence[AuditItem], references: Mapping[int, DeployableReference]
    ) -> DecisionsBySetting:
        """Decisions under every setting, reading and convention; none of the deployable reading without reference."""
        return {
            (m, clip, reading, convention): decide(
                test, m, Settings(h_star=self.h_star, rule=Rule(clip, convention)), reading, references.get(m)
            )
            for m, clip in self._settings
            for reading in READINGS
            for convention in CONVENTIONS
            if reading != "calibrated" or references
        }

    def _at(self, made: DecisionsBySetting, m: int, clip: float, reading: Reading) -> dict[str, Any] | None:
        """Rates of a reading under both conventions; None where no decisions were made."""
        found = {name: made.get((m, clip, reading, name)) for name in CONVENTIONS}
        return {name: rates(one).plain() for name, one in found.items() if one is not None} or None

    def _tied(self, test: Sequence[AuditItem], made: DecisionsBySetting) -> dict[str, Any]:
        """Share of the reading `label`'s decisions that follow from the mean q of the gold label lying in a range."""
        low, high = answered_range(self.h_star, self.clip)
        own = np.array([np.mean(item.q_label(self.m)) for item in test])
        tied: dict[str, Any] = {"from": low, "to": high}
        for convention in CONVENTIONS:
            inside = (own >= low) & ((own <= high) | (convention == "safe"))
            tied[convention] = float((inside == made[self.m, self.clip, "label", convention].answered).mean())
        return tied

    def _jensen_gap(self, test: Sequence[AuditItem]) -> dict[str, float]:
        return {
            "gold_label_clipped": label_jensen_gap(test, self.m, self.clip),
            "canonical_label": canonical_jensen_gap(test, self.m),
            "share_that_must_flip": paper.items_that_must_flip(paper.JENSEN_GAP, self.m, self.clip),
            "share_that_flips": orderings_disagree(test, self.m) / len(test),
        }

    def _sweep_row(self, test: Sequence[AuditItem], made: DecisionsBySetting, m: int, clip: float) -> dict[str, Any]:
        row: dict[str, Any] = {"m": m, "clip": clip, "jensen_gap": label_jensen_gap(test, m, clip)}
        row.update({reading: self._at(made, m, clip, reading) for reading in READINGS})
        return row

    def _selectors(self, test: Sequence[AuditItem], made: DecisionsBySetting) -> dict[str, Any]:
        scores, labels = selector_scores(test, self.m), np.array([item.label for item in test])
        groups = [item.group for item in test]
        points: dict[str, Any] = {}
        for convention in CONVENTIONS:
            found = made.get((self.m, self.clip, "calibrated", convention))
            if found is not None and found.answered.any():
                at = rates(found)
                coverage = wilson_interval(at.answered, at.items)
                points[convention] = {"coverage": triple(coverage), "risk": triple(at.hallucination)}
        coverages = [*([points["safe"]["coverage"][0]] if "safe" in points else []), *COVERAGES]
        return {
            **compare_selectors(scores, labels, groups, resamples=self.resamples, seed=self.seed),
            "coverages": coverages,
            "risk_at_coverage": risk_at_coverage(scores, labels, coverages),
            "operating_points": points,
            "scores": {name: values.tolist() for name, values in scores.items()},
            "labels": labels.tolist(),
        }

    def _calibration(self, test: Sequence[AuditItem], reference: DeployableReference) -> dict[str, Any]:
        """The mean q and the calibrated mean against the labels of the test items."""
        labels = [item.label for item in test]
        bins = min(10, max(1, len(test) // 10))
        figures: dict[str, Any] = {"labels": labels, "bins": bins}
        both = {"mean q": [item.q_bar(self.m) for item in test], "calibrated mean": [reference.mean(i) for i in test]}
        for name, scores in both.items():
            error = expected_calibration_error(scores, labels, bins=bins)
            figures[name] = {"brier": brier(scores, labels), "ece": error, "scores": scores}
        return figures

    def _by_source(self, test: Sequence[AuditItem], made: DecisionsBySetting) -> dict[str, Any]:
        """The deployable gate's rates for each benchmark; None without a reference."""
        gate = made.get((self.m, self.clip, "calibrated", "safe"))
        found: dict[str, Any] = {}
        for source in sorted({item.source for item in test}):
            own = np.array([item.source == source for item in test])
            found[source] = {
                "items": int(own.sum()),
                "supported": float(np.mean([item.label for item in test if item.source == source])),
                "rates": rates(gate.of(own)).plain() if gate else None,
            }
        return found
