"""What the benchmarks of whole files share: files of items, and gates that workers can make."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from isr_lab.slice.sample import load_sample
from isr_rag import ISRGate
from isr_rag.core.scorer import Scorer, ScoreRequest, Scores
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer


def write_items(path: Path, count: int) -> Path:
    """A file of items, each another: two short chunks of the texts that come with the package, and a claim."""
    texts = list(dict.fromkeys(chunk.text for item in load_sample() for chunk in item.chunks))
    with path.open("w", encoding="utf-8") as file:
        for i in range(count):
            evidence = [f"{texts[i % len(texts)]} ({i})", texts[(7 * i + 1) % len(texts)]]
            file.write(json.dumps({"id": i, "claim": f"Statement {i} is true.", "evidence": evidence}) + "\n")
    return path


class Waiting(FixedScorer):
    """Waits as one waits for a server: a fixed time for each batch, and no work here."""

    def __init__(self, seconds: float) -> None:
        super().__init__([0.97, 0.9])
        self.seconds = seconds

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """The given probabilities, after the wait; requests are not kept."""
        time.sleep(self.seconds)
        return [self._one(request) for request in requests]


def tiny_scorer() -> Scorer:
    """A small untrained model that sees the order, behind the scorer and the tokenizer of a real one."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from isr_rag import TransformersScorer
    from isr_rag.scorers import embedded

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(embedded.setup())
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=8192,
    )
    return TransformersScorer(LlamaForCausalLM(config).float(), tokenizer, device="cpu")


def make_gate(scorer: str, seconds: float = 0.0) -> ISRGate:
    """A gate around the embedded model, a tiny untrained one, or what waits `seconds` for each batch."""
    if scorer == "embedded":
        return ISRGate()
    return ISRGate(scorer=tiny_scorer() if scorer == "tiny" else Waiting(seconds), reference=Oracle(1.0))
