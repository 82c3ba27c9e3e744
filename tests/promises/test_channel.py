"""`NoisyChannel`: the bound behind each verdict holds with the stated confidence, for each verdict by itself."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("scipy", reason="fitting needs the 'calibrate' extra")

from scipy.stats import beta

from isr_rag.calibration import NoisyChannel
from tests.promises.worlds import as_seldom_as

pytestmark = pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")
TRUE, SENSITIVITY, SPECIFICITY = 0.6, 0.9, 0.85
TRIALS = 400


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_each_verdicts_bound_holds_as_often_as_it_says(n: int, confidence: float) -> None:
    rng = np.random.default_rng(0)
    positive = TRUE * SENSITIVITY + (1 - TRUE) * (1 - SPECIFICITY)
    truth_behind = {1: TRUE * SENSITIVITY / positive, 0: TRUE * (1 - SENSITIVITY) / (1 - positive)}
    missed = {1: 0, 0: 0}
    for _ in range(TRIALS):
        truth = rng.random(n) < TRUE
        verdicts = np.where(rng.random(n) < np.where(truth, SENSITIVITY, SPECIFICITY), truth, ~truth)
        fitted = NoisyChannel.fit(verdicts, truth, confidence=confidence)
        for verdict in (0, 1):
            missed[verdict] += fitted.lower(verdict) > truth_behind[verdict]
    for verdict in (0, 1):
        as_seldom_as(missed[verdict], TRIALS, 1 - confidence)
        assert missed[verdict] > 0.3 * (1 - confidence) * TRIALS, "nor is it needlessly low"


@pytest.mark.parametrize(("true", "false"), [(0, 20), (3, 17), (85, 10), (900, 15), (50, 0)])
def test_the_bound_is_that_of_clopper_and_pearson(true: int, false: int) -> None:
    verdicts = [1] * (true + false) + [0] * 120
    fitted = NoisyChannel.fit(verdicts, [1] * true + [0] * false + [1] * 60 + [0] * 60)
    expected = beta.ppf(0.05, true, false + 1) if true else 0.0
    assert fitted.lower(1) == pytest.approx(expected, abs=1e-9)
