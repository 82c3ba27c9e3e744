"""What goes wrong on a device: no room while loading or computing, a model elsewhere, a precision it lacks.

There is no CUDA device here: what one would do is emulated.
"""

from __future__ import annotations

import gc
import os
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from isr_rag import Chunk, ISRGate, Supported, TransformersScorer  # noqa: E402
from isr_rag.core.scorer import ScoreRequest  # noqa: E402
from isr_rag.errors import ConfigurationError, MemoryBudgetError, ScorerError  # noqa: E402
from isr_rag.references import Oracle  # noqa: E402
from isr_rag.scorers import embedded  # noqa: E402
from isr_rag.scorers.adjudicators import STANDARD  # noqa: E402
from isr_rag.scorers.local import lean, loading  # noqa: E402
from isr_rag.scorers.local.encoding import EncodedPrompt  # noqa: E402
from isr_rag.scorers.local.hub_network import HubNetwork  # noqa: E402
from isr_rag.scorers.local.lean import LeanNetwork  # noqa: E402
from isr_rag.scorers.local.packed import attention  # noqa: E402
from isr_rag.scorers.local.packed.attention import AttentionPlan, attend  # noqa: E402
from isr_rag.scorers.local.packed.pack import pack_full  # noqa: E402
from isr_rag.scorers.local.states import StateCache  # noqa: E402
from tests.scorers import tiny  # noqa: E402
from tests.scorers.local.test_packed import dense_mask, random_prompts, some_orderings  # noqa: E402
from tests.scorers.local.test_quantized import folder  # noqa: E402, F401  # a fixture
from tests.scorers.peak import PeakMemory  # noqa: E402

pytestmark = pytest.mark.slow

ASKED = ScoreRequest(
    Supported(claim="Kepler published it.").render([Chunk("in 1619"), Chunk("Lyon is a city"), Chunk("Paris")]),
    ((0, 1, 2), (1, 0, 2), (2, 1, 0), (2, 0, 1)),
)


def scorer(**settings: Any) -> TransformersScorer:
    tokenizer = tiny.tokenizer("chatml")
    return TransformersScorer(tiny.model("llama", len(tokenizer)), tokenizer, **settings)


class Pass:
    """Stands for the activations of a pass."""


CUBLAS = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), CUBLAS])
def test_a_failed_pass_is_freed_before_the_retry(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    one = scorer()
    want = one.score([ASKED])[0].logprobs
    whole = HubNetwork.packed
    failed: list[weakref.ref[Pass]] = []
    alive: list[bool] = []

    def packed(self: HubNetwork, pack: Any, plan: Any) -> Any:
        if len(pack.all_reads) == 4:
            activations = Pass()
            failed.append(weakref.ref(activations))
            raise type(error)(*error.args)
        gc.collect()
        alive.append(failed[0]() is not None)
        return whole(self, pack, plan)

    monkeypatch.setattr(HubNetwork, "packed", packed)
    assert np.abs(one.score([ASKED])[0].logprobs - want).max() < 1e-5
    assert alive == [False, False]


def test_reading_ahead_is_halved_bounded_and_refused_in_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [f"Paris is the capital of France, and Lyon is its third city {i}." for i in range(6)]
    one, whole = tiny.scorer(states=StateCache()), HubNetwork.packed
    failed: list[int] = []

    def packed(self: HubNetwork, pack: Any, plan: Any) -> Any:
        if len(pack.input_ids) > 200:
            failed.append(len(pack.input_ids))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self, pack, plan)

    monkeypatch.setattr(HubNetwork, "packed", packed)
    gate = ISRGate(one, Oracle(0.9))
    assert gate.index(chunks) > 0 and failed and gate.index(chunks) == 0
    with pytest.raises(ScorerError, match="does not fit into memory"):
        gate.index(["Lyon is the third city of France. " * 20])
    small = tiny.scorer(states=StateCache(), memory=one.engine.network.workspace + 200 * one.bytes_per_token)
    assert ISRGate(small, Oracle(0.9)).index(chunks) > 0
    with pytest.raises(MemoryBudgetError):
        ISRGate(small, Oracle(0.9)).index(["Lyon is the third city of France. " * 20])
    monkeypatch.setattr(one, "_unusable", loading.begin_after_fork(torch.device("cuda")))
    with pytest.raises(ScorerError, match="spawn"):
        gate.index(chunks)


