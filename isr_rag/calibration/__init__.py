"""What fallible scores are worth: rates, Venn-Abers, verdict bounds, Learn-then-Test, and the artefacts on disk.

Applying a calibration needs numpy only; fitting one loads the libraries of the `calibrate` extra.
"""

from isr_rag.calibration.artefact import BinCalibration as BinCalibration
from isr_rag.calibration.artefact import CalibrationArtefact as CalibrationArtefact
from isr_rag.calibration.artefact import Fingerprint as Fingerprint
from isr_rag.calibration.artefact import LoopCalibration as LoopCalibration
from isr_rag.calibration.artefact import PredicateCalibration as PredicateCalibration
from isr_rag.calibration.calibrators import NoisyChannel as NoisyChannel
from isr_rag.calibration.calibrators import Steps as Steps
from isr_rag.calibration.calibrators import Tail as Tail
from isr_rag.calibration.calibrators import VennAbers as VennAbers
from isr_rag.calibration.checks import TrainingHashes as TrainingHashes
from isr_rag.calibration.errors import CalibrationCorruptError as CalibrationCorruptError
from isr_rag.calibration.errors import CalibrationError as CalibrationError
from isr_rag.calibration.errors import CalibrationMismatchError as CalibrationMismatchError
from isr_rag.calibration.errors import CalibrationWarning as CalibrationWarning
from isr_rag.calibration.fitting import FitSettings as FitSettings
from isr_rag.calibration.fitting import fit_artefact as fit_artefact
from isr_rag.calibration.ltt import LearnThenTest as LearnThenTest
from isr_rag.calibration.records import CalibrationRecord as CalibrationRecord
