"""Attention over a packed sequence, part by part: each with the keys that it sees and a mask, nothing of size T x T.

The framework's fused attention computes a part. It keeps scores in float32 whatever the dtype of queries and keys is:
with the large key biases of Qwen 2, scores rounded to bfloat16 would change a layer's output by more than a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from isr_rag.scorers.local.packed.pack import Node, Pack, Span

KeysValues = tuple[Tensor, Tensor]
ATTENTION_NAME = "isr_packed"
"""Name under which `register` makes the attention known to transformers."""

_ROWS = 256  # queries of a run, and of a part on a CPU: longer ones compute more masked pairs
_ROWS_CUDA = 1024  # queries of a part on CUDA, where few large products cost less than many small ones
# Not cuDNN's: it plans anew for each shape, and its gradients are not finite for some (pytorch/pytorch issue 196678).
CUDA_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_PLACES = ("position_ids", "cache_position")  # given to attention for other kernels; keys and queries are rotated
_KEPT = 1 << 12  # keys of the largest mask that is kept for the next layer, where a part has all its queries


@dataclass(frozen=True, slots=True)
class _Run:
    """Queries that follow one another: they see `spans` in full, and themselves causally."""

    start: int
    rows: int
    spans: tuple[Span, ...]


class _Part:
    """Runs computed in one product.

    Attributes:
        rows: queries; those of all parts, one after the other, are the sequence.
        seen: indices of the keys they see, among the given tokens and the sequence after them, int64.
    """

    def __init__(self, runs: Sequence[_Run]) -> None:
        self._runs = runs
        self.rows = runs[-1].start + runs[-1].rows - runs[0].start
        spans = dict.fromkeys(span for run in runs for span in run.spans)
        own = [(run.start, run.rows) for run in runs]
        # in the order of the spans, wherever these lie: the same prompt then sums up the same way in any pack
        seen = np.concatenate([np.arange(start, start + length) for start, length in (*spans, *own)])
        if len(runs) > 1:
            seen = seen[np.sort(np.unique(seen, return_index=True)[1])]
        self.seen = seen
        self._slice = slice(int(seen[0]), int(seen[-1]) + 1) if bool((np.diff(seen) == 1).all()) else None
        self._indices: dict[torch.device, Tensor] = {}

    def keys(self, device: torch.device) -> slice | Tensor:
        """The keys they see, for a tensor on a device: a slice where possible. Layers may lie on several devices."""
        if self._slice is not None:
            return self._slice
        if device not in self._indices:
            self._indices[device] = torch.from_numpy(self.seen).to(device)
        return self._indices[device]

    def mask(self, positions: NDArray[np.int64], window: int | None) -> Tensor:
        """Who sees whom, bool, shape (queries, keys), where `positions` are of the given tokens and the sequence."""
        first = self._runs[0].start
        sees = np.zeros((self.rows, len(self.seen)), dtype=np.bool_)
        place = np.empty(int(self.seen.max()) + 1, dtype=np.int64)
        place[self.seen] = np.arange(len(self.seen))
        for run in self._runs:
            rows = np.arange(run.start - first, run.start - first + run.rows)[:, None]
            for start, length in run.spans:
                sees[rows, place[start : start + length]] = True
            sees[rows, place[run.start : run.start + run.rows]] = np.tri(run.rows, dtype=np.bool_)
        if window is not None:
            sees &= positions[first : first + self.rows, None] - positions[self.seen] < window
        return torch.from_numpy(sees)


class AttentionPlan:
    """How to compute attention over one `Pack`; made once, used by each layer.

    Args:
        pack: the sequence.
        device: where it is computed, or where most of it is: tensors are taken and masks made on each layer's own.
        given: keys (rotated) and values of the given tokens, each of shape (layers, key-value heads, G, D).
        keep: keep every layer's keys and values of the sequence in `kept`.

    Attributes:
        kept: layer -> keys (rotated) and values, each of shape (key-value heads, T, D).
    """

    def __init__(
        self, pack: Pack, device: torch.device | str = "cpu", *, given: KeysValues | None = None, keep: bool = False
    ) -> None:
        most = _ROWS if torch.device(device).type == "cpu" else _ROWS_CUDA
        self.parts = [_Part(group) for group in _grouped(pack.nodes, most)]
        self._positions = np.concatenate([pack.given_positions, pack.position_ids])
        self._given, self._keep, self._largest = given, keep, _KEPT * most
        self.kept: dict[int, KeysValues] = {}
        self._masks: dict[tuple[_Part, int | None, torch.device], Tensor] = {}

    def with_given(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        """Keys and values of the given tokens and, after them, of the sequence; shape (heads, G + T, D)."""
        if self._keep:
            self.kept[layer] = (k.clone(), v.clone())
        if self._given is None:
            return k, v
        keys, values = self._given
        return torch.cat([keys[layer], k], 1), torch.cat([values[layer], v], 1)

    def mask(self, part: _Part, window: int | None, device: torch.device) -> Tensor:
        """Who sees whom in a part, on a device; shape (queries, keys)."""
        found = self._masks.get((part, window, device))
        if found is None:
            found = part.mask(self._positions, window).to(device)
            if found.numel() <= self._largest:
                self._masks[part, window, device] = found
        return found


def mask_bytes(size: int) -> int:
    """Bytes of masks per token, at most: those kept, and one part's in the dtype of the scores, twice (padded)."""
    return _KEPT + 2 * _ROWS_CUDA * size


