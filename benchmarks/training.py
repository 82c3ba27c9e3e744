"""The written-out training pass beside transformers and peft, on the same batches: labels per second and memory.

    OMP_NUM_THREADS=1 python benchmarks/training.py BASE --first-layer 10 --json training.json

BASE is the folder of a Llama or Qwen 2 model. Both train the same kind of adapter over the same packed batches, in
which every distinct chunk is computed once; a step is loss, gradients, AdamW and what the pass refreshes. They take
turns in processes of their own; processor time counts, the least of the rounds for each batch, because other work on
the machine slows both. The memory is the largest resident set of such a process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from measuring import machine
from transformers import AutoTokenizer

from isr_lab.slice.reading import read_items
from isr_lab.training.data import label_ids, passes
from isr_lab.training.network import PackedLlama
from isr_lab.training.peft_network import PeftNetwork
from isr_lab.training.train import TrainableNetwork, build_pack
from isr_rag.files import write_json
from isr_rag.scorers.local.encoding import PromptEncoder

RANK, ALPHA = 32, 64.0
CONTESTANTS = ("written out", "peft")


def made(name: str, base: Path, first_layer: int, labels: tuple[int, int]) -> TrainableNetwork:
    """The network of this name with a fresh adapter."""
    if name == "peft":
        return PeftNetwork(base, RANK, ALPHA, 0.0, first_layer, labels, seed=0)
    return PackedLlama(base, RANK, ALPHA, first_layer, labels, 0)


def stepper(network: TrainableNetwork) -> Callable[[Any, Any], float]:
    """A function that takes one training step and returns its processor seconds."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)

    def step(pack: Any, targets: Any) -> float:
        begun = time.process_time()
        for parameter in network.parameters():
            assert parameter.grad is not None
            parameter.grad.zero_()
        network.loss_and_grad(pack, targets, torch.full_like(targets, 1 / len(targets)))
        optimizer.step()
        network.refresh()
        return time.process_time() - begun

    return step


def peak_memory() -> int:
    """The largest resident set of this process, in bytes; `getrusage` would count the parent's before exec."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def alone(name: str, base: Path, first_layer: int, tokens: int, count: int) -> dict[str, Any]:
    """Train on `count` batches after one to warm up; seconds of each, labels, tokens and the peak of memory."""
    items = list(read_items(Path(str(files("isr_lab").joinpath("data/slice_sample.jsonl")))))
    encoder = PromptEncoder(AutoTokenizer.from_pretrained(base))
    batches: list[tuple[Any, Any]] = []
    for seed in range(100):
        for batch in passes(items, encoder, "late", seed, tokens):
            batches.append((build_pack(batch, "late"), torch.tensor([float(e.label) for e in batch])))
        if len(batches) > count:
            break
    step = stepper(made(name, base, first_layer, label_ids(items[0], encoder)))
    step(*batches[0])
    batches = batches[1 : count + 1]
    return {
        "seconds": [step(*batch) for batch in batches],
        "labels": sum(len(targets) for _, targets in batches),
        "tokens": sum(len(pack.input_ids) for pack, _ in batches),
        "peak": peak_memory(),
    }


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("--first-layer", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=1100)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=CONTESTANTS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.only:
        print(json.dumps(alone(given.only, given.base, given.first_layer, given.tokens, given.batches)))
        return
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTESTANTS}
    for _ in range(given.rounds):
        for name in CONTESTANTS:
            command = [sys.executable, __file__, str(given.base), "--first-layer", str(given.first_layer)]
            command += ["--tokens", str(given.tokens), "--batches", str(given.batches), "--only", name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            runs[name].append(json.loads(done.stdout.splitlines()[-1]))
    rows: dict[str, Any] = {}
    for name, own in runs.items():
        # The least of the rounds: what other work on the machine costs is never negative.
        seconds = sum(map(min, zip(*(run["seconds"] for run in own), strict=True)))
        rows[name] = {
            "labels_per_second": own[0]["labels"] / seconds,
            "tokens_per_second": own[0]["tokens"] / seconds,
            "peak": max(run["peak"] for run in own),
        }
        print(f"{name}: {', '.join(f'{key} {value:.4g}' for key, value in rows[name].items())}")
    if given.json:
        found = {"base": given.base.name, "first_layer": given.first_layer, "batches": given.batches}
        write_json(given.json, {**found, "rows": rows, "runs": runs, "machine": machine()}, indent=2)


if __name__ == "__main__":
    main()
