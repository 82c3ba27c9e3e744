r"""A hard verifier as a noisy Bernoulli channel: truth g goes in, verdict v comes out, both 0 or 1.

Section 2.5.1 wants a learned verifier "debiased or lower-bounded from calibration data". That means two things:

* **For a batch**, the verifier's positive rate r estimates sens * pi + (1 - spec) * (1 - pi), not the true rate pi.
  Debiasing inverts this (Rogan and Gladen 1978): pi = (r + spec - 1) / (sens + spec - 1). It is a statement about the
  batch and says nothing about any one of its items: `NoisyChannel.debiased_rate`.
* **For one decision**, the verdict is known and the truth is not. Debiasing is Bayes' rule, so it needs the base rate:
  P(g=1 | v=1) = sens * pi / (sens * pi + (1 - spec) * (1 - pi)). This is `p_ref`: `NoisyChannel.lower`.
  Putting the batch's inverted rate in its place (a verdict of 1 "debiased" to spec / (sens + spec - 1), which can
  exceed 1) would not give a probability of this item at all.

The base rate therefore has to be given, see `Prior`: there is no default, and one half is never assumed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from numpy.typing import ArrayLike

from isr_rag.calibration.checks import enough_of_each_class, labelled_scores
from isr_rag.calibration.errors import CalibrationError, CalibrationWarning, fitting_libraries

PriorKind = Literal["labelled", "verdicts", "assumed"]


@dataclass(frozen=True, slots=True)
class Prior:
    """Where the base rate P(g = 1) of the items to be decided comes from; made by one of the three class methods.

    Attributes:
        kind: `labelled`, `verdicts` or `assumed`.
        positives: positive labels or verdicts counted; 0 when assumed.
        n: items counted; 0 when assumed.
        value: the assumed rate; None otherwise.
    """

    kind: PriorKind
    positives: int = 0
    n: int = 0
    value: float | None = None

    def __post_init__(self) -> None:
        if self.kind == "assumed":
            if self.value is None or not 0.0 < self.value < 1.0:
                raise CalibrationError(f"an assumed base rate must lie strictly between 0 and 1, not {self.value}")
        elif self.kind not in ("labelled", "verdicts"):
            raise CalibrationError(f"unknown kind of base rate: {self.kind!r}")
        elif not (0 <= self.positives <= self.n and self.n >= 1):
            raise CalibrationError(f"a base rate needs counts, not {self.positives} of {self.n}")

    @classmethod
    def labelled(cls, positives: int, n: int) -> Prior:
        """Counted on `n` labelled items that are a random sample of what the gate will see.

        Not from a calibration set balanced by design: its base rate is an artefact of the balancing.
        """
        return cls("labelled", positives, n)

    @classmethod
    def verdicts(cls, positives: int, n: int) -> Prior:
        """Inverted from the verifier's positive verdicts on `n` unlabelled items of the kind the gate will see.

        Needs a verifier that is shown to be better than chance.
        """
        return cls("verdicts", positives, n)

    @classmethod
    def assumed(cls, value: float) -> Prior:
        """A lower limit of the base rate that the user vouches for; no data supports it."""
        return cls("assumed", value=value)


@dataclass(frozen=True, slots=True)
class Bound:
    """A rate with its two one-sided Clopper-Pearson bounds; each alone holds at the level that the owner states."""

    estimate: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class NoisyChannel:
    """A hard verifier's sensitivity and specificity, and the lower bounds on the truth that its verdicts carry.

    Made by `from_counts` or `fit`. Each rate that enters gets an equal share of 1 - `confidence`
    (a third each for sensitivity, specificity and base rate; a half each when the base rate is assumed), so by the
    union bound `lower` holds with probability >= `confidence` over the labelled data, for each verdict by
    itself; for both verdicts at once with >= 1 - 2 (1 - `confidence`). It holds for a random item of the population
    that the base rate describes.

    Where the labelled items are themselves a random sample of what the gate will see, a Clopper-Pearson bound on the
    share of true items among the positive verdicts says the same with one bound instead of three, and is tighter.

    Attributes:
        true_positives: items with g = 1 and v = 1.
        false_negatives: items with g = 1 and v = 0.
        true_negatives: items with g = 0 and v = 0.
        false_positives: items with g = 0 and v = 1.
        confidence: of each verdict's lower bound.
        prior: where the base rate comes from.
        sensitivity: P(v = 1 | g = 1).
        specificity: P(v = 0 | g = 0).
        rate: the base rate (prior `labelled`), the positive rate of verdicts (`verdicts`), or the assumed value.
        p_true_if_positive: lower bound on P(g = 1 | v = 1).
        p_true_if_negative: lower bound on P(g = 1 | v = 0).
    """

    true_positives: int
    false_negatives: int
    true_negatives: int
    false_positives: int
    confidence: float
    prior: Prior
    sensitivity: Bound
    specificity: Bound
    rate: Bound
    p_true_if_positive: float
    p_true_if_negative: float

    @classmethod
    def from_counts(
        cls,
        *,
        true_positives: int,
        false_negatives: int,
        true_negatives: int,
        false_positives: int,
        prior: Prior,
        confidence: float = 0.95,
    ) -> NoisyChannel:
        """Fit from the confusion counts of labelled items.

        Raises:
            CalibrationError: for negative counts, one class only, a confidence outside (0, 1), or a base rate from
                verdicts of a verifier that is not shown to be better than chance.

        Warns:
            CalibrationWarning: under 50 items of a class, or a verifier not shown to be better than chance.
        """
        if not 0.0 < confidence < 1.0:
            raise CalibrationError(f"confidence must be in (0, 1), not {confidence}")
        if min(true_positives, false_negatives, true_negatives, false_positives) < 0:
            raise CalibrationError("confusion counts cannot be negative")
        positives, negatives = true_positives + false_negatives, true_negatives + false_positives
        enough_of_each_class(positives, negatives, least=1)  # few labels: the exact bounds are as wide as they must be
        level = 1.0 - (1.0 - confidence) / (2 if prior.kind == "assumed" else 3)
        sensitivity = _bound(true_positives, positives, level)
        specificity = _bound(true_negatives, negatives, level)
        rate = (
            Bound(prior.value, prior.value, prior.value)
            if prior.value is not None
            else _bound(prior.positives, prior.n, level)
        )
        _better_than_chance(sensitivity, specificity, prior.kind)
        if_positive, if_negative = _lowest(sensitivity, specificity, rate, prior.kind)
        return cls(
            true_positives,
            false_negatives,
            true_negatives,
            false_positives,
            confidence,
            prior,
            sensitivity,
            specificity,
            rate,
            if_positive,
            if_negative,
        )

    @classmethod
    def fit(cls, verdicts: ArrayLike, labels: ArrayLike, *, prior: Prior, confidence: float = 0.95) -> NoisyChannel:
        """Fit from verdicts and labels of the same items, 0 or 1, shape (n,) each; see `from_counts`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # from_counts warns of few labels
            v, y = labelled_scores(verdicts, labels, least=1)
        if not ((v == 0.0) | (v == 1.0)).all():
            raise CalibrationError("a channel takes verdicts 0 or 1; for a verifier with scores fit VennAbers")
        said = v == 1.0
        return cls.from_counts(
            true_positives=int((said & y).sum()),
            false_negatives=int((~said & y).sum()),
            true_negatives=int((~said & ~y).sum()),
            false_positives=int((said & ~y).sum()),
            prior=prior,
            confidence=confidence,
        )

    def lower(self, verdict: float) -> float:
        """Lower bound on P(g = 1) given the verdict 0 or 1: p_ref.

        Raises:
            CalibrationError: if the verdict is anything else.
        """
        if verdict not in (0, 1):
            raise CalibrationError(f"a channel takes a verdict 0 or 1, not {verdict}: cut the score as it was fitted")
        return self.p_true_if_positive if verdict == 1 else self.p_true_if_negative

    def debiased_rate(self, positives: int, n: int) -> Bound:
        """Share of true items in a batch with `positives` positive verdicts of `n`, debiased.

        Each end holds by itself with probability >= `confidence` when the base rate was estimated (three shares),
        and with >= 1 - 1.5 (1 - `confidence`) when it was assumed.

        Raises:
            CalibrationError: for impossible counts, or a verifier not shown to be better than chance.
        """
        if not (0 <= positives <= n and n >= 1):
            raise CalibrationError(f"a batch needs counts, not {positives} of {n}")
        _better_than_chance(self.sensitivity, self.specificity, "verdicts")
        level = 1.0 - (1.0 - self.confidence) / (2 if self.prior.kind == "assumed" else 3)
        rate, sens, spec = _bound(positives, n, level), self.sensitivity, self.specificity
        return Bound(
            invert_rate(rate.estimate, sens.estimate, spec.estimate),
            invert_rate(rate.lower, sens.upper, spec.lower),
            invert_rate(rate.upper, sens.lower, spec.upper),
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NoisyChannel:
        """The inverse of `to_dict`, bit for bit.

        Raises:
            CalibrationError: if a field is missing or out of range.
        """
        try:
            parts: dict[str, Any] = {name: data[name] for name in cls.__dataclass_fields__}
            parts["prior"] = Prior(**parts["prior"])
            for name in ("sensitivity", "specificity", "rate"):
                parts[name] = Bound(**parts[name])
            channel = cls(**parts)
            probabilities = (channel.p_true_if_positive, channel.p_true_if_negative)
            inside = all(0.0 <= p <= 1.0 for p in probabilities)
        except (KeyError, TypeError) as error:
            raise CalibrationError(f"no noisy-channel calibration: {error!r}") from error
        if not inside:
            raise CalibrationError(f"the channel's lower bounds {probabilities} are not probabilities")
        return channel


def posterior(verdict: int, sensitivity: float, specificity: float, base_rate: float) -> float:
    """Bayes: P(g = 1 | verdict); 0 where the verdict is impossible."""
    if_true = sensitivity if verdict else 1.0 - sensitivity
    if_false = 1.0 - specificity if verdict else specificity
    joint = if_true * base_rate
    total = joint + if_false * (1.0 - base_rate)
    return joint / total if total > 0.0 else 0.0


def invert_rate(rate: float, sensitivity: float, specificity: float) -> float:
    """Rogan-Gladen: the base rate behind a positive rate of verdicts, kept in [0, 1]; needs sens + spec > 1."""
    return min(1.0, max(0.0, (rate + specificity - 1.0) / (sensitivity + specificity - 1.0)))


def _lowest(sensitivity: Bound, specificity: Bound, rate: Bound, kind: PriorKind) -> tuple[float, float]:
    """The smallest posterior over the box of bounds, for v = 1 and 0: monotone in each, so a corner has it."""
    if kind != "verdicts":
        return (
            posterior(1, sensitivity.lower, specificity.lower, rate.lower),
            posterior(0, sensitivity.upper, specificity.upper, rate.lower),
        )
    # the same rates set the base rate and the posterior: a higher sensitivity then lowers both, as it makes the same
    # positive rate speak for fewer true items, and this outweighs what it adds to the verdict
    base_rate = invert_rate(rate.lower, sensitivity.upper, specificity.lower)
    return (
        posterior(1, sensitivity.upper, specificity.lower, base_rate),
        posterior(0, sensitivity.upper, specificity.lower, base_rate),
    )


def _better_than_chance(sensitivity: Bound, specificity: Bound, kind: PriorKind) -> None:
    total = sensitivity.lower + specificity.lower
    if total > 1.0:
        return
    message = (
        f"sensitivity and specificity sum to {total:.3f} at their lower bounds, so this verifier is not shown to be "
        "better than chance"
    )
    if kind == "verdicts":
        raise CalibrationError(f"{message}; its verdicts cannot be turned into a base rate. Label more items")
    warnings.warn(f"{message}: its verdicts raise nothing", CalibrationWarning, stacklevel=3)


def _bound(successes: int, n: int, level: float) -> Bound:
    with fitting_libraries():
        from isr_rag.calibration.metrics import clopper_pearson_interval

    low = clopper_pearson_interval(successes, n, confidence=level, side="lower").lower
    high = clopper_pearson_interval(successes, n, confidence=level, side="upper").upper
    return Bound(successes / n, low, high)
