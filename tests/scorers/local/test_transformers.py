"""The local scorer against a plain reference: one prompt at a time, all logits, full precision."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from isr_rag import ISRGate  # noqa: E402
from isr_rag.core.evidence import Chunk  # noqa: E402
from isr_rag.core.orderings import draw_orderings  # noqa: E402
from isr_rag.core.predicates import Choice, Predicate, Sufficient, Supported  # noqa: E402
from isr_rag.core.scorer import Scorer, ScoreRequest  # noqa: E402
from isr_rag.core.settings import Orderings  # noqa: E402
from isr_rag.errors import (  # noqa: E402
    ConfigurationError,
    LabelError,
    MemoryBudgetError,
    MissingDependencyError,
    ModelCorruptError,
    ModelNotFoundError,
    PromptTooLongError,
    ScorerError,
)
from isr_rag.references import Oracle  # noqa: E402
from isr_rag.scorers.local.loading import load_model  # noqa: E402
from isr_rag.scorers.transformers import TransformersScorer  # noqa: E402
from tests.scorers import tiny  # noqa: E402

pytestmark = pytest.mark.slow

CASES: list[tuple[Predicate, list[str]]] = [
    (Supported(claim="Paris is the capital."), ["Paris is the capital of France.", "Lyon is a city.", "Nothing here."]),
    (Supported(question="When was it published?", answer="In 1619."), ["Kepler published it in 1619. " * 3, "No."]),
    (Sufficient("Which city is the third?"), ["one", "two two", "three three three", "four"]),
    (Choice("Which?", ["Paris", "Lyon", "Metz"]), ["Paris.", "Lyon is the third city of France."]),
]


def requests(m: int = 4) -> list[ScoreRequest]:
    return [
        ScoreRequest(predicate.render([Chunk(text) for text in texts]), draw_orderings(len(texts), m))
        for predicate, texts in CASES
    ]


def scorer(architecture: str, family: str = "chatml", **settings: Any) -> TransformersScorer:
    tokenizer = tiny.tokenizer(family)
    return TransformersScorer(tiny.model(architecture, len(tokenizer)), tokenizer, device="cpu", **settings)


def plain(one: TransformersScorer, request: ScoreRequest) -> np.ndarray[Any, np.dtype[np.float64]]:
    """q by the book: one forward pass a prompt, softmax over the whole vocabulary, label mass renormalised."""
    encoded = one.encoder.encode(request.prompt)
    rows: list[list[float]] = []
    for ordering in request.orderings:
        with torch.inference_mode():
            logits = one.engine.network.model(input_ids=torch.tensor([encoded.assemble(ordering)])).logits[0, -1]
        everything = logits.double().softmax(-1)
        mass = [float(everything[list(ids)].sum()) for ids in encoded.labels]
        rows.append([value / sum(mass) for value in mass])
    return np.array(rows)


@pytest.mark.parametrize("family", ["base", "chatml"])
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_batched_q_equals_the_plain_reference(architecture: str, family: str) -> None:
    one = scorer(architecture, family)
    asked = requests()
    lengths = {one.encoder.encode(request.prompt).length for request in asked}
    assert len(lengths) == len(asked)  # as in a real batch
    results = one.score(asked)
    for request, result in zip(asked, results, strict=True):
        want = plain(one, request)
        assert result.logprobs.dtype == np.float64 and result.logprobs.shape == want.shape
        assert result.passes == len(request.orderings)
        assert np.abs(np.exp(result.logprobs) - want).max() < 1e-5
    spread = np.ptp(np.exp(results[0].logprobs[:, 0]))
    assert spread > 1e-5  # the planted models do look at the order, or this test shows little


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mistral", "gpt2"])
def test_a_result_does_not_depend_on_the_company_it_is_scored_in(architecture: str) -> None:
    together = scorer(architecture)
    alone = scorer(architecture, batch_tokens=1)
    asked = requests()
    for a, b, request in zip(together.score(asked), alone.score(asked), asked, strict=True):
        assert np.abs(np.exp(a.logprobs) - np.exp(b.logprobs)).max() < 1e-5
        assert np.abs(np.exp(together.score([request])[0].logprobs) - np.exp(a.logprobs)).max() < 1e-5


def test_answers_come_in_the_order_of_the_requests_whatever_their_lengths() -> None:
    one = scorer("llama")
    forward, backward = one.score(requests()), one.score(requests()[::-1])[::-1]
    for a, b in zip(forward, backward, strict=True):
        assert np.abs(a.logprobs - b.logprobs).max() < 1e-5
    assert one.score([]) == []


def test_it_is_a_scorer_whose_identity_tells_models_templates_and_precisions_apart() -> None:
    one = scorer("llama")
    assert isinstance(one, Scorer) and one.layout == "full"
    half = TransformersScorer(tiny.model("llama", 500).bfloat16(), tiny.tokenizer("chatml"), device="cpu")
    moved = tiny.model("llama", 500)
    with torch.no_grad():
        moved.get_output_embeddings().weight.mul_(1.01)
    changed = TransformersScorer(moved, tiny.tokenizer("chatml"), device="cpu")
    same = TransformersScorer(tiny.model("llama", 500), tiny.tokenizer("chatml"), device="cpu")
    other = TransformersScorer(tiny.model("llama", 500), tiny.tokenizer("chatml"), device="cpu", chat=False)
    again = TransformersScorer(tiny.model("llama", 500), tiny.tokenizer("chatml"), device="cpu")
    assert same.identity == again.identity
    assert len({x.identity for x in (half, changed, same, other, scorer("qwen3"))}) == 5


def test_several_token_variants_of_a_label_are_summed() -> None:
    one = scorer("llama")
    request = requests()[0]
    labels = one.encoder.encode(request.prompt).labels
    assert all(len(ids) >= 1 for ids in labels)
    wide = ScoreRequest(replace(request.prompt, labels=(("1", "y", "s"), ("0", "n"))), request.orderings)
    assert np.abs(np.exp(one.score([wide])[0].logprobs) - plain(one, wide)).max() < 1e-5
    assert [len(ids) for ids in one.encoder.encode(wide.prompt).labels] >= [3, 2]


class TestBadInput:
    def test_the_focus_that_an_error_advises_is_smaller_than_what_was_read_and_fits(self) -> None:
        one = scorer("gpt2")
        evidence = ["The river is long and longer. " * 60] * 4
        decision = ISRGate(scorer=one, reference=Oracle(1), max_words=1400).decide(evidence, claim="It is long.")
        assert decision.left_out
        advised = re.search(r"ISRGate\(max_words=(\d+)\)", decision.detail)
        assert advised is not None and int(advised[1]) < 1400
        again = ISRGate(scorer=one, reference=Oracle(1), max_words=int(advised[1])).decide(
            evidence, claim="It is long."
        )
        assert not again.left_out and not again.detail

    def test_a_chunk_too_long_for_the_window_is_left_out_and_a_question_too_long_is_an_error(self) -> None:
        one = scorer("gpt2")
        assert one.window == 1024
        gate = ISRGate(scorer=one, reference=Oracle(1))
        decision = gate.decide(["short", "long and longer " * 600], claim="c")
        assert decision.left_out == (1,)
        assert decision.q == gate.decide(["short"], claim="c").q
        nothing = gate.decide(["long and longer " * 600], claim="c")
        assert nothing.reason == "no_evidence" and "more than the model's window of 1024" in nothing.detail
        with pytest.raises(PromptTooLongError, match="ask a shorter one"):
            gate.decide(["short"], claim="long and longer " * 600)
        with pytest.raises(ValueError):
            ISRGate(scorer=scorer("llama", window=50), reference=Oracle(1)).decide(["a"], claim="c")

    def test_labels_that_tokenise_alike_are_an_error(self) -> None:
        request = requests()[0]
        prompt = type(request.prompt)("i", "p\n", ("> c\n",), "s", (("1",), (" 1",)))
        with pytest.raises(LabelError):
            scorer("llama").score([ScoreRequest(prompt, ((0,),))])

    def test_a_model_that_returns_nan_is_an_error(self) -> None:
        one = scorer("llama")
        with torch.no_grad():
            one.engine.network.model.get_input_embeddings().weight.fill_(float("nan"))
        with pytest.raises(ScorerError, match="finite"):
            one.score(requests())
        d = ISRGate(scorer=one, reference=Oracle(1), on_error="abstain").decide(["a"], claim="c")
        assert not d.answered and d.reason == "scorer_failed"

    def test_a_model_whose_weights_give_nan_is_refused_when_it_is_loaded(self) -> None:
        model = tiny.model("llama", 500)
        with torch.no_grad():
            model.get_input_embeddings().weight.fill_(float("nan"))
        with pytest.raises(ConfigurationError, match="not finite"):
            TransformersScorer(model, tiny.tokenizer("chatml"), device="cpu")

    def test_the_tokenizer_of_a_larger_model_is_named(self) -> None:
        tokenizer = tiny.tokenizer("chatml")
        one = TransformersScorer(tiny.model("llama", len(tokenizer) // 2), tokenizer, device="cpu")
        with pytest.raises(ConfigurationError, match=rf"token \d+, and the model knows {len(tokenizer) // 2}"):
            one.score(requests())

    def test_a_loaded_model_needs_its_tokenizer(self) -> None:
        with pytest.raises(ConfigurationError, match="tokenizer"):
            TransformersScorer(tiny.model("llama", 300))

    @pytest.mark.parametrize("dtype", ["float99", "int8", "zeros", "float8_e4m3fn"])
    def test_bad_dtypes_are_refused(self, dtype: str, saved: Path) -> None:
        with pytest.raises(ConfigurationError, match="dtype"):
            TransformersScorer(saved, dtype=dtype, device="cpu")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny.tokenizer("chatml")
    tiny.model("llama", len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def copied(saved: Path, to: Path, **changes: bytes | None) -> Path:
    """A copy of the folder with some files replaced (bytes) or left out (None); keys have _ for every dot."""
    to.mkdir()
    for file in saved.iterdir():
        change = changes.get(file.name.replace(".", "_"), file.read_bytes())
        if change is not None:
            (to / file.name).write_bytes(change)
    return to


class TestFiles:
    def test_a_folder_loads_and_scores_as_the_model_it_was_saved_from(self, saved: Path) -> None:
        loaded = TransformersScorer(saved, device="cpu")
        for a, b in zip(loaded.score(requests()), scorer("llama").score(requests()), strict=True):
            assert np.abs(np.exp(a.logprobs) - np.exp(b.logprobs)).max() <= 1e-5
        assert loaded.engine.network.dtype == torch.float32

    def test_bfloat16_is_there_when_asked_for(self, saved: Path) -> None:
        half = TransformersScorer(str(saved), device="cpu", dtype="bfloat16")
        assert half.engine.network.dtype == torch.bfloat16
        assert np.abs(np.exp(half.score(requests())[0].logprobs).sum(axis=1) - 1).max() < 1e-9

    @pytest.mark.parametrize("name", ["no/such/folder", "/no/such/folder", "missing.gguf"])
    def test_a_missing_model_is_not_found(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(ModelNotFoundError) as caught:
            TransformersScorer(name, device="cpu")
        assert isinstance(caught.value, ValueError) and name.rsplit("/", 1)[-1] in str(caught.value)

    @pytest.mark.parametrize("missing", ["config_json", "model_safetensors"])
    def test_a_folder_without_its_files_is_an_error(self, saved: Path, tmp_path: Path, missing: str) -> None:
        with pytest.raises((ModelNotFoundError, ModelCorruptError)):
            TransformersScorer(copied(saved, tmp_path / "m", **{missing: None}), device="cpu")

    def test_damaged_files_are_named_as_such(self, saved: Path, tmp_path: Path) -> None:
        weights = (saved / "model.safetensors").read_bytes()
        damages: dict[str, dict[str, bytes]] = {
            "truncated": {"model_safetensors": weights[: len(weights) // 2]},
            "garbage": {"model_safetensors": b"\xff" * 100},
            "empty": {"model_safetensors": b""},
            "config": {"config_json": b"{broken"},
            "tokenizer": {"tokenizer_json": b"{broken"},
        }
        for name, change in damages.items():
            with pytest.raises(ModelCorruptError) as caught:
                TransformersScorer(copied(saved, tmp_path / name, **change), device="cpu")
            assert isinstance(caught.value, ValueError), name

    def test_weights_that_do_not_fill_the_model_are_corrupt(self, saved: Path, tmp_path: Path) -> None:
        """transformers would fill what is missing with random numbers and only warn."""
        from safetensors.torch import load_file, save_file

        folder = copied(saved, tmp_path / "m")
        weights = load_file(folder / "model.safetensors")
        weights.pop("model.layers.1.mlp.up_proj.weight")
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ModelCorruptError, match="up_proj"):
            TransformersScorer(folder, device="cpu")

    def test_weights_of_another_shape_are_corrupt(self, saved: Path, tmp_path: Path) -> None:
        config = json.loads((saved / "config.json").read_text())
        config["intermediate_size"] += 8
        with pytest.raises(ModelCorruptError):
            TransformersScorer(copied(saved, tmp_path / "m", config_json=json.dumps(config).encode()), device="cpu")

    def test_a_gguf_file_is_not_quantised_again(self, tmp_path: Path) -> None:
        (tmp_path / "m.gguf").touch()
        with pytest.raises(ConfigurationError, match="its own precision"):
            TransformersScorer(tmp_path / "m.gguf", device="cpu", quantization="int8")

    def test_an_unknown_quantization_is_refused(self, saved: Path) -> None:
        with pytest.raises(ConfigurationError, match="'nf4', 'int8' or None, got 'fp4'"):
            TransformersScorer(saved, device="cpu", quantization="fp4")  # type: ignore[arg-type]

    @pytest.mark.parametrize("settings", [{"dtype": "float16"}, {"quantization": "nf4"}])
    def test_a_loaded_model_keeps_its_precision(self, saved: Path, settings: Any) -> None:
        loaded, tokenizer = load_model(str(saved), device="cpu")
        with pytest.raises(ConfigurationError, match="a loaded one has its own"):
            TransformersScorer(loaded, tokenizer, **settings)

    def test_what_one_model_needs_is_said_in_its_own_words(
        self, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = json.loads((saved / "config.json").read_text()) | {"quantization_config": {"quant_method": "hqq"}}
        folder = copied(saved, tmp_path / "m", config_json=json.dumps(config).encode())
        with pytest.raises(ConfigurationError, match=r"more than is installed: .*HQQ"):
            TransformersScorer(folder, device="cpu")
        missing = {"accelerate", "bitsandbytes"}
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))
        for package in ("bitsandbytes", "accelerate"):
            with pytest.raises(MissingDependencyError, match=f"'{package}'.*quantized"):
                TransformersScorer(saved, device="cpu", quantization="nf4")
            missing.discard(package)

    def test_a_model_of_another_kind_is_not_called_damaged(self, saved: Path, tmp_path: Path) -> None:
        config = json.dumps({"model_type": "t5", "vocab_size": 400}).encode()
        with pytest.raises(ConfigurationError, match="--cross-encoder a classifier"):
            TransformersScorer(copied(saved, tmp_path / "m", config_json=config), device="cpu")

    @pytest.mark.parametrize("quantization", [None, "nf4"])
    def test_pickles_are_never_loaded(self, saved: Path, tmp_path: Path, quantization: Any) -> None:
        if quantization is not None:
            pytest.importorskip("bitsandbytes")
        folder = copied(saved, tmp_path / "m", model_safetensors=None)
        torch.save(tiny.model("llama", len(tiny.tokenizer("chatml"))).state_dict(), folder / "pytorch_model.bin")
        with pytest.raises((ModelNotFoundError, ModelCorruptError)):
            TransformersScorer(folder, device="cpu", quantization=quantization)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma2", "gpt2"])
def test_the_plain_path_gives_the_same(architecture: str) -> None:
    one = scorer(architecture)
    want = one.score(requests())
    one.engine.packs = False
    for request, a, b in zip(requests(), one.score(requests()), want, strict=True):
        assert np.abs(np.exp(a.logprobs) - np.exp(b.logprobs)).max() < 1e-5
        assert np.abs(np.exp(a.logprobs) - plain(one, request)).max() < 1e-5


def test_prompts_of_one_length_make_a_batch_within_its_tokens() -> None:
    one = scorer("llama", batch_tokens=400)
    one.engine.packs = False
    whole, sizes = one.engine.plain, []

    def seen(batch: list[list[int]]) -> list[torch.Tensor]:
        sizes.append((len(batch), *sorted(set(map(len, batch)))))
        return whole(batch)

    one.engine.plain = seen  # type: ignore[method-assign]
    texts = ["Paris is a city."] * 6 + ["Paris is the capital of France. " * 6]
    one.score([ScoreRequest(Supported(claim="It is.").render([Chunk(text)]), ((0,),)) for text in texts])
    assert sum(count for count, _ in sizes) == 7 and sizes[0][0] > 1
    assert all(count == 1 or count * length <= 400 for count, length in sizes)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no more"), MemoryError("no more")])
@pytest.mark.parametrize("packed", [True, False])
def test_memory_that_runs_out_halves_the_batch(
    monkeypatch: pytest.MonkeyPatch, packed: bool, error: BaseException
) -> None:
    one = scorer("llama")
    one.engine.packs = packed
    want = one.score(requests())
    name = "packed" if packed else "plain"
    whole = getattr(one.engine, name)
    sizes: list[int] = []
    room = 2

    def small(batch: Any, *rest: Any) -> Any:
        sizes.append(sum(map(len, batch.reads)) if packed else len(batch))
        if sizes[-1] > room:
            raise error
        return whole(batch, *rest)

    monkeypatch.setattr(one.engine, name, small)
    for a, b in zip(one.score(requests()), want, strict=True):
        assert np.abs(a.logprobs - b.logprobs).max() < 1e-4
    assert max(sizes) > 2
    room = 0
    with pytest.raises(ScorerError, match="memory"):
        one.score(requests())


def test_a_prompt_beyond_the_memory_budget_is_refused_before_anything_is_computed() -> None:
    one = scorer("llama", memory=9_000_000)
    assert one.batch_tokens == 9_000_000 // one.bytes_per_token
    fits, too_long = ["Paris is a city."] * 3, ["Paris is the capital of France. " * 5] * 9
    gate = ISRGate(scorer=one, reference=Oracle(1.0), orderings=Orderings(m=2))
    gate.decide(fits, claim="Paris is a city.")
    computed = one.engine.computed_tokens
    with pytest.raises(MemoryBudgetError, match=r"GB are allowed: pass fewer chunks"):
        gate.decide(too_long, claim="Paris is a city.")
    careful = ISRGate(scorer=one, reference=Oracle(1.0), on_error="abstain", orderings=Orderings(m=2))
    assert careful.decide(too_long, claim="Paris is a city.").reason == "scorer_failed"
    one.noise_floor  # noqa: B018  # measured already, so that nothing below counts its passes
    assert one.engine.computed_tokens == computed


def test_thousands_of_tokens_of_evidence_run_within_the_budget_or_are_refused() -> None:
    tokenizer = tiny.tokenizer("chatml")
    model = tiny.model("llama", len(tokenizer))
    texts = [f"{k}. " + "Lyon is the third city of France, and Paris is its capital. " * 12 for k in range(30)]
    prompt = Supported(claim="Paris is the capital.").render([Chunk(text) for text in texts])
    request = ScoreRequest(prompt, [tuple(range(30))])
    one = TransformersScorer(model, tokenizer, device="cpu", window=32_768)
    tokens = len(one.encoder.encode(prompt).assemble(request.orderings[0]))
    assert tokens > 6_000
    small = TransformersScorer(model, tokenizer, device="cpu", window=32_768, memory=tokens * one.bytes_per_token // 2)
    probed = small.engine.computed_tokens
    with pytest.raises(MemoryBudgetError, match=r"GB are allowed: pass fewer chunks"):
        small.score([request])
    assert small.engine.computed_tokens == probed
    large = TransformersScorer(model, tokenizer, device="cpu", window=32_768, memory=tokens * one.bytes_per_token * 2)
    assert np.abs(np.exp(large.score([request])[0].logprobs) - plain(one, request)).max() <= 1e-5


def test_the_noise_floor_is_rounding_in_float32_and_more_in_bfloat16() -> None:
    tokenizer = tiny.tokenizer("chatml")
    half = TransformersScorer(tiny.model("llama", len(tokenizer)).bfloat16(), tokenizer, device="cpu").noise_floor
    whole, late = scorer("llama").noise_floor, tiny.scorer("llama").noise_floor
    assert half is not None and whole is not None and late is not None
    assert 0.0 < min(whole, late) <= max(whole, late) < 1e-3 < half < 2.0
    assert scorer("llama", window=100).noise_floor is None
    learned = scorer("gpt2").noise_floor  # learned positions cannot be moved, and are not
    assert learned is not None and learned < 1e-3


def test_threads_on_one_scorer_get_their_own_results() -> None:
    one = scorer("qwen2")
    asked = requests()
    want = [result.logprobs for result in one.score(asked)]
    barrier = threading.Barrier(8)

    def work(k: int) -> float:
        barrier.wait(timeout=30)
        mine: Sequence[int] = [(k + i) % len(asked) for i in range(len(asked))]
        got = one.score([asked[i] for i in mine])
        return max(float(np.abs(g.logprobs - want[i]).max()) for g, i in zip(got, mine, strict=True))

    with ThreadPoolExecutor(8) as pool:
        assert max(future.result(timeout=60) for future in [pool.submit(work, k) for k in range(8)]) < 1e-5


def test_a_gate_decides_with_it_end_to_end() -> None:
    gate = ISRGate(scorer=scorer("llama"), reference=Oracle(1.0), h_star=0.4, orderings=Orderings(m=6))
    evidence = ["Paris is the capital of France.", "Lyon is a city.", "Metz too."]
    d = gate.decide(evidence, claim="Paris is the capital.")
    assert len(d.q) == d.passes == 6 and d.isr is not None and not math.isnan(d.isr)
    assert d == gate.decide(evidence, claim="Paris is the capital.")
