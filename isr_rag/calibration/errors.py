"""What a calibration refuses, and what it warns of."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from isr_rag.errors import ISRError, MissingDependencyError

_PACKAGES = {"scipy": "scipy", "sklearn": "scikit-learn", "venn_abers": "venn-abers"}


class CalibrationError(ISRError, ValueError):
    """Labelled data or settings from which no meaningful bound can be fitted; the message says what to do."""


class CalibrationMismatchError(CalibrationError):
    """A calibration belongs to another scorer, predicate, ordering family, m or focus than the gate's."""


class CalibrationCorruptError(CalibrationError):
    """A calibration file is damaged, was altered after it was fitted, or has an unknown schema version."""


class CalibrationWarning(UserWarning):
    """A calibration that is weaker than it looks (few labels of a class, a verifier not shown better than chance)."""


@contextmanager
def fitting_libraries() -> Generator[None, None, None]:
    """Around imports that only fitting needs: a missing one is named, with the extra that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = _PACKAGES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise MissingDependencyError("fitting or reporting a calibration", package, "calibrate") from error
