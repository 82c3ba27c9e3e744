"""What a gate uses when nothing else is given: the calibration that belongs to its adjudicator."""

from __future__ import annotations

from pathlib import Path

from isr_rag.adjudicators import ADJUDICATORS, AdjudicatorName, adjudicator_named
from isr_rag.calibration.artefact import CalibrationArtefact, Guarantee
from isr_rag.errors import ConfigurationError, ModelNotFoundError
from isr_rag.references.calibrated_mixture import CalibratedMixture

TWO_READERS = "calibration_two_readers.json"
"""File of the calibration of an adjudicator with a second reader, beside that of the adjudicator by itself."""
SECOND: AdjudicatorName = "small"
"""The adjudicator that is the second reader."""


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


def two_readers(
    *,
    adjudicator: AdjudicatorName | None = None,
    guarantee: Guarantee | None = None,
    delta: float | None = None,
    supported_share: float | None = None,
) -> CalibratedMixture:
    """The calibration of an adjudicator together with a second reader, the adjudicator `small`.

    Args:
        adjudicator: the first reader; the default one for None.
        guarantee: as for `isr_rag.references.CalibratedMixture`, like the next two.
        delta: as there.
        supported_share: as there.

    Raises:
        ConfigurationError: if that adjudicator has no second reader, or for settings out of range.
        ModelNotFoundError: if the second reader is not set up; the message names the command.
        CalibrationCorruptError: if the calibration was altered.
        CalibrationMismatchError: if it was made with another second reader than is installed.
    """
    from isr_rag.scorers.embedded import embedded_scorer

    wanted = adjudicator_named(adjudicator)
    path = wanted.directory / TWO_READERS
    if not path.is_file():
        able = [name for name, one in ADJUDICATORS.items() if (one.directory / TWO_READERS).is_file()]
        raise ConfigurationError(
            f"the adjudicator {wanted.name!r} has no calibration with a second reader in this version"
            + (f"; choose {' or '.join(map(repr, able))}" if able else "")
        )
    artefact, second = CalibrationArtefact.load(path), embedded_scorer(adjudicator=SECOND)
    return CalibratedMixture(artefact, guarantee=guarantee, delta=delta, supported_share=supported_share, second=second)
