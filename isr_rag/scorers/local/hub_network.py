"""A causal language model of transformers as a network for the engine."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from isr_rag.scorers.local.loading import is_quantized, torch
from isr_rag.scorers.local.packed.attention import AttentionPlan, mask_bytes, register
from isr_rag.scorers.local.packed.pack import Pack


class HubNetwork:
    """A causal language model of transformers; its attention function is switched while a pack is computed."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self.model: Any = model.eval()
        self._base = model.model if model.base_model is model else model.base_model  # Llama 4 says it is its own
        self.device = device
        self.dtype = self.states_dtype = model.dtype
        config = model.config.get_text_config()
        self.vocabulary = int(model.get_input_embeddings().num_embeddings)
        hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
        inner = _size(config, "intermediate_size", 4 * hidden)
        kv_heads = _size(config, "num_key_value_heads", heads)
        width = _size(config, "head_dim", hidden // heads)
        size = self.dtype.itemsize
        self.state_bytes_per_token = 2 * size * int(config.num_hidden_layers) * kv_heads * width
        # Two residual streams; the larger of attention (a norm in float32; queries, keys and values as computed,
        # rotated and gathered) and the inner layer (gate, up and their product); and masks.
        attention = 8 * hidden + 4 * size * (heads + 2 * kv_heads) * width
        self.bytes_per_token = 2 * size * hidden + max(attention, 3 * size * inner) + mask_bytes(size)
        # Where attention is not fused: scores, scores with a mask, and their softmax, which is float32 on the way.
        self.bytes_per_pair = heads * (2 * size + 8) if config._attn_implementation == "eager" else 0
        self.workspace = size * hidden * inner if is_quantized(model.config) else 0  # the widest weight, dequantised
        rope = repr(getattr(config, "rope_parameters", None))  # of which two kinds go by the longest of a pass
        int8 = getattr(model, "is_loaded_in_8bit", False)  # picks outlying columns over a whole pass
        if int8:
            logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)  # else a line for each layer
        self.alone = bool(int8 or "longrope" in rope or "dynamic" in rope)
        kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
        own = not model._supports_attention_backend or getattr(model, "_is_stateful", False)
        self._in_turn = bool(kinds or own)  # some layers read a sequence from its first token to its last
        self.rotary = any(getattr(config, name, None) for name in ("rope_parameters", "rope_theta", "rope_scaling"))

    @classmethod
    def of(cls, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor], device: torch.device) -> HubNetwork:
        """A network in float32 of a configuration and its weights, which are moved to the device one by one."""
        from transformers import AutoConfig, AutoModelForCausalLM

        with device:
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32)
        own = model.state_dict(keep_vars=True)
        with torch.no_grad():
            for name, weight in weights.items():
                own[name].copy_(weight)
        return cls(model, device)

    def packed(self, pack: Pack, plan: AttentionPlan) -> torch.Tensor:
        """Hidden states at the reads of a packed sequence, shape (reads, hidden)."""
        if self._in_turn:
            raise ValueError("it has layers without attention, or an attention of its own")
        before = self.model.config._attn_implementation
        self.model.set_attn_implementation(register())
        try:
            states = self._base(
                input_ids=torch.from_numpy(pack.input_ids)[None].to(self.device),
                position_ids=torch.from_numpy(pack.position_ids)[None].to(self.device),
                use_cache=False,
                block_plan=plan,
            ).last_hidden_state  # the last layer may lie on another device than the first
        finally:
            self.model.set_attn_implementation(before)
        return states[0, torch.from_numpy(pack.all_reads).to(states.device)]

    def plain(self, ids: list[list[int]]) -> torch.Tensor:
        """Hidden states at the last position of prompts of one length, shape (prompts, hidden)."""
        return self._base(input_ids=torch.tensor(ids).to(self.device), use_cache=False).last_hidden_state[:, -1, :]

    def logits(self, hidden: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
        """Logits of some tokens at one hidden state, in float32."""
        return label_logits(self.model, hidden, ids)


def _size(config: Any, name: str, default: int) -> int:
    try:
        return int(getattr(config, name, None) or default)
    except RuntimeError:  # it differs between layers (Gemma 4)
        return default


def label_logits(model: Any, hidden: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    """Logits of some tokens, in float32 and shape (ids,) or (batch, ids), without the rest of the vocabulary.

    `hidden` are final states after the last norm, shape (hidden,) or (batch, hidden).
    """
    head = model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    if weight is None or not weight.is_floating_point():  # quantised: it has no rows of its own to read
        logits = head(hidden.to(model.dtype).unsqueeze(0))[0, ..., list(ids)].float()
    else:
        rows = weight[torch.tensor(list(ids), device=weight.device)].float()
        logits = hidden.float().to(rows.device) @ rows.T
        if getattr(head, "bias", None) is not None:
            logits = logits + head.bias[list(ids)].float()
    config = model.config.get_text_config()
    scale, divisor = (getattr(config, name, None) or 1.0 for name in ("logit_scale", "logits_scaling"))
    logits = logits * scale / divisor  # Cohere, Granite
    if cap := getattr(config, "final_logit_softcapping", None):  # Gemma
        logits = torch.tanh(logits / cap) * cap
    return logits
