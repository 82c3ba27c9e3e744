"""Label probabilities from any causal language model that transformers loads."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isr_rag.errors import ConfigurationError, ScorerError
from isr_rag.scorers.encoding import EncodedPrompt, PromptEncoder
from isr_rag.scorers.loading import Quantization, load_model, torch, weights_fingerprint
from isr_rag.scorers.packed.attention import Plan, register
from isr_rag.scorers.packed.plan import Pack, Segments, pack_full, pack_invariant
from isr_rag.scorers.protocol import Layout, Ordering, ScoreRequest, Scores

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_PROBE = tuple(range(3, 27))
_SAME = 1e-4
"""Largest difference of a float32 probe's hidden states that counts as rounding."""


class TransformersScorer:
    """Scores orderings with a causal language model: one packed sequence, what orderings share computed once.

    Args:
        model: a Hub name, a folder, a ``.gguf`` file, or a loaded model (then give its tokenizer too). A loaded model
            is used as it is; while a score is computed its attention function is switched, so do not generate with
            it from another thread meanwhile.
        tokenizer: the tokenizer of a loaded model.
        revision: revision of a Hub model.
        device: ``"auto"``: CUDA when there is one, else the CPU.
        dtype: ``"auto"``: bfloat16 on CUDA, float32 on the CPU, whose bfloat16 noise is as large as the effect of
            order; or a torch dtype's name.
        quantization: ``"nf4"`` or ``"int8"`` through bitsandbytes.
        layout: how the model sees the evidence; other than ``"full"`` only for a model trained that way.
        chat: use the model's chat template; None: if it has one.
        batch_tokens: tokens of one forward pass; halved when memory runs out.
        window: context window in tokens; by default what the model's configuration says.
        focus_words: words of evidence a gate should read by default; None for all.
        name: what identifies the model and its weights; by default what it was loaded by and a fingerprint of them.

    Raises:
        ModelNotFoundError: if the model is not there.
        ModelCorruptError: if its files cannot be read.
        MissingDependencyError: if bitsandbytes is needed and missing.
        ConfigurationError: for a setting that does not fit.
    """

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        revision: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        quantization: Quantization | None = None,
        layout: Layout = "full",
        chat: bool | None = None,
        batch_tokens: int | None = None,
        window: int | None = None,
        focus_words: int | None = None,
        name: str | None = None,
    ) -> None:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        if isinstance(model, (str, Path)):
            loaded, tokenizer = load_model(
                str(model), device=self.device, dtype=dtype, revision=revision, quantization=quantization
            )
            found = Path(model).name if Path(model).exists() else f"{model}@{revision}" if revision else str(model)
        else:
            loaded, found = model, Path(str(model.config.name_or_path or type(model).__name__)).name
            if tokenizer is None:
                raise ConfigurationError("a loaded model needs its tokenizer: TransformersScorer(model, tokenizer)")
        self.model: Any = loaded.eval()
        self.layout: Layout = layout
        self.encoder = PromptEncoder(tokenizer, chat=chat)
        self.window = window or int(getattr(loaded.config, "max_position_embeddings", 0)) or None
        self.batch_tokens = batch_tokens or (4096 if self.device.type == "cpu" else 32768)
        self.focus_words = focus_words
        self._lock = threading.Lock()
        self._medium = loaded.dtype == torch.float32 and self._agree(self._plain, self._medium_plain)
        self.packs = self._agree(self._plain, self._packed_probe)
        """Whether the packed path reproduces this model; else orderings are scored as padded batches."""
        if layout != "full" and not self.packs:
            raise ConfigurationError(f"{found} does not take an attention function: only the layout 'full' works")
        model_name = name or f"{found}/{weights_fingerprint(loaded)}"
        self.identity = _identity(model_name, loaded, quantization, self.device, layout, self.encoder.template)
        """Model, fingerprint of its weights, precision, device type, layout and chat template."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Label log-probabilities of every ordering of every request.

        Raises:
            PromptTooLongError: if a prompt exceeds the context window; nothing has been computed then.
            LabelError: if labels cannot be told apart.
            ScorerError: if memory runs out for one prompt, or the model's output is not finite.
        """
        encoded = [
            self.encoder.encode(request.prompt, window=self.window, beside=self.layout != "full")
            for request in requests
        ]
        results = [np.empty((len(r.orderings), len(r.prompt.labels)), dtype=np.float64) for r in requests]
        work = [
            (i, k)
            for i, request in enumerate(requests)
            for k in (range(len(request.orderings)) if self.layout == "full" else (0,))
        ]
        with self._lock, torch.inference_mode(), self._precision():
            for batch in self._batches(work, requests, encoded):
                for (i, k), state in zip(batch, self._states(batch, requests, encoded), strict=True):
                    row = self._label_logprobs(state, encoded[i].labels)
                    results[i][k if self.layout == "full" else slice(None)] = row
        passes = [len(request.orderings) if self.layout == "full" else 1 for request in requests]
        return [Scores(result, passes=spent) for result, spent in zip(results, passes, strict=True)]

    def count_tokens(self, text: str) -> int:
        """Tokens of a text as evidence."""
        return self.encoder.count_tokens(text)

    # -- what goes into one forward pass -----------------------------------------------------------------------

    def _batches(
        self, work: list[tuple[int, int]], requests: Sequence[ScoreRequest], encoded: list[EncodedPrompt]
    ) -> Iterator[list[tuple[int, int]]]:
        """Orderings that go into one forward pass: neighbours share the longest beginnings, within the budget."""

        def key(entry: tuple[int, int]) -> tuple[int, int, Ordering]:
            i, k = entry
            return encoded[i].length, i, requests[i].orderings[k]

        batch: list[tuple[int, int]] = []
        used = 0
        before: tuple[int, Ordering] | None = None
        for entry in sorted(work, key=key):
            i, ordering = entry[0], requests[entry[0]].orderings[entry[1]]
            cost = encoded[i].length
            if self.packs and before is not None and before[0] == i:
                cost -= _shared_tokens(encoded[i], before[1], ordering)
            if batch and used + cost > self.batch_tokens:
                yield batch
                batch, used, cost = [], 0, encoded[i].length
            batch.append(entry)
            used += cost
            before = (i, ordering)
        if batch:
            yield batch

    def _states(
        self, batch: list[tuple[int, int]], requests: Sequence[ScoreRequest], encoded: list[EncodedPrompt]
    ) -> list[torch.Tensor]:
        """Final hidden state where each ordering's label stands; halves the batch when memory runs out."""
        try:
            if self.packs:
                return self._packed_states(self._pack(batch, requests, encoded), len(batch))
            return list(self._padded_states([encoded[i].assemble(requests[i].orderings[k]) for i, k in batch]))
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                i = batch[0][0]
                raise ScorerError(
                    f"a prompt of {encoded[i].length} tokens does not fit into memory on {self.device}: "
                    "use fewer chunks, a smaller dtype or quantization"
                ) from None
            torch.cuda.empty_cache()
            half = len(batch) // 2
            return self._states(batch[:half], requests, encoded) + self._states(batch[half:], requests, encoded)

    def _pack(
        self, batch: list[tuple[int, int]], requests: Sequence[ScoreRequest], encoded: list[EncodedPrompt]
    ) -> Pack:
        wanted: dict[int, list[Ordering]] = {}
        for i, k in batch:
            wanted.setdefault(i, []).append(requests[i].orderings[k])
        segments = [Segments(encoded[i].prefix, encoded[i].chunks, encoded[i].suffix) for i in wanted]
        return pack_full(segments, list(wanted.values())) if self.layout == "full" else pack_invariant(segments)

    def _packed_states(self, pack: Pack, expected: int) -> list[torch.Tensor]:
        hidden = self._packed_forward(pack)
        states = [hidden[int(index)] for reads in pack.reads for index in reads]
        assert len(states) == expected
        return states

    # -- forward passes ----------------------------------------------------------------------------------------

    def _packed_forward(self, pack: Pack) -> torch.Tensor:
        """Hidden states of a packed sequence, shape (T, hidden)."""
        plan = Plan(pack, self.device)
        with _attention(self.model, register()):
            output = self.model.base_model(
                input_ids=torch.from_numpy(pack.input_ids)[None].to(self.device),
                position_ids=torch.from_numpy(pack.position_ids)[None].to(self.device),
                use_cache=False,
                block_plan=plan,
            )
        return output.last_hidden_state[0]

    def _padded_states(self, ids: list[list[int]]) -> torch.Tensor:
        """Hidden states at the last position of left-padded prompts, shape (batch, hidden)."""
        longest = max(map(len, ids))
        tokens = torch.zeros((len(ids), longest), dtype=torch.long)
        mask = torch.zeros((len(ids), longest), dtype=torch.long)
        for i, row in enumerate(ids):
            tokens[i, longest - len(row) :] = torch.tensor(row)
            mask[i, longest - len(row) :] = 1
        output = self.model.base_model(
            input_ids=tokens.to(self.device),
            attention_mask=mask.to(self.device) if bool((mask == 0).any()) else None,
            position_ids=(mask.cumsum(-1) - 1).clamp_(min=0).to(self.device),
            use_cache=False,
        )
        return output.last_hidden_state[:, -1, :]

    def _label_logprobs(self, hidden: torch.Tensor, labels: tuple[tuple[int, ...], ...]) -> NDArray[np.float64]:
        """Log-probabilities of the labels, from float32 logits of their rows only."""
        logits = label_logits(self.model, hidden, [i for ids in labels for i in ids]).double().cpu()
        if not bool(torch.isfinite(logits).all()):
            raise ScorerError(f"the model returned logits that are not finite: {logits.tolist()}")
        parts = torch.split(logits, [len(ids) for ids in labels])
        per_label = torch.stack([part.logsumexp(0) for part in parts])
        return np.asarray(per_label.log_softmax(0).numpy(), dtype=np.float64)

    # -- what this machine and model can do, measured once -----------------------------------------------------

    @contextmanager
    def _precision(self) -> Generator[None, None, None]:
        """oneDNN's float32 matrix products where they are exact on this machine; twice as fast as the default."""
        before = torch.get_float32_matmul_precision()
        if self._medium:
            torch.set_float32_matmul_precision("medium")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def _plain(self) -> torch.Tensor:
        return self._padded_states([list(_PROBE)])[0]

    def _medium_plain(self) -> torch.Tensor:
        if self.device.type != "cpu":
            raise ConfigurationError("on CUDA, medium means TF32")
        self._medium = True
        with self._precision():
            return self._plain()

    def _packed_probe(self) -> torch.Tensor:
        segments = Segments(_PROBE[:8], (_PROBE[8:15],), _PROBE[15:])
        return self._packed_states(pack_full([segments], [[(0,)]]), 1)[0]

    def _agree(self, first: Any, second: Any) -> bool:
        """Whether two ways to compute the probe's hidden state agree up to rounding, and the second works at all."""
        self._medium = getattr(self, "_medium", False)
        with torch.inference_mode():
            expected = first().float()
            try:
                found = second().float()
            except (TypeError, ValueError, AttributeError, NotImplementedError, ConfigurationError):
                return False
        tolerance = _SAME if self.model.dtype == torch.float32 else 0.1
        return bool((expected - found).abs().max() <= tolerance * expected.abs().max())


