"""Architectures that differ from the usual one: read as transformers itself reads them, or refused."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from isr_rag import Chunk, ISRGate, Supported, TransformersScorer  # noqa: E402
from isr_rag.core.scorer import ScoreRequest  # noqa: E402
from isr_rag.errors import ConfigurationError, MemoryBudgetError, PromptTooLongError  # noqa: E402
from isr_rag.references import Oracle  # noqa: E402
from isr_rag.scorers.local.encoding import PromptEncoder  # noqa: E402
from isr_rag.scorers.local.hub_network import HubNetwork  # noqa: E402
from isr_rag.scorers.local.loading import weights_fingerprint  # noqa: E402
from tests.scorers import tiny  # noqa: E402
from tests.scorers.peak import PeakMemory  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*are scored one by one:RuntimeWarning")]

ASKED = ScoreRequest(
    Supported(claim="Kepler published it.").render([Chunk("in 1619"), Chunk("Lyon is a city"), Chunk("Paris")]),
    ((0, 1, 2), (1, 0, 2), (2, 1, 0)),
)
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "head_dim": 16}
LINEAR |= {f"linear_{name}": 16 for name in ("key_head_dim", "value_head_dim")}


def made(kind: str, **settings: Any) -> Any:
    """A model with random weights large enough that what it reads shows."""
    words = len(tiny.tokenizer("chatml"))
    torch.manual_seed(0)
    config = getattr(transformers, kind)(vocab_size=words, **settings)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.25)
    return model


def log_odds(scorer: TransformersScorer, *requests: ScoreRequest) -> list[np.ndarray[Any, Any]]:
    return [scores.logprobs[:, 0] - scores.logprobs[:, 1] for scores in scorer.score(requests)]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (
            "Qwen3_5TextConfig",
            SIZES | LINEAR,
        ),
        ("Lfm2Config", SIZES | {"layer_types": ["conv", "conv", "full_attention", "conv"], "block_ff_dim": 96}),
        ("BloomConfig", {"hidden_size": 64, "n_layer": 2, "n_head": 4}),
        ("Llama4TextConfig", SIZES | {"num_local_experts": 2, "intermediate_size_mlp": 96, "head_dim": 16}),
    ],
)
def test_models_that_read_in_turn_give_what_they_give_themselves(kind: str, settings: dict[str, Any]) -> None:
    model = made(kind, **settings)
    scorer = TransformersScorer(model, tiny.tokenizer("chatml"))
    assert not scorer.engine.packs
    encoded = scorer.encoder.encode(ASKED.prompt)
    with torch.inference_mode():
        logits = [model(torch.tensor([encoded.assemble(order)])).logits[0, -1] for order in ASKED.orderings]
    yes, no = (torch.stack([row[list(ids)].logsumexp(0) for row in logits]) for ids in encoded.labels)
    (alone,) = log_odds(scorer, ASKED)
    assert np.allclose(alone, (yes - no).numpy(), atol=1e-3)
    _, beside = log_odds(scorer, ScoreRequest(ASKED.prompt, ((2, 0, 1),)), ASKED)
    assert np.allclose(alone, beside, atol=1e-3)
    assert ISRGate(scorer, Oracle(1.0)).decide(["in 1619", "Paris"], claim="Kepler published it.").passes == 2


def test_models_that_view_what_attention_gives_in_another_shape_are_packed() -> None:
    scorer = TransformersScorer(made("AfmoeConfig", **SIZES | MIXED), tiny.tokenizer("chatml"))
    assert scorer.engine.packs


MIXED = SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 32}


@pytest.mark.parametrize(
    ("kind", "settings", "weight"),
    [
        ("PhimoeConfig", MIXED, ""),  # its window is in the mask alone
        ("DogeConfig", SIZES | {"keep_window_size": 40}, ".A"),  # it leaves words out beyond so many
        ("GptOssConfig", MIXED | {"head_dim": 16}, "sinks"),  # it weighs the words against a number of its own
    ],
)
@pytest.mark.parametrize("size", [0.3, 1e-6])  # too little to show in a short probe
def test_models_that_mask_words_themselves_are_not_packed_nor_padded(
    kind: str, settings: dict[str, Any], weight: str, size: float
) -> None:
    model = made(kind, **settings)
    for name, parameter in model.named_parameters():
        if weight and name.endswith(weight):
            parameter.data.fill_(size)
    chunks = [Chunk("in 1619 " * 9), Chunk("Lyon is a city " * 5), Chunk("Paris " * 9)]
    shorter, longer = (ScoreRequest(Supported(claim="It is.").render(chunks[n:]), ((0, 1), (1, 0))) for n in (1, 0))
    longer = ScoreRequest(longer.prompt, ((0, 1, 2), (2, 1, 0)))
    with pytest.warns(RuntimeWarning, match="mask or weigh words themselves") as warned:
        scorer = TransformersScorer(model, tiny.tokenizer("chatml"))
        found = log_odds(scorer, longer, shorter)
    assert len(warned) == 1 and scorer.noise_floor is not None
    for request, odds in zip((longer, shorter), found, strict=True):
        encoded = scorer.encoder.encode(request.prompt)
        with torch.inference_mode():
            logits = [model(torch.tensor([encoded.assemble(order)])).logits[0, -1] for order in request.orderings]
        yes, no = (torch.stack([row[list(ids)].logsumexp(0) for row in logits]) for ids in encoded.labels)
        assert np.allclose(odds, (yes - no).numpy(), atol=1e-3)


@pytest.mark.parametrize("kind", ["BloomConfig", "MptConfig", "GptOssConfig"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_estimate_of_memory_counts_the_scores_that_a_plain_pass_writes_out(kind: str, dtype: Any) -> None:
    own = (
        MIXED | {"head_dim": 16} if kind == "GptOssConfig" else {"n_layers": 2, "n_heads": 8, "n_layer": 2, "n_head": 8}
    )
    network = HubNetwork(made(kind, **own | {"hidden_size": 128}).to(dtype), torch.device("cpu"))
    for length in (256, 1024):
        with torch.inference_mode(), PeakMemory(network.model.parameters()) as memory:
            network.plain([[7 + i % 99 for i in range(length)]])
        stated = network.bytes_per_token * length + network.bytes_per_pair * length**2
        assert stated / 8 < memory.peak < stated


def test_a_plain_pass_takes_no_more_prompts_than_its_scores_leave_room_for() -> None:
    model = made("BloomConfig", hidden_size=64, n_layer=2, n_head=4)
    scorer = TransformersScorer(model, tiny.tokenizer("chatml"))
    length = scorer.encoder.encode(ASKED.prompt).length
    network = scorer.engine.network
    needed = length * network.bytes_per_token + length**2 * network.bytes_per_pair
    sizes: list[int] = []
    for share, most in ((3.5, 3), (1.5, 1)):
        one = TransformersScorer(model, tiny.tokenizer("chatml"), memory=int(share * needed))
        one.engine.network.plain = lambda ids, own=one.engine.network.plain: sizes.append(len(ids)) or own(ids)  # type: ignore[method-assign]
        one.score([ASKED])
        assert max(sizes) == most
        sizes.clear()
    with pytest.raises(MemoryBudgetError):
        TransformersScorer(model, tiny.tokenizer("chatml"), memory=int(0.9 * needed)).score([ASKED])


def test_a_head_that_does_more_than_weigh_the_last_state_is_refused() -> None:
    special = {f"{name}_token_id": 1 for name in ("pad", "bos", "eos", "cls", "sep")}
    own = {name: size for name, size in SIZES.items() if size and name != "num_key_value_heads"}
    with pytest.raises(ConfigurationError, match="head of a ModernBertDecoder"):
        TransformersScorer(made("ModernBertDecoderConfig", **own, **special), tiny.tokenizer("chatml"))


def test_what_is_no_attention_model_is_refused_in_words_and_layers_may_differ_in_size() -> None:
    with pytest.raises(ConfigurationError, match="MambaForCausalLM cannot be read"):
        TransformersScorer(made("MambaConfig", hidden_size=32, num_hidden_layers=2), tiny.tokenizer("chatml"))
    gemma = made("Gemma4TextConfig", **SIZES, hidden_size_per_layer_input=0)
    assert TransformersScorer(gemma, tiny.tokenizer("chatml")).score([ASKED])[0].logprobs.shape == (3, 2)


def test_what_a_probe_raises_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever class of error a model has of its own, such as for a cache that it does not need."""
    mixed = made("JambaConfig", **SIZES, mamba_dt_rank=8, use_mamba_kernels=False)
    assert TransformersScorer(mixed, tiny.tokenizer("chatml")).score([ASKED])[0].passes == 3
    llama = made("LlamaConfig", **SIZES)
    for error, typed in (
        (ValueError("use_cache"), ConfigurationError),
        (IndexError("list index"), ConfigurationError),
        (torch.OutOfMemoryError("no more"), MemoryBudgetError),
    ):
        monkeypatch.setattr(llama.model, "forward", Mock(side_effect=error))
        with pytest.raises(typed):
            TransformersScorer(llama, tiny.tokenizer("chatml"))


