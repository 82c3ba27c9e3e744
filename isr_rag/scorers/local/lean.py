"""The forward pass of Llama and Qwen 2 over a packed sequence, written out: torch alone, nothing computed twice.

Loading the modules of transformers takes longer than a first decision does, and on a CPU a small model spends a good
part of a pass between its matrix products. Here a layer is four products, block attention and few element-wise steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from isr_rag.scorers.local.encoding import EncodedPrompt
from isr_rag.scorers.local.engine import same
from isr_rag.scorers.local.packed.attention import AttentionPlan, attend, mask_bytes
from isr_rag.scorers.local.packed.pack import Pack, pack_full

_STACKS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate": ("mlp.gate_proj",),
    "up": ("mlp.up_proj",),
    "down": ("mlp.down_proj",),
}
_NORMS = ("input_layernorm", "post_attention_layernorm")

_ROWS = 512
"""Tokens per step outside attention: what a step computes stays in the cache, and its memory is not mapped anew."""
_ROWS_OF_AMX = 128
"""The same in bfloat16 on AMX, where oneDNN rounds by the number of rows: there each step has exactly so many."""


def has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN computes products of a precision (float32 or bfloat16) on this processor.

    Without it torch computes bfloat16 in software, many times slower than float32.
    """
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def computes_bfloat16() -> bool:
    """Whether this processor has instructions for bfloat16; without them it is emulated, slower than float32."""
    return (_has("avx512_bf16") or _has("amx_bf16")) and prepacks(torch.bfloat16)


def _has(instructions: str) -> bool:
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get(instructions))


def prepacks(dtype: torch.dtype) -> bool:
    """Whether weights can be laid out once as oneDNN reads them, by operations that are private to torch.

    They are tried on a small product before a network is built; where they are missing or compute something else,
    `torch.nn.functional.linear` takes their place, which lays every weight out anew in each pass.
    """
    if not has_onednn(dtype):
        return False
    generator = torch.Generator().manual_seed(0)
    weight, x, bias = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((48, 32), (5, 32), (48,)))
    plain = F.linear(x, weight, bias)
    try:
        packed = _Linear(weight, bias, packed=True)
        found = (packed(x), packed(x, "swish"), packed.times(x, plain))
    except (AttributeError, RuntimeError, TypeError):
        return False
    expected = (plain, F.silu(plain), plain * plain)
    return all(same(one, other, dtype) for one, other in zip(expected, found, strict=True))