def _grouped(nodes: Sequence[Node], most: int) -> list[list[_Run]]:
    """The nodes in runs, and neighbouring runs together, of at most `most` queries."""
    groups: list[list[_Run]] = []
    rows = most
    for node in nodes:
        for offset in range(0, node.length, _ROWS):
            before = ((node.start, offset),) if offset else ()
            run = _Run(node.start + offset, min(_ROWS, node.length - offset), (*node.visible, *before))
            if most == _ROWS or rows + run.rows > most:
                groups.append([])
                rows = 0
            groups[-1].append(run)
            rows += run.rows
    return groups


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: AttentionPlan,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attention over the plan, differentiable.

    Args:
        q: queries, shape (heads, T, D), rotated.
        k: keys of the given tokens and the sequence, shape (key-value heads, G + T, D), rotated.
        v: values, shape as `k` (its last dimension may differ); the result has shape (T, heads, this dimension).
        plan: who sees whom.
        scale: factor on the scores.
        window: sliding window in positions; None for none.
        softcap: Gemma 2's cap on the scores; None for none.
    """
    heads, kv_heads = len(q), len(k)
    q = q.unflatten(0, (kv_heads, heads // kv_heads))
    results: list[Tensor] = []
    queries = q.split([part.rows for part in plan.parts], 2)
    for part, own, *seen in zip(plan.parts, queries, _by_part(k, plan), _by_part(v, plan), strict=True):
        keys, values = (x[:, None].expand(-1, heads // kv_heads, -1, -1) for x in seen)
        mask = plan.mask(part, window, k.device)
        if softcap is None:
            result = F.scaled_dot_product_attention(own, keys, values, attn_mask=mask, scale=scale)
        else:
            scores = softcap * torch.tanh(own.float() @ keys.float().transpose(2, 3) * (scale / softcap))
            result = (scores.masked_fill(~mask, -torch.inf).softmax(-1) @ values.float()).to(q.dtype)
        results.append(result.flatten(0, 1))
    return torch.cat(results, 1).transpose(0, 1)


def _by_part(x: Tensor, plan: AttentionPlan) -> Iterable[Tensor]:
    """What each part sees of keys or values of shape (key-value heads, G + T, D)."""
    if not x.requires_grad:
        return (x[:, part.keys(x.device)] for part in plan.parts)
    # Gathered together, so that gradients of what many parts see are summed in one pass, and in float32.
    at = torch.from_numpy(np.concatenate([part.seen for part in plan.parts])).to(x.device)
    gathered = x.to(torch.promote_types(x.dtype, torch.float32)).index_select(1, at).to(x.dtype)
    return gathered.split([len(part.seen) for part in plan.parts], 1)


def register() -> str:
    """Make attention over plans known to transformers, under the name that `model.set_attn_implementation` takes."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    AttentionInterface.register(ATTENTION_NAME, _called)
    ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, _window)
    return ATTENTION_NAME


def _window(*_: object, local_size: int | None = None, use_vmap: bool = False, **__: object) -> int | None:
    """In place of a mask, the window it has: None for all words before; 0 for what else a model adds to its mask."""
    return 0 if use_vmap else local_size


def _called(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: int | Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    block_plan: AttentionPlan | None = None,
    **more: object,
) -> tuple[Tensor, None]:
    """The signature transformers calls: (1, heads, T, D) in, (1, T, heads, D) out; ValueError if it asks for more."""
    if block_plan is None:
        raise TypeError(f"pass block_plan=AttentionPlan(pack) to the model's forward with {ATTENTION_NAME} attention")
    given = [name for name, one in more.items() if isinstance(one, Tensor) and name not in _PLACES]
    if given or isinstance(attention_mask, Tensor) or attention_mask != sliding_window:
        raise ValueError(f"its layers mask or weigh words themselves{''.join(f', by {name}' for name in given)}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    keys, values = block_plan.with_given(int(getattr(module, "layer_idx", None) or 0), key[0], value[0])
    with sdpa_kernel(CUDA_KERNELS) if query.is_cuda else nullcontext():
        out = attend(query[0], keys, values, block_plan, scale, window=sliding_window, softcap=softcap)
    return out.contiguous().unsqueeze(0), None  # some models view it in another shape
