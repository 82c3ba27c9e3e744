"""Train on batches that were drawn ahead, for a given time.

    python -m isr_lab.elsewhere.train --start ADAPTER --seconds 240 --out RUN late.npz=0.55:4 row.npz=0.45:2

A file is followed by its share of the steps and the units of a step. One that does not fit into memory is left out, and
after a few of them steps take fewer units.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isr_lab.elsewhere.drawn import Units
from isr_lab.training.data import packed
from isr_lab.training.network import PeftNetwork, Rows, write_description
from isr_rag.core.scorer import Layout
from isr_rag.scorers.embedded import verify

YES, NO = 16, 15
"""Label tokens of the base model ("1" and "0")."""
_AHEAD = 2  # steps prepared while one is computed
_MISSES = 5  # steps that did not fit or were not finite before something is done about it


class Stream:
    """Steps of one file, prepared ahead by a thread.

    Attributes:
        share: of the steps that come from it.
        units: of a step.
        layout: of its prompts.
    """

    def __init__(self, path: Path, share: float, units: int) -> None:
        self.share, self.units = share, units
        self._found = Units(path)
        self.layout: Layout = self._found.layout
        self._steps = self._prepared()

    def _make(self) -> tuple[Rows, torch.Tensor, torch.Tensor]:
        taken = [self._found.take() for _ in range(self.units)]
        offsets = np.cumsum([0, *(len(prompts) for prompts, _, _ in taken)])
        pairs = np.concatenate([own + offset for (_, _, own), offset in zip(taken, offsets, strict=False)])
        labels = torch.tensor([float(label) for _, labels, _ in taken for label in labels])
        rows = Rows.of([packed(prompts, self.layout) for prompts, _, _ in taken])
        return rows, labels, torch.from_numpy(pairs)

    def _prepared(self) -> Iterator[tuple[Rows, torch.Tensor, torch.Tensor]]:
        with ThreadPoolExecutor(1) as thread:
            waiting = [thread.submit(self._make) for _ in range(_AHEAD)]
            while True:
                waiting.append(thread.submit(self._make))
                yield waiting.pop(0).result()

    def step(self) -> tuple[Rows, torch.Tensor, torch.Tensor]:
        """Rows, labels of shape (reads,), and the pairs to rank of shape (pairs, 2)."""
        return next(self._steps)


def run(network: PeftNetwork, streams: list[Stream], given: argparse.Namespace, base: Path) -> None:
    """Train to the end of the time: a linear rise of the rate, then a cosine to zero; the running average is saved."""
    parameters = network.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    average = [p.detach().clone() for p in parameters]
    rng = np.random.default_rng(given.seed)
    shares = np.asarray([stream.share for stream in streams])
    begun, steps, labels, tokens, misses = time.monotonic(), 0, 0, 0, 0
    seen: list[tuple[float, float]] = []
    while (share := (time.monotonic() - begun) / given.seconds) < 1:
        stream = streams[int(rng.choice(len(streams), p=shares / shares.sum()))]
        rows, wanted, pairs = stream.step()
        count = len(wanted)
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.zero_()
        ranked = (pairs, given.margin / max(count / 2, len(pairs))) if len(pairs) else None
        targets = wanted * (1 - given.smoothing) + given.smoothing / 2
        fits = True
        loss, z = math.nan, torch.zeros(count)
        try:
            loss, z = network.loss_and_grad(rows, targets, torch.full_like(wanted, 1 / count), ranked)
        except torch.OutOfMemoryError:
            fits = False
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)) if fits else math.nan
        if not (math.isfinite(loss) and math.isfinite(norm)):
            misses += 1
            print(
                f"step {steps} left out: {'not finite' if fits else 'out of memory'}, {rows.tokens} tokens", flush=True
            )
            if not fits:
                torch.cuda.empty_cache()
                stream.units = max(1, stream.units // 2) if misses % _MISSES == 0 else stream.units
            if misses > 10 * _MISSES:
                raise SystemExit("too many steps were left out")
            continue
        rate = 0.5 * (1 + math.cos(math.pi * (share - given.warmup) / (1 - given.warmup)))
        rate = given.rate * min(share / given.warmup, rate if share > given.warmup else 1.0, (steps + 1) / 50)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        with torch.no_grad():
            decay = min(given.averaging, (steps + 1) / (steps + 10))
            for mean, parameter in zip(average, parameters, strict=True):
                mean.lerp_(parameter, 1 - decay)
        steps, labels, tokens = steps + 1, labels + count, tokens + rows.tokens
        seen.append((loss, float(((z > 0) == (wanted > 0.5)).float().mean())))
        if steps % 20 == 0 or steps == 1:
            mean_loss, accuracy = (round(float(value), 4) for value in np.mean(seen, axis=0))
            elapsed = round(time.monotonic() - begun, 1)
            line: dict[str, Any] = {"steps": steps, "labels": labels, "tokens": tokens, "elapsed": elapsed}
            line |= {"loss": mean_loss, "accuracy": accuracy, "rate": rate, "left_out": misses}
            with (given.out / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
            seen = []
    with torch.no_grad():
        for parameter, mean in zip(parameters, average, strict=True):
            parameter.copy_(mean)
    network.save(given.out / "adapter")
    seen_as: Layout = "full" if any(stream.layout == "full" for stream in streams) else "late"
    write_description(given.out / "adapter", seen_as, base)
    print(f"{steps} steps, {labels} labels, {tokens} tokens; {given.out / 'adapter'}")


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE=SHARE:UNITS")
    parser.add_argument("--start", type=Path, help="folder of the adapter to go on from")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=2.5e-4, help="the highest learning rate")
    parser.add_argument("--warmup", type=float, default=0.03)
    parser.add_argument("--smoothing", type=float, default=0.02)
    parser.add_argument("--margin", type=float, default=0.3)
    parser.add_argument("--averaging", type=float, default=0.99)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--first-layer", type=int, default=8)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    streams: list[Stream] = []
    for one in given.files:
        path, _, numbers = one.rpartition("=")
        share, _, units = numbers.partition(":")
        streams.append(Stream(Path(path), float(share), int(units or 4)))
    base = verify()
    network = PeftNetwork(base, given.rank, 2.0 * given.rank, 0.0, given.first_layer, (YES, NO), given.seed)
    if given.start is not None:
        network.load(given.start)
    run(network, streams, given, base)


if __name__ == "__main__":
    main()
