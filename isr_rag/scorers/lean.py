"""A Llama's forward pass over a packed sequence, written out: torch alone, stacked weights, nothing computed twice.

Loading the modules of transformers takes longer than a first decision does, and on a CPU a small model spends a good
part of a pass between its matrix products. Here a layer is four products, block attention and few element-wise steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from isr_rag.errors import ConfigurationError, ModelCorruptError
from isr_rag.scorers.engine import Dimensions
from isr_rag.scorers.packed.attention import Plan, blocks_forward
from isr_rag.scorers.packed.plan import Pack, Segments, pack_full

_STACKS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


_ROWS = 1024
"""Tokens a step of the widest products: larger results are mapped anew by the system each time, which costs more."""


class _Rooms:
    """Memory that every layer of a pass writes to: the system maps large new memory page by page, at a tenth of it."""

    def __init__(self, tokens: int, d: Dimensions, qkv: int, dtype: torch.dtype) -> None:
        rows = min(tokens, _ROWS)
        heads = qkv - 2 * d.kv_heads * d.width
        self.exact = torch.empty(tokens, d.hidden)
        self.rounded = None if dtype == torch.float32 else torch.empty(tokens, d.hidden, dtype=dtype)
        self.qkv = torch.empty(tokens, qkv, dtype=dtype)
        self.q = torch.empty(d.kv_heads, tokens, heads // d.kv_heads, dtype=dtype)
        self.k, self.v = (torch.empty(d.kv_heads, tokens, d.width, dtype=dtype) for _ in range(2))
        self.seen = torch.empty(tokens, d.kv_heads, heads // d.kv_heads, dtype=dtype)
        self.result = torch.empty(tokens, d.hidden, dtype=dtype)
        self.wide = torch.empty(rows, 2 * d.inner, dtype=dtype)
        self.inner = torch.empty(rows, d.inner, dtype=dtype)


class LeanLlama:
    """A bias-free Llama on a CPU.

    Args:
        config: the model's configuration, as in ``config.json``.
        state: its weights by the names of transformers.
        dtype: what to compute in; the residual stream is float32 always.

    Raises:
        ConfigurationError: if the configuration is of another architecture.
        ModelCorruptError: if weights are missing.
    """

    device = torch.device("cpu")
    rotary = True

    def __init__(self, config: Mapping[str, Any], state: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        if not is_plain_llama(config):
            raise ConfigurationError(f"this is no plain Llama but {config.get('model_type')!r}")
        heads, kv_heads = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
        width = int(config.get("head_dim") or config["hidden_size"] // heads)
        hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
        self.dimensions = Dimensions(hidden, inner, int(config["num_hidden_layers"]), kv_heads, width)
        self.dtype = dtype
        self._widths = [heads * width, kv_heads * width, kv_heads * width]
        self._eps = float(config["rms_norm_eps"])
        theta = float(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
        self._frequencies = theta ** (-torch.arange(0, width, 2).float() / width)
        try:
            self._embeddings = state["model.embed_tokens.weight"].to(dtype)
            self._head = state.get("lm_head.weight", self._embeddings)
            self._norm = state["model.norm.weight"].float()
            self._layers = [self._layer(state, f"model.layers.{i}.") for i in range(self.dimensions.layers)]
        except KeyError as error:
            raise ModelCorruptError(f"the model lacks the weight {error}") from error

    @staticmethod
    def _stack(state: Mapping[str, Tensor], start: str, parts: Sequence[str], dtype: torch.dtype) -> Tensor:
        return torch.cat([state[f"{start}{part}.weight"].to(dtype) for part in parts])

    def _layer(self, state: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
        layer = {name: self._stack(state, start, parts, self.dtype) for name, parts in _STACKS.items()}
        for name in ("input_layernorm", "post_attention_layernorm"):
            layer[name] = state[f"{start}{name}.weight"].float()
        return layer

    def packed(self, pack: Pack, plan: Plan) -> Tensor:
        """Final hidden states of a packed sequence, shape (T, hidden), float32."""
        d = self.dimensions
        angles = torch.from_numpy(pack.position_ids)[:, None, None].float() * self._frequencies
        cos, sin = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        h = F.embedding(torch.from_numpy(pack.input_ids), self._embeddings).float()
        rooms = _Rooms(len(h), d, sum(self._widths), self.dtype)
        for index, layer in enumerate(self._layers):
            self._add_attention(h, layer, plan, index, cos, sin, rooms)
            for part in h.split(_ROWS):
                self._add_mlp(part, layer, rooms)
        return F.rms_norm(h, (d.hidden,), self._norm, self._eps)

    def _normed(self, h: Tensor, weight: Tensor, rooms: _Rooms) -> Tensor:
        """RMS norm, in float32 until the end."""
        scale = torch.linalg.vector_norm(h, dim=1, keepdim=True).square_()
        scale.div_(h.shape[1]).add_(self._eps).rsqrt_()
        x = torch.mul(h, scale, out=rooms.exact[: len(h)]).mul_(weight)
        return x if rooms.rounded is None else rooms.rounded[: len(h)].copy_(x)

    def _add_attention(
        self, h: Tensor, layer: dict[str, Tensor], plan: Plan, index: int, cos: Tensor, sin: Tensor, rooms: _Rooms
    ) -> None:
        d = self.dimensions
        x = self._normed(h, layer["input_layernorm"], rooms)
        q, k, v = torch.mm(x, layer["qkv"].t(), out=rooms.qkv).split(self._widths, 1)
        self._rotate(q, cos, sin, rooms.q)
        self._rotate(k, cos, sin, rooms.k)
        rooms.v.copy_(v.view(-1, d.kv_heads, d.width).transpose(0, 1))
        keys, values = plan.with_given(index, rooms.k, rooms.v)
        blocks_forward(rooms.q, keys, values, plan, d.width**-0.5, out=rooms.seen)
        h += torch.mm(rooms.seen.view(len(h), -1), layer["o"].t(), out=rooms.result)

    def _add_mlp(self, h: Tensor, layer: dict[str, Tensor], rooms: _Rooms) -> None:
        x = self._normed(h, layer["post_attention_layernorm"], rooms)
        gate, up = torch.mm(x, layer["gate_up"].t(), out=rooms.wide[: len(h)]).chunk(2, 1)
        inner = torch.mul(F.silu(gate, inplace=True), up, out=rooms.inner[: len(h)])
        h += torch.mm(inner, layer["down"].t(), out=rooms.result[: len(h)])

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
        """(T, heads * D) rotated by position, key-value heads first: (key-value heads, T, heads a group * D)."""
        d = self.dimensions
        halves = x.view(len(x), d.kv_heads, -1, 2, d.width // 2).permute(1, 0, 2, 3, 4)
        first, second = halves[..., 0, :], halves[..., 1, :]
        into = out.view(halves.shape)
        torch.mul(first, cos, out=into[..., 0, :]).addcmul_(second, sin, value=-1)
        torch.mul(second, cos, out=into[..., 1, :]).addcmul_(first, sin)

    def padded(self, ids: list[list[int]]) -> Tensor:
        """Final hidden states of the last tokens of prompts of two tokens or more, shape (prompts, hidden)."""
        rows: list[Tensor] = []
        for row in ids:
            pack = pack_full([Segments(tuple(row[:1]), (), tuple(row[1:]))], [[()]])
            rows.append(self.packed(pack, Plan(pack))[-1])
        return torch.stack(rows)

    def logits(self, hidden: Tensor, ids: Sequence[int]) -> Tensor:
        """Logits of some tokens at hidden states, float32."""
        return hidden.float() @ self._head[list(ids)].float().T


def is_plain_llama(config: Mapping[str, Any]) -> bool:
    """Whether :class:`LeanLlama` computes what a configuration describes."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return (
        config.get("model_type") == "llama"
        and not config.get("attention_bias")
        and not config.get("mlp_bias")
        and config.get("hidden_act") == "silu"
        and rope.get("rope_type", "default") == "default"
    )


def read_state(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and weights of a model folder with one safetensors file.

    Raises:
        ModelCorruptError: if a file cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        return config, load_file(folder / "model.safetensors")
    except (OSError, json.JSONDecodeError, SafetensorError) as error:
        raise ModelCorruptError(f"the model in {folder} cannot be read: {error}") from error
