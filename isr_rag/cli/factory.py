"""Build gates and scorers from plain settings, as the commands do from their options."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from isr_rag.calibration.artefact import CalibrationArtefact
from isr_rag.core.scorer import Scorer
from isr_rag.core.settings import MaxWords, Orderings, Reference, Rule
from isr_rag.gate import ISRGate
from isr_rag.gate.defaults import default_reference
from isr_rag.references import CalibratedMixture, Oracle

if TYPE_CHECKING:
    from isr_rag.scorers.local.loading import Quantization


def build_gate(
    *,
    h_star: float = 0.05,
    orderings: Orderings = Orderings(),  # noqa: B008  # frozen
    rule: Rule = Rule(),  # noqa: B008  # frozen
    max_words: MaxWords = "auto",
    calibration: Path | None = None,
    p_ref: float | None = None,
    **scoring: Any,
) -> ISRGate:
    """The gate that these options describe.

    `calibration` is a file; by default it is the shipped one if the model is the default one. `p_ref` is an oracle's
    probability instead. `scoring` are the arguments of `build_scorer`, all others those of `isr_rag.ISRGate`.
    """
    scorer = build_scorer(**scoring)
    reference: Reference | None = None
    if calibration is not None:
        reference = calibrated_reference(calibration)
    elif p_ref is not None:
        reference = Oracle(p_ref)
    elif scoring.get("server") is None and scoring.get("model") is None:
        reference = default_reference()
    return ISRGate(
        scorer=scorer, reference=reference, h_star=h_star, rule=rule, max_words=max_words, orderings=orderings
    )


KINDS = "isr_rag.references"
"""Group of entry points by which other distributions load their own kinds of calibration files; named by the kind."""


def calibrated_reference(path: Path) -> Reference:
    """The reference that a calibration file describes: of `isr-rag calibrate`, or of a kind that another package adds.

    Raises:
        FileNotFoundError: if there is no such file.
        CalibrationCorruptError: if it is neither, or was altered.
    """
    try:
        kind = json.loads(path.read_bytes()).get("kind")
    except (ValueError, AttributeError):
        kind = None  # CalibrationArtefact.load reports what is wrong with the file
    for found in entry_points(group=KINDS, name=str(kind)):
        return cast(Reference, found.load()(path))
    return CalibratedMixture(CalibrationArtefact.load(path))


def build_scorer(
    *,
    model: str | None = None,
    server: str | None = None,
    tokenizer: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    quantization: Quantization | None = None,
    cache: Path | None = None,
    adapter: Path | None = None,
    keep_states: bool = True,
) -> Scorer:
    """The scorer that these options describe; by default the model of this package.

    `device`, `dtype` and `quantization` are for `isr_rag.scorers.transformers.TransformersScorer`, `tokenizer` is for
    `isr_rag.scorers.remote.remote_scorer`, `adapter` and `keep_states` are for
    `isr_rag.scorers.embedded.embedded_scorer`. `cache` is a directory that remembers every score.
    """
    scorer: Scorer
    if server is not None:
        from isr_rag.scorers.remote import remote_scorer

        scorer = remote_scorer(server, model=model, tokenizer=tokenizer)
    elif model is not None:
        from isr_rag.scorers.transformers import TransformersScorer

        scorer = TransformersScorer(model, device=device, dtype=dtype, quantization=quantization)
    else:
        from isr_rag.scorers.embedded import embedded_scorer

        scorer = embedded_scorer(adapter, keep_states=keep_states)
    if cache is not None:
        from isr_rag.scorers.cache import CachedScorer

        scorer = CachedScorer(scorer, cache)
    return scorer
