"""Every way to get a scorer by name: what commands and other programs load a model through."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from isr_rag.core.scorer import Scorer
from isr_rag.errors import ConfigurationError
from isr_rag.scorers.adjudicators import BASELINES, DEFAULT, PERMUTED

if TYPE_CHECKING:
    from isr_rag.scorers.local.loading import Quantization


def load_scorer(
    model: str | None = None,
    *,
    server: str | None = None,
    cross_encoder: str | None = None,
    decisions: str | None = None,
    tokenizer: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    quantization: Quantization | None = None,
    cache: Path | None = None,
    adapter: Path | None = None,
    keep_states: bool = True,
) -> Scorer:
    """Load a scorer.

    Args:
        model: `"standard"`, the judge of this package (also None); `"permuted"`, its base model, which reads the chunks
            one after the other and so sees their order; a Hub name, a folder or a `.gguf` file; with `server` the name
            that the model is served under. `"bm25"` and `"overlap"` are baselines without a model.
        server: URL of an OpenAI-compatible server.
        cross_encoder: Hub name or folder of a model for `isr_rag.scorers.pairs.CrossEncoder`.
        decisions: URL of a decision model, for `isr_rag.scorers.remote.decisions.DecisionScorer`.
        tokenizer: as for `isr_rag.scorers.remote.remote_scorer`.
        device: as for `isr_rag.scorers.transformers.TransformersScorer`, like `dtype` and `quantization`. The judge
            takes a device only, and is on the CPU by default.
        dtype: see `device`.
        quantization: see `device`.
        cache: a directory that remembers every score.
        adapter: as for `isr_rag.scorers.embedded.embedded_scorer`, like `keep_states`.
        keep_states: see `adapter`.

    Raises:
        ConfigurationError: if `dtype` or `quantization` is given for the judge, or a setting does not fit.
        ModelNotFoundError: if the model is not there; and all else that the scorers named above raise.

    Examples:
        >>> from isr_rag.scorers.load import load_scorer
        >>> scorer = load_scorer("Qwen/Qwen3-8B", device="cuda:1", quantization="nf4")  # doctest: +SKIP
    """
    scorer: Scorer
    if server is not None:
        from isr_rag.scorers.remote import remote_scorer

        scorer = remote_scorer(server, model=model, tokenizer=tokenizer)
    elif decisions is not None:
        from isr_rag.scorers.remote.decisions import DecisionScorer

        scorer = DecisionScorer(decisions, model=model)
    elif cross_encoder is not None:
        from isr_rag.scorers.pairs import CrossEncoder

        scorer = CrossEncoder(cross_encoder, device=device, dtype=dtype, quantization=quantization)
    elif model in BASELINES:
        from isr_rag.scorers.pairs import Bm25Score, WordOverlap

        scorer = Bm25Score() if model == "bm25" else WordOverlap()
    elif model is None or model == DEFAULT:
        if (dtype, quantization) != ("auto", None):
            raise ConfigurationError(f"dtype and quantization are for a model of your own; {DEFAULT!r} has its own")
        from isr_rag.scorers.embedded import embedded_scorer

        scorer = embedded_scorer(adapter, keep_states=keep_states, device="cpu" if device == "auto" else device)
    elif model == PERMUTED:
        from isr_rag.scorers.embedded import permuted_scorer

        scorer = permuted_scorer(device=device, dtype=dtype, quantization=quantization)
    else:
        from isr_rag.scorers.transformers import TransformersScorer

        scorer = TransformersScorer(model, device=device, dtype=dtype, quantization=quantization)
    if cache is not None:
        from isr_rag.scorers.cache import CachedScorer

        scorer = CachedScorer(scorer, cache)
    return scorer
