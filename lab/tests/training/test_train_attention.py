"""Gradients of the packed attention equal those of autograd through the dense mask."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from isr_rag.scorers.local.encoding import EncodedPrompt
from isr_rag.scorers.local.packed.attention import AttentionPlan, attend
from isr_rag.scorers.local.packed.pack import Pack, pack_invariant


def pack(longest: int) -> Pack:
    rng = random.Random(6)

    def ids(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randrange(97) for _ in range(rng.randint(low, high)))

    head, shared = ids(3, 9), ids(2, longest)
    return pack_invariant([EncodedPrompt(head, (shared, ids(1, longest), ids(1, 12)), ids(1, 6)) for _ in range(3)])


def allowed(packed: Pack, window: int | None) -> torch.Tensor:
    mask = np.zeros((len(packed.input_ids),) * 2, dtype=np.bool_)
    for node in packed.nodes:
        rows = slice(node.start, node.start + node.length)
        for start, length in node.visible:
            mask[rows, start : start + length] = True
        mask[rows, rows] = np.tril(np.ones((node.length,) * 2, dtype=np.bool_))
    if window is not None:
        mask &= packed.position_ids[:, None] - packed.position_ids[None, :] < window
    return torch.from_numpy(mask)


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("longest", [40, 300])
def test_gradients_equal_those_of_the_dense_mask(window: int | None, longest: int) -> None:
    torch.manual_seed(0)
    packed = pack(longest)
    length = len(packed.input_ids)
    q, k, v = (torch.randn(h, length, 8, dtype=torch.float64, requires_grad=True) for h in (6, 2, 2))
    weight = torch.randn(length, 6, 8, dtype=torch.float64)
    out = attend(q, k, v, AttentionPlan(packed), 0.3, window=window)
    grads = torch.autograd.grad((out * weight).sum(), (q, k, v))
    scores = q @ k.repeat_interleave(3, 0).transpose(1, 2) * 0.3
    p = scores.masked_fill(~allowed(packed, window), -torch.inf).softmax(-1)
    plain = (p @ v.repeat_interleave(3, 0)).transpose(0, 1)
    assert torch.allclose(out, plain, atol=1e-12)
    for ours, theirs in zip(grads, torch.autograd.grad((plain * weight).sum(), (q, k, v)), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_gradients_of_shared_tokens_are_summed_in_float32() -> None:
    """Many closings see one chunk: a sum in bfloat16 would lose the later ones."""
    torch.manual_seed(0)
    chunk = tuple(range(8))
    packed = pack_invariant([EncodedPrompt((1, 2), (chunk,), (3, k % 90, k // 90)) for k in range(400)])
    length = len(packed.input_ids)
    exact = [torch.rand(h, length, 8, requires_grad=True) for h in (2, 1, 1)]
    rounded = [x.detach().bfloat16().requires_grad_() for x in exact]
    for x in (exact, rounded):
        attend(x[0], x[1], x[2], AttentionPlan(packed), 0.3).sum().backward()
    ours, theirs = (x[2].grad[0, 2:10].float() for x in (rounded, exact))  # type: ignore[index]
    assert ((ours - theirs).abs() <= 0.01 * theirs.abs()).all()
