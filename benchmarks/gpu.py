"""Everything that needs a GPU, in ten minutes on any machine with CUDA and without a network.

    python benchmarks/gpu.py --out gpu.json                       # a 7B network of random weights, made on the spot
    python benchmarks/gpu.py --size tiny --out rehearsal.json     # a rehearsal anywhere, on a CPU too

It needs isr-rag[local,quantized] and lab/ installed (or `PYTHONPATH=.:lab`), 20 GB of disk, and peft for `training`.
Each part is measured by itself, and one that fails or cannot run does not keep the others from it: the report says
which were not run, and why. `precision` and `judge` need the model of the package (`isr-rag setup`).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from isr_rag import Chunk, ISRGate, Orderings, Supported, TransformersScorer, __version__
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.scorer import ScoreRequest
from isr_rag.errors import ScorerError
from isr_rag.references import Oracle
from isr_rag.scorers import embedded
from isr_rag.scorers.local.encoding import EncodedPrompt, PromptEncoder
from isr_rag.scorers.local.hub_network import HubNetwork
from isr_rag.scorers.local.loading import load_model
from isr_rag.scorers.local.packed.pack import pack_full

SIZES = {
    "7b": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28},
    "1b": {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "num_attention_heads": 16},
    "tiny": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4},
}
CUDA = torch.cuda.is_available()


class NotRunError(Exception):
    """A part that cannot run here, and why."""


class Bench:
    """What the parts share: the network on disk, the items, and the scorers, one at a time.

    Args:
        size: key of `SIZES`.
        folder: where the network is written.
        device: where everything runs.
    """

    def __init__(self, size: str, folder: Path, device: str) -> None:
        self.size, self.folder, self.device = size, folder, device
        self.loaded: tuple[str, TransformersScorer] | None = None
        self.report: dict[str, Any] = {}
        rows = files("isr_lab").joinpath("contrast/twins.jsonl").read_text("utf-8").splitlines()
        cases = [json.loads(row) for row in rows]
        self.texts = [list(case["chunks"]) for case in cases]
        self.twins = [case["twins"][0] for case in cases]
        self.claims = [twin["true" if i % 2 else "false"] for i, twin in enumerate(self.twins)]

    def requests(self, count: int, m: int) -> list[ScoreRequest]:
        """Claims about five chunks each, in m orderings."""
        return [
            ScoreRequest(Supported(claim=claim).render([Chunk(t) for t in texts]), draw_orderings(len(texts), m))
            for claim, texts in list(zip(self.claims, self.texts, strict=True))[:count]
        ]

    def make(self) -> dict[str, Any]:
        """Write a network of random weights in bfloat16, made on the device, and a tokenizer made of the items."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
        from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

        shape = SIZES[self.size]
        heads = shape["num_attention_heads"]
        vocabulary = {"7b": 152064, "1b": 151936, "tiny": 8192}[self.size]
        config = Qwen2Config(
            **shape,
            vocab_size=vocabulary,
            num_key_value_heads=max(1, heads // 7 if heads % 7 == 0 else heads // 4),
            max_position_embeddings=32768,
            tie_word_embeddings=self.size != "7b",
        )
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        torch.manual_seed(0)
        try:
            with torch.device(self.device):
                model = Qwen2ForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
        model.save_pretrained(self.folder)
        words = Tokenizer(models.BPE())
        words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        words.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=8000, initial_alphabet=alphabet, show_progress=False)
        words.train_from_iterator((text for texts in self.texts for text in texts), trainer)
        PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(self.folder)
        count = sum(parameter.numel() for parameter in model.parameters())
        del model
        return {"parameters": count, "bytes": sum(path.stat().st_size for path in self.folder.iterdir())}

    def scorer(self, quantization: str | None = None, **settings: Any) -> TransformersScorer:
        """The network, loaded as asked; the one before is given back first, since two may not fit."""
        key = f"{quantization}/{settings}"
        if self.loaded is None or self.loaded[0] != key:
            self.loaded = None
            free()
            given: dict[str, Any] = {"quantization": quantization, "device": self.device, **settings}
            if CUDA:
                self.loaded = key, TransformersScorer(self.folder, chat=False, **given)
            else:  # a loaded model is used as it is, as on CUDA; a folder would be written out anew for the CPU
                model, tokenizer = load_model(str(self.folder), **{"dtype": "bfloat16", **given})
                self.loaded = key, TransformersScorer(model, tokenizer, chat=False)
        return self.loaded[1]


def free() -> None:
    """Give back what nobody holds."""
    gc.collect()
    if CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


