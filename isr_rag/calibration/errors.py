"""What a calibration refuses, and what it warns of."""

from __future__ import annotations

from isr_rag.errors import ISRError


class CalibrationError(ISRError, ValueError):
    """Labelled data or settings from which no meaningful bound can be fitted; the message says what to do."""


class CalibrationMismatchError(CalibrationError):
    """A calibration belongs to another scorer, predicate, ordering family, m or focus than the gate's."""


class CalibrationCorruptError(CalibrationError):
    """A calibration file is damaged, was altered after it was fitted, or has an unknown schema version."""


class CalibrationWarning(UserWarning):
    """A calibration that is weaker than it looks (few labels of a class, a verifier not shown better than chance)."""
