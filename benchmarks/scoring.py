"""Scoring m orderings: the packed trie against what other tools do, as ratios taken in one run.

    python benchmarks/scoring.py --quick --json quick.json     a minute or two
    python benchmarks/scoring.py --items 1 --json scoring.json --plot scoring.png     80 places, an hour or more

Contestants, on the same prompts: `generate` asks for one token m times in float32 (what existing tools do; it shares
nothing between orderings, so beyond m = 6 its time is that of two in proportion);
`batch` is one padded batch of full prompts in the same precision as the packed path; `llama.cpp`, if
llama-cpp-python is installed, computes in bfloat16 and reuses the longest common prefix of orderings that were sorted;
`precise` is the default path (float32, through oneDNN where that is exact), `bf16` the same in bfloat16, left out
on processors that compute it in software.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import (
    interleaved,
    linear_flop_per_token,
    machine,
    matmul_ceiling,
    plot_lines,
    real_chunks,
)
from transformers import AutoModelForCausalLM, AutoTokenizer

from isr_rag import Chunk, Supported, TransformersScorer
from isr_rag._util.files import write_json
from isr_rag.core.orderings import Family, draw_orderings
from isr_rag.core.scorer import ScoreRequest
from isr_rag.scorers import embedded
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.scorers.local.lean import has_onednn
from isr_rag.scorers.local.obtaining import find_gguf
from isr_rag.scorers.local.packed.pack import pack_full

QUICK = [(48, n, 6, "banded") for n in (5, 10, 20)]
GRID = sorted(
    (
        (size, n, m, family)
        for size, ns in ((48, (3, 5, 10, 20, 60)), (256, (3, 5, 10)))
        for n in ns
        for m in (1, 3, 6, 12, 16)
        for family in ("banded", "uniform")
    ),
    key=lambda place: place[0] * place[1] * place[2],  # the costly ones last: a run that is stopped lacks few places
)


@dataclass
class Bench:
    """The same weights behind every contestant."""

    llama_cpp: Any = None
    precise: TransformersScorer = field(init=False)
    bf16: TransformersScorer | None = field(init=False)

    def __post_init__(self) -> None:
        folder = embedded.setup(print)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        bf16 = has_onednn(torch.bfloat16)
        self.models = {
            dtype: AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
            for dtype in (torch.float32, torch.bfloat16)[: 1 + bf16]
        }
        self.precise = TransformersScorer(folder, device="cpu")
        self.bf16 = TransformersScorer(folder, device="cpu", dtype="bfloat16") if bf16 else None
        self.flop = linear_flop_per_token(self.models[torch.float32])

    def request(self, size: int, n: int, m: int, family: Family, item: int) -> ScoreRequest:
        """A claim about n chunks of real text."""
        texts = real_chunks(self.tokenizer, size - 5, n, start=item * n)  # the quotation marks take the rest
        claim = " ".join(texts[0].split()[:12])
        prompt = Supported(claim=claim).render([Chunk(text) for text in texts])
        return ScoreRequest(prompt, draw_orderings(n, m, family=family, seed=item))

    def ids(self, request: ScoreRequest, m: int) -> list[list[int]]:
        """Token ids of m prompts: a tool that does not share scores an ordering again where fewer are distinct."""
        encoded = self.precise.encoder.encode(request.prompt)
        orderings = request.orderings
        return [encoded.assemble(orderings[k % len(orderings)]) for k in range(m)]

    def attention_flop(self, request: ScoreRequest) -> float:
        """Floating-point operations of attention over the trie: two products over every query-key pair that is seen."""
        one = self.precise.encoder.encode(request.prompt)
        pack = pack_full([one], [request.orderings])
        pairs = sum(
            node.length * sum(length for _, length in node.visible) + node.length * (node.length + 1) // 2
            for node in pack.nodes
        )
        config = self.models[torch.float32].config
        return 4.0 * pairs * config.hidden_size * config.num_hidden_layers

    def labels(self, request: ScoreRequest) -> tuple[list[int], list[int]]:
        """Token ids of yes and no."""
        yes, no = self.precise.encoder.encode(request.prompt).labels
        return list(yes), list(no)

    def generate(self, request: ScoreRequest, m: int) -> list[float]:
        """One token an ordering, in torch's default float32."""
        yes, no = self.labels(request)
        found: list[float] = []
        for ids in self.ids(request, m):
            tokens = torch.tensor([ids])
            with torch.inference_mode():
                out = self.models[torch.float32].generate(
                    tokens,
                    attention_mask=torch.ones_like(tokens),
                    max_new_tokens=1,
                    do_sample=False,
                    output_logits=True,
                    return_dict_in_generate=True,
                    pad_token_id=0,
                )
            found.append(_q(out.logits[0][0].double(), yes, no))
        return found

    def batch(self, scorer: TransformersScorer, request: ScoreRequest, m: int) -> list[float]:
        """One batch of full prompts, logits of the last position only, in the scorer's precision."""
        yes, no = self.labels(request)
        with scorer.engine.computing():
            model = self.models[scorer.engine.network.dtype]
            logits = model(input_ids=torch.tensor(self.ids(request, m)), logits_to_keep=1, use_cache=False)
            return [_q(row.double(), yes, no) for row in logits.logits[:, -1]]

    def cpp(self, request: ScoreRequest, m: int) -> list[float]:
        """llama.cpp, orderings sorted so that neighbours share the longest prefix, which it keeps."""
        yes, no = self.labels(request)
        ids = self.ids(request, m)
        found = [0.0] * len(ids)
        llama = self.llama_cpp
        before: list[int] = []
        for k in sorted(range(len(ids)), key=lambda k: ids[k]):
            shared = next((i for i, (a, b) in enumerate(zip(before, ids[k], strict=False)) if a != b), len(before))
            shared = min(shared, len(ids[k]) - 1)
            llama.n_tokens = shared  # what lies behind is dropped by eval
            llama.eval(ids[k][shared:])
            before = ids[k]
            logits = np.ctypeslib.as_array(llama._ctx.get_logits_ith(-1), (llama.n_vocab(),))
            found[k] = _q(torch.from_numpy(logits.copy()).double(), yes, no)
        return found


