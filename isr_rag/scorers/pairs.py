"""Readers that compare what is judged with each chunk by itself; the best chunk counts, whatever the order.

A fact-checking cross-encoder (an NLI model, MiniCheck, FactCG, HHEM), and two baselines without a model: BM25 and the
share of words. Their scores mean little without a calibration: `isr-rag calibrate`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isr_rag._util.bm25 import tokens
from isr_rag.core.evidence import neutralise
from isr_rag.core.predicates import BINARY_LABELS
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError, PromptTooLongError, ScorerError, needed_for

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from isr_rag.scorers.local.loading import Quantization

OVERLAP = 64  # tokens that neighbouring windows of one long chunk share, half of a window at most
BATCH = 16  # windows that a cross-encoder reads together
FACTCG = (
    '{evidence}\n\nChoose your answer: based on the paragraph above can we conclude that "{claim}"?\n\n'
    "OPTIONS:\n- Yes\n- No\nI think the answer is "
)
"""What the FactCG models read; used for a model whose name says so."""
HHEM = "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {evidence}\n\nHypothesis: {claim}"
"""What HHEM reads."""
_VERDICTS = (3, 209)  # ids with which T5 begins 0 and 1, which MiniCheck-Flan-T5 writes
_SUPPORTING = ("entailment", "entail", "supported", "supports", "support", "consistent", "factual", "true", "yes")


class PairScorer:
    """A scorer made of a score for each chunk and query; `pairs` is what differs."""

    layout: Layout = "set"
    identity: str

    def pairs(self, texts: Sequence[str], query: str) -> Sequence[float]:
        """How well each text carries the query, in [0, 1]."""
        raise NotImplementedError

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """The best chunk's score as the probability of yes; ConfigurationError for labels other than yes and no."""
        found: list[Scores] = []
        for request in requests:
            prompt = request.prompt
            if prompt.labels != BINARY_LABELS or not prompt.query:
                raise ConfigurationError(f"{self.identity} compares texts: it answers only yes-or-no predicates")
            best = max(self.pairs([chunk.removeprefix("> ").strip() for chunk in prompt.chunks], prompt.query))
            with np.errstate(divide="ignore"):
                row = np.log(np.array([best, 1.0 - best], dtype=np.float64))
            found.append(Scores(np.tile(row, (len(request.orderings), 1)), passes=1))
        return found


class WordOverlap(PairScorer):
    """The share of the query's words, stop words left out, that a chunk has."""

    identity = "overlap/1"

    def pairs(self, texts: Sequence[str], query: str) -> list[float]:
        """See `PairScorer`."""
        wanted, *given = map(set, tokens([query, *texts]))
        return [len(wanted & words) / max(1, len(wanted)) for words in given]


class Bm25Score(PairScorer):
    """BM25 (k1 = 1.2, b = 0.75) as s / (10 + s), in which a word is as rare as in the documents of this package."""

    identity = "bm25/1"

    def __init__(self) -> None:
        lines = resources.files("isr_rag").joinpath("calibration/data/chunks.jsonl").read_text("utf-8").split("\n")
        known = tokens([json.loads(line)["text"] for line in lines if line])
        self._chunks, self._length = len(known), sum(map(len, known)) / len(known)
        self._with = Counter(word for words in known for word in set(words))

    def pairs(self, texts: Sequence[str], query: str) -> list[float]:
        """See `PairScorer`."""
        wanted, *given = tokens([query, *texts])
        found: list[float] = []
        for words in given:
            counts, norm = Counter(words), 1.2 * (0.25 + 0.75 * len(words) / self._length)
            score = sum(self._rarity(word) * counts[word] * 2.2 / (counts[word] + norm) for word in set(wanted))
            found.append(score / (10.0 + score))
        return found

    def _rarity(self, word: str) -> float:
        return math.log1p((self._chunks - self._with[word] + 0.5) / (self._with[word] + 0.5))