def test_a_request_is_alone_where_positions_depend_on_the_longest_of_a_pass() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    model = made("Phi3Config", **SIZES, rope_parameters=rope, original_max_position_embeddings=64)
    assert HubNetwork(model, torch.device("cpu")).alone
    assert not HubNetwork(made("LlamaConfig", **SIZES), torch.device("cpu")).alone


def test_the_window_of_mpt_has_another_name() -> None:
    model = made("MptConfig", d_model=64, n_heads=4, n_layers=2, max_seq_len=64)
    with pytest.raises(PromptTooLongError, match="window of 64"):
        TransformersScorer(model, tiny.tokenizer("chatml")).score([ASKED])


def test_the_window_of_a_composite_model_is_that_of_its_text() -> None:
    text = SIZES | {"vocab_size": len(tiny.tokenizer("chatml")), "head_dim": 16, "max_position_embeddings": 256}
    sight = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Gemma3Config(text_config=text, vision_config=sight | {"image_size": 28, "patch_size": 14})
    scorer = TransformersScorer(transformers.AutoModelForCausalLM.from_config(config), tiny.tokenizer("chatml"))
    assert scorer.window == 256
    with pytest.raises(PromptTooLongError):
        scorer.score([ScoreRequest(Supported(claim="It is so.").render([Chunk("Lyon is a city. " * 200)]), ((0,),))])


