"""The bounds on a verifier's verdicts: their arithmetic, their use and what they refuse."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

pytest.importorskip("scipy", reason="fitting needs the 'calibrate' extra")

from isr_rag import ISRGate
from isr_rag.calibration import NoisyChannel
from isr_rag.errors import CalibrationError, CalibrationWarning
from isr_rag.references import Verifier
from isr_rag.testing import FixedScorer

pytestmark = pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")


def channel(tp: int, tn: int, confidence: float = 0.95) -> NoisyChannel:
    """From 100 items of each class, of which so many have the right verdict."""
    verdicts = [1] * tp + [0] * (100 - tp) + [0] * tn + [1] * (100 - tn)
    return NoisyChannel.fit(verdicts, [1] * 100 + [0] * 100, confidence=confidence)


@given(st.integers(0, 100), st.integers(0, 100), st.floats(0.5, 0.99))
def test_the_bounds_invert_the_binomial_tail(tp: int, tn: int, confidence: float) -> None:
    from scipy.stats import binom

    fitted = channel(tp, tn, confidence)
    for verdict, true, false in ((1, tp, 100 - tn), (0, 100 - tp, tn)):
        low = fitted.lower(verdict)
        if true == 0:
            assert low == 0.0
        else:
            assert binom.sf(true - 1, true + false, low) == pytest.approx(1 - confidence, abs=1e-8)


@given(st.integers(0, 100), st.integers(0, 100), st.floats(0.5, 0.99))
def test_more_confidence_never_raises_a_bound(tp: int, tn: int, confidence: float) -> None:
    sure, surer = (channel(tp, tn, c) for c in (confidence, (1 + confidence) / 2))
    for verdict in (0, 1):
        assert 0 <= surer.lower(verdict) <= sure.lower(verdict) + 1e-12 <= 1 + 1e-12


def test_a_verdict_counts_with_its_bound() -> None:
    fitted = NoisyChannel.fit([1] * 55 + [0] * 5 + [0] * 50 + [1] * 10, [1] * 60 + [0] * 60)
    assert fitted.lower(0) < 0.1 < 0.7 < fitted.lower(1) < 55 / 65
    gate = ISRGate(scorer=FixedScorer([0.99]), reference=Verifier(lambda case: True, calibration=fitted), h_star=0.3)
    assert gate.decide(["The Seine flows."], claim="The Seine flows.").p_ref == fitted.lower(1)


def test_bad_counts_and_verdicts_are_named() -> None:
    with pytest.raises(CalibrationError, match="one class only"):
        NoisyChannel.fit([1, 1, 0], [1, 1, 1])
    with pytest.raises(CalibrationError, match="fit VennAbers"):
        NoisyChannel.fit([0.7, 0.2], [1, 0])
    with pytest.raises(CalibrationError, match="confidence"):
        channel(90, 90, confidence=1.0)
    with pytest.raises(CalibrationError, match="verdict of 0 or 1"):
        channel(90, 90).lower(0.7)
    with pytest.warns(CalibrationWarning, match="fewer than 50"):
        NoisyChannel.fit([1] * 40 + [0] * 40, [1] * 40 + [0] * 40)
