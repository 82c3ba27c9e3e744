"""4-bit and 8-bit models through bitsandbytes give probabilities near those of the full model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

from isr_rag import Chunk, Supported, TransformersScorer
from isr_rag.core.scorer import ScoreRequest
from tests.scorers import tiny

pytestmark = pytest.mark.slow

pytest.importorskip("bitsandbytes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tokenizer = tiny.tokenizer("chatml")
    torch.manual_seed(0)
    config = LlamaConfig(  # bitsandbytes works in blocks of 64 columns
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_a_quantised_model_scores_like_the_full_one(folder: Path, quantization: str) -> None:
    request = ScoreRequest(
        Supported(claim="Kepler published it.").render([Chunk("in 1619"), Chunk("Lyon is a city")]), ((0, 1), (1, 0))
    )
    full = TransformersScorer(folder).score([request])[0].logprobs
    scorer = TransformersScorer(folder, quantization=quantization, dtype="float32", device="cpu")  # type: ignore[arg-type]
    quantised = scorer.score([request])[0].logprobs
    assert quantization in scorer.identity
    assert quantised.shape == full.shape
    assert not np.array_equal(quantised, full)
    assert np.abs(np.exp(quantised) - np.exp(full)).max() < 0.4


@pytest.mark.filterwarnings("ignore:.*are scored one by one:RuntimeWarning")
@pytest.mark.parametrize("bits", ["load_in_4bit", "load_in_8bit"])
def test_a_model_whose_head_was_quantised_too_is_read(tmp_path: Path, bits: str) -> None:
    tokenizer = tiny.tokenizer("chatml")
    torch.manual_seed(0)
    size = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(vocab_size=448, initializer_range=0.2, **size)).save_pretrained(tmp_path / "full")
    how = BitsAndBytesConfig(**{bits: True}, llm_int8_skip_modules=["none of them"])
    model = LlamaForCausalLM.from_pretrained(tmp_path / "full", quantization_config=how, device_map={"": "cpu"})
    model.save_pretrained(tmp_path / "small")
    tokenizer.save_pretrained(tmp_path / "small")
    scorer = TransformersScorer(tmp_path / "small", device="cpu", dtype="float32")
    prompt = Supported(claim="Kepler published it.").render([Chunk("in 1619")])
    encoded = scorer.encoder.encode(prompt)
    with torch.inference_mode():
        logits = scorer.engine.network.model(torch.tensor([encoded.assemble((0,))])).logits[0, -1]  # type: ignore[attr-defined]
    want = torch.stack([logits[list(ids)].logsumexp(0) for ids in encoded.labels]).log_softmax(0)
    assert np.allclose(scorer.score([ScoreRequest(prompt, ((0,),))])[0].logprobs[0], want.numpy(), atol=1e-2)
