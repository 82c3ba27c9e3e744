"""What a calibration's figures say about other traffic than it was fitted on."""

from __future__ import annotations

from isr_lab.training.trust import risk_and_coverage
from isr_rag.calibration import CalibrationArtefact
from isr_rag.scorers.adjudicators import STANDARD


def test_the_more_cases_are_supported_the_fewer_answers_are_wrong() -> None:
    for fitted in CalibrationArtefact.load(STANDARD.directory / "calibration.json").predicates.values():
        found = [risk_and_coverage(fitted, 0.2, share) for share in (0.1, 0.3, 0.7)]
        risks = [one[0] for one in found if one is not None]
        assert len(risks) == 3 and risks == sorted(risks, reverse=True)
