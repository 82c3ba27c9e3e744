"""One packed sequence gives what an ordinary forward pass gives, in every layout and family."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from isr_rag.errors import InvalidInputError  # noqa: E402
from isr_rag.scorers.local.encoding import EncodedPrompt  # noqa: E402
from isr_rag.scorers.local.packed.attention import AttentionPlan, attend, register  # noqa: E402
from isr_rag.scorers.local.packed.pack import Pack, pack_full, pack_invariant  # noqa: E402

pytestmark = pytest.mark.slow

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
}
FAMILIES = {
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "mistral-window": ("MistralConfig", {"sliding_window": 24}),
    "gemma2": ("Gemma2Config", {"sliding_window": 24, "query_pre_attn_scalar": 8}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 24, "query_pre_attn_scalar": 8}),
}


def tiny(family: str) -> Any:
    name, more = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**{**SIZES, **more})
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()


def random_prompts(seed: int, count: int = 3, longest: int = 12) -> list[EncodedPrompt]:
    rng = random.Random(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randrange(97) for _ in range(rng.randint(low, high)))

    system = ids(5, 9)
    prompts = []
    for _ in range(count):
        chunks = [ids(1, longest) for _ in range(rng.randint(1, 6))]
        chunks.append(chunks[0])  # a chunk that repeats
        chunks.append(chunks[0] + ids(1, 3))  # and one that begins with another
        prompts.append(EncodedPrompt(system + ids(0, 4), tuple(chunks), ids(1, 6)))
    return prompts


def some_orderings(prompt: EncodedPrompt, seed: int, count: int = 4) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    every = list(range(len(prompt.chunks)))
    return [tuple(rng.sample(every, len(every))) for _ in range(count)]


def dense_mask(pack: Pack) -> NDArray[np.bool_]:
    """Who sees whom, shape (T, T), nothing given."""
    mask = np.zeros((len(pack.input_ids),) * 2, dtype=np.bool_)
    for node in pack.nodes:
        rows = slice(node.start, node.start + node.length)
        for start, length in node.visible:
            mask[rows, start : start + length] = True
        mask[rows, rows] = np.tril(np.ones((node.length,) * 2, dtype=np.bool_))
    return mask


def packed_hidden(model: Any, pack: Pack) -> Any:
    model.set_attn_implementation(register())
    with torch.no_grad():
        return model.base_model(
            input_ids=torch.from_numpy(pack.input_ids)[None],
            position_ids=torch.from_numpy(pack.position_ids)[None],
            block_plan=AttentionPlan(pack),
            use_cache=False,
        ).last_hidden_state[0]


@pytest.mark.parametrize("longest", [12, 150])
@pytest.mark.parametrize("family", FAMILIES)
def test_full_layout_equals_one_prompt_at_a_time(family: str, longest: int) -> None:
    model = tiny(family)
    prompts = random_prompts(1, longest=longest)
    orderings = [some_orderings(p, i) for i, p in enumerate(prompts)]
    plain = []
    with torch.no_grad():
        for prompt, wanted in zip(prompts, orderings, strict=True):
            for ordering in wanted:
                ids = [*prompt.head, *itertools.chain(*(prompt.chunks[i] for i in ordering)), *prompt.tail]
                plain.append(model.base_model(torch.tensor([ids])).last_hidden_state[0, -1])
    pack = pack_full(prompts, orderings)
    hidden = packed_hidden(model, pack)
    assert torch.allclose(hidden[np.concatenate(pack.reads)], torch.stack(plain), atol=1e-5)


@pytest.mark.parametrize("longest", [12, 150])
def test_invariant_layout_equals_the_dense_mask(longest: int) -> None:
    model = tiny("llama")
    pack = pack_invariant(random_prompts(2, longest=longest))
    mask = torch.from_numpy(dense_mask(pack))
    dense = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)[None, None]
    with torch.no_grad():
        plain = model.base_model(
            torch.from_numpy(pack.input_ids)[None],
            attention_mask=dense,
            position_ids=torch.from_numpy(pack.position_ids)[None],
        ).last_hidden_state[0]
    assert torch.allclose(packed_hidden(model, pack), plain, atol=1e-5)


def test_invariant_layout_is_bitwise_the_same_for_every_ordering() -> None:
    prompt = random_prompts(3)[0]
    packs = [
        pack_invariant([EncodedPrompt(prompt.head, tuple(prompt.chunks[i] for i in order), prompt.tail)])
        for order in some_orderings(prompt, 0, 8)
    ]
    assert all(np.array_equal(packs[0].input_ids, other.input_ids) for other in packs)
    assert all(packs[0].nodes == other.nodes for other in packs)


def test_invariant_score_does_not_depend_on_neighbours() -> None:
    model = tiny("llama")
    prompts = random_prompts(4, count=5)
    together = pack_invariant(prompts)
    hidden = packed_hidden(model, together)
    for prompt, read in zip(prompts, together.reads, strict=True):
        alone = pack_invariant([prompt])
        assert torch.allclose(packed_hidden(model, alone)[alone.reads[0]], hidden[read], atol=1e-5)


def test_what_is_shared_is_computed_once() -> None:
    prompt = random_prompts(5)[0]
    other = EncodedPrompt(prompt.head, prompt.chunks[:2], (1, 2, 3))
    both = pack_invariant([prompt, other])
    assert len(both.input_ids) == len(pack_invariant([prompt]).input_ids) + 3
    orders = [(0, 1, 2), (0, 2, 1)]
    three = EncodedPrompt(prompt.head, ((1,), (2, 3), (4, 5, 6)), (7,))
    pack = pack_full([three], [orders])
    assert len(pack.input_ids) == len(prompt.head) + 1 + 2 * 5 + 2 * 1


def test_what_continues_a_run_of_tokens_is_part_of_it() -> None:
    three = EncodedPrompt((9, 8), ((1,), (2, 3), (4, 5, 6)), (7,))
    assert [node.length for node in pack_full([three], [[(0, 1, 2)]]).nodes] == [9]
    branches = pack_full([three], [[(0, 1, 2), (0, 2, 1), (2, 0, 1)]])
    assert [(node.length, sum(length for _, length in node.visible)) for node in branches.nodes] == [
        (9, 0),  # head and the first ordering
        (6, 3),  # what follows head and chunk 0 in the second
        (7, 2),  # what follows the head in the third
    ]
    mask = dense_mask(branches)
    assert mask[14].sum() == mask[8].sum() == 9 and not mask[14, 3:9].any()


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("longest", [40, 300])
@pytest.mark.parametrize("device", ["cpu", "cuda"])  # whose plans have longer parts; computed here
@pytest.mark.parametrize("kind", ["invariant", "full"])
def test_attention_equals_that_of_the_dense_mask(window: int | None, longest: int, device: str, kind: str) -> None:
    torch.manual_seed(0)
    prompts = random_prompts(6, longest=longest)
    if kind == "invariant":
        pack = pack_invariant(prompts)
    else:  # the dense mask takes the square of what two prompts in two orderings have: thousands of tokens
        pack = pack_full(prompts[:2], [some_orderings(prompt, 0, 2) for prompt in prompts[:2]])
    q, k, v = (torch.randn(h, len(pack.input_ids), 8, dtype=torch.float64) for h in (6, 2, 2))
    mask = torch.from_numpy(dense_mask(pack))
    if window is not None:
        at = torch.from_numpy(pack.position_ids)
        mask &= at[:, None] - at[None, :] < window
    scores = q @ k.repeat_interleave(3, 0).transpose(1, 2) * 0.3
    p = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    plain = (p @ v.repeat_interleave(3, 0)).transpose(0, 1)
    assert torch.allclose(attend(q, k, v, AttentionPlan(pack, device), 0.3, window=window), plain, atol=1e-12)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_masks_of_usual_prompts_are_made_once_for_all_layers(device: str) -> None:
    prompt = EncodedPrompt((1,) * 80, tuple((i,) * 130 for i in range(2, 14)), (15,) * 60)
    plan = AttentionPlan(pack_full([prompt], [some_orderings(prompt, 0, 6)]), device)
    where = torch.device("cpu")
    assert all(plan.mask(part, None, where) is plan.mask(part, None, where) for part in plan.parts)


def test_bad_segments_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least one token"):
        EncodedPrompt((1,), ((),), (2,))
