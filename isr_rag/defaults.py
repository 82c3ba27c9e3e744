"""What a gate uses when nothing else is given: the calibration that belongs to its adjudicator."""

from __future__ import annotations

from pathlib import Path

from isr_rag.adjudicators import AdjudicatorName, adjudicator_named
from isr_rag.calibration.artefact import CalibrationArtefact, Guarantee
from isr_rag.errors import ModelNotFoundError
from isr_rag.references.calibrated_mixture import CalibratedMixture


def default_reference(
    adapter: Path | None = None,
    *,
    adjudicator: AdjudicatorName | None = None,
    guarantee: Guarantee | None = None,
    delta: float | None = None,
    supported_share: float | None = None,
) -> CalibratedMixture:
    """The calibration that belongs to an adjudicator with its adapter.

    Args:
        adapter: folder of the adapter, as for `isr_rag.scorers.embedded.embedded_scorer`.
        adjudicator: which one; the default one for None.
        guarantee: as for `isr_rag.references.CalibratedMixture`, like the next two.
        delta: as there.
        supported_share: as there.

    Raises:
        ModelNotFoundError: if there is none.
        CalibrationCorruptError: if it was altered.
        ConfigurationError: if there is no adjudicator of that name, or for settings out of range.
    """
    wanted = adjudicator_named(adjudicator)
    path = (adapter or wanted.directory) / "calibration.json"
    if not path.is_file():
        remedy = (
            "calibrate it with isr-rag calibrate"
            if adapter
            else f"the adjudicator {wanted.name!r} has no calibration in this version: choose another one, or give "
            "a reference or a calibration"
        )
        raise ModelNotFoundError(f"there is no {path}: {remedy}")
    artefact = CalibrationArtefact.load(path)
    return CalibratedMixture(artefact, guarantee=guarantee, delta=delta, supported_share=supported_share)