def test_other_errors_of_the_device_are_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    one = scorer()
    tried: list[int] = []

    def packed(self: HubNetwork, pack: Any, plan: Any) -> Any:
        tried.append(len(pack.all_reads))
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(HubNetwork, "packed", packed)
    with pytest.raises(RuntimeError, match="illegal"):
        one.score([ASKED])
    assert tried == [4]


def test_a_loaded_model_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert scorer().engine.device == torch.device("cpu")
    for device in ("cuda", "all"):
        with pytest.raises(ConfigurationError, match="is on cpu"):
            scorer(device=device)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_of_a_process_with_cuda_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    one = scorer()
    monkeypatch.setattr(one.engine, "device", torch.device("cuda", 0))
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        said = ""
        try:
            one.score([ASKED])
        except ScorerError as error:
            said = str(error)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert "spawn" in pipe.read()
    assert len(one.score([ASKED])[0].logprobs) == 4  # the parent goes on


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "gpu", "mps", "xpu", "hpu", "meta"])
def test_a_device_that_is_not_there_is_said(tmp_path: Path, device: str) -> None:
    with pytest.raises(ConfigurationError, match=f"no device '{device}'"):
        TransformersScorer(tmp_path, device=device)


def test_a_number_beyond_the_last_device_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigurationError, match="no device 'cuda:2': the last is cuda:1"):
        TransformersScorer(tmp_path, device="cuda:2")


def test_all_devices_are_used_through_accelerate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    pytest.importorskip("accelerate")
    asked: list[Any] = []
    load = transformers.AutoModelForCausalLM.from_pretrained
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM,
        "from_pretrained",
        lambda *given, **how: asked.append(how.get("device_map")) or load(*given, **how),
    )
    spread, plain = TransformersScorer(folder, device="all"), TransformersScorer(folder, device="cpu")
    assert asked == ["auto", None]
    assert np.allclose(spread.score([ASKED])[0].logprobs, plain.score([ASKED])[0].logprobs, atol=1e-4)


