"""The audit of the boundary ISR = 1: the gate's decisions on scored items, and the rates that follow (Section 4.4).

Which items a decision is right about depends on what is taken for the predicate g and for its reference, and the
paper leaves that open. Three readings are computed:

`label`       g = "the likelier label is the gold one", P_ref = 1 and q_k the probability of the gold label, so
                the budget is mean clip(-log q_k): the paper's supervised evaluation (Sections 2.5.1 and 4.4). The
                decision is computed from the label it is judged by, so nobody can deploy it.
`supported`   g = "supported", P_ref = the gold label of g: an oracle for the predicate (instantiation i).
`calibrated`  g = "supported", P_ref = the calibrated mean over the orderings: what a gate has in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from isr_lab import bounds as dispersion_bounds
from isr_lab.experiments.audit.deployable import DeployableReference
from isr_lab.experiments.audit.items import AuditItem
from isr_lab.metrics import Interval, wilson_interval
from isr_rag.core.bounds import weigh
from isr_rag.core.settings import Settings

Reading = Literal["label", "supported", "calibrated"]
READINGS: tuple[Reading, ...] = get_args(Reading)
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a gate does with the items; shape (n,) each.

    Attributes:
        answered: whether it answers.
        g: whether the predicate of the reading holds.
        correct: whether the label that the mixture finds likelier is the gold one.
    """

    answered: Bools
    g: Bools
    correct: Bools

    def of(self, chosen: Bools) -> Decisions:
        """The decisions about some of the items only; `chosen` has shape (n,)."""
        return Decisions(self.answered[chosen], self.g[chosen], self.correct[chosen])


@dataclass(frozen=True, slots=True)
class Rates:
    """The audit's rates with 95% Wilson intervals over items; None where nothing was answered.

    Attributes:
        items: number of items.
        answered: number of them answered.
        alignment: answered where g = 1, not answered where g = 0.
        hallucination: g = 0, among the answered.
        abstention: not answered.
        accuracy: the likelier label is the gold one, among the answered ("accuracy on attempts").
        constant: the alignment of the better of two rules that look at nothing: always answer, never answer.
    """

    items: int
    answered: int
    alignment: Interval
    hallucination: Interval | None
    abstention: Interval
    accuracy: Interval | None
    constant: float

    def plain(self) -> dict[str, object]:
        """As plain values: [estimate, lower, upper] for each interval."""
        return {
            "items": self.items,
            "answered": self.answered,
            "alignment": triple(self.alignment),
            "hallucination": triple(self.hallucination),
            "abstention": triple(self.abstention),
            "accuracy_on_attempts": triple(self.accuracy),
            "alignment_of_a_constant_rule": self.constant,
        }


def triple(interval: Interval | None) -> list[float] | None:
    """[estimate, lower, upper]; None stays None."""
    return None if interval is None else [interval.estimate, interval.lower, interval.upper]


def decide(
    items: Sequence[AuditItem],
    m: int,
    settings: Settings,
    reading: Reading,
    reference: DeployableReference | None = None,
) -> Decisions:
    """The gate's decision about every item.

    Args:
        items: one at least.
        m: how many seeds' orderings count.
        settings: h* and the rule.
        reading: what g and its reference are, see the module.
        reference: for the reading `calibrated`, fitted at the same m.

    Raises:
        ValueError: if the reading is `calibrated` and there is no reference.
    """
    answered = [_answers(item, m, settings, reading, reference) for item in items]
    correct = np.array([item.agrees(m) for item in items])
    g = correct if reading == "label" else np.array([item.label == 1 for item in items])
    return Decisions(np.array(answered), g, correct)


def _answers(
    item: AuditItem, m: int, settings: Settings, reading: Reading, reference: DeployableReference | None
) -> bool:
    if reading == "label":
        return weigh(item.q_label(m), 1.0, settings).answers
    if reading == "supported":
        return weigh(item.q(m), float(item.label), settings).answers
    if reference is None:
        raise ValueError("the reading 'calibrated' needs a reference that was fitted on calibration items")
    return weigh(item.q(m), reference.p_ref(item), settings).answers


def rates(decisions: Decisions) -> Rates:
    """The rates of these decisions."""
    answered, g, correct = decisions.answered, decisions.g, decisions.correct
    n, k = len(answered), int(answered.sum())
    return Rates(
        items=n,
        answered=k,
        alignment=wilson_interval(int((answered == g).sum()), n),
        hallucination=wilson_interval(int((answered & ~g).sum()), k) if k else None,
        abstention=wilson_interval(n - k, n),
        accuracy=wilson_interval(int((answered & correct).sum()), k) if k else None,
        constant=max(float(g.mean()), 1.0 - float(g.mean())),
    )


def label_jensen_gap(items: Sequence[AuditItem], m: int, clip: float) -> float:
    """Mean Jensen gap of the gold label in nats, probabilities kept above exp(-clip), where the budget's terms end.

    It is the mean budget of the reading `label` less the mixture's own cross-entropy, hence never negative.
    """
    least = float(np.exp(-clip))
    return _mean([dispersion_bounds.jensen_gap(np.maximum(item.q_label(m), least), 1) for item in items])


def canonical_jensen_gap(items: Sequence[AuditItem], m: int) -> float:
    """Mean Jensen gap in nats of the label that the retriever's order finds likelier (Section 4.2), not clipped."""
    return _mean([dispersion_bounds.jensen_gap(item.q(m), int(item.identity >= 0.5)) for item in items])


def _mean(gaps: Sequence[NDArray[np.float64]]) -> float:
    """Their mean; what rounding leaves of a gap that is zero is not a gap."""
    return round(float(np.mean(gaps)), 12)


def orderings_disagree(items: Sequence[AuditItem], m: int) -> int:
    """Items whose likelier label depends on the ordering."""
    return sum(min(item.q(m)) < 0.5 <= max(item.q(m)) for item in items)
