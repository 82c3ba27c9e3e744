"""What a gate uses when it is given nothing else: the judge, its calibration, and the targets of adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from isr_rag.calibration.artefact import CalibrationArtefact, Guarantee
from isr_rag.errors import ConfigurationError, ModelNotFoundError
from isr_rag.references.calibrated_mixture import CalibratedMixture
from isr_rag.scorers.adjudicators import PERMUTED, STANDARD

AFTER_DRAFTING = 0.05
"""h* of an adapter's default gate that judges a draft: evidence that fails costs a wrong answer."""

BEFORE_DRAFTING = 0.2
"""h* of an adapter's default gate that judges whether evidence suffices: evidence that fails costs a draft, and no
wrong answer, so that a loop of a few rounds can share it out."""

Traffic = Literal["documents", "adversarial"]
"""What labelled items a shipped calibration stands for. `documents`: what BM25 returns from manuals, policies and books
for written questions, drafts and claims. `adversarial`: public test sets, many of them written to mislead."""

_FILES: dict[Traffic, str] = {"documents": "calibration.json", "adversarial": "adversarial.json"}


def default_reference(
    adapter: Path | None = None,
    *,
    traffic: Traffic = "documents",
    guarantee: Guarantee | None = None,
    delta: float | None = None,
    prevalence: float | None = None,
) -> CalibratedMixture:
    """A calibration that belongs to the adjudicator.

    Args:
        adapter: folder of the adapter, as for `isr_rag.scorers.embedded.embedded_scorer`.
        traffic: what the calibration's labelled items are like; `adversarial` is for evidence or questions that may
            be meant to mislead, and answers less.
        guarantee, delta, prevalence: as for `isr_rag.references.CalibratedMixture`.

    Raises:
        ModelNotFoundError: if the adapter has no calibration.
        CalibrationCorruptError: if it was altered.
        ConfigurationError: for settings out of range.

    Examples:
        >>> from isr_rag.gate.defaults import default_reference
        >>> default_reference(traffic="adversarial", prevalence=0.7).prevalence
        0.7
    """
    if traffic not in _FILES:
        raise ConfigurationError(f"traffic is one of {', '.join(_FILES)}, not {traffic!r}")
    path = (adapter or STANDARD.directory) / _FILES[traffic]
    if not path.is_file():
        raise ModelNotFoundError(f"there is no {path}: calibrate the adapter with isr-rag calibrate")
    artefact = CalibrationArtefact.load(path)
    return CalibratedMixture(artefact, guarantee=guarantee, delta=delta, prevalence=prevalence)


def shipped_reference(scorer: str) -> CalibratedMixture:
    """The calibration of a scorer that is known by name: `standard`, or `permuted` for six orderings."""
    if scorer == PERMUTED:
        return CalibratedMixture(CalibrationArtefact.load(STANDARD.directory / "permuted.json"))
    return default_reference()
