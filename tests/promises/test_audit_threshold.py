"""A threshold calibrated on whole answers: with probability 1 - h* nothing that goes out is unsupported."""

from __future__ import annotations

import numpy as np
import pytest

from isr_rag import ISRGate
from isr_rag.audit import Budget, Kind, Statement, Verdict
from isr_rag.audit.redaction import redact
from isr_rag.audit.statement import Probabilities
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from tests.promises.worlds import at_most

STATEMENTS, TRUE = 6, 0.7


def answers(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """P(supported) of the statements of n answers, and whether each holds; shape (n, STATEMENTS) each."""
    labels = rng.random((n, STATEMENTS)) < TRUE
    return np.where(labels, rng.beta(4, 1, labels.shape), rng.beta(1, 2, labels.shape)), labels


def calibrated(rng: np.random.Generator, n: int) -> Budget:
    probabilities, labels = answers(rng, n)
    return Budget(tuple(np.sort(np.where(labels, 0.0, probabilities).max(axis=1)).tolist()), "made up", True)


def fails(threshold: float | None) -> float:
    """P(an unsupported statement of a new answer exceeds the threshold), exactly, by the law Beta(1, 2)."""
    return 0.0 if threshold is None else 1.0 - (1.0 - (1.0 - TRUE) * (1.0 - threshold) ** 2) ** STATEMENTS


@pytest.mark.parametrize("n", [20, 100, 1000])
@pytest.mark.parametrize("h_star", [0.05, 0.1, 0.2])
def test_nothing_kept_is_unsupported_as_often_as_is_promised(n: int, h_star: float) -> None:
    rng = np.random.default_rng(n)
    found = [fails(calibrated(rng, n).threshold(h_star)) for _ in range(1000 if n < 1000 else 300)]
    at_most(found, h_star)
    assert np.mean(found) > h_star - 1.0 / n - 0.01, "nor is it needlessly strict"


@pytest.mark.parametrize("n", [100, 1000])
def test_what_is_released_keeps_the_promise(n: int) -> None:
    """The same with the answers themselves: what `releasable` keeps, 40 new answers for each calibration."""
    rng, h_star, broken, kept = np.random.default_rng(n), 0.2, list[float](), 0
    decision = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0)).decide(["a"], claim="b")
    for _ in range(10):
        budget, failed = calibrated(rng, n), 0
        for own, holds in zip(*answers(rng, 40), strict=True):
            statements = [
                Statement(
                    "A fact.",
                    (8 * i, 8 * i + 7),
                    Kind.STATEMENT,
                    Verdict.SUPPORTED,
                    decision=decision,
                    probabilities=Probabilities(p, 0.0, 1.0 - p),
                )
                for i, p in enumerate(own.tolist())
            ]
            released = redact("A fact. " * STATEMENTS, statements, budget, h_star, question=None, cite=False).kept
            failed += not all(holds[i] for i in released)
            kept += len(released)
        broken.append(failed / 40)
    at_most(broken, h_star)
    assert kept > 0.3 * 10 * 40 * STATEMENTS * TRUE
