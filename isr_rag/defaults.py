"""What a gate uses when nothing else is given: the calibration that belongs to the embedded model."""

from __future__ import annotations

from pathlib import Path

from isr_rag.calibration.artefact import CalibrationArtefact
from isr_rag.errors import ModelNotFoundError
from isr_rag.references.calibrated_mixture import CalibratedMixture
from isr_rag.references.protocol import Reference
from isr_rag.scorers.embedded import adjudicator_directory


def default_reference(adapter: Path | None = None) -> Reference:
    """The calibration that belongs to the embedded model with its adapter.

    Args:
        adapter: folder of the adapter, as for `embedded_scorer`.

    Raises:
        ModelNotFoundError: if the package lacks it.
        CalibrationCorruptError: if it was altered.
    """
    path = (adapter or adjudicator_directory()) / "calibration.json"
    if not path.is_file():
        remedy = "calibrate it" if adapter else "install the package again"
        raise ModelNotFoundError(f"there is no {path}: {remedy}")
    return CalibratedMixture(CalibrationArtefact.load(path))
