"""A verifier of the drafted answer or claim as the reference (Section 2.5.1, instantiation iii)."""

from __future__ import annotations

from collections.abc import Callable

from isr_rag.errors import ConfigurationError, ReferenceFailedError
from isr_rag.references.protocol import Calibration, Case, Estimate, checked_calibration, probability


class Verifier:
    """A verifier V of the drafted answer or claim (instantiation iii).

    Args:
        verify: takes a `Case`; returns a verdict (0 or 1, bool) or a score in [0, 1].
        calibration: what the score is worth. None: `verify` is a deterministic check (unit tests, a constraint, a
            database) whose 0 or 1 counts as it stands, and any other score is refused. A
            `NoisyChannel` or `VennAbers`: the lower
            probability it gives for the score. A learned verifier counts only with its calibration.
    """

    needs_scores = False

    def __init__(self, verify: Callable[[Case], float], *, calibration: Calibration | None = None) -> None:
        if not callable(verify):
            raise ConfigurationError("verify must be a callable that takes a Case")
        if calibration is not None:
            checked_calibration(calibration)
        self._verify, self._calibration = verify, calibration

    def __repr__(self) -> str:
        return f"Verifier({self._verify!r}, calibration={self._calibration!r})"

    def estimate(self, case: Case) -> Estimate:
        """The verdict, or the lower probability that its calibration gives."""
        score = probability(self._verify(case), "the verifier")
        if self._calibration is not None:
            lower = probability(self._calibration.lower(score), "the calibration")
            return Estimate(lower, f"verifier {score:.3g}, calibrated lower bound")
        if score not in (0.0, 1.0):
            raise ReferenceFailedError(
                f"the verifier returned {score:.3g}: a score between 0 and 1 counts only with a calibration "
                "(calibration=NoisyChannel(...) or VennAbers(...))"
            )
        return Estimate(score, "verifier")
