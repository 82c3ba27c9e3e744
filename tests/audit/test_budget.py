"""The error budget of a whole answer without a calibration on whole answers: risks of statements may be summed."""

from __future__ import annotations

import asyncio
import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("venn_abers", reason="fitting needs the 'calibrate' extra")

from isr_rag import ISRGate
from isr_rag.audit import Budget, Statement
from isr_rag.audit.redaction import Spending, risk_of
from isr_rag.calibration import CalibrationArtefact, CalibrationRecord, Fingerprint, fit_artefact
from isr_rag.calibration.fitting import FitSettings
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.settings import Case, Estimate
from isr_rag.references import CalibratedMixture
from isr_rag.testing import FixedScorer

GRID = 100
ANSWERS = 3000
TRUE, FALSE = (5.0, 1.0), (1.0, 3.0)
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


@pytest.fixture(scope="module")
def artefact() -> CalibrationArtefact:
    rng = np.random.default_rng(1)
    labels = rng.random(2000) < 0.5
    items = [
        CalibrationRecord(f"{i}", "supported-claim/1", (int(score) + 0.5) / GRID, int(label), chunks=1)
        for i, (score, label) in enumerate(zip(scores_of(rng, labels), labels, strict=True))
    ]
    belongs = Fingerprint("fixed", None, None)
    return fit_artefact(
        items, created_by="tests", fingerprint=belongs, settings=FitSettings(targets=(), resamples=5)
    ).artefact


def gate(artefact: CalibrationArtefact, h_star: float) -> ISRGate:
    scorer = FixedScorer(listed, layout="late")
    return ISRGate(scorer=scorer, reference=CalibratedMixture(artefact, guarantee="selective"), h_star=h_star)


@pytest.fixture(scope="module", params=[0.1, 0.2])
def judged(request: pytest.FixtureRequest, artefact: CalibrationArtefact) -> tuple[float, list[Statement]]:
    """The budget, and one judged statement for each score."""
    answer = " ".join(f"The claim number {step} is true." for step in range(GRID))
    found = gate(artefact, request.param).audit(answer=answer, evidence=["A list of claims."], citations=False)
    return request.param, list(found.statements)


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("true", [0.5, 0.75, 0.95])
def test_what_goes_out_is_wrong_no_more_often_than_the_budget_allows(
    judged: tuple[float, list[Statement]], size: int, true: float
) -> None:
    h_star, statements = judged
    rng = np.random.default_rng(size)
    labels = rng.random((ANSWERS, size)) < true
    steps = scores_of(rng, labels)
    for surest_first in (True, False):  # a stream spends its budget in the order of the statements
        out = broken = 0
        for own, holds in zip(steps.tolist(), labels.tolist(), strict=True):
            order = range(size)
            if surest_first:
                order = sorted(order, key=lambda i: risk_of(statements[own[i]], h_star))
            spending = Spending(Budget(), h_star)
            kept = [i for i in order if spending.keeps(statements[own[i]])]
            out += bool(kept)
            broken += not all(holds[i] for i in kept)
        assert out > 0
        assert broken / out <= h_star + 3.0 * math.sqrt(h_star * (1.0 - h_star) / out)


def test_sums_of_rates_would_break_the_budget(judged: tuple[float, list[Statement]]) -> None:
    """The reason why risks are not 1 - p_ref: a rate over all surer cases flatters the less sure ones among them."""
    h_star, statements = judged
    rng = np.random.default_rng(0)
    labels = rng.random((ANSWERS, 8)) < 0.75
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
    found = own.audit(answer="The claim number 1 is true.", evidence=["a"])
    assert found.statements[0].verdict == "supported" and found.releasable().kept == ()

    async def streamed() -> list[bool]:
        return [part.kept async for part in own.astream(["The claim number 1 is true."], evidence=["a"])]

    assert not any(asyncio.run(streamed()))
