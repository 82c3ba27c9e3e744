"""4-bit and 8-bit models through bitsandbytes give probabilities near those of the full model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

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
