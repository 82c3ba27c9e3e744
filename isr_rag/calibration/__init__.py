"""What fallible scores are worth: rates, Venn-Abers, verdict bounds, Learn-then-Test, and the artefacts on disk.

Applying a calibration needs numpy only; fitting one loads the libraries of the `calibrate` extra.
"""

from isr_rag.calibration.artefact import CalibrationArtefact as CalibrationArtefact, Fingerprint as Fingerprint
from isr_rag.calibration.calibrators import NoisyChannel as NoisyChannel, Tail as Tail, VennAbers as VennAbers
from isr_rag.calibration.checks import TrainingHashes as TrainingHashes
from isr_rag.calibration.fitting import FitSettings as FitSettings, fit_artefact as fit_artefact
from isr_rag.calibration.ltt import LearnThenTest as LearnThenTest
from isr_rag.calibration.records import CalibrationRecord as CalibrationRecord
