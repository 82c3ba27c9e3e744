"""Any scorer by name: what commands and other programs load a model through."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isr_rag.core.scorer import Scorer
from isr_rag.errors import ConfigurationError
from isr_rag.scorers.adjudicators import BASE, BASELINES, DEFAULT, NAMES, PERMUTED

if TYPE_CHECKING:
    from isr_rag.scorers.local.loading import Quantization


def load_scorer(
    model: str | None = None,
    *,
    server: str | None = None,
    cross_encoder: str | None = None,
    decisions: str | None = None,
    tokenizer: str | None = None,
    extra: Mapping[str, Any] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    quantization: Quantization | None = None,
    cache: Path | None = None,
    adapter: Path | None = None,
    keep_states: bool = True,
) -> Scorer:
    """The scorer that these settings describe; by default the judge of this package.

    `model` is `"standard"` (the judge), `"permuted"` (the judge, reading the chunks in a row), `"base"` (its base
    model), `"bm25"` or `"overlap"` (baselines without a model), a Hub name, a folder, a `.gguf` file, or with `server`
    the name it is served under. `cross_encoder` is a name or folder for `isr_rag.scorers.pairs.CrossEncoder`,
    `decisions` a URL for `isr_rag.scorers.remote.decisions.DecisionScorer`. `device`, `dtype` and `quantization` are
    as for `isr_rag.scorers.transformers.TransformersScorer`; the judge takes a device only, by default the CPU.
    `tokenizer` and `extra` are for `isr_rag.scorers.remote.remote_scorer`, `adapter` and `keep_states` for
    `isr_rag.scorers.embedded.embedded_scorer`. `cache` is a directory that remembers every score.

    Raises:
        ConfigurationError: if `dtype` or `quantization` is given for the judge; all else as the scorers named above.
    """
    scorer: Scorer
    if server is not None:
        from isr_rag.scorers.remote import remote_scorer

        scorer = remote_scorer(server, model=model, tokenizer=tokenizer, extra=extra)
    elif decisions is not None:
        from isr_rag.scorers.remote.decisions import DecisionScorer

        scorer = DecisionScorer(decisions, model=model)
    elif cross_encoder is not None:
        from isr_rag.scorers.pairs import CrossEncoder

        scorer = CrossEncoder(cross_encoder, device=device, dtype=dtype, quantization=quantization)
    elif model in BASELINES:
        from isr_rag.scorers.pairs import Bm25Score, WordOverlap

        scorer = Bm25Score() if model == "bm25" else WordOverlap()
    elif model is None or model in NAMES:
        if (dtype, quantization) != ("auto", None):
            raise ConfigurationError(f"dtype and quantization are for your own model; {model or DEFAULT!r} has its own")
        from isr_rag.scorers.embedded import embedded_scorer

        where, in_a_row = "cpu" if device == "auto" else device, model == PERMUTED
        scorer = embedded_scorer(adapter, keep_states=keep_states, device=where, in_a_row=in_a_row)
    elif model == BASE:
        from isr_rag.scorers.embedded import base_scorer

        scorer = base_scorer(device=device, dtype=dtype, quantization=quantization)
    else:
        from isr_rag.scorers.transformers import TransformersScorer

        scorer = TransformersScorer(model, device=device, dtype=dtype, quantization=quantization)
    if cache is not None:
        from isr_rag.scorers.cache import CachedScorer

        scorer = CachedScorer(scorer, cache)
    return scorer
