"""The written-out pass of Llama and Qwen 2, and the tokenizer without transformers, give what transformers gives."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from isr_rag.scorers.local.encoding import EncodedPrompt, PromptEncoder  # noqa: E402
from isr_rag.scorers.local.fast_tokenizer import FastTokenizer  # noqa: E402
from isr_rag.scorers.local.hub_network import HubNetwork  # noqa: E402
from isr_rag.scorers.local.lean import LeanNetwork, is_written_out, prepacks  # noqa: E402
from isr_rag.scorers.local.packed.attention import AttentionPlan  # noqa: E402
from isr_rag.scorers.local.packed.pack import pack_evidence, pack_full, pack_invariant  # noqa: E402
from isr_rag.scorers.transformers import TransformersScorer  # noqa: E402
from tests.scorers import tiny  # noqa: E402
from tests.scorers.local.test_transformers import requests  # noqa: E402

BOTH = pytest.mark.parametrize("architecture", ["llama", "qwen2"])


def networks(architecture: str = "llama", **changes: Any) -> tuple[HubNetwork, LeanNetwork]:
    model = tiny.model(architecture, 97)
    if architecture == "qwen2":  # transformers begins with biases of zero
        for name, bias in model.named_parameters():
            if name.endswith(".bias"):
                torch.nn.init.normal_(bias, std=0.5)
    config = {**model.config.to_dict(), **changes}
    return HubNetwork(model, torch.device("cpu")), LeanNetwork(config, model.state_dict(), torch.float32)


def prompts(seed: int) -> list[EncodedPrompt]:
    rng = random.Random(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randrange(97) for _ in range(rng.randint(low, high)))

    head = ids(3, 9)
    return [EncodedPrompt(head, tuple(ids(1, 40) for _ in range(rng.randint(1, 5))), ids(1, 6)) for _ in range(3)]


@BOTH
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_hidden_states_equal_those_of_transformers(
    architecture: str, seed: int, onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not onednn:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    hub, lean = networks(architecture)
    some = prompts(seed)
    orderings = [list(itertools.islice(itertools.permutations(range(len(p.chunks))), 4)) for p in some]
    for pack in (pack_full(some, orderings), pack_invariant(some)):
        with torch.inference_mode():
            expected, found = hub.packed(pack, AttentionPlan(pack)), lean.packed(pack, AttentionPlan(pack))
        assert (expected - found).abs().max() <= 1e-5 * expected.abs().max()


@BOTH
def test_what_reads_nothing_leaves_its_keys_and_values(architecture: str) -> None:
    hub, lean = networks(architecture)
    pack = pack_evidence(prompts(0))
    with torch.inference_mode():
        theirs, ours = AttentionPlan(pack, keep=True), AttentionPlan(pack, keep=True)
        assert len(hub.packed(pack, theirs)) == len(lean.packed(pack, ours)) == 0
    assert theirs.kept.keys() == ours.kept.keys()
    for layer, both in theirs.kept.items():
        for expected, found in zip(both, ours.kept[layer], strict=True):
            assert (expected - found).abs().max() <= 1e-5 * expected.abs().max()


@BOTH
def test_plain_prompts_and_label_logits_equal_those_of_transformers(architecture: str) -> None:
    hub, lean = networks(architecture)
    ids = [[1, 2, 3, 4, 5], [7, 6, 5, 4, 3]]
    with torch.inference_mode():
        expected, found = hub.plain(ids), lean.plain(ids)
        assert (expected - found).abs().max() <= 1e-5 * expected.abs().max()
        assert torch.allclose(hub.logits(expected[0], [3, 5]), lean.logits(expected[0], [3, 5]), atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "qwen3"},
        {"use_sliding_window": True},
        {"attention_bias": True},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}},
    ],
)
def test_another_architecture_is_not_written_out(change: dict[str, Any]) -> None:
    config = tiny.model("llama", 97).config.to_dict()
    assert is_written_out(config) and not is_written_out({**config, **change})


@pytest.mark.parametrize("fault", [AttributeError, RuntimeError])
def test_without_the_private_operations_of_torch_it_computes_the_same(
    fault: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise fault("no such operation")

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", gone)
    assert not prepacks(torch.float32)
    hub, lean = networks("qwen2")
    pack = pack_invariant(prompts(0))
    with torch.inference_mode():
        expected, found = hub.packed(pack, AttentionPlan(pack)), lean.packed(pack, AttentionPlan(pack))
    assert (expected - found).abs().max() <= 1e-5 * expected.abs().max()


def test_an_operation_that_computes_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    if not prepacks(torch.float32):
        pytest.skip("this torch has no oneDNN")
    pointwise = torch.ops.mkldnn._linear_pointwise
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lambda *given: pointwise(*given) + 1)
    assert not prepacks(torch.float32)


@BOTH
def test_in_bfloat16_it_stays_close(architecture: str) -> None:
    model = tiny.model(architecture, 97)
    exact = LeanNetwork(model.config.to_dict(), model.state_dict(), torch.float32)
    half = LeanNetwork(model.config.to_dict(), model.state_dict(), torch.bfloat16)
    pack = pack_invariant(prompts(0))
    with torch.inference_mode():
        expected, found = exact.packed(pack, AttentionPlan(pack)), half.packed(pack, AttentionPlan(pack))
    assert 0 < (expected - found).abs().max() <= 0.1 * expected.abs().max()


@BOTH
def test_a_model_that_is_loaded_by_name_takes_the_lean_pass_and_scores_the_same(
    architecture: str, tmp_path: Path
) -> None:
    tokenizer = tiny.tokenizer("chatml")
    model = tiny.model(architecture, len(tokenizer))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)  # it has ideas of its own about some types
    held, loaded = TransformersScorer(model, tokenizer, device="cpu"), TransformersScorer(tmp_path, device="cpu")
    assert isinstance(held.engine.network, HubNetwork)  # somebody else may change its weights
    assert isinstance(loaded.engine.network, LeanNetwork)
    exact = TransformersScorer(model.double(), tokenizer, device="cpu").score(requests())
    for one in (held, loaded):
        for a, b in zip(one.score(requests()), exact, strict=True):
            assert abs(np.exp(a.logprobs) - np.exp(b.logprobs)).max() <= 1e-5


@pytest.mark.parametrize("family", sorted(tiny.FAMILIES))
def test_the_tokenizer_encodes_prompts_as_transformers_does(family: str, tmp_path: Path) -> None:
    slow = tiny.tokenizer(family)
    slow.save_pretrained(tmp_path)
    fast = FastTokenizer(tmp_path)
    a, b = PromptEncoder(slow), PromptEncoder(fast)
    assert (a.chat, a.fingerprint, a.control_tokens) == (b.chat, b.fingerprint, b.control_tokens)
    for request in requests():
        assert a.encode(request.prompt) == b.encode(request.prompt)
