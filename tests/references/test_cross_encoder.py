"""A fact-checking cross-encoder enters only through its calibration, reads long evidence in windows, and is bounded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from isr_rag import Chunk, ISRGate
from isr_rag.core.predicates import Choice, Supported
from isr_rag.core.settings import Settings
from isr_rag.errors import ConfigurationError, ModelNotFoundError
from isr_rag.references import Case, CrossEncoder, cross_encoder
from isr_rag.testing import FixedScorer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz"]


class Identity:
    """A calibration that believes every score."""

    def lower(self, score: float) -> float:
        return score


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        model_max_length=48,
    )


def model(labels: dict[int, str] | None, outputs: int = 3) -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=48,
        num_labels=outputs,
    )
    if labels:
        config.id2label = labels
    return BertForSequenceClassification(config)


NLI = {0: "contradiction", 1: "neutral", 2: "ENTAILMENT"}


@pytest.fixture(autouse=True)
def _short_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_encoder, "_OVERLAP", 8)


def direct(encoder: Any, tokenizer: Any, evidence: str, claim: str, label: int) -> float:
    with torch.inference_mode():
        logits = encoder(**tokenizer(evidence, claim, return_tensors="pt")).logits
    return float(torch.softmax(logits, -1)[0, label])


def test_the_score_is_the_entailment_probability(tokenizer: PreTrainedTokenizerFast) -> None:
    inner = model(NLI)
    encoder = CrossEncoder(inner, tokenizer=tokenizer, calibration=Identity())
    score = encoder.score([Chunk("a b c"), Chunk("d e")], "f g")
    assert score == pytest.approx(direct(inner, tokenizer, "a b c d e", "f g", 2), abs=1e-6)


def test_long_evidence_is_scored_in_windows_and_the_best_counts(tokenizer: PreTrainedTokenizerFast) -> None:
    inner = model(NLI)
    encoder = CrossEncoder(inner, tokenizer=tokenizer, calibration=Identity())
    words = [chr(97 + i % 26) for i in range(120)]
    claim = "f g"
    room, step = 48 - 3 - 2, 48 - 3 - 2 - 8
    windows = [" ".join(words[start : start + room]) for start in range(0, len(words) - 8, step)]
    best = max(direct(inner, tokenizer, window, claim, 2) for window in windows)
    assert encoder.score([Chunk(" ".join(words))], claim) == pytest.approx(best, abs=1e-6)


def test_one_output_is_read_as_a_sigmoid(tokenizer: PreTrainedTokenizerFast) -> None:
    inner = model(None, outputs=1)
    encoder = CrossEncoder(inner, tokenizer=tokenizer, calibration=Identity())
    with torch.inference_mode():
        expected = torch.sigmoid(inner(**tokenizer("a", "b", return_tensors="pt")).logits[0, 0])
    assert encoder.score([Chunk("a")], "b") == pytest.approx(float(expected), abs=1e-6)


def test_it_decides_through_a_gate(tokenizer: PreTrainedTokenizerFast) -> None:
    class Sure:
        def lower(self, score: float) -> float:
            return 0.99

    encoder = CrossEncoder(model(NLI), tokenizer=tokenizer, calibration=Sure())
    decision = ISRGate(scorer=FixedScorer([0.97]), reference=encoder).decide(["a b"], question="c?", answer="d")
    assert decision.answered
    assert decision.p_ref == 0.99


def test_without_a_calibration_it_does_not_count(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ConfigurationError, match="calibration"):
        CrossEncoder(model(NLI), tokenizer=tokenizer, calibration=None)  # type: ignore[arg-type]


def test_an_unknown_label_is_asked_for(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ConfigurationError, match="label="):
        CrossEncoder(model({0: "x", 1: "y", 2: "z"}), tokenizer=tokenizer, calibration=Identity())
    assert CrossEncoder(model({0: "x", 1: "y", 2: "z"}), tokenizer=tokenizer, calibration=Identity(), label="y")


def test_a_choice_has_no_claim_to_check(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder = CrossEncoder(model(NLI), tokenizer=tokenizer, calibration=Identity())
    case = Case(Choice("q?", ["a", "b"]), (Chunk("a"),), Settings("s"))
    with pytest.raises(ConfigurationError, match="Supported"):
        encoder.estimate(case)


def test_a_claim_that_fills_the_window_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder = CrossEncoder(model(NLI), tokenizer=tokenizer, calibration=Identity())
    case = Case(Supported(claim="a " * 60), (Chunk("a"),), Settings("s"))
    with pytest.raises(ConfigurationError, match="no room"):
        encoder.estimate(case)


def test_a_model_that_is_not_there_is_named(tmp_path: Any) -> None:
    with pytest.raises(ModelNotFoundError, match="missing-model"):
        CrossEncoder(str(tmp_path / "missing-model"), calibration=Identity())
