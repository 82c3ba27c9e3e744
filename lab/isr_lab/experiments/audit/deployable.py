"""The audit's deployable reference: Venn-Abers on the mean over the orderings, fitted on calibration items."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isr_lab.experiments.audit.items import AuditItem
from isr_lab.metrics import merged
from isr_rag.calibration.calibrators import VennAbers
from isr_rag.calibration.checks import FEW_OF_A_CLASS
from isr_rag.errors import CalibrationError, CalibrationWarning


@dataclass(frozen=True, slots=True)
class DeployableReference:
    """The calibrated mixture, as a gate's `CalibratedMixture` uses it.

    Attributes:
        m: orderings' seeds behind each mean score, in the fit and in use.
        pooled: fitted on all calibration items; serves the templates with too few of their own.
        by_template: fitted on one template's items each.
        note: what each was fitted on, in words.
    """

    m: int
    pooled: VennAbers
    by_template: Mapping[str, VennAbers]
    note: str

    def calibrator(self, item: AuditItem) -> VennAbers:
        """The calibration that an item's template has."""
        return self.by_template.get(item.template, self.pooled)

    def p_ref(self, item: AuditItem) -> float:
        """Lower probability that the item's predicate holds."""
        return self.calibrator(item).lower(item.q_bar(self.m))

    def mean(self, item: AuditItem) -> float:
        """One calibrated probability that it holds."""
        lower, upper = self.calibrator(item).apply_many(item.q_bar(self.m))
        return float(merged(lower, upper))


def fit_reference(items: Sequence[AuditItem], m: int) -> DeployableReference:
    """Fit the reference; a template with `FEW_OF_A_CLASS` items of each class gets a calibration of its own.

    Args:
        items: calibration items.
        m: how many seeds' orderings count.

    Raises:
        CalibrationError: if all items together are too few (none, one class only, under 10 of a class).
    """
    if not items:
        raise CalibrationError("there are no calibration items (split val) among those that were scored")
    by_template: dict[str, VennAbers] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # the counts are in the note
        pooled = _fit(items, m)
        for template in sorted({item.template for item in items}):
            own = [item for item in items if item.template == template]
            if min(_counts(own)) >= FEW_OF_A_CLASS:
                by_template[template] = _fit(own, m)
    groups = {template: [item for item in items if item.template == template] for template in by_template}
    groups["all templates together"] = list(items)
    parts = ", ".join(f"{name} ({_counts(own)[0]} + {_counts(own)[1]})" for name, own in groups.items())
    note = f"Venn-Abers fitted on (supported + not supported) items: {parts}"
    return DeployableReference(m, pooled, by_template, note)


def _counts(items: Sequence[AuditItem]) -> tuple[int, int]:
    true = sum(item.label for item in items)
    return true, len(items) - true


def _fit(items: Sequence[AuditItem], m: int) -> VennAbers:
    return VennAbers.fit([item.q_bar(m) for item in items], [item.label for item in items])
