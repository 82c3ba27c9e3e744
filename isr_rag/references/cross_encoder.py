"""A fact-checking cross-encoder as a verifier: NLI models, HHEM, MiniCheck, by name."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from isr_rag.core.evidence import Chunk
from isr_rag.core.predicates import Supported
from isr_rag.core.settings import Calibration, Case, Estimate, probability
from isr_rag.errors import ConfigurationError, MissingDependencyError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_OVERLAP = 64
"""Tokens that neighbouring windows of the evidence share."""
_SUPPORTING = ("entailment", "entail", "supported", "supports", "support", "consistent", "factual", "true", "yes")


class CrossEncoder:
    """Scores (evidence, claim) pairs with a sequence classification model of transformers.

    The score is the probability of the supporting label for the best of the overlapping windows that the evidence
    fills. It counts only through a calibration.

    Args:
        model: a Hub name, a folder, or a loaded model (then give its tokenizer too).
        calibration: turns the score into a lower probability; fit it on labelled data of your own.
        tokenizer: the tokenizer of a loaded model.
        label: name or index of the supporting label; by default found by its usual names. One output is a sigmoid.
        device: torch device.

    Raises:
        ConfigurationError: if no supporting label can be found, or a loaded model has no tokenizer.
        ModelNotFoundError: if the model is not there.
        MissingDependencyError: if transformers is not installed.

    Examples:
        >>> from isr_rag.calibration import VennAbers
        >>> from isr_rag.references import CrossEncoder
        >>> calibration = VennAbers.fit([0.1] * 50 + [0.9] * 50, [0] * 50 + [1] * 50)
        >>> reference = CrossEncoder("MoritzLaurer/DeBERTa-v3-base-mnli", calibration=calibration)  # doctest: +SKIP
    """

    needs_scores = False

    def __init__(
        self,
        model: str | PreTrainedModel,
        *,
        calibration: Calibration,
        tokenizer: PreTrainedTokenizerBase | None = None,
        label: str | int | None = None,
        device: str = "cpu",
    ) -> None:
        if not isinstance(calibration, Calibration):
            raise ConfigurationError("a learned verifier counts only with its calibration: give calibration=...")
        try:
            from transformers import AutoModelForSequenceClassification, AutoTokenizer
        except ImportError as error:
            raise MissingDependencyError("CrossEncoder", "transformers", "local") from error
        if isinstance(model, str):
            from isr_rag.scorers.local.loading import loading

            with loading(model):
                tokenizer = AutoTokenizer.from_pretrained(model)
                loaded: Any = AutoModelForSequenceClassification.from_pretrained(model, use_safetensors=True)
        else:
            loaded = model
        if tokenizer is None:
            raise ConfigurationError("a loaded model needs its tokenizer: CrossEncoder(model, tokenizer=...)")
        self._model, self._tokenizer = loaded.to(device).eval(), tokenizer
        self._calibration = calibration
        self._label = _supporting(loaded.config, label)
        window = min(tokenizer.model_max_length, int(getattr(loaded.config, "max_position_embeddings", 512) or 512))
        padding = getattr(loaded.config, "pad_token_id", None)
        # RoBERTa counts positions from its padding index on, and so holds that many tokens fewer.
        shifted = loaded.config.model_type in ("roberta", "xlm-roberta", "camembert")
        self._window = window - (padding + 1 if padding and shifted else 0)
        self._lock = threading.Lock()

    def estimate(self, case: Case) -> Estimate:
        """The lower probability that the calibration gives for the best window's score.

        Raises:
            ConfigurationError: if the predicate is not Supported: there is no claim to check.
        """
        if not isinstance(case.predicate, Supported):
            raise ConfigurationError("CrossEncoder checks a claim or a drafted answer: use it with Supported")
        claim = case.predicate.claim or f"{case.predicate.question} {case.predicate.answer}"
        score = self.score(case.chunks, claim)
        lower = probability(self._calibration.lower(score), "the calibration")
        return Estimate(lower, f"cross-encoder {score:.3g}, calibrated lower bound")

    def score(self, chunks: Sequence[Chunk], claim: str) -> float:
        """Probability of the supporting label for the best window of the evidence; what a calibration is fitted on.

        Raises:
            ConfigurationError: if the claim alone fills the window.
        """
        import torch

        evidence = " ".join(f"{chunk.title}. {chunk.text}" if chunk.title else chunk.text for chunk in chunks)
        claim_tokens = len(self._tokenizer.encode(claim, add_special_tokens=False))
        if claim_tokens + _OVERLAP + 8 > self._window:
            raise ConfigurationError(
                f"the claim has {claim_tokens} tokens, which leaves no room for evidence in a window of {self._window}"
            )
        encoded = self._tokenizer(
            evidence,
            claim,
            truncation="only_first",
            max_length=self._window,
            stride=_OVERLAP,
            return_overflowing_tokens=True,
            padding=True,
            return_tensors="pt",
        )
        encoded.pop("overflow_to_sample_mapping", None)
        with self._lock, torch.inference_mode():
            logits = self._model(**encoded.to(self._model.device)).logits.float()
        scores = torch.sigmoid(logits) if logits.shape[-1] == 1 else torch.softmax(logits, dim=-1)
        return probability(scores[:, self._label].max().item(), "the cross-encoder")


def _supporting(config: Any, label: str | int | None) -> int:
    names = {int(index): str(name).lower() for index, name in (config.id2label or {}).items()}
    if isinstance(label, int) and 0 <= label < max(1, config.num_labels):
        return label
    if config.num_labels == 1:
        return 0
    wanted = (label.lower(),) if isinstance(label, str) else _SUPPORTING
    found = [index for candidate in wanted for index, name in names.items() if name == candidate]
    if found:
        return found[0]
    raise ConfigurationError(f"which label supports a claim? This model has {names}; give label=<name or index>")
