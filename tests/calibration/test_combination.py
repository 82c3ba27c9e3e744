"""The wording joins the score where it helps, and a gate's reference then weighs both, the same way as the fit did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("venn_abers", reason="fitting needs the 'calibrate' extra")

from isr_rag import Chunk, ISRGate, Supported
from isr_rag.calibration import (
    BelongsTo,
    CalibrationArtefact,
    CalibrationError,
    CalibrationRecord,
    Combination,
    FittedCalibration,
    fit_artefact,
)
from isr_rag.calibration.metrics import auroc
from isr_rag.references import CalibratedMixture
from isr_rag.testing import FixedScorer
from isr_rag.wording import FEATURES, Wording, compare

pytestmark = pytest.mark.slow

OWNER = BelongsTo("model@abc", "auto", 6)


def records(n: int = 1400, *, telling: bool = True, seed: int = 0) -> list[CalibrationRecord]:
    """Items whose words say what the score does not, or (not `telling`) nothing at all."""
    rng = np.random.default_rng(seed)
    made: list[CalibrationRecord] = []
    for i in range(n):
        x, words = rng.normal(), rng.uniform()
        label = int(rng.random() < 1 / (1 + np.exp(-2 * x - (8 * words - 4 if telling else 0))))
        wording = Wording(((float(1 - words), 0.0, 0.0, 0.0),))
        score = float(1 / (1 + np.exp(-x)))
        made.append(CalibrationRecord(str(i), "claim", score, label, f"page {i // 2}", wording=wording))
    return made


def fit(items: list[CalibrationRecord], **settings: Any) -> FittedCalibration:
    defaults: dict[str, Any] = {"belongs_to": OWNER, "created_by": "tests", "resamples": 20, "targets": ()}
    return fit_artefact(items, **(defaults | settings))


@pytest.fixture(scope="module")
def fitted() -> FittedCalibration:
    return fit(records())


def test_words_that_tell_are_weighed_and_the_calibrated_scores_separate_better(fitted: FittedCalibration) -> None:
    part, held = fitted.artefact.predicates["claim"], fitted.held_out["claim"]
    assert part.combination is not None and part.combination.weights["missing"] > 0
    assert auroc(held.mean, held.labels) > auroc(held.q_bar, held.labels) + 0.05
    assert np.abs(held.mean.mean() - held.labels.mean()) < 0.02
    sure = held.lower >= 0.9
    assert sure.sum() > 50 and held.labels[sure].mean() > 0.85


def test_words_that_tell_nothing_are_left_out() -> None:
    assert fit(records(telling=False)).artefact.predicates["claim"].combination is None


def test_few_items_or_one_without_its_wording_leave_the_score_alone() -> None:
    assert fit(records(300)).artefact.predicates["claim"].combination is None
    items = records()
    for place in (10, 7):  # one is in the part that fits, the other in the part that tests the cuts
        less = [replace(record, wording=None) if i == place else record for i, record in enumerate(items)]
        assert fit(less, targets=((0.2, 0.1),)).artefact.predicates["claim"].combination is None


def test_it_survives_the_disk_and_counts_as_content(fitted: FittedCalibration, tmp_path: Path) -> None:
    loaded = CalibrationArtefact.load(fitted.artefact.save(tmp_path / "calibration.json"))
    assert loaded == fitted.artefact and loaded.predicates["claim"].combination is not None
    other = [replace(record, wording=Wording(((0.5, 0.0, 0.0, 0.0),))) for record in records()]
    assert fit(other).artefact.predicates["claim"].data_sha256 != loaded.predicates["claim"].data_sha256


def test_cuts_belong_to_the_joined_score() -> None:
    artefact = fit(records(4000, seed=1), targets=((0.2, 0.1),)).artefact
    part, cut = artefact.predicates["claim"], artefact.cut("claim", 0.2, 0.1, "score")
    assert cut.cut is not None
    new = records(8000, seed=2)
    answered = [r for r in new if cut.allows(part.score(r.q_bar, r.wording))]
    assert len(answered) > 200
    assert np.mean([r.label == 0 for r in answered]) <= 0.2
    unweighed = [r for r in new if cut.allows(r.q_bar)]
    assert {r.id for r in unweighed} != {r.id for r in answered}


def test_the_gates_reference_reads_the_evidence_as_given() -> None:
    scorer = FixedScorer(lambda prompt, ordering: 0.9)
    calibrated = fit(
        [replace(r, predicate="supported-claim/1") for r in records()],
        belongs_to=BelongsTo(scorer.identity, None, None, focus=3),
    ).artefact
    gate = ISRGate(scorer=scorer, reference=CalibratedMixture(calibrated), h_star=0.3, focus=3)
    claim = "Kepler published the harmonic law in 1619."
    near = gate.decide(["Kepler published the harmonic law in 1619, late in May.", "Lyon is a city."], claim=claim)
    far = gate.decide(["Newton was born in Woolsthorpe that winter.", "Lyon is a city."], claim=claim)
    assert near.p_ref is not None and far.p_ref is not None and near.p_ref > far.p_ref + 0.05
    assert near.reference == (
        "calibrated mixture and wording (100% of the words in the nearest sentence), rate among the answered"
    )
    assert "0% of the words in the nearest sentence" in str(far.reference)
    part = calibrated.predicates["supported-claim/1"]
    evidence = [Chunk("Kepler published the harmonic law in 1619, late in May."), Chunk("Lyon is a city.")]
    wording = compare(Supported(claim=claim), evidence)
    assert near.p_ref == part.rate(part.bins[0]).at(part.score(0.9, wording))


def test_what_could_not_be_a_combination_is_refused() -> None:
    weights = dict.fromkeys(FEATURES, 1.0)
    for bad in ((0.0, 0.0, weights), (0.0, -1.0, weights), (float("nan"), 1.0, weights)):
        with pytest.raises(CalibrationError, match="slope above 0"):
            Combination(*bad)
    with pytest.raises(CalibrationError, match="weighs \\['length'\\]"):
        Combination(0.0, 1.0, {"length": 1.0})
    with pytest.raises(CalibrationError, match="of wording/0; this version"):
        Combination(0.0, 1.0, weights, "wording/0")
    part = fit(records()).artefact.predicates["claim"]
    with pytest.raises(CalibrationError, match="weighs the wording as well"):
        part.score(0.5, None)


def test_words_that_help_on_the_sources_seen_only_are_left_out() -> None:
    """In two sources words tell, in the third they mislead: fitted on the others they make its answers worse."""
    items = [replace(record, source="abc"[i % 3]) for i, record in enumerate(records(2400))]
    assert fit(items).artefact.predicates["claim"].combination is not None
    rng = np.random.default_rng(1)
    misled = []
    for record in items:
        q = float(rng.random())
        label = int(rng.random() < q)
        told = float(rng.random() < (0.9 if label else 0.1))
        words = told if record.source == "c" else 1.0 - told
        misled.append(replace(record, q_bar=q, label=label, wording=Wording(((words, 0.0, 0.0, 0.0),))))
    assert fit(misled).artefact.predicates["claim"].combination is None
