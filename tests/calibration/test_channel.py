"""The noisy channel's bounds hold, and are the lowest that the bounds on its rates allow."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("scipy", reason="fitting needs the 'calibrate' extra")

from isr_rag.calibration import Bound, CalibrationError, CalibrationWarning, NoisyChannel, Prior

pytestmark = pytest.mark.filterwarnings("ignore::isr_rag.calibration.CalibrationWarning")

GRID = list(itertools.product((50, 80, 98, 100), (60, 90, 100), (Prior.assumed(0.3), Prior.labelled(120, 200))))


def channel(tp: int, tn: int, prior: Prior, confidence: float = 0.95) -> NoisyChannel:
    return NoisyChannel.from_counts(
        true_positives=tp,
        false_negatives=100 - tp,
        true_negatives=tn,
        false_positives=100 - tn,
        prior=prior,
        confidence=confidence,
    )


def bayes(verdict: int, sensitivity: float, specificity: float, rate: float) -> float:
    """P(g = 1 | verdict), by summing the joint distribution."""
    joint = {
        (1, 1): rate * sensitivity,
        (1, 0): rate * (1 - sensitivity),
        (0, 1): (1 - rate) * (1 - specificity),
        (0, 0): (1 - rate) * specificity,
    }
    total = joint[1, verdict] + joint[0, verdict]
    return joint[1, verdict] / total if total else 0.0


def inside(bound: Bound) -> np.ndarray:
    return np.linspace(bound.lower, bound.upper, 7)


@pytest.mark.parametrize(("tp", "tn", "prior"), GRID)
def test_lower_bounds_are_the_smallest_posterior_in_the_box(tp: int, tn: int, prior: Prior) -> None:
    fitted = channel(tp, tn, prior)
    box = list(itertools.product(inside(fitted.sensitivity), inside(fitted.specificity), inside(fitted.rate)))
    for verdict in (0, 1):
        smallest = min(bayes(verdict, *point) for point in box)
        assert fitted.lower(verdict) == pytest.approx(smallest, abs=1e-12)


@pytest.mark.parametrize("tp", [70, 95, 100])
@pytest.mark.parametrize("tn", [80, 95, 100])
@pytest.mark.parametrize("positives", [20, 100, 180])
def test_with_a_base_rate_from_verdicts_too(tp: int, tn: int, positives: int) -> None:
    fitted = channel(tp, tn, Prior.verdicts(positives, 200))
    for verdict in (0, 1):
        posteriors = []
        for sens, spec, rate in itertools.product(
            inside(fitted.sensitivity), inside(fitted.specificity), inside(fitted.rate)
        ):
            base = min(1.0, max(0.0, (rate + spec - 1) / (sens + spec - 1)))
            posteriors.append(bayes(verdict, sens, spec, base))
        assert fitted.lower(verdict) == pytest.approx(min(posteriors), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labelled", "verdicts", "assumed"])
def test_each_verdicts_bound_holds_as_often_as_it_says(kind: str) -> None:
    sens, spec, rate, confidence = 0.9, 0.85, 0.6, 0.8
    rng = np.random.default_rng(0)
    missed = np.zeros(2)
    trials = 250
    for _ in range(trials):
        tp, tn = rng.binomial(100, sens), rng.binomial(100, spec)
        prior = {
            "labelled": lambda: Prior.labelled(int(rng.binomial(200, rate)), 200),
            "verdicts": lambda: Prior.verdicts(int(rng.binomial(200, rate * sens + (1 - rate) * (1 - spec))), 200),
            "assumed": lambda: Prior.assumed(rate),
        }[kind]()
        fitted = channel(int(tp), int(tn), prior, confidence)
        missed += [fitted.lower(v) > bayes(v, sens, spec, rate) for v in (0, 1)]
    assert np.all(missed <= trials * (1 - confidence))


def test_bounds_tighten_to_bayes_with_many_labels() -> None:
    fitted = NoisyChannel.from_counts(
        true_positives=900_000,
        false_negatives=100_000,
        true_negatives=950_000,
        false_positives=50_000,
        prior=Prior.labelled(400_000, 1_000_000),
    )
    assert fitted.lower(1) == pytest.approx(bayes(1, 0.9, 0.95, 0.4), abs=2e-3)
    assert fitted.lower(0) == pytest.approx(bayes(0, 0.9, 0.95, 0.4), abs=2e-3)


@given(st.integers(0, 100), st.integers(0, 100), st.floats(0.01, 0.99), st.floats(0.5, 0.99))
def test_more_confidence_never_raises_a_bound(tp: int, tn: int, rate: float, confidence: float) -> None:
    sure, surer = (channel(tp, tn, Prior.assumed(rate), c) for c in (confidence, (1 + confidence) / 2))
    for verdict in (0, 1):
        assert 0 <= surer.lower(verdict) <= sure.lower(verdict) + 1e-12 <= 1 + 1e-12


def test_a_posterior_is_no_debiased_rate() -> None:
    """A verifier right nine times in ten, where one item in a hundred is true: a positive verdict is mostly wrong."""
    fitted = channel(90, 90, Prior.assumed(0.01))
    assert bayes(1, 0.9, 0.9, 0.01) < 0.09
    assert fitted.lower(1) < 0.09


def test_debiased_rate_recovers_the_share_of_true_items_in_a_batch() -> None:
    fitted = NoisyChannel.from_counts(
        true_positives=9000, false_negatives=1000, true_negatives=8000, false_positives=2000, prior=Prior.assumed(0.5)
    )
    rate = 0.3
    batch = fitted.debiased_rate(round(10_000 * (rate * 0.9 + (1 - rate) * 0.2)), 10_000)
    assert batch.estimate == pytest.approx(rate, abs=1e-6)
    assert rate - 0.04 < batch.lower < rate < batch.upper < rate + 0.04


def test_debiased_rate_is_the_extreme_of_the_box() -> None:
    fitted = channel(92, 88, Prior.labelled(50, 100))
    batch = fitted.debiased_rate(90, 200)
    level = 1 - 0.05 / 3
    from isr_rag.calibration.metrics import clopper_pearson_interval

    low = clopper_pearson_interval(90, 200, confidence=level, side="lower").lower
    high = clopper_pearson_interval(90, 200, confidence=level, side="upper").upper
    values = [
        (r + spec - 1) / (sens + spec - 1)
        for sens, spec, r in itertools.product(
            inside(fitted.sensitivity), inside(fitted.specificity), np.linspace(low, high, 7)
        )
    ]
    assert (batch.lower, batch.upper) == pytest.approx((min(values), max(values)), abs=1e-12)


def test_fit_counts_the_confusion_matrix() -> None:
    verdicts = [1] * 55 + [0] * 5 + [0] * 50 + [1] * 10
    fitted = NoisyChannel.fit(verdicts, [1] * 60 + [0] * 60, prior=Prior.assumed(0.5))
    counts = (fitted.true_positives, fitted.false_negatives, fitted.true_negatives, fitted.false_positives)
    assert counts == (55, 5, 50, 10)
    assert fitted.sensitivity.estimate == pytest.approx(55 / 60)


@pytest.mark.parametrize("prior", [Prior.assumed(0.5), Prior.labelled(10, 40), Prior.verdicts(15, 40)])
def test_json_round_trip_is_bit_exact(prior: Prior) -> None:
    fitted = channel(93, 87, prior)
    assert NoisyChannel.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


def test_a_base_rate_must_be_said_and_be_one() -> None:
    with pytest.raises(TypeError, match="prior"):
        NoisyChannel.fit([0, 1], [0, 1])  # type: ignore[call-arg]
    for bad in (0.0, 1.0, float("nan")):
        with pytest.raises(CalibrationError, match="strictly between"):
            Prior.assumed(bad)
    with pytest.raises(CalibrationError, match="5 of 4"):
        Prior.labelled(5, 4)


def test_a_verifier_no_better_than_chance_is_said_and_never_inverted() -> None:
    with pytest.warns(CalibrationWarning, match="not shown to be better than chance"):
        useless = channel(50, 50, Prior.assumed(0.5))
    assert useless.lower(1) <= 0.5
    with pytest.raises(CalibrationError, match="cannot be turned into a base rate"):
        channel(50, 50, Prior.verdicts(100, 200))
    with pytest.raises(CalibrationError, match="better than chance"):
        useless.debiased_rate(10, 20)


def test_bad_counts_and_verdicts_are_named() -> None:
    with pytest.raises(CalibrationError, match="one class only"):
        NoisyChannel.fit([1, 1, 0], [1, 1, 1], prior=Prior.assumed(0.5))
    with pytest.raises(CalibrationError, match="fit VennAbers"):
        NoisyChannel.fit([0.7, 0.2], [1, 0], prior=Prior.assumed(0.5))
    with pytest.raises(CalibrationError, match="negative"):
        channel(101, 50, Prior.assumed(0.5))
    with pytest.raises(CalibrationError, match="confidence"):
        channel(90, 90, Prior.assumed(0.5), confidence=1.0)
    with pytest.raises(CalibrationError, match="verdict 0 or 1"):
        channel(90, 90, Prior.assumed(0.5)).lower(0.7)
    with pytest.warns(CalibrationWarning, match="fewer than 50"):
        NoisyChannel.fit([1] * 40 + [0] * 40, [1] * 40 + [0] * 40, prior=Prior.assumed(0.5))
