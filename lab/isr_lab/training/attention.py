"""Attention over packed sequences that can be trained through: the backward pass of the product's block attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from isr_rag.scorers.local.packed import attention
from isr_rag.scorers.local.packed.attention import AttentionPlan, blocks_forward, gathered_keys, heads_first

NAME = "isr_blocks_trained"
"""Name under which `register` makes the attention known to transformers."""


def blocks_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, kept: Sequence[Tensor], plan: AttentionPlan, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `blocks_forward` (without softcap) in q, k and v; `grad` has the shape of its result."""
    kv_heads, depth, width = k.shape[0], k.shape[-1], v.shape[-1]
    stacked = q.shape[-1] // depth
    grad, dq = grad.transpose(0, 1), torch.empty_like(q)
    # Shared spans gather gradients from many blocks: their sums need fp32.
    dkv = torch.zeros(plan.length, kv_heads * (depth + width), dtype=torch.float32, device=k.device)
    for (gathered, group, keys, values), p in zip(gathered_keys(plan, k, v), kept, strict=True):
        rows = group.of(q).view(len(keys), group.rows * stacked, depth)
        dout = group.of(grad)
        if group.padded:
            real = torch.zeros(len(group.queries), 1, dtype=dout.dtype, device=dout.device)
            dout.mul_(real.index_fill_(0, group.kept, 1.0))
        dout = dout.reshape(len(keys), group.rows * stacked, width)
        ds = torch.ops.aten._softmax_backward_data(torch.bmm(dout, values.transpose(1, 2)), p, -1, p.dtype)
        group.put(torch.bmm(ds, keys).mul_(scale).view(kv_heads, -1, stacked * depth), dq)
        at = gathered.keys[:, : group.columns].reshape(-1)
        both = torch.empty(len(at), kv_heads, depth + width, dtype=torch.float32, device=k.device)
        both[..., :depth] = torch.bmm(ds.transpose(1, 2), rows).view(kv_heads, -1, depth).transpose(0, 1)
        both[..., :depth] *= scale
        both[..., depth:] = torch.bmm(p.transpose(1, 2), dout).view(kv_heads, -1, width).transpose(0, 1)
        flat = both.view(len(at), -1)
        dkv.scatter_add_(0, at[:, None].expand_as(flat), flat)
    dk, dv = dkv.view(plan.length, kv_heads, depth + width).transpose(0, 1).to(k.dtype).split([depth, width], -1)
    return dq, dk, dv


class _BlockAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, scale: float, window: int | None
    ) -> Tensor:
        kept: list[Tensor] = []
        out = blocks_forward(q, k, v, plan, scale, window=window, kept=kept)
        ctx.save_for_backward(q, k, v, *kept)
        ctx.plan, ctx.scale = plan, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        q, k, v, *kept = ctx.saved_tensors
        return (*blocks_backward(grads[0], q, k, v, kept, ctx.plan, ctx.scale), None, None, None)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: AttentionPlan,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    layer: int = 0,
) -> Tensor:
    """As `isr_rag.scorers.local.packed.attention.attend`, differentiable in q, k and v.

    Raises:
        NotImplementedError: for a softcap, whose gradient is not written out.
    """
    if not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)):
        return attention.attend(q, k, v, plan, scale, window=window, softcap=softcap, layer=layer)
    if softcap is not None:
        raise NotImplementedError("attention with a softcap (Gemma 2) cannot be trained through")
    kv_heads = k.shape[1]
    first = (heads_first(x, kv_heads) for x in (q, k, v))
    out: Tensor = _BlockAttention.apply(*first, plan, scale, window)
    return out.view(plan.length, q.shape[1], v.shape[-1])


def register() -> str:
    """Make this attention known to transformers; returns the name to give `model.set_attn_implementation`."""
    return attention.register(NAME, attend)