def label_logits(model: Any, hidden: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    """Logits of some tokens at one hidden state, in float32, without the rest of the vocabulary.

    Args:
        model: a causal language model.
        hidden: final hidden state after the last norm, shape (hidden,) or (batch, hidden).
        ids: token ids.

    Returns:
        Logits, shape (len(ids),) or (batch, len(ids)).
    """
    head = model.get_output_embeddings()
    rows = head.weight[torch.tensor(list(ids), device=head.weight.device)].float()
    logits = hidden.float() @ rows.T
    if getattr(head, "bias", None) is not None:
        logits = logits + head.bias[list(ids)].float()
    config = model.config.get_text_config()
    if scale := getattr(config, "logit_scale", None):  # Cohere
        logits = logits * scale
    if scaling := getattr(config, "logits_scaling", None):  # Granite
        logits = logits / scaling
    if cap := getattr(config, "final_logit_softcapping", None):  # Gemma
        logits = torch.tanh(logits / cap) * cap
    return logits


def _shared_tokens(encoded: EncodedPrompt, first: Ordering, second: Ordering) -> int:
    """Tokens of the beginning that two orderings of one prompt have in common."""
    shared = len(encoded.prefix)
    for a, b in zip(first, second, strict=True):
        if encoded.chunks[a] != encoded.chunks[b]:
            return shared
        shared += len(encoded.chunks[a])
    return encoded.length


@contextmanager
def _attention(model: Any, name: str) -> Generator[None, None, None]:
    """The model with another attention function, for the time of one forward pass."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _identity(
    name: str, model: Any, quantization: str | None, device: torch.device, layout: Layout, template: str
) -> str:
    precision = quantization or str(model.dtype).removeprefix("torch.")
    around = hashlib.sha256(template.encode()).hexdigest()[:12]
    return "/".join([name, precision, device.type, layout, f"template-{around}"])
