"""What fallible scores are worth: rates, Venn-Abers, verdict bounds, Learn-then-Test, and the artefacts on disk.

Applying a calibration needs numpy only; fitting one loads the libraries of the `calibrate` extra.
"""

from __future__ import annotations

from isr_rag.calibration.artefact import (
    BinCalibration,
    CalibrationArtefact,
    Fingerprint,
    Guarantee,
    LoopCalibration,
    PredicateCalibration,
)
from isr_rag.calibration.calibrators import NoisyChannel, Steps, Tail, VennAbers
from isr_rag.calibration.checks import TrainingHashes
from isr_rag.calibration.errors import (
    CalibrationCorruptError,
    CalibrationError,
    CalibrationMismatchError,
    CalibrationWarning,
)
from isr_rag.calibration.fitting import FitSettings, fit_artefact
from isr_rag.calibration.ltt import LearnThenTest, Threshold
from isr_rag.calibration.records import CalibrationRecord

__all__ = [
    "BinCalibration",
    "CalibrationArtefact",
    "CalibrationCorruptError",
    "CalibrationError",
    "CalibrationMismatchError",
    "CalibrationRecord",
    "CalibrationWarning",
    "Fingerprint",
    "FitSettings",
    "Guarantee",
    "LearnThenTest",
    "LoopCalibration",
    "NoisyChannel",
    "PredicateCalibration",
    "Steps",
    "Tail",
    "Threshold",
    "TrainingHashes",
    "VennAbers",
    "fit_artefact",
]
