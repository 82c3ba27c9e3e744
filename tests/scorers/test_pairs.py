"""Readers that compare texts: real small networks with random weights, long chunks in windows, and two baselines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    ModernBertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    T5Config,
    T5ForConditionalGeneration,
    T5ForTokenClassification,
)

import isr_rag.cli
from isr_rag import CachedScorer, Choice, ISRGate
from isr_rag.errors import (
    ConfigurationError,
    MemoryBudgetError,
    ModelCorruptError,
    ModelNotFoundError,
    PromptTooLongError,
    ScorerError,
)
from isr_rag.gate.labelled import score_labelled
from isr_rag.references import Oracle
from isr_rag.scorers import pairs
from isr_rag.scorers.load import load_scorer
from isr_rag.scorers.local import loading
from isr_rag.scorers.local.loading import begin_after_fork
from isr_rag.scorers.pairs import CrossEncoder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz"]


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
    return BertForSequenceClassification(config).eval()


NLI = {0: "contradiction", 1: "neutral", 2: "ENTAILMENT"}


@pytest.fixture(autouse=True)
def _short_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "OVERLAP", 8)


def direct(encoder: Any, tokenizer: Any, evidence: str, claim: str, label: int) -> float:
    with torch.inference_mode():
        logits = encoder(**tokenizer(evidence, claim, return_tensors="pt")).logits
    return float(torch.softmax(logits, -1)[0, label])


def test_the_best_chunk_counts_whatever_the_order(tokenizer: PreTrainedTokenizerFast) -> None:
    inner = model(NLI)
    scorer = CrossEncoder(inner, tokenizer=tokenizer)
    chunks = ["a b c", "d e"]
    best = max(direct(inner, tokenizer, chunk, "f g", 2) for chunk in chunks)
    for evidence in (chunks, chunks[::-1]):
        decision = ISRGate(scorer, Oracle(1.0)).decide(evidence, claim="f g")
        assert decision.q == pytest.approx((best,), abs=1e-6) and decision.m == 6


def test_a_long_chunk_is_read_in_windows_and_many_in_batches(tokenizer: PreTrainedTokenizerFast) -> None:
    inner = model(NLI)
    words = [chr(97 + i % 26) for i in range(700)]
    room = 48 - 2 - 3 - 6
    windows = [" ".join(words[start : start + room]) for start in range(0, len(words) - 8, room - 8)]
    best = max(direct(inner, tokenizer, window, "f g", 2) for window in windows)
    assert len(windows) > pairs.BATCH
    assert CrossEncoder(inner, tokenizer=tokenizer).pairs([" ".join(words)], "f g") == pytest.approx([best], abs=1e-6)


def test_a_claim_that_leaves_little_room_is_read_in_few_windows(tokenizer: PreTrainedTokenizerFast) -> None:
    scorer, text = CrossEncoder(model(NLI), tokenizer=tokenizer), " ".join(["a b c d"] * 50)
    windows = [len(scorer._windows(text, room)) for room in (16, 17, 24)]
    assert max(windows) <= 2 * 200 / 16
    with pytest.raises(PromptTooLongError):
        scorer.pairs([text], " ".join("a" * 24))


def test_one_output_is_read_as_a_sigmoid(tokenizer: PreTrainedTokenizerFast) -> None:
    inner = model(None, outputs=1)
    with torch.inference_mode():
        expected = torch.sigmoid(inner(**tokenizer("a", "b", return_tensors="pt")).logits[0, 0])
    assert CrossEncoder(inner, tokenizer=tokenizer).pairs(["a"], "b") == pytest.approx([float(expected)], abs=1e-6)


def test_a_template_puts_both_into_one_text(tokenizer: PreTrainedTokenizerFast) -> None:
    inner = model(None, outputs=2)
    scorer = CrossEncoder(inner, tokenizer=tokenizer, template="{evidence} x {claim} z")
    with torch.inference_mode():
        logits = inner(**tokenizer("a b x c z", return_tensors="pt")).logits
    assert scorer.pairs(["a b"], "c") == pytest.approx([float(torch.softmax(logits, -1)[0, 1])], abs=1e-6)
    assert scorer.identity != CrossEncoder(inner, tokenizer=tokenizer).identity


def test_an_unknown_label_is_asked_for(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ConfigurationError, match="label="):
        CrossEncoder(model({0: "x", 1: "y", 2: "z"}), tokenizer=tokenizer)
    with pytest.raises(ConfigurationError, match="label="):
        CrossEncoder(model(None, outputs=3), tokenizer=tokenizer)
    assert CrossEncoder(model({0: "x", 1: "y", 2: "z"}), tokenizer=tokenizer, label="y").identity.endswith("label-1")


def test_the_second_of_two_nameless_labels_supports(tokenizer: PreTrainedTokenizerFast) -> None:
    for labels in ({0: "0", 1: "1"}, {0: "LABEL_0", 1: "LABEL_1"}):  # MiniCheck's, and those of transformers
        assert CrossEncoder(model(labels, 2), tokenizer=tokenizer).identity.endswith("label-1")


def test_code_that_a_model_brings_is_never_run(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformers would ask on the terminal whether it may run it."""
    model(None, outputs=2).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config |= {
        "model_type": "HHEMv2",
        "auto_map": {"AutoConfig": "own.Own", "AutoModelForSequenceClassification": "own.OwnModel"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    (tmp_path / "own.py").write_text("raise SystemExit('this ran')", "utf-8")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ConfigurationError, match="code of its own, which is never run"):
        load_scorer(cross_encoder=str(tmp_path), device="cpu")


def t5(**more: Any) -> T5Config:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return T5Config(vocab_size=256, **sizes, eos_token_id=3, decoder_start_token_id=0, pad_token_id=0, **more)


def test_hhem_is_read_without_its_code(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """As its own code does: a T5 under `t5.`, whose first token is classified; class 1 is consistent."""
    inner, base, folder = T5ForTokenClassification(t5(num_labels=2)).eval(), tmp_path / "base", tmp_path / "hhem"
    inner.save_pretrained(base)
    tokenizer.add_tokens(["<pad>", "?", ":"])
    tokenizer.save_pretrained(base)
    folder.mkdir()
    kept = {f"t5.{name}": weight.clone() for name, weight in inner.state_dict().items() if "embed_tokens" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    config: dict[str, Any] = {"architectures": ["HHEMv2ForSequenceClassification"], "foundation": str(base)}
    config |= {"model_type": "HHEMv2", "auto_map": {"AutoModelForSequenceClassification": "own.OwnModel"}}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "own.py").write_text("raise SystemExit('this ran')", "utf-8")
    text = "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: a b\n\nHypothesis: c"
    with torch.inference_mode():
        logits = inner(**tokenizer(text, return_tensors="pt")).logits[:, 0]
    scorer = load_scorer(cross_encoder=str(folder), device="cpu")
    assert isinstance(scorer, CrossEncoder)
    found = scorer.pairs(["a b", "d e f g"], "c")
    assert found[0] == pytest.approx(float(torch.softmax(logits, -1)[0, 1]), abs=1e-6) and found[0] != found[1]


def test_a_minicheck_that_writes_is_read_by_its_first_token(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """As MiniCheck's own code reads MiniCheck-Flan-T5: the ids 3 and 209 after the token that begins a text."""
    inner, folder = T5ForConditionalGeneration(t5()).eval(), tmp_path / "MiniCheck-T5"
    inner.save_pretrained(folder)
    tokenizer.eos_token = "[SEP]"
    tokenizer.save_pretrained(folder)
    given = tokenizer("predict: a b[SEP]c", return_tensors="pt")
    with torch.inference_mode():
        logits = inner(**given, decoder_input_ids=torch.zeros((1, 1), dtype=torch.long)).logits[:, 0, [3, 209]]
    scorer = load_scorer(cross_encoder=str(folder), device="cpu")
    assert isinstance(scorer, CrossEncoder)
    found = scorer.pairs(["a b", "d e f g"], "c")
    assert found[0] == pytest.approx(float(torch.softmax(logits, -1)[0, 1]), abs=1e-6) and found[0] != found[1]


def test_a_model_that_is_no_classifier_is_said_to_be_none(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    T5ForConditionalGeneration(t5()).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelCorruptError, match="as AutoModelForSequenceClassification, lacks the weights"):
        load_scorer(cross_encoder=str(tmp_path), device="cpu")


def test_what_it_cannot_judge_is_a_typed_error(tokenizer: PreTrainedTokenizerFast) -> None:
    scorer = CrossEncoder(model(NLI), tokenizer=tokenizer)
    gate = ISRGate(scorer, Oracle(1.0))
    with pytest.raises(ConfigurationError, match="yes-or-no"):
        gate.decide(["a"], predicate=Choice("q?", ["a", "b"]))
    with pytest.raises(PromptTooLongError, match="no room"):
        scorer.pairs(["a"], "a " * 60)
    with torch.no_grad():
        scorer._model.classifier.bias.fill_(float("nan"))
    with pytest.raises(ScorerError, match="not a number"):
        gate.decide(["a"], claim="b")


def test_a_folder_is_loaded_by_its_name(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    inner = model(None, outputs=2)
    inner.save_pretrained(tmp_path / "tiny-factcg")
    tokenizer.save_pretrained(tmp_path / "tiny-factcg")
    scorer = load_scorer(cross_encoder=str(tmp_path / "tiny-factcg"), device="cpu")
    assert scorer.identity.startswith("cross-encoder/tiny-factcg/") and "/template-" in scorer.identity
    with pytest.raises(ModelNotFoundError, match="missing-model"):
        load_scorer(cross_encoder=str(tmp_path / "missing-model"), device="cpu")


@pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")
def test_a_cross_encoder_is_calibrated_by_one_command(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are random, so the labels are what it says itself: the calibrated gate has to follow them."""
    folder, out = tmp_path / "tiny-nli", tmp_path / "out"
    model(NLI).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    asked = [{"claim": f"{a} {b}", "evidence": [f"{b} {a} x", "y"]} for a in WORDS[4:20] for b in WORDS[4:20]]
    gate = ISRGate(load_scorer(cross_encoder=str(folder), device="cpu"), Oracle(1.0))
    q = [decision.q[0] for decision in gate.decide_batch(asked)]
    middle = sorted(q)[len(q) // 2]
    rows = [one | {"id": i, "label": int(q[i] >= middle)} for i, one in enumerate(asked)]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    command = ["isr-rag", "calibrate", "--cross-encoder", str(folder), "--device", "cpu", "--out", str(out)]
    monkeypatch.setattr("sys.argv", [*command, "--items", str(tmp_path / "items.jsonl")])
    with pytest.raises(SystemExit) as stop:
        isr_rag.cli.main()
    assert not stop.value.code
    decisions = ISRGate.load(out, h_star=0.2).decide_batch(asked)
    right = [bool(row["label"]) for one, row in zip(decisions, rows, strict=True) if one.answered]
    assert sum(right) > 100 and right.count(False) <= 0.25 * len(right)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (DebertaV2Config, {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 8}),
        (RobertaConfig, {}),
        (ModernBertConfig, {"cls_token_id": 2, "sep_token_id": 3, "global_attn_every_n_layers": 2}),
        (T5Config, {"d_kv": 8, "eos_token_id": 3, "decoder_start_token_id": 0}),
    ],
)
def test_the_architectures_of_known_checkers_are_read_in_windows_and_batches(
    kind: Any, more: dict[str, Any], tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeBERTa (NLI, FactCG, MiniCheck), RoBERTa (NLI, MiniCheck), ModernBERT and T5 classifiers with random weights."""
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = kind(vocab_size=len(WORDS), **size, max_position_embeddings=50, pad_token_id=0, id2label=NLI, **more)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    scorer = load_scorer(cross_encoder=str(tmp_path), device="cpu")
    texts = ["a b c", "d " * 130, "e"]
    together = scorer.pairs(texts, "f g")  # type: ignore[attr-defined]
    alone = [scorer.pairs([text], "f g")[0] for text in texts]  # type: ignore[attr-defined]
    assert together == pytest.approx(alone, abs=1e-5) and all(0.0 < p < 1.0 for p in together)
    assert scorer.identity.endswith("label-2")

    monkeypatch.setattr(loading, "resolve_dtype", lambda *_: torch.bfloat16)  # as on a GPU
    loaded, _ = loading.load_model(str(tmp_path), device="cpu", classifier=True)
    eager = loaded.config._attn_implementation == "eager"  # its scores would be rounded before the softmax
    assert loaded.dtype == (torch.float32 if eager else torch.bfloat16) and eager == (kind is DebertaV2Config)


def test_a_classifier_without_a_padding_token_reads_one_window_at_a_time(tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    inner = LlamaForSequenceClassification(LlamaConfig(vocab_size=len(WORDS), **size, id2label=NLI)).eval()
    tokenizer.pad_token = None
    found = CrossEncoder(inner, tokenizer=tokenizer).pairs(["a b c", "d"], "f g")
    assert found == pytest.approx([direct(inner, tokenizer, text, "f g", 2) for text in ("a b c", "d")], abs=1e-6)


def test_a_tokenizer_that_pads_on_the_left_moves_no_window(tokenizer: PreTrainedTokenizerFast) -> None:
    """A GPT-2 that classifies counts places from the first token on, padding or not."""
    torch.manual_seed(0)
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "initializer_range": 0.5}
    config = GPT2Config(vocab_size=len(WORDS), pad_token_id=tokenizer.pad_token_id, id2label=NLI, **size)
    inner = GPT2ForSequenceClassification(config).eval()
    tokenizer.padding_side = "left"
    found = CrossEncoder(inner, tokenizer=tokenizer).pairs(["a b c", "d"], "f g")
    assert found == pytest.approx([direct(inner, tokenizer, text, "f g", 2) for text in ("a b c", "d")], abs=1e-6)


def test_the_baselines_prefer_the_chunk_that_has_the_words() -> None:
    for name in ("overlap", "bm25"):
        scorer = load_scorer(name)
        near, far, none = scorer.pairs(  # type: ignore[attr-defined]
            ["The Loire flows through Nantes.", "The Loire is long.", "Cats sleep."], "Does the Loire flow past Nantes?"
        )
        assert 1.0 > near > far > none == 0.0, name


def test_minicheck_reads_both_in_one_text_with_the_end_between(tokenizer: PreTrainedTokenizerFast) -> None:
    """As its own `batch_tokenize` joins them, and not as a pair."""
    inner = model(None, outputs=2)
    inner.config.name_or_path = "org/MiniCheck-RoBERTa-Large"
    tokenizer.eos_token = "[SEP]"
    with torch.inference_mode():
        logits = inner(**tokenizer("a b[SEP]c", return_tensors="pt")).logits
    scorer = CrossEncoder(inner, tokenizer=tokenizer)
    assert scorer.pairs(["a b"], "c") == pytest.approx([float(torch.softmax(logits, -1)[0, 1])], abs=1e-6)


def test_control_tokens_in_a_text_are_words(tokenizer: PreTrainedTokenizerFast) -> None:
    """Evidence cannot end itself and go on as the claim."""
    read: list[Any] = []
    inner = model(NLI)
    inner.register_forward_pre_hook(lambda _, given, named: read.append(named["input_ids"].tolist()), with_kwargs=True)
    CrossEncoder(inner, tokenizer=tokenizer).pairs(["a [SEP] b"], "c [CLS] d")
    (ids,) = read[0]
    assert ids.count(WORDS.index("[SEP]")) == 2 and ids.count(WORDS.index("[CLS]")) == 1


class _NarrowMemory:
    """A forward pass that fails, as CUDA does, for more than some windows."""

    def __init__(self, inner: Any, most: int) -> None:
        self._forward, self._most, self.sizes = inner.forward, most, []
        inner.forward = self

    def __call__(self, **given: Any) -> Any:
        self.sizes.append(len(given["input_ids"]))
        if self.sizes[-1] > self._most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return self._forward(**given)


def test_when_memory_runs_out_fewer_windows_are_read_at_once(tokenizer: PreTrainedTokenizerFast) -> None:
    inner, texts = model(NLI), ["a b", "c", "d e f", "g", "h i"]
    expected = CrossEncoder(inner, tokenizer=tokenizer).pairs(texts, "b")
    narrow = _NarrowMemory(inner, 2)
    scorer = CrossEncoder(inner, tokenizer=tokenizer)
    assert scorer.pairs(texts, "b") == pytest.approx(expected, abs=1e-6)
    assert narrow.sizes == [5, 2, 3, 1, 2]
    narrow._most = 0
    with pytest.raises(ScorerError, match="does not fit into memory on cpu"):
        scorer.pairs(texts, "b")
    assert ISRGate(scorer, Oracle(1.0), on_error="abstain").decide(texts, claim="b").answered is False


def test_other_orders_of_the_texts_are_read_in_the_same_batches(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding, and the outliers of int8, make a score depend on what is read with it."""
    monkeypatch.setattr(pairs, "BATCH", 2)
    inner = model(NLI)
    scorer = CrossEncoder(inner, tokenizer=tokenizer)
    texts = ["a b c d", "e", "f g", "h i j k l", "m"]
    assert scorer.pairs(texts, "b") == scorer.pairs(texts[::-1], "b")[::-1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_reads_on_while_its_parent_reads(tokenizer: PreTrainedTokenizerFast) -> None:
    scorer = CrossEncoder(model(NLI), tokenizer=tokenizer)
    gate = ISRGate(scorer, Oracle(1.0))
    expected = gate.decide(["a"], claim="b").q
    with scorer._queue.turn:  # another thread is reading
        if (child := os.fork()) == 0:
            os._exit(0 if gate.decide(["a"], claim="b").q == expected else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_fork_cannot_use_the_cuda_device_of_its_parent(tokenizer: PreTrainedTokenizerFast) -> None:
    scorer = CrossEncoder(model(NLI), tokenizer=tokenizer)
    scorer._unusable = begin_after_fork(torch.device("cuda"))
    with pytest.raises(ScorerError, match="spawn"):
        scorer.pairs(["a"], "b")


def test_a_folder_may_be_a_path_and_what_does_not_fit_says_so(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(NLI).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert CrossEncoder(tmp_path).identity == CrossEncoder(str(tmp_path)).identity

    def full(*_: object) -> str:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(loading, "weights_fingerprint", full)
    with pytest.raises(MemoryBudgetError, match="does not fit into memory"):
        CrossEncoder(tmp_path)


def test_a_cache_does_not_have_each_chunk_read_once_more(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    pytest.importorskip("diskcache")
    gate = ISRGate(CachedScorer(CrossEncoder(model(NLI), tokenizer=tokenizer), tmp_path))
    item = {"id": 1, "label": 1, "claim": "a", "evidence": ["a b", "c d"]}
    assert score_labelled(gate, [item])[0].alone is None