def test_a_model_that_accelerate_puts_outside_the_gpus_does_not_fit(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = transformers.LlamaForCausalLM.from_pretrained(folder)
    loaded.hf_device_map = {"model.layers.0": 0, "model.layers.1": "cpu"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: (loaded, {"missing_keys": []})
    )
    with pytest.raises(MemoryBudgetError, match="outside the GPUs"):
        TransformersScorer(folder, device="all")


def test_a_quantised_model_that_bitsandbytes_puts_outside_the_gpus_does_not_fit() -> None:
    """Its validator raises a ValueError where accelerate's plan has a part on the CPU."""
    pytest.importorskip("bitsandbytes")
    from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer

    quantizer = Bnb4BitHfQuantizer(transformers.BitsAndBytesConfig(load_in_4bit=True))
    with pytest.raises(MemoryBudgetError, match="does not fit into memory"), loading.loading("big"):
        quantizer.validate_environment(device_map={"model.layers.0": 0, "model.layers.1": "cpu"})


def test_layers_may_lie_on_several_devices() -> None:
    prompts = random_prompts(3, longest=60)
    pack = pack_full(prompts, [some_orderings(prompt, 0) for prompt in prompts])
    plan, length = AttentionPlan(pack), len(pack.input_ids)
    for device in ("cpu", "meta", "cpu"):
        q, k = torch.randn(4, length, 8, device=device), torch.randn(2, length, 8, device=device)
        assert attend(q, k, k, plan, 0.3).device.type == device


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lean", [False, True])
def test_the_estimate_of_memory_covers_what_is_allocated(dtype: torch.dtype, lean: bool) -> None:
    config = transformers.Qwen2Config(
        vocab_size=500,
        hidden_size=256,
        intermediate_size=1376,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    model = transformers.Qwen2ForCausalLM(config).to(dtype)
    network = HubNetwork(model, torch.device("cpu"))
    if lean:
        network = LeanNetwork(config.to_dict(), model.state_dict(), dtype)  # type: ignore[assignment]
    for count, size in ((1, 100), (20, 150)):
        chunks = tuple(tuple((j + 7 * i) % 490 for j in range(size)) for i in range(count))
        pack = pack_full(
            [EncodedPrompt((1,) * 40, chunks, (2,) * 30)], [[tuple(range(count)), tuple(range(count))[::-1]]]
        )
        with torch.inference_mode(), PeakMemory(model.parameters()) as memory:
            network.packed(pack, AttentionPlan(pack))
        stated = network.workspace + network.bytes_per_token * len(pack.input_ids)
        assert stated / 8 < memory.peak < stated


def test_int8_scores_each_request_in_a_pass_of_its_own(folder: Path) -> None:  # noqa: F811
    pytest.importorskip("bitsandbytes")
    one = TransformersScorer(folder, quantization="int8", dtype="float32", device="cpu")
    other = ScoreRequest(
        Supported(claim="Kepler published it.").render(
            [Chunk("Kepler published the third law " * 6), Chunk("12345 $%& " * 9)]
        ),
        ((0, 1),),
    )
    alone, together = one.score([ASKED])[0], one.score([other, ASKED, other])[1]
    assert np.array_equal(alone.logprobs, together.logprobs)


def test_a_network_made_of_weights_computes_what_the_written_out_one_does() -> None:
    """The judge on a device is the same as on a CPU."""
    model = tiny.model("qwen2", 300)
    config, weights = model.config.to_dict(), model.state_dict()
    del weights["lm_head.weight"]  # tied
    made, lean = HubNetwork.of(config, weights, torch.device("cpu")), LeanNetwork(config, weights, torch.float32)
    prompts = random_prompts(3, longest=40)
    pack = pack_full(prompts, [some_orderings(prompt, 0) for prompt in prompts])
    with torch.inference_mode():
        found, expected = made.packed(pack, AttentionPlan(pack)), lean.packed(pack, AttentionPlan(pack))
        assert torch.allclose(found, expected, atol=1e-4)
        assert torch.allclose(made.logits(found[0], [3, 5]), lean.logits(expected[0], [3, 5]), atol=1e-4)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), CUBLAS, MemoryError()])
def test_no_room_while_loading_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    tokenizer = tiny.tokenizer("chatml")
    tiny.model("llama", len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", full)
    with pytest.raises(MemoryBudgetError, match="does not fit into memory"):
        TransformersScorer(tmp_path, device="cpu")


@pytest.mark.parametrize("place", [(HubNetwork, "plain"), (LeanNetwork, "__init__")])
def test_no_room_for_the_first_pass_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch, place: Any) -> None:  # noqa: F811
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(place[0], place[1], full)
    with pytest.raises(MemoryBudgetError) as caught:
        TransformersScorer(folder, device="cpu")
    assert str(caught.value).count("does not fit into memory") == 1


def test_no_room_for_the_judge_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(embedded, "verify", lambda: None)
    monkeypatch.setattr(embedded, "MergedWeights", lambda *_: {})
    monkeypatch.setattr(lean, "read_state", lambda _: ({}, {}))
    monkeypatch.setattr(LeanNetwork, "__init__", full)
    with pytest.raises(MemoryBudgetError, match="'standard' does not fit into memory"):
        embedded._load.__wrapped__(STANDARD.directory, True, "cpu", False)


def test_a_fork_that_loads_onto_its_parents_device_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forked(*_: object, **__: object) -> None:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, ...")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", forked)
    with pytest.raises(ScorerError, match="spawn"):
        TransformersScorer(tmp_path)
    with pytest.raises(ScorerError, match="spawn"), loading.loading("a model"):
        forked()


