"""What a gate uses when it is given nothing else: the judge, its calibration, and the targets of adapters."""

from __future__ import annotations

from pathlib import Path

from isr_rag.calibration.artefact import CalibrationArtefact, Guarantee
from isr_rag.core.scorer import Scorer
from isr_rag.errors import ConfigurationError, ModelNotFoundError
from isr_rag.references.calibrated_mixture import CalibratedMixture
from isr_rag.scorers.adjudicators import DEFAULT, STANDARD

AFTER_DRAFTING = 0.05
"""h* of an adapter's default gate that judges a draft: evidence that fails costs a wrong answer."""

BEFORE_DRAFTING = 0.1
"""h* of an adapter's default gate that judges whether evidence suffices: evidence that fails costs a draft.

The shipped calibration reaches 0.91 for this question, so that no evidence could ever meet h* = 0.05.
"""


def default_reference(
    adapter: Path | None = None,
    *,
    guarantee: Guarantee | None = None,
    delta: float | None = None,
    prevalence: float | None = None,
) -> CalibratedMixture:
    """The calibration that belongs to the adjudicator.

    Args:
        adapter: folder of the adapter, as for `isr_rag.scorers.embedded.embedded_scorer`.
        guarantee: as for `isr_rag.references.CalibratedMixture`, like `delta` and `prevalence`.
        delta: see `guarantee`.
        prevalence: see `guarantee`.

    Raises:
        ModelNotFoundError: if the adapter has no calibration.
        CalibrationCorruptError: if it was altered.
        ConfigurationError: for settings out of range.

    Examples:
        >>> from isr_rag.gate.defaults import default_reference
        >>> default_reference(guarantee="pointwise").guarantee
        'pointwise'
    """
    path = (adapter or STANDARD.directory) / "calibration.json"
    if not path.is_file():
        raise ModelNotFoundError(f"there is no {path}: calibrate the adapter with isr-rag calibrate")
    artefact = CalibrationArtefact.load(path)
    return CalibratedMixture(artefact, guarantee=guarantee, delta=delta, prevalence=prevalence)


def default_scorer(name: str) -> Scorer:
    """The judge of this package with that name.

    Raises:
        ConfigurationError: if there is none of that name.
        ModelNotFoundError: if its model is not set up.
    """
    from isr_rag.scorers.embedded import embedded_scorer

    if name != DEFAULT:
        raise ConfigurationError(f"there is no scorer {name!r}; there is {DEFAULT!r}, or give one of isr_rag.scorers")
    return embedded_scorer()
