"""The written-out pass of Llama and Qwen 2 agrees with transformers and autograd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isr_lab.training.peft_network import PeftNetwork

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from isr_lab.training.attention import register  # noqa: E402
from isr_lab.training.network import PackedLlama  # noqa: E402
from isr_rag.errors import ConfigurationError  # noqa: E402
from isr_rag.scorers.local.encoding import EncodedPrompt  # noqa: E402
from isr_rag.scorers.local.packed.attention import AttentionPlan  # noqa: E402
from isr_rag.scorers.local.packed.pack import pack_invariant  # noqa: E402

YES, NO = 5, 6


@pytest.fixture(params=["llama", "qwen2"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    torch.manual_seed(0)
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


def test_loss_and_gradients_agree_with_autograd(base: Path) -> None:
    network = PackedLlama(base, 4, 8.0, 1, (YES, NO), 0, full=True)
    targets, weights = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
    loss, z = network.loss_and_grad(pack_invariant(prompts()), targets, weights)
    model = reference(base)
    theirs = reference_logits(model)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(theirs, targets)
    expected.backward()
    assert torch.allclose(z, theirs, atol=0.1)  # bfloat16 moves such logits by .05
    assert loss == pytest.approx(expected.item(), abs=0.02)
    assert torch.allclose(network.logits(pack_invariant(prompts())), z)
    for ours, layer in zip(network.layers[1:], model.model.layers[1:], strict=True):
        theirs = {
            "qkv": torch.cat([getattr(layer.self_attn, f"{p}_proj").weight.grad for p in "qkv"]),
            "o": layer.self_attn.o_proj.weight.grad,
            "gate_up": torch.cat([layer.mlp.gate_proj.weight.grad, layer.mlp.up_proj.weight.grad]),
            "down": layer.mlp.down_proj.weight.grad,
        }
        for name, grad in theirs.items():
            assert aligned(ours.matrices[name].parameters[0].grad, grad) > 0.99, name
    assert not any(matrix.parameters for matrix in network.layers[0].matrices.values())


def test_adapter_means_the_same_to_peft(base: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    network = PackedLlama(base, 4, 8.0, 1, (YES, NO), 0)
    for parameter in network.parameters():
        parameter.copy_(torch.randn_like(parameter) * 0.2)
    network.refresh()
    network.save(tmp_path / "adapter")
    model = peft.PeftModel.from_pretrained(reference(base), tmp_path / "adapter")
    targets, weights = torch.tensor([1.0, 0.0]), torch.ones(2)
    _, z = network.loss_and_grad(pack_invariant(prompts()), targets, weights)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora" in name)
    theirs = reference_logits(model)
    assert torch.allclose(z, theirs, atol=0.1)
    torch.nn.functional.binary_cross_entropy_with_logits(theirs, targets, reduction="sum").backward()
    grads = {name.replace(".default", ""): p.grad for name, p in model.named_parameters() if p.requires_grad}
    for (name, value), parameter in zip(network.adapter().items(), network.parameters(), strict=True):
        assert value is parameter
        assert aligned(parameter.grad, grads[name]) > 0.9, name  # its factors are rounded to bfloat16, too


def test_other_architectures_are_refused(base: Path) -> None:
    (base / "config.json").write_text(
        (base / "config.json").read_text().replace('model_type": "', 'model_type": "other-')
    )
    with pytest.raises(ConfigurationError, match="Llama"):
        PackedLlama(base, 4, 8.0, 0, (YES, NO), 0)


def test_peft_leaves_the_layers_below_the_first_alone(base: Path) -> None:
    pytest.importorskip("peft")
    whole = PeftNetwork(base, 2, 4.0, 0.0, 0, (YES, NO), seed=1)
    above = PeftNetwork(base, 2, 4.0, 0.0, 1, (YES, NO), seed=1)
    adapted = [name for name, parameter in above.model.named_parameters() if parameter.requires_grad]
    assert adapted and not any(".layers.0." in name for name in adapted)
    assert len(adapted) == 2 * 7 * 2 and len(whole.parameters()) == 2 * 7 * 3


def test_a_pair_pulls_its_logits_apart(base: Path) -> None:
    network = PackedLlama(base, 4, 8.0, 1, (YES, NO), 0)
    pack, zero = pack_invariant(prompts()), torch.zeros(2)
    _, z = network.loss_and_grad(pack, zero, zero, (torch.tensor([[1, 0]]), 1.0))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter -= 0.5 * parameter.grad
    network.refresh()
    after = network.logits(pack)
    assert after[1] - after[0] > z[1] - z[0]
