"""Attention over a packed sequence by blocks: gather, matrix product, softmax, matrix product.

Blocks of similar size go into one batched product, with the query heads that share a key-value head stacked as
rows. Nothing the size of T x T is ever made. The result equals a forward pass with the dense mask up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isr_rag.scorers.packed.plan import Node, Pack

ATTENTION_NAME = "isr_blocks"
"""Name under which :func:`register` makes the attention known to transformers."""

_ROWS = 64  # queries a block: larger blocks compute more masked pairs, smaller ones make thin products
_STEP = 16  # sizes are rounded up to it, long ones to an eighth: each new shape costs a library a kernel, 1 ms, .7 MB
_PADDING = 0.25  # share of a group's work that may be padding
_SCORES = 1 << 20  # query-key pairs a group
_SCORES_CPU = 1 << 15  # the same on a CPU: score matrices of all heads stay in the cache, and none is mapped anew


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    rows: int
    keys: NDArray[np.int64]

    @property
    def before(self) -> int:
        return len(self.keys) - self.rows


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks computed in one batched product.

    Attributes:
        queries: int64 (B * rows,), indices in the sequence; padding repeats a token.
        keys: int64 (B * columns,), indices among the given tokens and the sequence after them; padded likewise.
        targets: int64, indices in the sequence of the rows that are no padding.
        kept: int64, where these stand among the B * rows.
        before: int64 (B,): columns that all rows of a block see; row r sees columns up to ``before + r``.
        common: columns that all rows of all blocks see.
        rows: queries a block.
        columns: keys a block.
    """

    queries: Tensor
    keys: Tensor
    targets: Tensor
    kept: Tensor
    before: Tensor
    common: int
    rows: int
    columns: int

    @property
    def padded(self) -> bool:
        """Whether some rows are padding."""
        return len(self.kept) < len(self.queries)


