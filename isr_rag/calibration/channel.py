"""A verifier that only says yes or no: how often its verdicts are right, bounded from labelled items."""

from __future__ import annotations

from dataclasses import dataclass, field

from numpy.typing import ArrayLike

from isr_rag.calibration.checks import enough_of_each_class, scored_labels
from isr_rag.calibration.errors import CalibrationError, fitting_libraries


@dataclass(frozen=True, kw_only=True)
class NoisyChannel:
    """Lower bounds on the truth g behind the verdicts v of a hard verifier (Section 2.5.1: "lower-bounded").

    For each verdict the bound is the one-sided Clopper-Pearson bound on the share of true items among the labelled
    items with this verdict. It holds with probability >= `confidence` over the labelled items, for each verdict by
    itself.

    The labelled items must be a random sample of what the gate will see. If a smaller share of its cases is true than
    of the labelled items (a set balanced by design, say), the bound is too high.

    Attributes:
        true_positives: items with g = 1 and v = 1.
        false_negatives: items with g = 1 and v = 0.
        true_negatives: items with g = 0 and v = 0.
        false_positives: items with g = 0 and v = 1.
        confidence: of each verdict's bound, in (0, 1).
        p_true_if_positive: lower bound on P(g = 1 | v = 1).
        p_true_if_negative: lower bound on P(g = 1 | v = 0).

    Raises:
        CalibrationError: for negative counts, one class only, or a confidence outside (0, 1).

    Warns:
        CalibrationWarning: under 50 items of a class.

    Examples:
        >>> from isr_rag.calibration import NoisyChannel
        >>> channel = NoisyChannel.fit([1] * 100 + [0] * 100, [1] * 98 + [0] * 102)
        >>> round(channel.lower(1), 3)
        0.938
    """

    true_positives: int
    false_negatives: int
    true_negatives: int
    false_positives: int
    confidence: float = 0.95
    p_true_if_positive: float = field(init=False)
    p_true_if_negative: float = field(init=False)

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence < 1.0:
            raise CalibrationError(f"confidence must be in (0, 1), not {self.confidence}")
        if min(self.true_positives, self.false_negatives, self.true_negatives, self.false_positives) < 0:
            raise CalibrationError("confusion counts cannot be negative")
        positives, negatives = self.true_positives + self.false_negatives, self.true_negatives + self.false_positives
        enough_of_each_class(positives, negatives, least=1)  # with few labels the exact bounds are wide enough
        for name, true, false in (
            ("p_true_if_positive", self.true_positives, self.false_positives),
            ("p_true_if_negative", self.false_negatives, self.true_negatives),
        ):
            object.__setattr__(self, name, _lower_bound(true, true + false, self.confidence))

    @classmethod
    def fit(cls, verdicts: ArrayLike, labels: ArrayLike, *, confidence: float = 0.95) -> NoisyChannel:
        """Count verdicts and labels of the same items, 0 or 1, shape (n,) each."""
        v, y = scored_labels(verdicts, labels)
        if not ((v == 0.0) | (v == 1.0)).all():
            raise CalibrationError("a channel takes verdicts 0 or 1; for a verifier with scores fit VennAbers")
        said = v == 1.0
        return cls(
            true_positives=int((said & y).sum()),
            false_negatives=int((~said & y).sum()),
            true_negatives=int((~said & ~y).sum()),
            false_positives=int((said & ~y).sum()),
            confidence=confidence,
        )

    def lower(self, verdict: float) -> float:
        """Lower bound on P(g = 1) given the verdict 0 or 1: p_ref.

        Raises:
            CalibrationError: if the verdict is anything else.
        """
        if verdict not in (0, 1):
            raise CalibrationError(f"a channel takes a verdict of 0 or 1, not {verdict}")
        return self.p_true_if_positive if verdict == 1 else self.p_true_if_negative


def _lower_bound(successes: int, n: int, confidence: float) -> float:
    if n == 0:
        return 0.0
    with fitting_libraries():
        from scipy.stats import binomtest

    return float(binomtest(successes, n, alternative="greater").proportion_ci(confidence, method="exact").low)