class _Linear:
    """x W^T + b; packed, the weight is laid out once as oneDNN reads it, and x has `rows` at a time."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, packed: bool, rows: int = _ROWS) -> None:
        self._packed, self._bias, self._rows = packed, bias, rows
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, rows) if packed else weight

    def __call__(self, x: Tensor, then: Literal["none", "swish"] = "none") -> Tensor:
        if self._packed:
            given = self._filled(x), self._weight, self._bias
            return cast(Tensor, torch.ops.mkldnn._linear_pointwise(*given, then, [], ""))[: len(x)]
        product = F.linear(x, self._weight, self._bias)
        return product if then == "none" else F.silu(product, inplace=True)

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """The product, times another tensor."""
        if self._packed:
            given = self._filled(x), self._filled(other), self._weight, self._bias
            return cast(Tensor, torch.ops.mkldnn._linear_pointwise.binary(*given, "mul"))[: len(x)]
        return self(x).mul_(other)

    def _filled(self, x: Tensor) -> Tensor:
        """x, on AMX with rows of zeros after its own."""
        missing = self._rows - len(x) if self._rows == _ROWS_OF_AMX else 0
        return F.pad(x, (0, 0, 0, missing)) if missing else x


@dataclass(frozen=True, slots=True)
class _Layer:
    norms: tuple[Tensor, Tensor]
    qkv: _Linear
    o: _Linear
    gate: _Linear
    up: _Linear
    down: _Linear


class LeanNetwork:
    """A Llama or Qwen 2 on a CPU.

    The residual stream and attention are float32 always, keys and values included: in bfloat16 they would be no faster
    and make a score twice as noisy.

    Args:
        config: the model's configuration, as in `config.json`, for which `is_written_out` holds.
        state: its weights by the names of transformers. They are read one at a time and laid out in a copy:
            a mapping that makes them on demand never needs memory for the whole model twice.
        dtype: what the linear layers compute in.
    """

    device = torch.device("cpu")
    rotary, alone, bytes_per_pair = True, False, 0
    states_dtype = torch.float32

    def __init__(self, config: Mapping[str, Any], state: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        heads, kv_heads = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
        width = int(config.get("head_dim") or config["hidden_size"] // heads)
        hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
        layers = int(config["num_hidden_layers"])
        self.dtype, self._width = dtype, width
        self.state_bytes_per_token = 8 * layers * kv_heads * width  # keys and values in float32
        # residual stream, queries, keys and values (as computed and as gathered), what attention saw: all float32
        self.bytes_per_token = 4 * (hidden + 2 * (heads + 3 * kv_heads) * width) + mask_bytes(4)
        self._rows = _ROWS_OF_AMX if dtype == torch.bfloat16 and _has("amx_bf16") else _ROWS
        self.workspace = 4 * self._rows * (hidden + 3 * inner)
        self._packed = prepacks(dtype)
        self._biased = config["model_type"] == "qwen2"
        self._widths = [heads * width, kv_heads * width, kv_heads * width]
        self._eps = float(config["rms_norm_eps"])
        theta = float(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
        self._frequencies = theta ** (-torch.arange(0, width, 2).float() / width)
        self._embeddings = state["model.embed_tokens.weight"].clone()  # lets go of the file it is mapped from
        self.vocabulary = len(self._embeddings)
        self._head = self._embeddings if config.get("tie_word_embeddings") else state["lm_head.weight"]
        self._norm = state["model.norm.weight"].float()
        self._layers = [self._layer(state, f"model.layers.{i}.") for i in range(layers)]

    def _layer(self, state: Mapping[str, Tensor], start: str) -> _Layer:
        first, second = (state[f"{start}{name}.weight"].float() for name in _NORMS)
        stacks: dict[str, _Linear] = {}
        for name, parts in _STACKS.items():
            weight = torch.cat([state[f"{start}{part}.weight"].to(self.dtype) for part in parts])
            bias = None
            if self._biased and name == "qkv":
                bias = torch.cat([state[f"{start}{part}.bias"].to(self.dtype) for part in parts])
            stacks[name] = _Linear(weight, bias, packed=self._packed, rows=self._rows)
        return _Layer((first, second), **stacks)

    def packed(self, pack: Pack, plan: AttentionPlan) -> Tensor:
        """Final hidden states at the reads of a packed sequence, shape (reads, hidden), float32.

        The last layer is computed for these tokens alone, but for its keys and values.
        """
        angles = torch.from_numpy(pack.position_ids)[:, None].float() * self._frequencies
        cos, sin = angles.cos(), angles.sin()
        h = F.embedding(torch.from_numpy(pack.input_ids), self._embeddings).float()
        q, k, v = (torch.empty(width // self._width, len(h), self._width) for width in self._widths)
        steps = [slice(start, start + self._rows) for start in range(0, len(h), self._rows)]
        reads = torch.from_numpy(pack.all_reads)
        for index, layer in enumerate(self._layers):
            for at in steps:
                parts = layer.qkv(self._normed(h[at], layer.norms[0])).float().split(self._widths, 1)
                self._rotate(parts[0], cos[at], sin[at], q[:, at])
                self._rotate(parts[1], cos[at], sin[at], k[:, at])
                v[:, at] = parts[2].unflatten(1, (-1, self._width)).transpose(0, 1)
            keys, values = plan.with_given(index, k, v)
            last = index + 1 == len(self._layers)
            if last and not len(reads):  # keys and values are all that is wanted
                return h[:0]
            seen = attend(q, keys, values, plan, self._width**-0.5).flatten(1)
            if last:
                h, seen = h[reads], seen[reads]
            for part, own in zip(h.split(self._rows), seen.split(self._rows), strict=True):
                part += layer.o(own.to(self.dtype))
                x = self._normed(part, layer.norms[1])
                part += layer.down(layer.up.times(x, layer.gate(x, "swish")))
        return F.rms_norm(h, self._norm.shape, self._norm, self._eps)

    def _normed(self, h: Tensor, weight: Tensor) -> Tensor:
        """RMS norm, in float32 until the end."""
        scale = torch.linalg.vector_norm(h, dim=1, keepdim=True).square_()
        scale.div_(h.shape[1]).add_(self._eps).rsqrt_()
        return (h * scale).mul_(weight).to(self.dtype)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
        """(T, heads * D) rotated by position, heads first: (heads, T, D)."""
        first, second = x.view(len(x), -1, 2, self._width // 2).permute(2, 1, 0, 3)
        into = out.unflatten(2, (2, -1))
        torch.mul(first, cos, out=into[..., 0, :]).addcmul_(second, sin, value=-1)
        torch.mul(second, cos, out=into[..., 1, :]).addcmul_(first, sin)

    def plain(self, ids: list[list[int]]) -> Tensor:
        """Final hidden states of the last tokens of prompts of one length, two or more, shape (prompts, hidden)."""
        packs = [pack_full([EncodedPrompt(tuple(row[:1]), (), tuple(row[1:]))], [[()]]) for row in ids]
        return torch.cat([self.packed(pack, AttentionPlan(pack)) for pack in packs])

    def logits(self, hidden: Tensor, ids: Sequence[int]) -> Tensor:
        """Logits of some tokens at hidden states, float32."""
        return hidden.float() @ self._head[list(ids)].float().T


def is_written_out(config: Mapping[str, Any]) -> bool:
    """Whether `LeanNetwork` computes what a configuration describes."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return (
        config.get("model_type") in ("llama", "qwen2")
        and not config.get("use_sliding_window")
        and not config.get("attention_bias")
        and not config.get("mlp_bias")
        and config.get("hidden_act") == "silu"
        and rope.get("rope_type", "default") == "default"
    )


def read_state(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and weights of a model folder with one safetensors file."""
    from safetensors.torch import load_file

    return json.loads((folder / "config.json").read_text("utf-8")), load_file(folder / "model.safetensors")
