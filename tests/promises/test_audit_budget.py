"""Audits without a calibrated threshold: if anything goes out, something wrong does with probability h* at most.

The labelled items are half supported, and of the statements at least as many; answers have 4 or 16 of them.
"""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("venn_abers", reason="fitting needs the 'calibrate' extra")

from isr_rag import ISRGate
from isr_rag.audit import Budget, Statement
from isr_rag.audit.redaction import kept_of
from isr_rag.calibration import CalibrationRecord, Fingerprint, fit_artefact
from isr_rag.calibration.fitting import FitSettings
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.settings import Case, Estimate
from isr_rag.errors import CalibrationWarning, ConfigurationError
from isr_rag.references import CalibratedMixture
from isr_rag.testing import FixedScorer
from tests.promises.worlds import ratio_at_most

GRID = 100
ANSWERS = 200
CALIBRATIONS = {100: 12, 1000: 6}
Judged = list[list[Statement]]

TRUE, FALSE = (4.0, 1.0), (1.0, 2.0)
"""Beta laws of the scores of statements that hold, and of those that do not."""


def scores_of(rng: np.random.Generator, labels: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Scores as steps of a grid, by the law of each label."""
    drawn = np.where(labels, rng.beta(*TRUE, size=labels.shape), rng.beta(*FALSE, size=labels.shape))
    return np.minimum((drawn * GRID).astype(np.int64), GRID - 1)


def listed(prompt: Prompt, ordering: Ordering) -> float:
    """The score that the claim names; nothing is contradicted."""
    found = re.search(r"number (\d+) ", prompt.suffix)
    assert found is not None
    return 0.02 if "contradict" in prompt.suffix else (int(found.group(1)) + 0.5) / GRID


def judge(n: int, h_star: float, seed: int) -> list[Statement]:
    """One judged statement for each score, or none at all, by a gate calibrated on n labelled items."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < 0.5
    items = [
        CalibrationRecord(f"{i}", "supported-claim/1", (int(score) + 0.5) / GRID, int(label), chunks=1)
        for i, (score, label) in enumerate(zip(scores_of(rng, labels), labels, strict=True))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        artefact = fit_artefact(
            items,
            created_by="tests",
            fingerprint=Fingerprint("fixed", None, None),
            settings=FitSettings(targets=()),
        )
    reference = CalibratedMixture(artefact, guarantee="selective", min_errors=0)  # the sum is judged, not its ceiling
    try:
        gate = ISRGate(scorer=FixedScorer(listed, layout="late"), reference=reference, h_star=h_star)
    except ConfigurationError:  # this calibration reaches h* for no score: nothing is let out
        return []
    answer = " ".join(f"The claim number {step} is true." for step in range(GRID))
    found = gate.audit(answer=answer, evidence=[" ".join(map(str, range(GRID)))], citations=False)
    assert set(found.releasable().kept) == kept_of(found.statements, Budget(), h_star)
    return list(found.statements)


@pytest.fixture(scope="module", params=[(n, h_star) for n in CALIBRATIONS for h_star in (0.1, 0.2)], ids=str)
def judged(request: pytest.FixtureRequest) -> tuple[float, Judged]:
    """The budget, and the statements as many calibrations judge them."""
    n, h_star = request.param
    return h_star, [judge(n, h_star, seed) for seed in range(CALIBRATIONS[n])]


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("true", [0.5, 0.75, 0.95])
def test_what_goes_out_is_wrong_no_more_often_than_the_budget_allows(
    judged: tuple[float, Judged], size: int, true: float
) -> None:
    h_star, calibrations = judged
    rng, broken, out = np.random.default_rng(size), list[float](), list[float]()
    for statements in filter(None, calibrations):
        labels = rng.random((ANSWERS, size)) < true
        some, failed = 0, 0
        for own, holds in zip(scores_of(rng, labels).tolist(), labels.tolist(), strict=True):
            kept = kept_of([statements[i] for i in own], Budget(), h_star)
            some += bool(kept)
            failed += not all(holds[i] for i in kept)
        broken.append(failed)
        out.append(some)
    assert sum(out) > 0
    ratio_at_most(broken, out, h_star)


@pytest.mark.parametrize(("n", "h_star"), [(1000, 0.1), (1000, 0.2)])
def test_sums_of_rates_would_break_the_budget(n: int, h_star: float) -> None:
    """The reason why risks are not 1 - p_ref: a rate over all surer cases flatters the less sure ones among them."""
    rng, statements = np.random.default_rng(0), judge(n, h_star, 1)
    labels = rng.random((3000, 8)) < 0.6
    rates = np.array([1.0 if one.decision is None else 1.0 - (one.decision.p_ref or 0.0) for one in statements])
    risks = rates[scores_of(rng, labels)]
    order = np.argsort(risks, axis=1)
    kept = np.cumsum(np.take_along_axis(risks, order, axis=1), axis=1) <= h_star
    broken = (kept & ~np.take_along_axis(labels, order, axis=1)).any(axis=1).sum() / kept.any(axis=1).sum()
    assert broken > h_star


def test_a_statement_of_which_only_a_rate_is_known_does_not_go_out() -> None:
    class OnlyRate:
        needs_scores = True

        def estimate(self, case: Case) -> Estimate:
            return Estimate(0.999, "labels", guarantee="selective")

    own = ISRGate(scorer=FixedScorer([0.999], layout="late"), reference=OnlyRate(), h_star=0.2)
    found = own.audit(answer="The claim number 1 is true.", evidence=["Claim 1."])
    assert found.statements[0].verdict == "supported" and found.releasable().kept == ()