def _q(logits: torch.Tensor, yes: list[int], no: list[int]) -> float:
    return float(torch.sigmoid(logits[yes].logsumexp(0) - logits[no].logsumexp(0)))


def _scored(scorer: TransformersScorer, request: ScoreRequest) -> list[float]:
    return [float(q) for q in np.exp(scorer.score([request])[0].logprobs[:, 0])]


def load_llama_cpp() -> Any:
    """llama.cpp with the embedded model's weights in bfloat16, or None if it is not installed."""
    try:
        import llama_cpp
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bf16.gguf"
        settings = llama_cpp.llama_model_quantize_default_params()
        settings.ftype, settings.allow_requantize = llama_cpp.LLAMA_FTYPE_MOSTLY_BF16, True
        source = str(find_gguf(STANDARD, embedded.cache_directory())).encode()
        if llama_cpp.llama_model_quantize(source, str(path).encode(), ctypes.byref(settings)) != 0:
            raise RuntimeError("llama.cpp did not convert the weights")
        threads = torch.get_num_threads()
        return llama_cpp.Llama(
            str(path), n_ctx=8192, n_batch=2048, n_threads=threads, n_threads_batch=threads, verbose=False
        )


def measure(bench: Bench, size: int, n: int, m: int, family: Family, items: int) -> dict[str, Any]:
    """Every contestant at one place of the grid."""
    requests = [bench.request(size, n, m, family, item) for item in range(items)]
    generated = m if m <= 6 else 2
    contestants: dict[str, Callable[[int], list[float]]] = {
        "generate": lambda i: bench.generate(requests[i], generated),
        "batch": lambda i: bench.batch(bench.precise, requests[i], m),
        "precise": lambda i: _scored(bench.precise, requests[i]),
    }
    if (bf16 := bench.bf16) is not None:
        contestants["batch_bf16"] = lambda i: bench.batch(bf16, requests[i], m)
        contestants["bf16"] = lambda i: _scored(bf16, requests[i])
    if bench.llama_cpp is not None:
        contestants["llama_cpp"] = lambda i: bench.cpp(requests[i], m)
    before = bench.precise.engine.computed_tokens
    found = interleaved(contestants, items, warm_up=False)
    found["generate"]["seconds"] *= m / generated
    computed = (bench.precise.engine.computed_tokens - before) / items
    naive = sum(len(ids) for request in requests for ids in bench.ids(request, m)) / items
    flop = computed * bench.flop + sum(map(bench.attention_flop, requests)) / items
    exact = found["generate"]["results"]
    return {
        "chunk_tokens": size,
        "n": n,
        "m": m,
        "drawn": len(requests[0].orderings),
        "family": family,
        "seconds": {name: entry["seconds"] for name, entry in found.items()},
        "max_abs_dq": {name: _largest_difference(entry["results"], exact) for name, entry in found.items()},
        "tokens": {"computed": computed, "naive": naive},
        "flop_per_second": {name: flop / found[name]["seconds"] for name in ("precise", "bf16") if name in found},
    }


