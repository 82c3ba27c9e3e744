"""What fallible scores are worth: Venn-Abers, the noisy channel, Learn-then-Test, and the artefacts on disk.

Applying a calibration needs numpy only; fitting one loads the libraries of the `calibrate` extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isr_rag.calibration.artefact import (
    BelongsTo,
    BinCalibration,
    CalibrationArtefact,
    Guarantee,
    LoopCalibration,
    PredicateCalibration,
)
from isr_rag.calibration.channel import Bound, NoisyChannel, Prior
from isr_rag.calibration.checks import TrainingHashes
from isr_rag.calibration.combination import Combination
from isr_rag.calibration.errors import (
    CalibrationCorruptError,
    CalibrationError,
    CalibrationMismatchError,
    CalibrationWarning,
)
from isr_rag.calibration.fitting import FittedCalibration, HeldOut, fit_artefact
from isr_rag.calibration.ltt import Cut, LearnThenTest
from isr_rag.calibration.records import CalibrationRecord, LoopRecord
from isr_rag.calibration.tail import Steps, Tail
from isr_rag.calibration.venn_abers import VennAbers

if TYPE_CHECKING:
    from isr_rag.calibration.report import calibration_report

__all__ = [
    "BelongsTo",
    "BinCalibration",
    "Bound",
    "CalibrationArtefact",
    "CalibrationCorruptError",
    "CalibrationError",
    "CalibrationMismatchError",
    "CalibrationRecord",
    "CalibrationWarning",
    "Combination",
    "Cut",
    "FittedCalibration",
    "Guarantee",
    "HeldOut",
    "LearnThenTest",
    "LoopCalibration",
    "LoopRecord",
    "NoisyChannel",
    "PredicateCalibration",
    "Prior",
    "Steps",
    "Tail",
    "TrainingHashes",
    "VennAbers",
    "calibration_report",
    "fit_artefact",
]


def __getattr__(name: str) -> Any:
    if name == "calibration_report":
        from isr_rag.calibration.report import calibration_report

        return calibration_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