def test_a_model_that_sees_pictures_reads_texts_like_any_other(tmp_path: Path) -> None:
    text = SIZES | {"vocab_size": len(tiny.tokenizer("chatml")), "head_dim": 16, "model_type": "mistral"}
    sight = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Mistral3Config(
        text_config=text, vision_config=sight | {"model_type": "pixtral", "image_size": 28, "patch_size": 14}
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.float32).eval()
    model.save_pretrained(tmp_path)
    tiny.tokenizer("chatml").save_pretrained(tmp_path)
    scorer = TransformersScorer(tmp_path, device="cpu")
    encoded = scorer.encoder.encode(ASKED.prompt)
    with torch.inference_mode():
        logits = [model(input_ids=torch.tensor([encoded.assemble(o)])).logits[0, -1] for o in ASKED.orderings]
    yes, no = (torch.stack([row[list(ids)].logsumexp(0) for row in logits]) for ids in encoded.labels)
    assert scorer.engine.packs and np.allclose(log_odds(scorer, ASKED)[0], (yes - no).numpy(), atol=1e-4)


def test_positions_and_tokenizer_are_part_of_the_identity() -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
    plain, stretched = (made("LlamaConfig", **SIZES, **more) for more in ({}, {"rope_parameters": yarn}))
    words, other = tiny.tokenizer("chatml"), tiny.tokenizer("llama3")
    names = {TransformersScorer(model, words).identity for model in (plain, stretched)}
    assert len({*names, TransformersScorer(plain, other, chat=False).identity}) == 3
    words.backend_tokenizer.enable_padding()  # as a call that pads leaves it
    assert TransformersScorer(plain, words).identity in names
    words.backend_tokenizer.no_padding()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("LlamaConfig", {"hidden_act": "gelu"}),
        ("LlamaConfig", {"rms_norm_eps": 0.01}),
        ("Gemma2Config", {"final_logit_softcapping": None}),
        ("GraniteConfig", {"logits_scaling": 3.0}),
        ("PhimoeConfig", {"num_experts_per_tok": 1}),
    ],
)
def test_the_configuration_is_part_of_the_identity(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    words, few = tiny.tokenizer("chatml"), {"num_local_experts": 4} if kind == "PhimoeConfig" else {}
    plain, other = (made(kind, **SIZES, **more) for more in (few, few | settings))
    assert weights_fingerprint(plain, words) != weights_fingerprint(other, words)
    plain.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attention_dropout=0.5, use_cache=False)
    assert weights_fingerprint(plain, words) == weights_fingerprint(again, words)


DATED = tiny.CHATML.replace("{% for", "{{ strftime_now('%d %B %Y') }}\n{% for", 1)


@pytest.mark.parametrize(
    ("template", "has", "lacks"),
    [
        (DATED, "1 January 2026", str(datetime.datetime.now(tz=datetime.UTC).year + 1)),
        (tiny.CHATML.replace("assistant\n", "assistant\n<think>\n"), "<think>\n\n</think>\n\n", "\0"),
        (
            tiny.CHATML.replace("im_start|>assistant\n", "start|>assistant"),
            "assistant<|channel|>final<|message|>",
            "think",
        ),
    ],
)
def test_a_template_states_no_date_of_today_and_leaves_no_thought_open(template: str, has: str, lacks: str) -> None:
    words = tiny.tokenizer("chatml")
    before, words.chat_template = words.chat_template, template
    try:
        around = "".join(PromptEncoder(words).around("Judge."))
    finally:
        words.chat_template = before
    assert has in around
    assert lacks not in around


def test_precision_and_quantisation_are_both_in_the_identity(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    made("LlamaConfig", **SIZES).save_pretrained(tmp_path)
    tiny.tokenizer("chatml").save_pretrained(tmp_path)
    scorer = TransformersScorer(tmp_path, quantization="int8", dtype="float32", device="cpu")
    assert "/int8-float32/" in scorer.identity