def _largest_difference(found: Sequence[Sequence[float]], exact: Sequence[Sequence[float]]) -> float:
    return max(
        abs(a - b) for one, other in zip(found, exact, strict=True) for a, b in zip(one, other, strict=False)
    )  # as many as are distinct


def ratios(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How many times faster than each rival, by place of the grid."""
    found: dict[str, float] = {}
    for row in rows:
        place = f"n{row['n']}_m{row['m']}"
        if row["chunk_tokens"] != 48 or row["family"] != "banded":
            place += f"_{row['chunk_tokens']}tok_{row['family']}"
        seconds = row["seconds"]
        for ours, rival in (
            ("precise", "generate"),
            ("bf16", "generate"),
            ("precise", "batch"),
            ("bf16", "batch_bf16"),
            ("precise", "llama_cpp"),
            ("bf16", "llama_cpp"),
        ):
            if ours in seconds and rival in seconds:
                found[f"{ours}_vs_{rival}_{place}"] = round(seconds[rival] / seconds[ours], 3)
    return found


def plot(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Speed-ups against generate over n, for m = 6 banded orderings of 48-token chunks."""
    chosen = [row for row in rows if (row["chunk_tokens"], row["m"], row["family"]) == (48, 6, "banded")]
    names = [name for name in chosen[0]["seconds"] if name != "generate"]
    series = {name: [(row["n"], row["seconds"]["generate"] / row["seconds"][name]) for row in chosen] for name in names}
    plot_lines(
        path,
        series,
        title="Six banded orderings of 48-token chunks",
        x="chunks n",
        y="times faster than generate (float32)",
        log=True,
        even=1.0,
    )


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="n = 5, 10, 20 at m = 6 only")
    parser.add_argument("--items", type=int, default=None, help="items at each place (quick: 1, else 5)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    items = given.items or (1 if given.quick else 5)
    bench = Bench(None if given.quick else load_llama_cpp())
    ceilings = {"precise": matmul_ceiling(torch.float32, "medium" if bench.precise.engine.medium else "highest")}
    if bench.bf16 is not None:
        ceilings["bf16"] = matmul_ceiling(torch.bfloat16, "highest")
    measure(bench, 48, 3, 1, "banded", 1)  # warm-up
    about = {"machine": machine(), "items": items}
    rows: list[dict[str, Any]] = []
    if given.json and given.json.exists() and not given.quick:  # a run that was stopped goes on
        rows = json.loads(given.json.read_text("utf-8"))["rows"]
    known = {(row["chunk_tokens"], row["n"], row["m"], row["family"]) for row in rows}
    for size, n, m, family in QUICK if given.quick else GRID:
        if (size, n, m, family) in known:
            continue
        row = measure(bench, size, n, m, family, items)
        row["of_ceiling"] = {name: row["flop_per_second"][name] / ceilings[name] for name in ceilings}
        rows.append(row)
        shown = ", ".join(f"{name} {value:.2f}s" for name, value in row["seconds"].items())
        share = row["of_ceiling"]["precise"]
        print(f"{size} tokens, n={n}, m={m} {family}: {shown}; {share:.0%} of the matmul ceiling", flush=True)
        if given.json:  # a run that is stopped leaves what it has
            write_json(given.json, {"ratios": ratios(rows), "rows": rows, "ceilings": ceilings, **about})
    found = ratios(rows)
    for name, value in found.items():
        print(f"{name}: {value:.2f}x")
    print(f"geometric mean: {math.exp(np.mean([math.log(value) for value in found.values()])):.2f}x")
    if given.plot:
        plot(given.plot, rows)


if __name__ == "__main__":
    main()
