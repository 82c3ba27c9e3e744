"""Attention over a packed sequence by blocks: gather, matrix product, softmax, matrix product.

Short runs of tokens of similar size go into one batched product; a long one (a chain) is computed block by block
over keys that are gathered once. The query heads that share a key-value head are stacked as rows. Nothing the size
of T x T is ever made. The result equals a forward pass with the dense mask up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isr_rag.scorers.local.packed.pack import Node, Pack

ATTENTION_NAME = "isr_blocks"
"""Name under which `register` makes the attention known to transformers."""

_ROWS = 64  # queries per block: larger blocks compute more masked pairs, smaller ones make thin products
_STEP = 16  # sizes are rounded up to it, long ones to an eighth: each new shape costs a library a kernel, 1 ms, .7 MB
_PADDING = 0.25  # share of a group's work that may be padding
_SCORES = 1 << 20  # query-key pairs per group
_SCORES_CPU = 1 << 15  # the same on a CPU: score matrices of all heads stay in the cache, and none is mapped anew
_CHAIN_ROWS = 128  # queries per block of a chain
_CHAIN_STEP = 64  # the keys of such a block are rounded up to it
_LARGE = 1 << 22  # multiplications in a matrix product that is worth all threads of a CPU


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    rows: int
    keys: NDArray[np.int64]

    @property
    def before(self) -> int:
        return len(self.keys) - self.rows


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Blocks computed in one batched product.

    Attributes:
        queries: int64 (B * rows,), indices in the sequence; padding repeats a token.
        targets: int64, indices in the sequence of the rows that are not padding.
        kept: int64, where these are among the B * rows.
        start: index of the first of them if they follow one another and none is padding.
        before: int64 (B,): columns that all rows of a block see; row r sees columns up to `before + r`.
        common: columns that all rows of all blocks see.
        rows: queries per block.
        columns: keys per block.
    """

    queries: Tensor
    targets: Tensor
    kept: Tensor
    start: int | None
    before: Tensor
    common: int
    rows: int
    columns: int

    @property
    def padded(self) -> bool:
        """Whether some rows are padding."""
        return len(self.kept) < len(self.queries)

    def of(self, x: Tensor) -> Tensor:
        """The queries' part of a tensor of shape (heads, T, ...)."""
        if self.start is None:
            return x.index_select(1, self.queries)
        return x[:, self.start : self.start + self.rows]

    def put(self, x: Tensor, into: Tensor) -> None:
        """Write what belongs to the queries, shape (heads, B * rows, ...), without what belongs to padding."""
        if self.start is not None:
            into[:, self.start : self.start + self.rows] = x
        else:
            into.index_copy_(1, self.targets, x.index_select(1, self.kept) if self.padded else x)


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """Keys gathered once, and who reads them: a group of blocks, or the blocks of a chain one by one.

    Attributes:
        keys: int64 (B, columns), indices among the given tokens and the sequence after them; padding repeats one.
        groups: of B blocks each, which read the first of these columns, as many as they have.
    """

    keys: Tensor
    groups: tuple[Group, ...]