class CrossEncoder(PairScorer):
    """A sequence classification model of transformers; a score is the probability of its supporting label.

    A chunk longer than the window is read in overlapping windows, of which the best counts.

    Args:
        model: a Hub name, a folder, or a loaded model (then give its tokenizer too).
        tokenizer: the tokenizer of a loaded model.
        label: name or index of the supporting label; by default found by its usual names, of two labels without names
            the second one. One output is a sigmoid.
        template: for models that read one text: where `{evidence}` and `{claim}` go. By default both go in as a pair,
            and a model with FactCG or MiniCheck in its name, or HHEM, gets what it was trained on: `FACTCG`, both with
            the token between them that ends a text, or `HHEM`.
        device: torch device; `"auto"`: CUDA where there is one.
        dtype, quantization: as for `isr_rag.scorers.transformers.TransformersScorer`.

    Raises:
        ConfigurationError: if no supporting label can be found, or a loaded model has no tokenizer.
        ModelNotFoundError: if the model is not there.
        MissingDependencyError: if transformers is not installed.
    """

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        label: str | int | None = None,
        template: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        quantization: Quantization | None = None,
    ) -> None:
        with needed_for("CrossEncoder", "local"):
            from isr_rag.scorers.local.loading import check_as_loaded, fitting, load_model, weights_fingerprint
            from isr_rag.scorers.local.queue import ScoringQueue
        if isinstance(model, (str, Path)):
            how: Any = {"device": device, "dtype": dtype, "quantization": quantization, "classifier": True}
            loaded, tokenizer = load_model(str(model), **how)
            name = Path(model).name if Path(model).exists() else str(model)
        else:
            check_as_loaded(model, device, dtype, quantization)
            loaded, name = model, Path(str(model.config.name_or_path or type(model).__name__)).name
        if tokenizer is None:
            raise ConfigurationError("a loaded model needs its tokenizer: CrossEncoder(model, tokenizer=...)")
        if template is None and "factcg" in name.lower():
            template = FACTCG
        elif template is None and type(loaded).__name__ == "T5ForTokenClassification":
            template = HHEM
        elif template is None and "minicheck" in name.lower() and tokenizer.eos_token:
            writes = type(loaded).__name__ == "T5ForConditionalGeneration"
            template = f"{'predict: ' * writes}{{evidence}}{tokenizer.eos_token}{{claim}}"
        self._model, self._tokenizer, self._template = loaded.eval(), tokenizer, template
        self._label = _supporting(loaded.config, label)
        config = loaded.config.get_text_config()
        window = min(tokenizer.model_max_length, int(getattr(config, "max_position_embeddings", 512) or 512))
        padding = getattr(loaded.config, "pad_token_id", None)
        # RoBERTa counts positions from its padding index on, and so holds that many tokens fewer.
        shifted = loaded.config.model_type in ("roberta", "xlm-roberta", "camembert")
        self._window = window - (padding + 1 if padding and shifted else 0)
        self._most = 1 if None in (padding, tokenizer.pad_token) else BATCH  # such as a Llama that classifies
        self._control_tokens = tuple(map(str, tokenizer.all_special_tokens))
        self._unusable = ""
        self._queue = ScoringQueue(super().score, forked=self._begin_after_fork)
        precision = "-".join(filter(None, (quantization, str(loaded.dtype).removeprefix("torch."))))
        with fitting(name):
            weights = weights_fingerprint(loaded, tokenizer)
        self.identity = f"cross-encoder/{name}/{weights}/{precision}/label-{self._label}"
        if template is not None:
            self.identity += f"/template-{hashlib.sha256(template.encode()).hexdigest()[:12]}"

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """The best chunk's probability as that of yes; errors as of the class and of `LocalScorer.score`."""
        return self._queue.score(requests)

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, without blocking the event loop."""
        return await self._queue.ascore(requests)

    def _begin_after_fork(self) -> None:
        from isr_rag.scorers.local.loading import begin_after_fork

        self._unusable = begin_after_fork(self._model.device)

    def pairs(self, texts: Sequence[str], query: str) -> list[float]:
        """Probability of the supporting label for the best window of each text; errors as of `score`."""
        from isr_rag.scorers.local.loading import in_halves

        if self._unusable:
            raise ScorerError(self._unusable)
        query = neutralise(query, self._control_tokens)
        around = query if self._template is None else self._template.format(evidence="", claim=query)
        taken = len(self._tokenizer.encode(around, add_special_tokens=False))
        room = self._window - taken - self._tokenizer.num_special_tokens_to_add(pair=True) - 6
        if room < 16:
            raise PromptTooLongError(f"what is judged takes {taken} of {self._window} tokens: no room for evidence")
        safe = [neutralise(text, self._control_tokens) for text in texts]
        windows = [(part, owner) for owner, text in enumerate(safe) for part in self._windows(text, room)]
        windows.sort(key=lambda window: (len(window[0]), window[0]))  # whatever the order of the texts
        best, full = [0.0] * len(texts), f"a window does not fit into memory on {self._model.device}"
        for start in range(0, len(windows), self._most):
            batch = windows[start : start + self._most]
            scores = in_halves([part for part, _ in batch], lambda parts: self._read(parts, query), lambda _: full)
            for (_, owner), score in zip(batch, scores, strict=True):
                best[owner] = max(best[owner], score)
        return best

    def _read(self, parts: list[str], query: str) -> list[float]:
        """Probability of the supporting label for each part; padding on the left would move places."""
        import torch

        asked: Any = (parts, [query] * len(parts))
        if self._template is not None:
            asked = ([self._template.format(evidence=part, claim=query) for part in parts],)
        encoded = self._tokenizer(*asked, padding=len(parts) > 1, padding_side="right", return_tensors="pt")
        writes = type(self._model).__name__ == "T5ForConditionalGeneration"
        if writes:
            encoded["decoder_input_ids"] = torch.full((len(parts), 1), self._model.config.decoder_start_token_id)
        with torch.inference_mode():
            logits = self._model(**encoded.to(self._model.device)).logits.float().cpu()
        logits = logits[:, 0] if logits.ndim == 3 else logits  # of HHEM and of what is written, the first token
        logits = logits[:, list(_VERDICTS)] if writes else logits
        if not torch.isfinite(logits).all():
            raise ScorerError(f"{self.identity} gave something that is not a number")
        scores = torch.sigmoid(logits) if logits.shape[-1] == 1 else torch.softmax(logits, dim=-1)
        return [float(score) for score in scores[:, self._label]]

    def _windows(self, text: str, room: int) -> list[str]:
        """A text in overlapping pieces of at most so many tokens."""
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        spans = encoded["offset_mapping"]
        overlap = min(OVERLAP, room // 2)
        starts = range(0, max(1, len(spans) - overlap), room - overlap)
        return [text[spans[i][0] : spans[min(i + room, len(spans)) - 1][1]] for i in starts] if spans else [text]


def _supporting(config: Any, label: str | int | None) -> int:
    names = {int(index): str(name).lower() for index, name in (config.id2label or {}).items()}
    if isinstance(label, int) and 0 <= label < max(1, config.num_labels):
        return label
    if config.num_labels == 1:
        return 0
    second = ("label_1", "1") if config.num_labels == 2 else ()  # as transformers and MiniCheck call it
    wanted = (label.lower(),) if isinstance(label, str) else (*_SUPPORTING, *second)
    found = [index for candidate in wanted for index, name in names.items() if name == candidate]
    if found:
        return found[0]
    give = "call it 'entailment' there (id2label in config.json), or give CrossEncoder(label=<name or index>)"
    raise ConfigurationError(f"which label supports a claim? This model has {names}: {give}")