class Plan:
    """How to compute attention over one :class:`~isr_rag.scorers.packed.plan.Pack`; made once, used by each layer.

    Args:
        pack: the sequence.
        device: where it is computed.
        given: keys (rotated) and values of the given tokens, each of shape (layers, key-value heads, G, D).
        keep: keep every layer's keys and values of the sequence in ``kept``.

    Attributes:
        kept: layer -> keys (rotated) and values, each of shape (key-value heads, T, D).
    """

    def __init__(
        self,
        pack: Pack,
        device: torch.device | str = "cpu",
        *,
        given: tuple[Tensor, Tensor] | None = None,
        keep: bool = False,
    ) -> None:
        self.length = len(pack.input_ids)
        most = _SCORES_CPU if torch.device(device).type == "cpu" else _SCORES
        self.groups: tuple[Group, ...] = tuple(
            _group(members, pack.given, device)
            for members in _similar([b for node in pack.nodes for b in _blocks(node)], most)
        )
        self._at = torch.from_numpy(pack.position_ids).to(device)
        self._of = torch.from_numpy(np.concatenate([pack.given_positions, pack.position_ids])).to(device)
        self._given, self._keep = given, keep
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}
        self._bias: dict[tuple[int, torch.dtype, int | None], Tensor] = {}

    def with_given(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the given tokens and, after them, of the sequence; shape (heads, G + T, D)."""
        if self._keep:
            self.kept[layer] = (k, v)
        if self._given is None:
            return k, v
        keys, values = self._given
        return torch.cat([keys[layer], k], 1), torch.cat([values[layer], v], 1)

    def bias(self, index: int, dtype: torch.dtype, window: int | None) -> Tensor:
        """Additive mask of group ``index``, shape (B, rows, 1, C), for the last C columns; the others are not masked.

        C is what is beyond the common columns, or everything where ``window`` limits the distance.
        """
        key = (index, dtype, window)
        if key not in self._bias:
            group = self.groups[index]
            device = group.queries.device
            row = torch.arange(group.rows, device=device)[None, :, None]
            first = group.common if window is None else 0
            column = torch.arange(first, group.columns, device=device)[None, None, :]
            hidden = column > group.before[:, None, None] + row
            if window is not None:
                at = self._at[group.queries].view(-1, group.rows, 1)
                of = self._of[group.keys].view(-1, 1, group.columns)
                hidden |= at - of >= window
            bias = torch.zeros(hidden.shape, dtype=dtype, device=device)
            self._bias[key] = bias.masked_fill_(hidden, torch.finfo(dtype).min).unsqueeze(2)
        return self._bias[key]


def _blocks(node: Node) -> list[_Block]:
    """The node in blocks of at most ``_ROWS`` queries; a block sees the ancestors and the node up to its own end."""
    seen = [np.arange(start, start + length) for start, length in node.visible]
    blocks: list[_Block] = []
    for offset in range(0, node.length, _ROWS):
        rows = min(_ROWS, node.length - offset)
        own = np.arange(node.start, node.start + offset + rows)
        blocks.append(_Block(node.start + offset, rows, np.concatenate([*seen, own])))
    return blocks


def _similar(blocks: list[_Block], most: int) -> list[list[_Block]]:
    """Blocks in groups whose padding, and pairs (at most ``most``, or one block), stay within bounds."""
    groups: list[list[_Block]] = []
    rows = columns = used = 0
    for block in sorted(blocks, key=lambda b: (-len(b.keys), -b.rows, b.start)):
        size = len(groups[-1]) + 1 if groups else 1
        new_rows, new_columns = max(rows, block.rows), max(columns, len(block.keys))
        work = size * new_rows * new_columns
        own = block.rows * len(block.keys)
        if groups and work <= most and used + own >= (1 - _PADDING) * work:
            groups[-1].append(block)
            rows, columns, used = new_rows, new_columns, used + own
        else:
            groups.append([block])
            rows, columns, used = block.rows, len(block.keys), own
    return groups


def _rounded(size: int) -> int:
    step = max(_STEP, 1 << size.bit_length() >> 4)
    return -(-size // step) * step


def _group(blocks: Sequence[_Block], given: int, device: torch.device | str) -> Group:
    rows, columns = (_rounded(max(sizes)) for sizes in ([b.rows for b in blocks], [len(b.keys) for b in blocks]))
    queries = np.zeros((len(blocks), rows), dtype=np.int64)
    keys = np.zeros((len(blocks), columns), dtype=np.int64)
    real = np.zeros((len(blocks), rows), dtype=np.bool_)
    for i, block in enumerate(blocks):
        first = block.start - given
        queries[i] = first
        queries[i, : block.rows] = np.arange(first, first + block.rows)
        keys[i] = block.keys[0]
        keys[i, : len(block.keys)] = block.keys
        real[i, : block.rows] = True

    def put(array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Group(
        queries=put(queries.reshape(-1)),
        keys=put(keys.reshape(-1)),
        targets=put(queries[real]),
        kept=put(np.flatnonzero(real)),
        before=put(np.asarray([b.before for b in blocks], dtype=np.int64)),
        common=min(b.before for b in blocks),
        rows=rows,
        columns=columns,
    )


def _heads_first(x: Tensor, heads: int) -> Tensor:
    """(T, heads * ...) to contiguous (heads, T, ...), so that gathering rows leaves a batch of matrices."""
    return x.reshape(x.shape[0], heads, -1).transpose(0, 1).contiguous()


def _probabilities(
    q: Tensor, k: Tensor, plan: Plan, index: int, scale: float, window: int | None, softcap: float | None
) -> Tensor:
    """Softmax of the scores of one group, shape (heads * B, rows * G, columns)."""
    group = plan.groups[index]
    scores = torch.bmm(q, k.transpose(1, 2)).mul_(scale)
    if softcap is not None:
        scores.div_(softcap).tanh_().mul_(softcap)
    bias = plan.bias(index, scores.dtype, window)
    by_row = scores.view(-1, len(group.before), group.rows, q.shape[1] // group.rows, group.columns)
    by_row[..., group.columns - bias.shape[-1] :].add_(bias)
    return torch.softmax(scores, dim=-1)


def blocks_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: Plan,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    kept: list[Tensor] | None = None,
) -> Tensor:
    """The computation itself, on tensors with the key-value heads first.

    Args:
        q: shape (key-value heads, T, G * D) with the G query heads of a key-value head side by side.
        k: shape (key-value heads, T, D).
        v: shape (key-value heads, T, width).
        plan: who sees whom.
        scale: factor on the scores.
        window: sliding window in positions; None for none.
        softcap: Gemma 2's cap on the scores; None for none.
        kept: receives each group's probabilities, for :func:`blocks_backward`.

    Returns:
        Shape (key-value heads, T, G * width).
    """
    kv_heads, depth, width = k.shape[0], k.shape[-1], v.shape[-1]
    stacked = q.shape[-1] // depth
    out = v.new_empty(kv_heads, plan.length, stacked * width)
    for index, group in enumerate(plan.groups):
        batch = kv_heads * len(group.before)
        rows = q.index_select(1, group.queries).view(batch, group.rows * stacked, depth)
        keys = k.index_select(1, group.keys).view(batch, group.columns, depth)
        values = v.index_select(1, group.keys).view(batch, group.columns, width)
        p = _probabilities(rows, keys, plan, index, scale, window, softcap)
        if kept is not None:
            kept.append(p)
        result = torch.bmm(p, values).view(kv_heads, -1, stacked * width)
        out.index_copy_(1, group.targets, result.index_select(1, group.kept) if group.padded else result)
    return out


def blocks_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, kept: Sequence[Tensor], plan: Plan, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of :func:`blocks_forward` (without softcap) in q, k and v, in their shapes."""
    kv_heads, depth, width = k.shape[0], k.shape[-1], v.shape[-1]
    stacked = q.shape[-1] // depth
    dq = torch.empty_like(q)
    # Shared spans gather gradients from many blocks: their sums need fp32.
    dkv = torch.zeros(plan.length, kv_heads * (depth + width), dtype=torch.float32, device=k.device)
    for group, p in zip(plan.groups, kept, strict=True):
        batch = kv_heads * len(group.before)
        rows = q.index_select(1, group.queries).view(batch, group.rows * stacked, depth)
        keys = k.index_select(1, group.keys).view(batch, group.columns, depth)
        values = v.index_select(1, group.keys).view(batch, group.columns, width)
        dout = grad.index_select(1, group.queries)
        if group.padded:
            real = torch.zeros(len(group.queries), 1, dtype=dout.dtype, device=dout.device)
            dout.mul_(real.index_fill_(0, group.kept, 1.0))
        dout = dout.view(batch, group.rows * stacked, width)
        ds = torch.ops.aten._softmax_backward_data(torch.bmm(dout, values.transpose(1, 2)), p, -1, p.dtype)
        result = torch.bmm(ds, keys).mul_(scale).view(kv_heads, -1, stacked * depth)
        dq.index_copy_(1, group.targets, result.index_select(1, group.kept) if group.padded else result)
        both = torch.empty(len(group.keys), kv_heads, depth + width, dtype=torch.float32, device=k.device)
        both[..., :depth] = torch.bmm(ds.transpose(1, 2), rows).view(kv_heads, -1, depth).transpose(0, 1)
        both[..., :depth] *= scale
        both[..., depth:] = torch.bmm(p.transpose(1, 2), dout).view(kv_heads, -1, width).transpose(0, 1)
        flat = both.view(len(group.keys), -1)
        dkv.scatter_add_(0, group.keys[:, None].expand_as(flat), flat)
    dk, dv = dkv.view(plan.length, kv_heads, depth + width).transpose(0, 1).to(k.dtype).split([depth, width], -1)
    return dq, dk, dv


class _BlockAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: Plan, scale: float, window: int | None) -> Tensor:
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
    plan: Plan,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    layer: int = 0,
) -> Tensor:
    """Attention over the plan; differentiable in q, k and v where there is no softcap.

    Args:
        q: queries, shape (T, heads, D), rotated.
        k: keys, shape (T, key-value heads, D), rotated.
        v: values, shape as ``k`` (its last dimension may differ).
        plan: who sees whom.
        scale: factor on the scores.
        window: sliding window in positions; None for none.
        softcap: Gemma 2's cap on the scores; None for none.
        layer: whose given keys and values to use.

    Returns:
        Shape (T, heads, last dimension of v).
    """
    kv_heads = k.shape[1]
    keys, values = plan.with_given(layer, _heads_first(k, kv_heads), _heads_first(v, kv_heads))
    first = _heads_first(q, kv_heads), keys, values
    if softcap is None and torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        out: Tensor = _BlockAttention.apply(*first, plan, scale, window)
    else:
        out = blocks_forward(*first, plan, scale, window=window, softcap=softcap)
    return out.transpose(0, 1).reshape(plan.length, q.shape[1], v.shape[-1])


def _transformers_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    block_plan: Plan | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """The signature transformers calls: (1, heads, T, D) in, (1, T, heads, D) out."""
    if block_plan is None:
        raise TypeError("pass block_plan=Plan(pack) to the model's forward when its attention is isr_blocks")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    layer = int(getattr(module, "layer_idx", None) or 0)
    out = attend(q, k, v, block_plan, scale, window=sliding_window, softcap=softcap, layer=layer)
    return out.unsqueeze(0), None


def register() -> str:
    """Make the attention known to transformers; returns the name to give ``model.set_attn_implementation``."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    AttentionInterface.register(ATTENTION_NAME, _transformers_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, lambda *args, **kwargs: None)
    return ATTENTION_NAME
