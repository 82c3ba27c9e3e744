"""The calibration of verdicts and whole answers: monotone, refused elsewhere, and the same after a round trip."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from isr_rag import ISRGate
from isr_rag.audit import AuditCalibration, Budget, Kind, Verdict
from isr_rag.audit.calibration import calibration_of
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.references import CalibratedMixture
from isr_rag.testing import FixedScorer
from tests.audit.audit_world import RIVERS, Itself, gate, read

OWN = AuditCalibration("fixed", None, (0.2, 1.1), (-0.5, 0.3, 0.8), Budget((0.0, 0.4, 0.9), "test 3", True), close=True)
PROBABILITY = st.floats(0.0, 1.0)


@given(PROBABILITY, PROBABILITY, PROBABILITY)
def test_the_probabilities_sum_to_one_and_follow_the_model(q: float, r: float, more: float) -> None:
    one, other = OWN.probabilities(q, r), OWN.probabilities(max(q, more), r)
    assert one.supported + one.refuted + one.not_enough == pytest.approx(1.0)
    assert other.supported >= one.supported
    assert OWN.probabilities(q, max(r, more)).supported <= one.supported


def test_weights_of_the_wrong_sign_are_refused() -> None:
    for supported, refuted in (
        ((0.0, -1.0), (0.0, -2.0, 1.0)),
        ((0.0, float("nan")), (0.0, 0.0, 1.0)),
        ((0.0, 1.0), (0.0, 1.1, 1.0)),
        ((0.0, 1.0), (0.0, 0.0, -1.0)),
    ):
        with pytest.raises(InvalidInputError):
            AuditCalibration("s", None, supported, refuted, Budget())


def test_a_file_comes_back_as_it_was_and_an_altered_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    OWN.save(path)
    assert AuditCalibration.load(path) == OWN
    plain = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**plain, "refuted": [9.0, 1.0, 9.0]}), "utf-8")
    with pytest.raises(InvalidInputError, match="altered"):
        AuditCalibration.load(path)
    path.write_text("nonsense", "utf-8")
    with pytest.raises(InvalidInputError):
        AuditCalibration.load(path)


def test_only_its_own_scorer_uses_it() -> None:
    assert calibration_of("fixed", None) is None
    with pytest.raises(ConfigurationError, match="fitted for"):
        gate(max_words=50).audit(answer="The Rhine flows through Basel.", evidence=list(RIVERS), calibration=OWN)


def test_an_audit_uses_it_for_verdicts_and_for_what_goes_out() -> None:
    found = gate().audit(
        answer="The Rhine flows through Basel. Der Rhein ist lang. Рейн — это река.",
        evidence=list(RIVERS),
        calibration=OWN,
    )
    first, _, third = found.statements
    assert first.probabilities == OWN.probabilities(0.98, 0.02)
    assert (third.kind, third.verdict) == (Kind.SCRIPT, Verdict.NOT_JUDGED)
    released = found.releasable(0.5)
    assert released.threshold == 0.4
    assert found.statements[0].text in released.text
    assert found.releasable(0.1).threshold is None, "three answers are too few for 0.1"


def test_details_of_two_chunks_are_not_taken_for_one_where_chunks_are_read_alone() -> None:
    def bound(prompt: object, ordering: object) -> float:
        """Sure where all words are there, in whatever chunk."""
        return read(prompt, ordering) if len(prompt.chunks) < 2 or "contradict" in prompt.suffix else 0.98  # type: ignore[attr-defined,arg-type]

    own = ISRGate(scorer=FixedScorer(bound, layout="late"), reference=CalibratedMixture(Itself()))
    asked = {"answer": "The Seine flows through Basel today.", "evidence": list(RIVERS), "h_star": 0.01}
    assert own.audit(**asked).statements[0].verdict is Verdict.SUPPORTED  # type: ignore[arg-type]
    closely = own.audit(**asked, calibration=OWN).statements[0]  # type: ignore[arg-type]
    assert closely.verdict is not Verdict.SUPPORTED
    assert closely.q_alone == pytest.approx(0.03)
