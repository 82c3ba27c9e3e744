"""The network in training agrees with transformers and peft in float32, and computes shared chunks once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from isr_lab.training.network import PeftNetwork, Rows
from isr_rag.errors import ConfigurationError
from isr_rag.scorers.local.encoding import EncodedPrompt
from isr_rag.scorers.local.packed.attention import AttentionPlan, register
from isr_rag.scorers.local.packed.pack import pack_full, pack_invariant

YES, NO = 5, 6


@pytest.fixture(params=["llama", "qwen2"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    torch.manual_seed(4)
    kind = transformers.LlamaConfig if request.param == "llama" else transformers.Qwen2Config
    config = kind(
        vocab_size=97,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=True,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        offset = 1.0 if parameter.dim() == 1 and name.endswith("norm.weight") else 0.0
        parameter.data = torch.randn_like(parameter) * 0.15 + offset
    model.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def prompts() -> list[EncodedPrompt]:
    rng = np.random.default_rng(0)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(int(i) for i in rng.integers(0, 97, n))

    head = ids(6)
    shared = ids(9)
    return [EncodedPrompt(head, (shared, ids(4), ids(12)), ids(7)), EncodedPrompt(head, (shared,), ids(5))]


def reference(base: Path) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model.set_attn_implementation(register())
    return model


def reference_logits(model: Any) -> Any:
    pack = pack_invariant(prompts())
    out = model(
        input_ids=torch.from_numpy(pack.input_ids)[None],
        position_ids=torch.from_numpy(pack.position_ids)[None],
        block_plan=AttentionPlan(pack),
        use_cache=False,
    ).logits[0, np.concatenate(pack.reads)]
    return out[:, YES] - out[:, NO]


def aligned(a: Any, b: Any) -> float:
    return float(torch.nn.functional.cosine_similarity(a.flatten().float(), b.flatten().float(), dim=0))


def changed(network: PeftNetwork) -> PeftNetwork:
    """With an adapter that does something: a fresh one changes nothing."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return network


def test_the_saved_adapter_means_the_same_to_peft_and_so_do_its_gradients(base: Path, tmp_path: Path) -> None:
    import peft

    network = changed(PeftNetwork(base, 4, 8.0, 0.0, 1, (YES, NO), 0))
    network.save(tmp_path / "adapter")
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    model = peft.PeftModel.from_pretrained(reference(base), tmp_path / "adapter")
    targets, weights = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
    pack = pack_invariant(prompts())
    loss, z = network.loss_and_grad(pack, targets, weights)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora" in name)
    theirs = reference_logits(model)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(theirs, targets)
    expected.backward()
    assert torch.allclose(z, theirs, atol=0.1)  # bfloat16 moves such logits by .05
    assert loss == pytest.approx(expected.item(), abs=0.02)
    assert torch.allclose(network.logits(pack), z, atol=1e-3)
    pairs = [(p, q) for p, q in zip(model.parameters(), network.model.parameters(), strict=True) if q.requires_grad]
    assert len(pairs) == 2 * 7 * 2
    for own, other in pairs:
        assert aligned(own.grad, other.grad) > 0.9  # factors and states are rounded to bfloat16


def test_a_run_goes_on_from_an_adapter_of_the_same_shape_only(base: Path, tmp_path: Path) -> None:
    first = changed(PeftNetwork(base, 4, 8.0, 0.0, 1, (YES, NO), 0))
    first.save(tmp_path / "adapter")
    second = PeftNetwork(base, 4, 8.0, 0.0, 1, (YES, NO), 7)
    second.load(tmp_path / "adapter")
    pack = pack_invariant(prompts())
    assert torch.allclose(second.logits(pack), first.logits(pack), atol=0.05)  # saved in bfloat16
    assert all(p.dtype == torch.float32 and p.grad is not None for p in second.parameters())
    with pytest.raises(ConfigurationError, match="another rank"):
        PeftNetwork(base, 2, 8.0, 0.0, 1, (YES, NO), 0).load(tmp_path / "adapter")


def test_layers_below_the_first_are_left_alone(base: Path) -> None:
    whole = PeftNetwork(base, 2, 4.0, 0.0, 0, (YES, NO), seed=1)
    above = PeftNetwork(base, 2, 4.0, 0.0, 1, (YES, NO), seed=1)
    adapted = [name for name, parameter in above.model.named_parameters() if parameter.requires_grad]
    assert adapted and not any(".layers.0." in name for name in adapted)
    assert len(adapted) == 2 * 7 * 2 and len(whole.parameters()) == 2 * 7 * 3


def test_a_chunk_that_prompts_share_is_computed_once(base: Path) -> None:
    network = changed(PeftNetwork(base, 4, 8.0, 0.0, 0, (YES, NO), 0))
    first, second = prompts()
    together = pack_invariant([first, second])
    alone = [pack_invariant([prompt]) for prompt in (first, second)]
    shared = set(first.chunks) & set(second.chunks)
    saved = len(first.head) + sum(map(len, shared))
    assert shared and len(together.input_ids) == sum(len(pack.input_ids) for pack in alone) - saved
    apart = torch.cat([network.logits(pack) for pack in alone])
    assert torch.allclose(network.logits(together), apart, atol=0.1)


def test_a_pair_pulls_its_logits_apart(base: Path) -> None:
    network = changed(PeftNetwork(base, 4, 8.0, 0.0, 1, (YES, NO), 0))
    pack, zero = pack_invariant(prompts()), torch.zeros(2)
    _, z = network.loss_and_grad(pack, zero, zero, (torch.tensor([[1, 0]]), 1.0))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter -= 0.02 * parameter.grad
    after = network.logits(pack)
    assert after[1] - after[0] > z[1] - z[0]


def test_packs_as_rows_of_a_batch_give_the_same_logits_and_gradients(base: Path) -> None:
    network = changed(PeftNetwork(base, 4, 8.0, 0.0, 1, (YES, NO), 0))
    first, second = prompts()
    packs = [pack_invariant([first]), pack_full([second, first], [[(0,)], [(2, 0, 1)]])]
    apart = torch.cat([network.logits(pack) for pack in packs])
    rows = Rows.of(packs)
    assert rows.tokens == sum(len(pack.input_ids) for pack in packs) and rows.input_ids.shape[1] % 128 == 0
    assert torch.allclose(network.logits(rows), apart, atol=0.1)  # bfloat16
    targets, third = torch.tensor([1.0, 0.0, 1.0]), torch.full((3,), 1 / 3)
    loss, _ = network.loss_and_grad(rows, targets, third)
    together = [p.grad.clone() for p in network.parameters()]
    for parameter in network.parameters():
        parameter.grad.zero_()
    own = [
        network.loss_and_grad(packs[0], targets[:1], third[:1]),
        network.loss_and_grad(packs[1], targets[1:], third[1:]),
    ]
    assert loss == pytest.approx(sum(one for one, _ in own), abs=0.02)
    for grad, parameter in zip(together, network.parameters(), strict=True):
        assert aligned(grad, parameter.grad) > 0.9
