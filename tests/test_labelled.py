"""A gate calibrated on labelled items uses that calibration, and refuses one that belongs to another gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isr_rag import Action, ISRGate, Reason
from isr_rag.calibration import CalibrationArtefact, TrainingHashes
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Scores
from isr_rag.core.settings import Orderings, Rule
from isr_rag.errors import CalibrationError, CalibrationMismatchError, ConfigurationError, InvalidInputError, ISRError
from isr_rag.gate.labelled import calibrate, check_labelled, item_key, score_labelled, shipped_hashes
from isr_rag.io.items import read_labelled
from isr_rag.references import CalibratedMixture, Oracle
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.testing import FixedScorer

pytestmark = pytest.mark.slow  # they fit a calibration


def told(prompt: Prompt, ordering: Ordering) -> float:
    """A scorer that reads its probability off the claim ("claim 37 at 0.912")."""
    return float(prompt.suffix.split(" at ")[1].split()[0])


def gate(**settings: Any) -> ISRGate:
    plain: dict[str, Any] = {"orderings": Orderings(family="banded"), "rule": Rule(exact=False)}  # claims hold numbers
    return ISRGate(**({"scorer": FixedScorer(told)} | plain | settings))


@pytest.fixture(scope="module")
def labelled() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    q = rng.uniform(size=1200)
    label = rng.uniform(size=1200) < np.clip(1.3 * q - 0.2, 0.0, 0.995)
    return [
        {"id": i, "label": int(y), "claim": f"claim {i} at {p:.4f} end", "evidence": ["a", "b"]}
        for i, (p, y) in enumerate(zip(q, label, strict=True))
    ]


@pytest.fixture(scope="module")
def artefact(labelled: list[dict[str, Any]]) -> CalibrationArtefact:
    own = gate()
    return calibrate(own, score_labelled(own, labelled), targets=[(0.1, 0.1)])


def test_the_calibrated_gate_answers_the_surest_and_no_others(artefact: CalibrationArtefact) -> None:
    own = gate(reference=CalibratedMixture(artefact), h_star=0.1)
    sure = own.decide(["a", "b"], claim="claim x at 0.97 end")
    unsure = own.decide(["a", "b"], claim="claim x at 0.6 end")
    assert sure.action is Action.ANSWER
    assert sure.p_ref is not None and 0.9 <= sure.p_ref <= 1.0
    assert unsure.reason is Reason.REFERENCE_BELOW_TARGET


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ({"label": None}, "a label of 0 or 1"),
        ({"label": "1", "claim": "long " * 50}, "a label of 0 or 1, not the id 20 and the label '1'"),
        ({"id": None}, "needs an id"),
        ({"evidence": []}, "has no evidence"),
        ({"id": 0}, "1 ids occur more than once"),
        ({"claim": "claim 0 at 0.6370 end"}, "1 texts occur more than once"),
    ],
)
def test_what_cannot_be_calibrated_on_is_refused_before_anything_is_scored(
    labelled: list[dict[str, Any]], last: dict[str, Any], said: str
) -> None:
    scorer = FixedScorer(told)
    assert labelled[0]["claim"] == "claim 0 at 0.6370 end"
    with pytest.raises(CalibrationError, match=said):
        score_labelled(gate(scorer=scorer), [*labelled[:20], labelled[20] | last])
    assert not scorer.requests


def test_an_item_that_fails_is_named_by_its_id(labelled: list[dict[str, Any]]) -> None:
    items = [*labelled[:40], {"id": "odd one", "label": 1, "claim": "claim at no number", "evidence": ["a"]}]
    with pytest.raises(ISRError) as caught:
        score_labelled(gate(), items)
    assert caught.value.__notes__[-1] == "its id is 'odd one'"


def test_a_gate_without_a_valid_cut_is_refused(labelled: list[dict[str, Any]]) -> None:
    own = gate()
    few = calibrate(own, score_labelled(own, labelled[:300]), targets=[(0.2, 1e-9)])
    with pytest.raises(ConfigurationError, match="no Learn-then-Test threshold was found"):
        gate(reference=CalibratedMixture(few, delta=1e-9), h_star=0.2)


def test_what_the_adjudicator_was_trained_on_does_not_calibrate_it(labelled: list[dict[str, Any]]) -> None:
    """Its hashes ship with it, and count whoever calibrates and on whatever device."""
    known = CalibrationArtefact.load(STANDARD.directory / "calibration.json").fingerprint.scorer.split("/")
    own = gate(scorer=FixedScorer(told, identity="/".join([*known[:3], "float32", "cuda", "late"])))
    records = score_labelled(own, labelled[:200])
    assert calibrate(own, records, targets=())
    hashes = TrainingHashes.load(STANDARD.directory / "trained.u64")
    trained = TrainingHashes(np.union1d(hashes.values, TrainingHashes.of([records[7].text or ""]).values))
    with pytest.raises(CalibrationError, match="1 calibration texts also occur"):
        calibrate(own, records, targets=(), training=trained)
    assert np.array_equal(shipped_hashes(own.scorer.identity).values, hashes.values)  # type: ignore[union-attr]
    assert shipped_hashes("fixed") is None


def test_training_texts_are_compared_as_they_are_written(labelled: list[dict[str, Any]]) -> None:
    own = gate()
    records = score_labelled(own, labelled[:200])
    seen = TrainingHashes.of([item_key(labelled[3]["claim"], ["b", "a"])])
    with pytest.raises(CalibrationError, match="1 calibration texts also occur"):
        calibrate(own, records, targets=(), training=seen)


def test_it_survives_the_disk(artefact: CalibrationArtefact, tmp_path: Path) -> None:
    path = artefact.save(tmp_path / "calibration.json")
    again = CalibratedMixture(CalibrationArtefact.load(path))
    claim = "claim x at 0.97 end"
    assert gate(reference=again).decide(["a", "b"], claim=claim) == gate(reference=CalibratedMixture(artefact)).decide(
        ["a", "b"], claim=claim
    )


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"orderings": Orderings(m=12, family="banded")}, "m"),
        ({"orderings": Orderings(family="uniform")}, "orderings"),
        ({"max_words": 100}, "max_words"),
        ({"scorer": FixedScorer(told, identity="other")}, "scorer"),
    ],
)
def test_another_gate_is_refused_by_name(artefact: CalibrationArtefact, settings: dict[str, Any], field: str) -> None:
    with pytest.raises(CalibrationMismatchError, match=field):
        gate(reference=CalibratedMixture(artefact), **settings)


def test_another_predicate_is_refused(artefact: CalibrationArtefact) -> None:
    with pytest.raises(CalibrationMismatchError, match="predicate"):
        gate(reference=CalibratedMixture(artefact)).decide(["a", "b"], question="what at 0.97 end?")


def test_the_cut_is_held_beside_the_rule_and_the_decision_says_so(artefact: CalibrationArtefact) -> None:
    threshold = artefact.threshold("supported-claim/1", 0.1, 0.1)
    assert threshold.value is not None
    own = gate(reference=CalibratedMixture(artefact, delta=0.1), h_star=0.1)
    above = own.decide(["a", "b"], claim="claim x at 0.99 end")
    assert (above.action, above.decided_by, above.threshold_reached) == (Action.ANSWER, "isr", True)
    plain = gate(reference=CalibratedMixture(artefact), h_star=0.1)
    lowest = next(q for q in np.arange(0.5, 1.0, 0.001) if plain.decide(["a", "b"], claim=f"c at {q:.3f} e").answered)
    if lowest < threshold.value:
        between = own.decide(["a", "b"], claim=f"c at {lowest:.3f} e")
        assert (between.action, between.reason) == (Action.ABSTAIN, Reason.CUT_NOT_REACHED)
    decision = plain.decide(["a", "b"], claim="c at 0.99 e")
    assert (decision.decided_by, decision.guarantee, decision.threshold_reached) == ("isr", "selective", None)


@pytest.mark.parametrize(
    ("settings", "field"), [({"rule": Rule(clip=2.0)}, "clip"), ({"rule": Rule(convention="paper")}, "convention")]
)
def test_a_cut_tested_on_another_rule_is_refused(
    artefact: CalibrationArtefact, settings: dict[str, Any], field: str, tmp_path: Path
) -> None:
    loaded = CalibrationArtefact.load(artefact.save(tmp_path / "calibration.json"))
    assert loaded == artefact and (loaded.fingerprint.clip, loaded.fingerprint.convention) == (6.0, "safe")
    asked = {"evidence": ["a", "b"], "claim": "claim x at 0.99 end"}
    with pytest.raises(CalibrationMismatchError, match=f"{field}: fitted for"):
        gate(reference=CalibratedMixture(loaded, delta=0.1), h_star=0.1, **settings).decide(**asked)
    assert gate(reference=CalibratedMixture(loaded), h_star=0.1, **settings).decide(**asked).p_ref is not None


def test_a_target_without_a_cut_is_refused(artefact: CalibrationArtefact) -> None:
    with pytest.raises(ConfigurationError, match="Learn-then-Test"):
        gate(reference=CalibratedMixture(artefact, delta=0.2)).decide(["a", "b"], claim="c at 0.99 e")
    with pytest.raises(ConfigurationError, match="delta"):
        CalibratedMixture(artefact, delta=1.5)


@pytest.mark.slow
def test_an_order_invariant_scorer_has_one_calibration_for_every_m(labelled: list[dict[str, Any]]) -> None:
    own = gate(scorer=FixedScorer(told, layout="set"))
    fitted = calibrate(own, score_labelled(own, labelled), targets=())
    for m in (1, 6, 12):
        other = gate(
            scorer=FixedScorer(told, layout="set"), reference=CalibratedMixture(fitted), orderings=Orderings(m=m)
        )
        decision = other.decide(["a", "b"], claim="c at 0.99 e")
        assert (decision.passes, decision.m, decision.settings.invariant) == (3, m, True)  # each chunk alone, too


def test_a_cascade_is_not_calibrated(labelled: list[dict[str, Any]]) -> None:
    with pytest.raises(CalibrationError, match="cascade"):
        score_labelled(gate(orderings=Orderings(cascade=True)), labelled)


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"id": 1, "evidence": []}', '{"id": 1, "label": 1, "evidence": [], "x": 0}']
)
def test_a_bad_labelled_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "labelled.jsonl"
    path.write_text(json.dumps({"id": 0, "label": 1, "claim": "c", "evidence": ["a"]}) + f"\n{line}\n", "utf-8")
    with pytest.raises(InvalidInputError, match="line 2"):
        read_labelled(path)


def test_a_cut_is_tested_on_what_the_gate_answers_also_where_probabilities_are_intervals() -> None:
    """A label that a server left out of its list gives an interval, whose ends the gate decides by."""

    class Served(FixedScorer):
        def score(self, requests: Any) -> list[Scores]:
            found: list[Scores] = []
            for request in requests:
                low, high = (0.9, 1.0) if "good" in str(request.prompt) else (0.2, 0.2)
                count = len(request.orderings)
                bounds = np.array([[[low, 1.0 - high]] * count, [[high, 1.0 - low]] * count])
                rows = np.array([[np.log(low), np.log1p(-low)]] * count)
                found.append(Scores(rows, passes=count, bounds=bounds))
            return found

    served = ISRGate(Served([0.5]), orderings=Orderings(m=2))
    items = [
        {"id": i, "label": int(i % 4 > 0), "claim": f"c {i}", "evidence": [f"{'good' if i % 4 else 'poor'} {i}", "x"]}
        for i in range(40)
    ]
    records = score_labelled(served, items)
    assert records[1].q == (0.9, 0.9) and records[1].q_high == pytest.approx((1.0, 1.0))
    decided = served.decide_batch(
        [{"evidence": i["evidence"], "claim": i["claim"], "reference": Oracle(1.0)} for i in items]
    )
    assert [record.q_high for record in records] == [decision.q_high for decision in decided]


def test_an_item_that_cannot_be_read_is_named() -> None:
    for wrong in ({"evidence": "a text"}, {"claim": " "}):
        item = {"id": "x7", "label": 1, "claim": "It is so.", "evidence": ["It is so."]} | wrong
        with pytest.raises(ISRError) as told:
            check_labelled([item])
        assert told.value.__notes__ == ["in item 'x7'"]