@contextmanager
def timed(into: dict[str, Any], name: str) -> Iterator[None]:
    """Put the seconds of a block into a dictionary, and the most memory it took on the device."""
    free()
    begun = time.perf_counter()
    yield
    if CUDA:
        torch.cuda.synchronize()
        into[f"{name}_peak_bytes"] = torch.cuda.max_memory_allocated()
    into[f"{name}_seconds"] = time.perf_counter() - begun


def odds(scorer: Any, requests: list[ScoreRequest]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Log-odds of every ordering of every request."""
    found = scorer.score(requests)
    return np.concatenate([one.logprobs[:, 0] - one.logprobs[:, 1] for one in found])


def difference(first: Any, second: Any) -> dict[str, float]:
    """How far two rows of log-odds are apart."""
    apart = np.abs(np.asarray(first) - np.asarray(second))
    return {"mean": float(apart.mean()), "p95": float(np.quantile(apart, 0.95)), "max": float(apart.max())}


def plain(scorer: TransformersScorer, requests: list[ScoreRequest]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """As `odds`, through the framework's own pass over whole prompts."""
    packs, scorer.engine.packs = scorer.engine.packs, False
    try:
        return odds(scorer, requests)
    finally:
        scorer.engine.packs = packs


def forms(bench: Bench, quantization: str | None) -> dict[str, Any]:
    """Load a form of the network; packed against plain, noise floor, and the estimate of memory against the truth."""
    found: dict[str, Any] = {}
    with timed(found, "load"):
        scorer = bench.scorer(quantization)
    found |= {"identity": scorer.identity, "packs": scorer.engine.packs, "why_not": scorer.engine.unpacked_because}
    requests = bench.requests(50 if CUDA else 2, 6)
    odds(scorer, requests[:1])  # warms up
    resident = torch.cuda.memory_allocated() if CUDA else 0
    with timed(found, "packed"):
        packed = odds(scorer, requests)
    if CUDA:
        found["packed_bytes_beside_weights"] = found["packed_peak_bytes"] - resident
        network = scorer.engine.network
        found["stated_bytes"] = network.workspace + network.bytes_per_token * scorer.batch_tokens
        found["estimate_covers"] = found["packed_bytes_beside_weights"] <= found["stated_bytes"]
    with timed(found, "plain"):
        one_by_one = plain(scorer, requests)
    found["spread"] = float(np.std(packed))  # of the log-odds: what the differences are to be measured against
    found["packed_against_plain"] = difference(packed, one_by_one)
    found["neighbours"] = difference(packed[:6], odds(scorer, requests[:1]))
    found["noise_floor"] = scorer.noise_floor
    return found


def nf4(bench: Bench) -> dict[str, Any]:
    """The 4-bit form."""
    needs("bitsandbytes")
    return forms(bench, "nf4")


def bf16(bench: Bench) -> dict[str, Any]:
    """The form in bfloat16."""
    return forms(bench, None)


def int8(bench: Bench) -> dict[str, Any]:
    """The 8-bit form, whose requests must not depend on one another."""
    needs("bitsandbytes")
    found = forms(bench, "int8")
    return found | {"as_alone": found["neighbours"]["max"] == 0.0}


def out_of_memory(bench: Bench) -> dict[str, Any]:
    """A batch far larger than the device's memory: it is halved until it fits, and gives the same scores."""
    scorer = bench.scorer()
    requests = bench.requests(50 if CUDA else 2, 6)
    want, tokens = odds(scorer, requests), scorer.batch_tokens
    passes: list[int] = []
    run = scorer._pass

    def counted(batch: Any, *rest: Any, **more: Any) -> Any:
        passes.append(len(batch))
        if not CUDA and len(batch) > 4:  # the rehearsal: nothing is too large there
            raise torch.OutOfMemoryError("CUDA out of memory (rehearsed)")
        return run(batch, *rest, **more)

    scorer._pass, scorer.batch_tokens = counted, 10**9  # type: ignore[method-assign]
    if CUDA:  # leave little more than one item takes
        free()
        room = torch.cuda.mem_get_info()[0] - 3 * scorer.bytes_per_token * 1500
        hog: Any = torch.empty(max(0, room), dtype=torch.uint8, device=bench.device)
    try:
        found = odds(scorer, requests)
    finally:
        hog = None  # noqa: F841  # frees it
        del scorer._pass
        scorer.batch_tokens = tokens
    if len(passes) < 3:
        raise AssertionError(f"memory did not run out: passes of {passes} orderings")
    return {"passes": passes, "against_whole": difference(found, want)}


def fork(bench: Bench) -> dict[str, Any]:
    """A fork of a process that has used the device gets a typed error, and its parent goes on."""
    if not CUDA:
        raise NotRunError("no CUDA device")
    scorer, requests = bench.scorer(), bench.requests(1, 6)
    want = odds(scorer, requests)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        said = "no error"
        try:
            scorer.score(requests)
        except BaseException as error:  # whatever it is, the child must end here
            said = f"{'typed' if isinstance(error, ScorerError) else type(error).__name__}: {error}"
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return {"child": said, "parent_as_before": difference(odds(scorer, requests), want)["max"] == 0.0}


def decisions(bench: Bench) -> dict[str, Any]:
    """Decisions a second with six orderings, against a word of `generate` per ordering with the same model."""
    scorer = bench.scorer()
    count = 50 if CUDA else 2
    gate = ISRGate(scorer=scorer, reference=Oracle(0.95), orderings=Orderings(m=6))
    items = [
        {"claim": claim, "evidence": texts}
        for claim, texts in list(zip(bench.claims, bench.texts, strict=True))[:count]
    ]
    gate.decide_batch(items[:1])
    found: dict[str, Any] = {"decisions": count}
    with timed(found, "batch"):
        decided = gate.decide_batch(items)
    with timed(found, "one_by_one"):
        for item in items:
            gate.decide(**item)
    network = cast(HubNetwork, scorer.engine.network)
    prompts = [
        scorer.encoder.encode(request.prompt).assemble(ordering)
        for request in bench.requests(count, 6)
        for ordering in request.orderings
    ]
    with timed(found, "generate"), torch.inference_mode():
        for start in range(0, len(prompts), 8):
            generate(network.model, prompts[start : start + 8], bench.device)
    found["per_second"] = {name: count / found[f"{name}_seconds"] for name in ("batch", "one_by_one", "generate")}
    found["reasons"] = sorted({str(one.reason) for one in decided})
    return found


def generate(model: Any, prompts: list[list[int]], device: str) -> None:
    """One word for each of some prompts, as a user of transformers would ask for it."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts], device=device)
    model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=1, do_sample=False, pad_token_id=0)


def vllm(bench: Bench) -> dict[str, Any]:
    """The same prompts through vLLM with its prefix cache, where it is installed."""
    if not CUDA:
        raise NotRunError("no CUDA device")
    needs("vllm")
    bench.loaded = None
    embedded._load.cache_clear()  # vLLM takes what it is told to of the whole device
    free()
    from transformers import AutoTokenizer

    encoder = PromptEncoder(AutoTokenizer.from_pretrained(bench.folder), chat=False)
    prompts = [
        encoder.encode(request.prompt).assemble(ordering)
        for request in bench.requests(50, 6)
        for ordering in request.orderings
    ]
    from vllm import LLM, SamplingParams

    begun = time.perf_counter()
    engine = LLM(
        str(bench.folder),
        dtype="bfloat16",
        enable_prefix_caching=True,
        max_model_len=4096,
        gpu_memory_utilization=0.8,
        enforce_eager=True,  # compiling takes minutes, and saves little where nothing but prompts is read
    )
    asked = [{"prompt_token_ids": ids} for ids in prompts]
    how = SamplingParams(max_tokens=1, temperature=0.0, logprobs=20, detokenize=False)  # ids beyond the tokenizer's
    found: dict[str, Any] = {"version": version("vllm"), "start_seconds": time.perf_counter() - begun}
    engine.generate(asked[:6], how)
    begun = time.perf_counter()
    engine.generate(asked, how)
    found["vllm_seconds"] = time.perf_counter() - begun  # its memory is in a process of its own
    found["decisions_per_second"] = 50 / found["vllm_seconds"]
    return found


def precision(bench: Bench) -> dict[str, Any]:
    """The base of the judge in the precisions of a device, against float32: log-odds of 50 claims about two chunks."""
    bench.loaded = None
    free()
    requests: list[ScoreRequest] = []
    for i, (twin, texts) in enumerate(zip(bench.twins, bench.texts, strict=True)):
        chunks = [Chunk(texts[(twin["chunk"] + k) % len(texts)]) for k in (0, 1)]
        requests.append(ScoreRequest(Supported(claim=twin["true" if i % 2 else "false"]).render(chunks), ((0, 1),)))

    def scored(dtype: str) -> Any:
        """Through the framework's own layers, as on CUDA, and in that precision throughout."""
        free()
        return odds(TransformersScorer(*load_model(str(embedded.verify()), device=bench.device, dtype=dtype)), requests)

    want = scored("float32")
    return {dtype: difference(scored(dtype), want) for dtype in ("bfloat16", *(["float16"] if CUDA else []))}


def judge(bench: Bench) -> dict[str, Any]:
    """The judge on the device against the judge on the CPU: the same log-odds, and decisions a second."""
    bench.loaded = None
    free()
    count = 50 if CUDA else 2
    there, here = embedded.embedded_scorer(device=bench.device), embedded.embedded_scorer()
    requests = [
        ScoreRequest(Supported(claim=claim).render([Chunk(t) for t in texts], topic_first=False), ((0, 1, 2, 3, 4),))
        for claim, texts in list(zip(bench.claims, bench.texts, strict=True))[:count]
    ]
    found: dict[str, Any] = {"identities_equal": there.identity == here.identity}
    with timed(found, "device"):
        ours = odds(there, requests)
    with timed(found, "cpu"):
        theirs = odds(here, requests)
    found["against_cpu"] = difference(ours, theirs)
    found["decisions_per_second"] = count / found["device_seconds"]
    return found


def training(bench: Bench) -> dict[str, Any]:
    """Steps a second of the laboratory's training, in the full layout, with an adapter of rank 16."""
    needs("peft")
    from isr_lab.training.network import PeftNetwork

    bench.loaded = None
    free()
    quantized = CUDA and find_spec("bitsandbytes") is not None
    network = PeftNetwork(bench.folder, 16, 32.0, 0.05, 0, (15, 16), 0, nf4=quantized)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    pack = pack_full(
        [EncodedPrompt((1,) * 60, tuple((i + 2,) * 160 for i in range(6)), (9,) * 40)], [[(0, 1, 2, 3, 4, 5)]]
    )
    steps = 20 if CUDA else 2
    found: dict[str, Any] = {"steps": steps, "tokens": len(pack.input_ids), "nf4": quantized}
    losses: list[float] = []

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        losses.append(network.loss_and_grad(pack, torch.ones(1), torch.ones(1))[0])
        optimizer.step()

    step()  # warms up
    with timed(found, "training"):
        for _ in range(steps):
            step()
    found["steps_per_second"] = steps / found["training_seconds"]
    found["losses"] = [losses[0], losses[-1]]
    return found


def needs(package: str) -> None:
    """Say that a part cannot run without a package."""
    if find_spec(package) is None:
        raise NotRunError(f"{package} is not installed")


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    function.__name__: function
    for function in (bf16, out_of_memory, fork, decisions, nf4, precision, judge, training, int8, vllm)
}


