"""`acquire` with a budget split over the rounds: at most h* of all answers are wrong, whatever round they came from."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

pytest.importorskip("venn_abers", reason="fitting needs the 'calibrate' extra")

from isr_rag import Chunk, Decision, ISRGate, acquire
from isr_rag.calibration import CalibrationRecord, Fingerprint, FitSettings, Tail, fit_artefact
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.errors import CalibrationWarning
from isr_rag.references import CalibratedMixture
from isr_rag.testing import FixedScorer
from tests.promises.worlds import at_most, draw, risk_at, useful

pytestmark = pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")
ROUNDS, H_STAR = 2, 0.3


def read(prompt: Prompt, ordering: Ordering) -> float:
    """The score that the newest chunk names."""
    return float(re.findall(r"score (\d\.\d+)", " ".join(prompt.chunks))[-1])


@pytest.mark.parametrize(("n", "calibrations"), [(100, 20), (1000, 8)])
def test_answers_of_all_rounds_together_are_wrong_no_more_often_than_h_star(n: int, calibrations: int) -> None:
    """Through `acquire`: a further round happens only where the gate refused, and draws evidence anew."""
    rng, shares, later = np.random.default_rng(n), list[float](), 0
    for _ in range(calibrations):
        scores, labels = draw(rng, n)
        rows = enumerate(zip(scores.tolist(), labels.tolist(), strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            artefact = fit_artefact(
                [CalibrationRecord(f"{i}", "supported-claim/1", score, label) for i, (score, label) in rows],
                fingerprint=Fingerprint("fixed", None, None),
                created_by="tests",
                settings=FitSettings(targets=()),
            )
        gate = ISRGate(
            scorer=FixedScorer(read, layout="late"),
            reference=CalibratedMixture(artefact, guarantee="selective"),
            h_star=H_STAR,
        )
        seen, wrong = rng.random((40, ROUNDS)), 0.0
        answered = 0
        for looks in seen:

            def retrieve(query: str, number: int, previous: Decision | None, looks: np.ndarray = looks) -> list[Chunk]:
                return [Chunk(f"Evidence with score {looks[number]:.6f}")]

            trail = acquire(gate, retrieve, claim="The river flows.", rounds=ROUNDS)
            assert trail.h_star_per_round == H_STAR / ROUNDS
            if trail.stop == "answered":
                last = len(trail.decisions) - 1
                later += last > 0
                answered += 1
                wrong += float(useful(looks[last : last + 1])[0])
        shares.append(wrong / max(answered, 1))
    at_most(shares, H_STAR)
    assert later > 0 and np.mean(shares) > 0.1 * H_STAR


@pytest.mark.parametrize(("n", "calibrations"), [(100, 600), (1000, 300)])
@pytest.mark.parametrize("rounds", [2, 4])
def test_a_rate_may_be_split_over_rounds_calibrated_each_by_itself(n: int, calibrations: int, rounds: int) -> None:
    """What `acquire` relies on, with many calibrations, and the truth for each pair of thresholds."""
    rng, shares = np.random.default_rng(11), list[float]()
    for _ in range(calibrations):
        found = [Tail.fit(*draw(rng, n)).steps().threshold(1.0 - H_STAR / rounds) for _ in range(rounds)]
        refused, answered, wrong = 1.0, 0.0, 0.0
        for threshold in found:
            if threshold is not None:
                answered += refused * (1.0 - threshold)
                wrong += refused * (1.0 - threshold) * risk_at(threshold)
                refused *= threshold
        shares.append(wrong / answered if answered else 0.0)
    at_most(shares, H_STAR)
    assert np.mean(shares) > 0.1 * H_STAR


def test_a_split_rate_is_about_all_rounds_together_and_not_about_what_a_later_one_adds() -> None:
    """Where the second look sees nearly what the first one saw, what it adds lies close to the threshold."""
    rng, together, added = np.random.default_rng(5), list[float](), list[float]()

    def looks(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        holds = rng.random(n) < 0.5
        first = 1.2 * rng.standard_normal(n) + np.where(holds, 1.5, -1.5)
        return holds, *(1.0 / (1.0 + np.exp(-x)) for x in (first, first + 0.4 * rng.standard_normal(n)))

    for _ in range(100):
        holds, _, second = looks(400)
        threshold = Tail.fit(second, holds).steps().threshold(1.0 - H_STAR / 2)
        holds, first, second = looks(20_000)
        later = (first < threshold) & (second >= threshold)
        together.append(float((~holds)[(first >= threshold) | later].mean()))
        added.append(float((~holds)[later].mean()))
    at_most(together, H_STAR)
    assert np.mean(added) > H_STAR
