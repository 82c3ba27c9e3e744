"""Label probabilities from any causal language model that transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from isr_rag.errors import ConfigurationError, MemoryBudgetError, ScorerError
from isr_rag.scorers.local.encoding import PromptEncoder
from isr_rag.scorers.local.engine import PROBE, Network, same
from isr_rag.scorers.local.hub_network import HubNetwork
from isr_rag.scorers.local.lean import LeanNetwork, is_written_out
from isr_rag.scorers.local.loading import (
    Quantization,
    check_as_loaded,
    fitting,
    is_quantized,
    load_model,
    torch,
    weights_fingerprint,
)
from isr_rag.scorers.local.scorer import LocalScorer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class TransformersScorer(LocalScorer):
    """Scores orderings with a causal language model: one packed sequence, what orderings share computed once.

    Args:
        model: a Hub name, a folder, a `.gguf` file, or a loaded model (then give its tokenizer too). A loaded model
            is used as it is; while a score is computed its attention function is switched, so do not generate with
            it from another thread meanwhile.
        tokenizer: the tokenizer of a loaded model.
        revision: revision of a Hub model.
        device: a torch device; `"auto"`: where a loaded model is, else CUDA when there is one, else the CPU; `"all"`:
            spread over all GPUs by accelerate, for a model that does not fit on one.
        dtype: `"auto"`: bfloat16 on CUDA (float16 where the hardware lacks it), float32 on the CPU, whose bfloat16
            noise is as large as the effect of order; or a torch dtype's name.
        quantization: `"nf4"` or `"int8"` through bitsandbytes. int8 rounds by all that is computed in one pass, so each
            request gets a pass of its own. A folder that was quantised before needs no `quantization`.
        chat: use the model's chat template; None: if it has one.
        memory: bytes that one forward pass may take beside the weights; by default half of what these leave free.
        batch_tokens: tokens of one forward pass; by default 4,096 on a CPU and 32,768 on CUDA, or what `memory`
            allows. Halved when memory runs out all the same.
        window: context window in tokens; by default what the model's configuration says.

    Raises:
        ModelNotFoundError: if the model is not there.
        ModelCorruptError: if its files cannot be read.
        MemoryBudgetError: if memory does not suffice for it.
        MissingDependencyError: if bitsandbytes or accelerate is needed and missing.
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
        chat: bool | None = None,
        memory: int | None = None,
        batch_tokens: int | None = None,
        window: int | None = None,
    ) -> None:
        if isinstance(model, (str, Path)):
            loaded, tokenizer = load_model(
                str(model), device=device, dtype=dtype, revision=revision, quantization=quantization
            )
            found = Path(model).name if Path(model).exists() else f"{model}@{revision}" if revision else str(model)
        else:
            loaded, found = model, Path(str(model.config.name_or_path or type(model).__name__)).name
            if tokenizer is None:
                raise ConfigurationError("a loaded model needs its tokenizer: TransformersScorer(model, tokenizer)")
            check_as_loaded(model, device, dtype, quantization)
        place, config = loaded.device, loaded.config.get_text_config()
        quantized = is_quantized(loaded.config)
        bits = f"{quantization or 'quantized'}-" if quantization or quantized else ""
        with fitting(found):
            weights = weights_fingerprint(loaded, tokenizer)  # before a first pass, in which bitsandbytes repacks them
            longest = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)  # of MPT
            super().__init__(
                _network(loaded, place, owned=isinstance(model, (str, Path)) and not quantized),
                PromptEncoder(tokenizer, chat=chat),
                name=f"{found}/{weights}/{bits}{str(loaded.dtype).removeprefix('torch.')}",
                memory=memory,
                batch_tokens=batch_tokens,
                window=window or int(longest or 0) or None,
            )


def _network(loaded: PreTrainedModel, place: torch.device, *, owned: bool) -> Network:
    """The written-out pass for a Llama or Qwen 2 on a CPU that nobody else holds, transformers' own for the rest."""
    kind, probe = type(loaded).__name__, [list(PROBE)]
    with torch.inference_mode():
        try:
            with fitting(kind):
                hub = HubNetwork(loaded, place)
                states = hub.plain(probe)
                expected = loaded(input_ids=torch.tensor(probe).to(place), use_cache=False).logits[0, -1]
        except (MemoryBudgetError, ScorerError):
            raise
        except Exception as error:  # each kind of model raises its own
            raise ConfigurationError(f"a {kind} cannot be read as a causal language model: {error}") from error
        if not expected.isfinite().all():
            wider = "its weights are damaged, or its dtype is too narrow (try float32)"
            raise ConfigurationError(f"a {kind} computes values that are not finite: {wider}")
        some = range(0, len(expected), max(1, len(expected) // 64))
        if not same(expected[list(some)], hub.logits(states[0], some).to(expected.device), loaded.dtype):
            raise ConfigurationError(f"the head of a {kind} does more than weigh its last state: take another model")
        config = loaded.config.to_dict()
        if not (owned and place.type == "cpu" and is_written_out(config)):
            return hub
        lean = LeanNetwork(config, loaded.state_dict(), loaded.dtype)
        return lean if same(states, lean.plain(probe), loaded.dtype) else hub
