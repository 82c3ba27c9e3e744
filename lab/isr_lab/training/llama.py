"""The Llama and Qwen 2 forward and backward pass over a packed sequence, written out for training on a CPU.

What autograd over the modules of transformers spends on small element-wise steps, saved activations and padding is
a large part of a step for a small model on a CPU. Here a layer is one autograd function: weights stacked (q with k
and v, gate with up), attention by blocks, what is cheap computed again instead of kept. Trained are either low-rank
changes (each step adds them to the weights, so that a layer costs one product a matrix) or the matrices themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isr_lab.training.attention import blocks_backward
from isr_rag.scorers.local.packed.attention import AttentionPlan, blocks_forward

PROJECTIONS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""Stacked matrices of a layer and the modules whose weights they stack."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the computation needs to know of the model's config."""

    layers: int
    kv_heads: int
    stacked: int
    head_dim: int
    eps: float


@dataclass(slots=True)
class Step:
    """What all layers of one pass share: the plan and the rotations, cos and sin of shape (T, D) in fp32."""

    plan: AttentionPlan
    cos: Tensor
    sin: Tensor


def _norm(h: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    rstd = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
    return (h * rstd * weight).to(torch.bfloat16), rstd


def _norm_again(h: Tensor, rstd: Tensor, weight: Tensor) -> Tensor:
    return (h * rstd * weight).to(torch.bfloat16)


def _norm_backward(dx: Tensor, h: Tensor, rstd: Tensor, weight: Tensor, dh: Tensor) -> tuple[Tensor, Tensor]:
    g = dx.float() * weight
    unit = h * rstd
    total = dh + rstd * (g - unit * (g * unit).mean(-1, keepdim=True))
    return total, total.to(torch.bfloat16)


def _add_norm(h: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    h = h + y
    rstd = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
    return h, (h * rstd * weight).to(torch.bfloat16), rstd


_ROWS = 48  # rows of element-wise steps over the wide matrices at a time: their temporaries stay in the cache


def _swiglu(gu: Tensor) -> Tensor:
    half = gu.shape[1] // 2
    out = gu.new_empty(len(gu), half)
    for part, into in zip(gu.split(_ROWS), out.split(_ROWS), strict=True):
        gate = part[:, :half].float()
        into.copy_(torch.sigmoid(gate).mul_(gate).mul_(part[:, half:]))
    return out


def _swiglu_backward(da: Tensor, gu: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of gate and up, and the activation again."""
    half = gu.shape[1] // 2
    dgu, out = torch.empty_like(gu), gu.new_empty(len(gu), half)
    for d, part, into, act in zip(da.split(_ROWS), gu.split(_ROWS), dgu.split(_ROWS), out.split(_ROWS), strict=True):
        d, gate, up = d.float(), part[:, :half].float(), part[:, half:].float()
        s = torch.sigmoid(gate)
        silu = gate * s
        act.copy_(silu * up)
        into[:, half:].copy_(d * silu)
        into[:, :half].copy_(s.add_(silu.mul_(1 - s)).mul_(up).mul_(d))
    return dgu, out


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(T, heads, D) in, rotated, heads first out."""
    half = x.shape[-1] // 2
    x = x.float()
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return (x * cos[:, None] + turned * sin[:, None]).to(torch.bfloat16)


def _projected(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight.t() if bias is None else torch.addmm(bias, x, weight.t())


def _split_rotate(qkv: Tensor, cos: Tensor, sin: Tensor, kv: int, g: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    length = qkv.shape[0]
    q, k, v = qkv.split([kv * g * d, kv * d, kv * d], dim=-1)
    q = _rotate(q.view(length, kv * g, d), cos, sin).view(length, kv, g * d).transpose(0, 1).contiguous()
    k = _rotate(k.view(length, kv, d), cos, sin).transpose(0, 1).contiguous()
    return q, k, v.view(length, kv, d).transpose(0, 1).contiguous()


def _split_rotate_backward(dq: Tensor, dk: Tensor, dv: Tensor, cos: Tensor, sin: Tensor, d: int) -> Tensor:
    length = dq.shape[1]
    q = _rotate(dq.transpose(0, 1).reshape(length, -1, d), cos, -sin).view(length, -1)
    k = _rotate(dk.transpose(0, 1), cos, -sin).reshape(length, -1)
    return torch.cat([q, k, dv.transpose(0, 1).reshape(length, -1)], dim=-1)


class Matrix:
    """One stacked weight with what is trained of it.

    Attributes:
        weight: what the pass multiplies by, bf16, shape (out, in).
    """

    def __init__(
        self, parts: list[Tensor], rank: int | None, alpha: float, generator: torch.Generator, *, frozen: bool = False
    ) -> None:
        self.sizes = [len(part) for part in parts]
        self.base = torch.cat(parts).to(torch.bfloat16)
        self.rank, self.scale = rank, 0.0 if rank is None else alpha / rank
        self.parameters: list[Tensor] = []
        self.weight = self.base
        if frozen:
            return
        width = self.base.shape[1]
        if rank is None:
            self.parameters = [self.base.float()]
        else:
            for size in self.sizes:
                bound = width**-0.5
                a = torch.empty(rank, width).uniform_(-bound, bound, generator=generator)
                self.parameters += [a, torch.zeros(size, rank)]
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.weight = self.base.clone()
        self.refresh()

    def refresh(self) -> None:
        """Bring `weight` up to the trained parameters."""
        if self.rank is None:
            self.weight.copy_(self.parameters[0])
            return
        downs = [a.to(torch.bfloat16) for a in self.parameters[::2]]
        self.down = torch.cat(downs)
        self.ups = [(b * self.scale).to(torch.bfloat16) for b in self.parameters[1::2]]
        parts = zip(self.base.split(self.sizes), self.ups, downs, self.weight.split(self.sizes), strict=True)
        for base, up, down, weight in parts:
            torch.addmm(base, up, down, out=weight)

    def accumulate(self, x: Tensor, dy: Tensor) -> None:
        """Add the gradient of one product `x @ weight.T`; shapes (T, in) and (T, out)."""
        if self.rank is None:
            _grad(self.parameters[0]).add_(dy.t() @ x)
            return
        inner = x @ self.down.t()
        outer: list[Tensor] = []
        for i, (part, up) in enumerate(zip(dy.split(self.sizes, dim=-1), self.ups, strict=True)):
            outer.append(part @ up)
            z = inner[:, i * self.rank : (i + 1) * self.rank]
            _grad(self.parameters[2 * i + 1]).add_((z.t() @ part).t(), alpha=self.scale)
        da = torch.cat(outer, dim=-1).t() @ x
        for i, part in enumerate(da.split(self.rank)):
            _grad(self.parameters[2 * i]).add_(part)


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


class Layer:
    """One decoder layer."""

    def __init__(
        self,
        state: dict[str, Tensor],
        shape: Shape,
        rank: int | None,
        alpha: float,
        generator: torch.Generator,
        *,
        frozen: bool = False,
    ) -> None:
        self.shape = shape
        self.norm1 = state["input_layernorm.weight"].float()
        self.norm2 = state["post_attention_layernorm.weight"].float()
        self.matrices = {
            name: Matrix([state[f"{part}.weight"] for part in parts], rank, alpha, generator, frozen=frozen)
            for name, parts in PROJECTIONS.items()
        }
        biases = [state[f"{part}.bias"] for part in PROJECTIONS["qkv"] if f"{part}.bias" in state]
        self.bias = torch.cat(biases).to(torch.bfloat16) if biases else None

    def forward(
        self, h: Tensor, step: Step, keep: bool, rows: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The layer's output, what its backward pass needs, and the attention's probabilities.

        Args:
            h: shape (T, width), fp32.
            step: what all layers share.
            keep: keep the attention's probabilities for the backward pass.
            rows: the tokens whose output is wanted (of the last layer only those that are read); None for all.
        """
        s, m = self.shape, self.matrices
        x, rstd1 = _norm(h, self.norm1, s.eps)
        q, k, v = _split_rotate(
            _projected(x, m["qkv"].weight, self.bias), step.cos, step.sin, s.kv_heads, s.stacked, s.head_dim
        )
        kept: list[Tensor] = []
        o = blocks_forward(q, k, v, step.plan, s.head_dim**-0.5, kept=kept if keep else None)
        o = o.view(len(h), -1)
        if rows is not None:
            o = o[rows]
        h2, x2, rstd2 = _add_norm(h if rows is None else h[rows], o @ m["o"].weight.t(), self.norm2, s.eps)
        gu = x2 @ m["gate_up"].weight.t()
        out = h2 + _swiglu(gu) @ m["down"].weight.t()
        return out, [h, rstd1, q, k, v, o, h2, rstd2, gu], kept

    def backward(
        self, dh: Tensor, saved: list[Tensor], kept: list[Tensor], step: Step, rows: Tensor | None = None
    ) -> Tensor:
        """Gradient of the layer's input (fp32), adding the matrices' gradients on the way."""
        s, m = self.shape, self.matrices
        h, rstd1, q, k, v, o, h2, rstd2, gu = saved
        low = dh.to(torch.bfloat16)
        dgu, a = _swiglu_backward(low @ m["down"].weight, gu)
        m["down"].accumulate(a, low)
        m["gate_up"].accumulate(_norm_again(h2, rstd2, self.norm2), dgu)
        dh, low = _norm_backward(dgu @ m["gate_up"].weight, h2, rstd2, self.norm2, dh)
        m["o"].accumulate(o, low)
        do = low @ m["o"].weight
        if rows is not None:
            do = do.new_zeros(len(h), do.shape[1]).index_add_(0, rows, do)
            dh = torch.zeros_like(h).index_add_(0, rows, dh)
        do = do.view(len(h), s.kv_heads, -1)
        dq, dk, dv = blocks_backward(do, q, k, v, kept, step.plan, s.head_dim**-0.5)
        dqkv = _split_rotate_backward(dq, dk, dv, step.cos, step.sin, s.head_dim)
        m["qkv"].accumulate(_norm_again(h, rstd1, self.norm1), dqkv)
        return _norm_backward(dqkv @ m["qkv"].weight, h, rstd1, self.norm1, dh)[0]
