"""`delta`: the share of wrong answers exceeds h* with probability at most delta over the labelled items."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytest.importorskip("scipy", reason="fitting needs the 'calibrate' extra")

from scipy.stats import binom, binomtest

from isr_rag.calibration import CalibrationRecord, Fingerprint, FitSettings, LearnThenTest, fit_artefact
from isr_rag.errors import CalibrationError, CalibrationWarning
from tests.promises.worlds import as_seldom_as, draw, flat, risk_at

TRIALS = 200
GRID = np.linspace(0.98, 0.0, 50)
TOO_RISKY = 0.1 + 1e-9


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize(("h_star", "delta"), [(0.1, 0.2), (0.2, 0.05)])
def test_the_risk_exceeds_h_star_at_most_as_often_as_delta(h_star: float, delta: float, n: int) -> None:
    rng, test = np.random.default_rng(1), LearnThenTest(h_star, delta)
    violations, found = 0, 0
    for _ in range(TRIALS):
        thresholds = test.plan(*draw(rng, n), items=n)
        threshold = test.fit(*draw(rng, n), thresholds=thresholds).value
        if threshold is not None:
            found += 1
            violations += risk_at(threshold) > h_star
    as_seldom_as(violations, TRIALS, delta)
    assert found > (0.9 if n == 1000 else 0.3) * TRIALS, "a guarantee that never answers is none"


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize("delta", [0.1, 0.3])
def test_where_every_threshold_is_too_risky_one_is_found_with_probability_delta_and_no_more(
    delta: float, n: int
) -> None:
    rng, test = np.random.default_rng(2), LearnThenTest(0.1, delta)
    world = flat(TOO_RISKY)
    found = sum(test.fit(*draw(rng, n, world), thresholds=GRID[25:]).value is not None for _ in range(TRIALS))
    as_seldom_as(found, TRIALS, delta)
    assert found >= 0.4 * delta * TRIALS, "the test spends the delta it was given"


@pytest.mark.parametrize("pages", [100, 200])
def test_items_of_one_page_are_counted_once(pages: int) -> None:
    """Five items a page, alike: taken for independent they would break the promise."""
    rng, test, naive, grouped = np.random.default_rng(4), LearnThenTest(0.1, 0.1), 0, 0
    groups = [str(i // 5) for i in range(5 * pages)]
    for _ in range(TRIALS):
        scores, labels = (np.repeat(column, 5) for column in draw(rng, pages, flat(TOO_RISKY)))
        naive += test.fit(scores, labels, thresholds=GRID[25:]).value is not None
        threshold = test.fit(scores, labels, thresholds=GRID[25:], groups=groups)
        assert threshold.items == pages
        grouped += threshold.value is not None
    as_seldom_as(grouped, TRIALS, 0.1)
    assert naive > binom.ppf(0.999, TRIALS, 0.1)


@pytest.mark.parametrize(("n", "fits"), [(100, 40), (1000, 12)])
@pytest.mark.parametrize("paged", [False, True], ids=["single items", "pages"])
def test_a_fitted_calibration_keeps_delta_with_and_without_groups(n: int, fits: int, paged: bool) -> None:
    """Through `fit_artefact`, which plans and tests on different groups; on a page all items are alike."""
    rng, h_star, delta, found = np.random.default_rng(5), 0.3, 0.3, 0
    each = 4 if paged else 1
    for _ in range(fits):
        scores, labels = (np.repeat(column, each).tolist() for column in draw(rng, n // each, flat(h_star + 1e-9)))
        rows = [
            CalibrationRecord(str(i), "supported-claim/1", score, label, group=str(i // each))
            for i, (score, label) in enumerate(zip(scores, labels, strict=True))
        ]
        settings = FitSettings(targets=((h_star, delta),))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            try:
                fitted = fit_artefact(
                    rows, fingerprint=Fingerprint("fixed", None, None), created_by="tests", settings=settings
                )
            except CalibrationError:  # too few of a class: nothing is answered
                continue
        found += fitted.threshold("supported-claim/1", h_star, delta, scope="score").value is not None
    as_seldom_as(found, fits, delta)


def test_scanning_for_the_best_threshold_would_break_the_promise() -> None:
    """The guarantee comes from the fixed sequence: taking any threshold that passes by itself does not keep it."""
    rng, broken = np.random.default_rng(3), 0
    for _ in range(TRIALS):
        scores, labels = draw(rng, 800, flat(TOO_RISKY))
        answered = np.array([np.sum(scores >= t) for t in GRID])
        errors = np.array([np.sum((scores >= t) & (labels == 0)) for t in GRID])
        broken += bool(np.any(binom.cdf(errors, answered, 0.1) <= 0.1))
    assert broken > binom.ppf(0.999, TRIALS, 0.1)


@pytest.mark.parametrize("seed", range(5))
def test_the_p_value_is_that_of_the_exact_binomial_test(seed: int) -> None:
    scores, labels = draw(np.random.default_rng(seed), 300)
    found = LearnThenTest(0.2, 0.1).fit(scores, labels, thresholds=GRID)
    assert found.p_value == pytest.approx(binomtest(found.errors, found.answered, 0.2, "less").pvalue, abs=1e-12)