@pytest.mark.parametrize(("native", "expected"), [(True, torch.bfloat16), (False, torch.float16)])
def test_bfloat16_is_chosen_where_the_hardware_has_it(
    monkeypatch: pytest.MonkeyPatch, native: bool, expected: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    assert loading.resolve_dtype("auto", torch.device("cuda")) == expected
    assert loading.resolve_dtype("auto", torch.device("cpu")) == torch.float32
    assert loading.resolve_dtype("bfloat16", torch.device("cpu")) == torch.bfloat16
    with (
        nullcontext()
        if native
        else pytest.raises(ConfigurationError, match="cuda computes no bfloat16: choose float16")
    ):
        assert loading.resolve_dtype("bfloat16", torch.device("cuda")) == torch.bfloat16


def test_a_model_that_cannot_be_packed_says_so_once_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def packed(self: HubNetwork, pack: Any, plan: Any) -> Any:
        raise RuntimeError("Expected all tensors to be on the same device, but found cuda:0 and cuda:1")

    monkeypatch.setattr(HubNetwork, "packed", packed)
    with pytest.warns(RuntimeWarning, match="one by one.*cuda:1") as warned:
        one = scorer()
        one.score([ASKED])
    assert len(warned) == 1 and not one.engine.packs


def test_int8_does_not_fill_the_terminal(folder: Path, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    """bitsandbytes has a warning for every layer of every pass in another precision than float16."""
    pytest.importorskip("bitsandbytes")
    TransformersScorer(folder, quantization="int8", dtype="bfloat16", device="cpu").score([ASKED])
    assert "MatMul8bitLt" not in caplog.text


def test_a_folder_that_was_quantised_before_is_recognised(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("bitsandbytes")
    before = TransformersScorer(folder, quantization="nf4", dtype="float32", device="cpu")
    network = before.engine.network
    assert isinstance(network, HubNetwork)
    network.model.save_pretrained(tmp_path)
    tiny.tokenizer("chatml").save_pretrained(tmp_path)
    again = TransformersScorer(tmp_path, dtype="float32", device="cpu")
    assert isinstance(again.engine.network, HubNetwork) and "quantized-float32" in again.identity
    assert np.allclose(again.score([ASKED])[0].logprobs, before.score([ASKED])[0].logprobs, atol=1e-4)


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.01), (torch.float16, 0.002)])
def test_large_scores_are_not_rounded_before_the_softmax(dtype: torch.dtype, most: float) -> None:
    """Keys with a large bias, as Qwen 2 has them: scores of hundreds, of which bfloat16 keeps whole numbers."""
    torch.manual_seed(0)
    prompts = random_prompts(3, longest=60)
    pack = pack_full(prompts, [some_orderings(prompt, 0) for prompt in prompts])
    length = len(pack.input_ids)
    bias = torch.randn(2, 1, 64) * 60
    q, k, v = torch.randn(6, length, 64), torch.randn(2, length, 64) + bias, torch.randn(2, length, 64)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    scores = q.double() @ k.double().repeat_interleave(3, 0).transpose(1, 2) / 8
    assert scores.abs().max() > 150
    p = scores.masked_fill(~torch.from_numpy(dense_mask(pack)), -torch.inf).softmax(-1)
    exact = (p @ v.double().repeat_interleave(3, 0)).transpose(0, 1)
    found = attend(q, k, v, AttentionPlan(pack), 1 / 8)
    assert found.dtype == dtype
    assert (found.double() - exact).norm() / exact.norm() < most


def test_attention_on_cuda_does_not_go_through_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    # There it plans anew for every shape, and its gradients are not finite for some: seen as a loss of NaN.
    pack = pack_full([EncodedPrompt((1, 2), ((3, 4),), (5,))], [[(0,)]])
    open_to: dict[str, bool] = {}

    class Query(torch.Tensor):
        is_cuda = True

    def watched(q: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        allowed = torch.backends.cuda
        open_to.update(cudnn=allowed.cudnn_sdp_enabled(), other=allowed.mem_efficient_sdp_enabled())
        return attend(q, *rest, **named)

    monkeypatch.setattr(attention, "attend", watched)
    x = torch.randn(1, 2, 5, 8)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    attention._called(torch.nn.Identity(), x.as_subclass(Query), x, x, None, block_plan=AttentionPlan(pack))
    assert open_to == {"cudnn": False, "other": True}
    assert torch.backends.cuda.cudnn_sdp_enabled() == before
