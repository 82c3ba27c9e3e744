"""The calibrated mean over the gate's own orderings as the reference."""

from __future__ import annotations

import math

from isr_rag.calibration.artefact import CalibrationArtefact
from isr_rag.errors import ConfigurationError
from isr_rag.references.protocol import Calibration, Case, Estimate, probability
from isr_rag.wording import compare


class CalibratedMixture:
    """p_ref from the calibrated mean probability of the gate's own orderings, as a lower bound.

    Where the artefact has a `Combination`, the mean counts together with the wording:
    how much of what is judged is in the evidence word by word.

    Args:
        calibration: an artefact fitted on labelled data (see `isr_rag.calibration`), refused where it does not
            belong to the gate's scorer, predicate, family of orderings, m and focus; or a bare calibration, for which
            you vouch.
        delta: also hold the answer to the artefact's Learn-then-Test cut for (the gate's h*, delta), so that the
            hallucination rate among the answered exceeds h* with probability at most delta over the labelled items.

    Raises:
        ConfigurationError: if delta is given without an artefact, or lies outside (0, 1).
    """

    needs_scores = True

    def __init__(self, calibration: CalibrationArtefact | Calibration, *, delta: float | None = None) -> None:
        if delta is not None and not (0.0 < delta < 1.0 and isinstance(calibration, CalibrationArtefact)):
            raise ConfigurationError(f"delta needs a CalibrationArtefact and a value in (0, 1), got {delta!r}")
        self.calibration = calibration
        self.delta = delta

    def __repr__(self) -> str:
        own = self.calibration
        named = f"sha256={own.sha256}" if isinstance(own, CalibrationArtefact) else repr(own)
        return f"CalibratedMixture({named}, delta={self.delta})"

    def estimate(self, case: Case) -> Estimate:
        """The lower probability at the mean over the orderings, or at what the artefact makes of it and the wording.

        Raises:
            ConfigurationError: for a predicate that leaves the target label open (`Choice`).
            CalibrationMismatchError: if the artefact does not belong to this gate, or has no cut for (h*, delta).
        """
        if not case.q:
            raise ConfigurationError(
                "CalibratedMixture needs a predicate with a fixed target label; use ToolChoice for a Choice"
            )
        mean = math.fsum(case.q) / len(case.q)
        score, source = mean, "calibrated mixture, lower bound"
        template, guaranteed = case.predicate.template, None
        calibration = self.calibration
        if isinstance(calibration, CalibrationArtefact):
            fitted = calibration.check_belongs(
                scorer=case.scorer, predicate=template, orderings=case.family, m=case.m, focus=case.focus
            )
            if fitted.combination is not None:
                wording = compare(case.predicate, case.chunks)
                score = fitted.score(mean, wording)
                source = f"calibrated mixture and wording ({wording}), lower bound"
            if self.delta is not None:
                guaranteed = calibration.cut(template, case.h_star, self.delta).allows(score)
            calibration = fitted.calibrator
        lower = probability(calibration.lower(score), "the calibration")
        return Estimate(lower, source, guaranteed=guaranteed)
