"""Gates and scorers from plain settings: what the commands and services build from their options."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from isr_rag.adjudicators import AdjudicatorName
from isr_rag.calibration.artefact import CalibrationArtefact
from isr_rag.calibration.release import is_release
from isr_rag.defaults import default_reference
from isr_rag.errors import ConfigurationError
from isr_rag.gate import ISRGate
from isr_rag.references import CalibratedMixture, Oracle, ReleasedCut
from isr_rag.scorers.protocol import Scorer


def build_gate(
    *,
    model: str | None = None,
    servers: list[str] | None = None,
    tokenizer: str | None = None,
    calibration: Path | None = None,
    p_ref: float | None = None,
    cache: Path | None = None,
    adjudicator: AdjudicatorName | None = None,
    alike: bool = False,
    **settings: Any,
) -> ISRGate:
    """The gate that these options describe; `settings` are those of `isr_rag.ISRGate`.

    `alike`: nothing is kept from one batch to the next, and every engine computes the same bits.

    Raises:
        ConfigurationError: for settings that exclude each other.
    """
    if adjudicator is not None and (servers or model is not None):
        raise ConfigurationError("adjudicator names one that comes with the package: give neither model nor servers")
    if calibration is not None and p_ref is not None:
        raise ConfigurationError("give a calibration or p_ref, not both")
    reference: Any = None
    if calibration is not None:
        reference = calibrated_reference(calibration)
    elif p_ref is not None:
        reference = Oracle(p_ref)
    scorer: Scorer | None = None
    if servers or model is not None or cache is not None or alike:
        scorer = build_scorer(
            model=model,
            servers=servers,
            tokenizer=tokenizer,
            cache=cache,
            adjudicator=adjudicator,
            keep_states=not alike,
        )
        if not servers and model is None:
            reference = reference or default_reference(adjudicator=adjudicator)
        return ISRGate(scorer=scorer, reference=reference, **settings)
    return ISRGate(adjudicator=adjudicator, reference=reference, **settings)


def calibrated_reference(path: Path) -> CalibratedMixture | ReleasedCut:
    """The reference that a calibration file gives: of `isr-rag calibrate`, or of `isr-rag calibrate report`.

    Raises:
        FileNotFoundError: if there is no such file.
        CalibrationCorruptError: if it is neither, or was altered.
    """
    if is_release(path):
        return ReleasedCut.load(path)
    return CalibratedMixture(CalibrationArtefact.load(path))


def build_scorer(
    *,
    model: str | None = None,
    servers: list[str] | None = None,
    tokenizer: str | None = None,
    cache: Path | None = None,
    adapter: Path | None = None,
    adjudicator: AdjudicatorName | None = None,
    keep_states: bool = True,
) -> Scorer:
    """The scorer that these options describe; an adjudicator by default.

    Args:
        model: Hub name, folder or `.gguf` file; or the name that servers serve it under.
        servers: URLs of replicas of one model.
        tokenizer: of the served model.
        cache: directory that remembers every score.
        adapter: folder of an adapter of the adjudicator's base model, instead of the one that comes with the package.
        adjudicator: which one, where neither model nor servers are given; the default one for None.
        keep_states: for an adjudicator; see `isr_rag.scorers.embedded.embedded_scorer`.
    """
    if servers:
        scorer = _pool(servers, model, tokenizer)
    elif model is not None:
        from isr_rag.scorers.transformers import TransformersScorer

        scorer = TransformersScorer(model)
    else:
        from isr_rag.scorers.embedded import embedded_scorer

        scorer = embedded_scorer(adapter, adjudicator=adjudicator, keep_states=keep_states)
    if cache is not None:
        from isr_rag.scorers.cache import CachedScorer

        scorer = CachedScorer(scorer, cache)
    return scorer


def _pool(servers: list[str], model: str | None, tokenizer: str | None) -> Scorer:
    from isr_rag.scorers.remote import remote_scorer
    from isr_rag.scorers.remote.pool import ServerPool

    connect = {url: partial(remote_scorer, url, model=model, tokenizer=tokenizer) for url in servers}
    return ServerPool(connect, first=os.getpid())  # the pools of many workers do not all begin with the same server