def machine() -> dict[str, Any]:
    """What it runs on."""
    found: dict[str, Any] = {"isr-rag": __version__, "cuda": torch.version.cuda}
    for name in ("torch", "transformers", "accelerate", "bitsandbytes", "peft", "vllm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    if CUDA:
        found["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        found["bytes"] = torch.cuda.mem_get_info()[1]
    return found


def main() -> None:
    """Run the parts, and write after each what is known so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="7b", help="the network that is made")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS), help="the parts to run; default: all")
    parser.add_argument(
        "--seconds", type=float, default=450.0, help="no part begins later, so that all end in ten minutes"
    )
    given = parser.parse_args()
    if not CUDA and given.size != "tiny":
        sys.exit("there is no CUDA device: rehearse with --size tiny")
    os.environ["HF_HUB_OFFLINE"] = "1"
    begun = time.perf_counter()
    report: dict[str, Any] = {"machine": machine(), "size": given.size, "rehearsal": not CUDA, "not_run": {}}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(given.size, Path(folder), "cuda" if CUDA else "cpu")
        with timed(report, "making"):
            report["network"] = bench.make()
        for name, part in PARTS.items():
            passed = time.perf_counter() - begun
            try:
                if name not in given.only:
                    raise NotRunError("not asked for")
                if passed > given.seconds:
                    raise NotRunError(f"{passed:.0f} seconds had passed")
                if name in ("precision", "judge") and not embedded.is_ready():
                    raise NotRunError("the model of the package is not set up")
                report[name] = part(bench)
                report[name]["part_seconds"] = time.perf_counter() - begun - passed
            except NotRunError as error:
                report["not_run"][name] = str(error)
            except Exception as error:  # whatever it is, the other parts still run, and the report says so
                report["not_run"][name] = f"failed: {type(error).__name__}: {error}"
                traceback.print_exc()
            given.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
            print(f"{name}: {json.dumps(report.get(name, report['not_run'].get(name)))}", flush=True)
    print(f"not run: {report['not_run'] or 'nothing'}; {time.perf_counter() - begun:.0f} seconds; {given.out}")


if __name__ == "__main__":
    main()
