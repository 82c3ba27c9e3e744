"""An adapter is merged exactly, and refused when it is damaged or belongs to another model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from isr_rag.errors import ModelCorruptError, ModelNotFoundError
from isr_rag.scorers.local.adapter import MergedWeights, read_adapter

BASE = "b" * 64


@pytest.fixture
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
    )
    return LlamaForCausalLM(config)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An adapter on q_proj with r = 2 and alpha = 6."""
    torch.manual_seed(1)
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    save_file(
        {f"{name}.lora_A.weight": torch.randn(2, 16), f"{name}.lora_B.weight": torch.randn(16, 2)},
        tmp_path / "adapter_model.safetensors",
    )
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 6}))
    digest = hashlib.sha256((tmp_path / "adapter_model.safetensors").read_bytes()).hexdigest()
    card = {"layout": "set", "base_sha256": BASE, "templates": ["sufficient/1"], "adapter_sha256": digest}
    (tmp_path / "isr_rag.json").write_text(json.dumps(card))
    return tmp_path


def test_the_merged_weights_equal_peft(model: LlamaForCausalLM, directory: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj"])
    before = model.model.layers[0].self_attn.q_proj.weight.detach().clone()
    weights = MergedWeights(model.state_dict(), read_adapter(directory), BASE)
    merged = weights["model.layers.0.self_attn.q_proj.weight"]
    assert weights.keys() == model.state_dict().keys()
    assert torch.equal(weights["model.norm.weight"], model.state_dict()["model.norm.weight"])
    torch.manual_seed(0)
    other = LlamaForCausalLM(model.config)
    assert torch.equal(other.model.layers[0].self_attn.q_proj.weight, before)
    wrapped = peft.get_peft_model(other, config)
    loaded = peft.load_peft_weights(str(directory), device="cpu")
    peft.set_peft_model_state_dict(wrapped, loaded)
    expected = wrapped.merge_and_unload().model.layers[0].self_attn.q_proj.weight
    assert torch.allclose(merged, expected, atol=1e-6)
    assert not torch.allclose(merged, before)


def test_another_base_model_is_refused(model: LlamaForCausalLM, directory: Path) -> None:
    with pytest.raises(ModelCorruptError, match="trained on a base model"):
        MergedWeights(model.state_dict(), read_adapter(directory), "c" * 64)


def test_damaged_weights_are_refused(directory: Path) -> None:
    path = directory / "adapter_model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelCorruptError, match="sha256"):
        read_adapter(directory)


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "isr_rag.json"])
def test_a_missing_file_is_named(directory: Path, name: str) -> None:
    (directory / name).unlink()
    with pytest.raises(ModelNotFoundError, match=name):
        read_adapter(directory)


@pytest.mark.parametrize("card", ["{", "[]", '{"layout": "set"}'])
def test_a_damaged_description_is_refused(directory: Path, card: str) -> None:
    (directory / "isr_rag.json").write_text(card)
    with pytest.raises(ModelCorruptError):
        read_adapter(directory)


def test_weights_the_model_lacks_are_refused(model: LlamaForCausalLM, directory: Path) -> None:
    adapter = read_adapter(directory)
    del model.model.layers[0].self_attn.q_proj
    with pytest.raises(ModelCorruptError, match="q_proj"):
        MergedWeights(model.state_dict(), adapter, BASE)


def test_another_scale_is_another_adapter(directory: Path) -> None:
    """A calibration belongs to the scorer's identity, which a changed `lora_alpha` changes too."""
    config = directory / "adapter_config.json"
    found = set()
    for settings in (
        {"r": 2, "lora_alpha": 4},
        {"r": 2, "lora_alpha": 40},
        {"r": 2, "lora_alpha": 4, "use_rslora": True},
    ):
        config.write_text(json.dumps(settings))
        found.add(read_adapter(directory).fingerprint)
    assert len(found) == 3
    config.write_text(json.dumps({"r": 2, "lora_alpha": 4}))
    usual = read_adapter(directory)
    assert usual.fingerprint == usual.sha256