class AttentionPlan:
    """How to compute attention over one `Pack`; made once, used by each layer.

    Args:
        pack: the sequence.
        device: where it is computed.
        given: keys (rotated) and values of the given tokens, each of shape (layers, key-value heads, G, D).
        keep: keep every layer's keys and values of the sequence in `kept`.

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
        cpu = torch.device(device).type == "cpu"  # elsewhere few large products cost less than many small ones
        chains = [node for node in pack.nodes if cpu and node.length > _ROWS]
        others = [b for node in pack.nodes if not (cpu and node.length > _ROWS) for b in _blocks(node, _ROWS)]
        self.gathered: tuple[Gathered, ...] = (
            *(_chain(node, pack.given, device) for node in chains),
            *(_beside(members, pack.given, device) for members in _similar(others, _SCORES_CPU if cpu else _SCORES)),
        )
        self._at = torch.from_numpy(pack.position_ids).to(device)
        self._of = torch.from_numpy(np.concatenate([pack.given_positions, pack.position_ids])).to(device)
        self._given, self._keep = given, keep
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}
        self._bias: dict[tuple[Group, torch.dtype, int | None], Tensor] = {}
        self._rooms: dict[str, Tensor] = {}

    def with_given(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the given tokens and, after them, of the sequence; shape (heads, G + T, D)."""
        if self._keep:
            self.kept[layer] = (k.clone(), v.clone())
        if self._given is None:
            return k, v
        keys, values = self._given
        return torch.cat([keys[layer], k], 1), torch.cat([values[layer], v], 1)

    def bias(self, gathered: Gathered, group: Group, dtype: torch.dtype, window: int | None) -> Tensor:
        """Additive mask of a group, shape (B, rows, 1, C), for its last C columns; the others are not masked.

        C is what is beyond the common columns, or everything where `window` limits the distance.
        """
        key = (group, dtype, window)
        if key not in self._bias:
            device = group.queries.device
            row = torch.arange(group.rows, device=device)[None, :, None]
            first = group.common if window is None else 0
            column = torch.arange(first, group.columns, device=device)[None, None, :]
            hidden = column > group.before[:, None, None] + row
            if window is not None:
                at = self._at[group.queries].view(-1, group.rows, 1)
                of = self._of[gathered.keys[:, : group.columns]].unsqueeze(1)
                hidden |= at - of >= window
            bias = torch.zeros(hidden.shape, dtype=dtype, device=device)
            self._bias[key] = bias.masked_fill_(hidden, torch.finfo(dtype).min).unsqueeze(2)
        return self._bias[key]

    def room(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Memory for what one group needs, taken again for the next: the system maps large new memory page by page."""
        size = math.prod(shape)
        known = self._rooms.get(name)
        if known is None or known.numel() < size or known.dtype != like.dtype:
            known = self._rooms[name] = like.new_empty(size)
        return known[:size].view(shape)


def _blocks(node: Node, most: int) -> list[_Block]:
    """The node in blocks of at most `most` queries; a block sees the ancestors and the node up to its own end."""
    seen = [np.arange(start, start + length) for start, length in node.visible]
    blocks: list[_Block] = []
    for offset in range(0, node.length, most):
        rows = min(most, node.length - offset)
        own = np.arange(node.start, node.start + offset + rows)
        blocks.append(_Block(node.start + offset, rows, np.concatenate([*seen, own])))
    return blocks


def _similar(blocks: list[_Block], most: int) -> list[list[_Block]]:
    """Blocks in groups whose padding, and pairs (at most `most`, or one block), stay within bounds."""
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


def _beside(blocks: Sequence[_Block], given: int, device: torch.device | str) -> Gathered:
    """Blocks in one product, each with keys of its own."""
    columns = _rounded(max(len(b.keys) for b in blocks))
    group = _group(blocks, columns, given, device)
    return Gathered(_keys(blocks, columns, device), (group,))


def _chain(node: Node, given: int, device: torch.device | str) -> Gathered:
    """The blocks of a long node, which all read from the same keys."""
    blocks = _blocks(node, _CHAIN_ROWS)
    columns = [-(-len(b.keys) // _CHAIN_STEP) * _CHAIN_STEP for b in blocks]
    groups = (_group([b], c, given, device) for b, c in zip(blocks, columns, strict=True))
    return Gathered(_keys(blocks[-1:], columns[-1], device), tuple(groups))


def _keys(blocks: Sequence[_Block], columns: int, device: torch.device | str) -> Tensor:
    keys = np.zeros((len(blocks), columns), dtype=np.int64)
    for i, block in enumerate(blocks):
        keys[i] = block.keys[0]
        keys[i, : len(block.keys)] = block.keys
    return torch.from_numpy(keys).to(device)


def _group(blocks: Sequence[_Block], columns: int, given: int, device: torch.device | str) -> Group:
    rows = _rounded(max(b.rows for b in blocks))
    queries = np.zeros((len(blocks), rows), dtype=np.int64)
    real = np.zeros((len(blocks), rows), dtype=np.bool_)
    for i, block in enumerate(blocks):
        first = block.start - given
        queries[i] = first
        queries[i, : block.rows] = np.arange(first, first + block.rows)
        real[i, : block.rows] = True

    def put(array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Group(
        queries=put(queries.reshape(-1)),
        targets=put(queries[real]),
        kept=put(np.flatnonzero(real)),
        start=blocks[0].start - given if len(blocks) == 1 and rows == blocks[0].rows else None,
        before=put(np.asarray([b.before for b in blocks], dtype=np.int64)),
        common=min(b.before for b in blocks),
        rows=rows,
        columns=columns,
    )


def heads_first(x: Tensor, heads: int) -> Tensor:
    """(T, heads * ...) to contiguous (heads, T, ...): gathering rows then leaves a batch of matrices."""
    return x.reshape(x.shape[0], heads, -1).transpose(0, 1).contiguous()


def gathered_keys(plan: AttentionPlan, k: Tensor, v: Tensor) -> Iterator[tuple[Gathered, Group, Tensor, Tensor]]:
    """Every group with the keys and values that its blocks read, shape (heads * B, columns, ...)."""
    for gathered in plan.gathered:
        columns = gathered.keys.shape[1]
        at = gathered.keys.view(-1)
        both: list[Tensor] = []
        for name, x in (("keys", k), ("values", v)):
            out = plan.room(name, (len(x), len(at), x.shape[-1]), x)
            both.append(torch.index_select(x, 1, at, out=out).view(-1, columns, x.shape[-1]))
        for group in gathered.groups:
            keys, values = (x[:, : group.columns] for x in both)
            yield gathered, group, keys, values


def _evenly_dealt(a: Tensor, columns: int) -> list[slice]:
    """A batch of products in parts that keep every thread busy.

    MKL deals whole matrices to threads: two threads compute three as slowly as four. What would be left over of a few
    large ones is therefore computed one by one, each by all threads.
    """
    count, rows, depth = a.shape
    threads = torch.get_num_threads() if a.device.type == "cpu" else 1
    whole = count - count % threads
    if whole == count or count > 2 * threads or rows * columns * depth < _LARGE:
        return [slice(0, count)]
    return [*([slice(0, whole)] if whole else []), *(slice(i, i + 1) for i in range(whole, count))]


def _probabilities(
    q: Tensor, k: Tensor, bias: Tensor, group: Group, scale: float, softcap: float | None, scores: Tensor
) -> Tensor:
    """Softmax of the scores of one group, in place of `scores`, shape (heads * B, rows * G, columns)."""
    for part in _evenly_dealt(q, group.columns):
        torch.baddbmm(scores[part], q[part], k[part].transpose(1, 2), beta=0, alpha=scale, out=scores[part])
    if softcap is not None:
        scores.div_(softcap).tanh_().mul_(softcap)
    by_row = scores.view(-1, len(group.before), group.rows, q.shape[1] // group.rows, group.columns)
    by_row[..., group.columns - bias.shape[-1] :].add_(bias)
    return torch.softmax(scores, -1, out=scores)


def blocks_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: AttentionPlan,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    kept: list[Tensor] | None = None,
    out: Tensor | None = None,
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
        kept: receives each group's probabilities, for `blocks_backward`.
        out: where to put the result; None allocates it.

    Returns:
        Shape (T, key-value heads, G * width).
    """
    kv_heads, depth, width = k.shape[0], k.shape[-1], v.shape[-1]
    stacked = q.shape[-1] // depth
    if out is None:
        out = v.new_empty(plan.length, kv_heads, stacked * width)
    for gathered, group, keys, values in gathered_keys(plan, k, v):
        rows = group.of(q).view(len(keys), group.rows * stacked, depth)
        shape = (*rows.shape[:2], group.columns)
        scores = plan.room("scores", shape, rows) if kept is None else rows.new_empty(shape)
        p = _probabilities(rows, keys, plan.bias(gathered, group, q.dtype, window), group, scale, softcap, scores)
        if kept is not None:
            kept.append(p)
        result = plan.room("result", (*rows.shape[:2], width), rows)
        for part in _evenly_dealt(p, width):
            torch.bmm(p[part], values[part], out=result[part])
        group.put(result.view(kv_heads, -1, stacked * width), out.transpose(0, 1))
    return out


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
    """Attention over the plan.

    Args:
        q: queries, shape (T, heads, D), rotated.
        k: keys, shape (T, key-value heads, D), rotated.
        v: values, shape as `k` (its last dimension may differ).
        plan: who sees whom.
        scale: factor on the scores.
        window: sliding window in positions; None for none.
        softcap: Gemma 2's cap on the scores; None for none.
        layer: whose given keys and values to use.

    Returns:
        Shape (T, heads, last dimension of v).
    """
    kv_heads = k.shape[1]
    keys, values = plan.with_given(layer, heads_first(k, kv_heads), heads_first(v, kv_heads))
    out = blocks_forward(heads_first(q, kv_heads), keys, values, plan, scale, window=window, softcap=softcap)
    return out.view(plan.length, q.shape[1], v.shape[-1])


class Attend(Protocol):
    """What computes attention over a plan, as `attend` does."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        plan: AttentionPlan,
        scale: float,
        *,
        window: int | None,
        softcap: float | None,
        layer: int,
    ) -> Tensor:
        """Attention of shape (T, heads, last dimension of v)."""
        ...


def register(name: str = ATTENTION_NAME, attention: Attend = attend) -> str:
    """Make an attention over plans known to transformers.

    Args:
        name: how transformers calls it.
        attention: what computes it.

    Returns:
        The name to give `model.set_attn_implementation`.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    def called(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        block_plan: AttentionPlan | None = None,
        **_: object,
    ) -> tuple[Tensor, None]:
        """The signature transformers calls: (1, heads, T, D) in, (1, T, heads, D) out."""
        if block_plan is None:
            raise TypeError(f"pass block_plan=AttentionPlan(pack) to the model's forward when its attention is {name}")
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        layer = int(getattr(module, "layer_idx", None) or 0)
        out = attention(q, k, v, block_plan, scale, window=sliding_window, softcap=softcap, layer=layer)
        return out.unsqueeze(0), None

    AttentionInterface.register(name, called)
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, lambda *args, **kwargs: None)
    return name
