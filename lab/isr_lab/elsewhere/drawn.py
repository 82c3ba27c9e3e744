"""Batches of the mixture, drawn and tokenised ahead.

python -m isr_lab.elsewhere.drawn --out late.npz --labels 420000 FILE.jsonl=WEIGHT ...
python -m isr_lab.elsewhere.drawn --out row.npz --layout row --labels 170000 --tokens 2000 FILE.jsonl=WEIGHT ...
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from isr_lab.slice.reading import read_items
from isr_lab.slice.schema import SliceItem
from isr_lab.training.data import unmarked_sources
from isr_lab.training.mixture import Drawn, Mixture, Showing, pieces, twins
from isr_rag.core.scorer import ORDERED, TOPIC_LAST, Layout
from isr_rag.errors import ConfigurationError
from isr_rag.scorers.local.encoding import EncodedPrompt, PromptEncoder

LATE = Showing(counts=(1, 2, 2, 3, 3, 4, 4, 5, 6, 8))
ROW = Showing(counts=(1, 2, 2, 3, 3, 4, 4, 5, 6), twice=0.1, many=(6, 8, 10))
"""Where the order is seen, borrowed chunks are computed anew for each group, or each question."""

Unit = tuple[list[EncodedPrompt], list[int], NDArray[np.int64]]
"""Prompts that share chunks, their labels, and the pairs of places to rank, shape (pairs, 2), the higher one first."""


def draw(encoder: PromptEncoder, weights: dict[Path, float], layout: Layout, tokens: int, seed: int) -> Iterator[Unit]:
    """Units of about `tokens` computed tokens (in the late layout) without end."""
    sets: dict[str, Drawn] = {}
    every: list[SliceItem] = []
    for path in weights:
        items = list(read_items(path))
        sets[path.name] = Drawn(pieces(items, random.Random(seed)))
        every += items
    rng = random.Random(f"{seed}/ahead")
    by_name = {path.name: weight for path, weight in weights.items()}
    showing = ROW if layout in ORDERED else LATE
    for batch in Mixture(encoder, sets, by_name, showing, tokens, rng, unmarked_sources(every), layout):
        pairs = np.asarray(twins(batch), dtype=np.int64).reshape(-1, 2)
        yield [example.segments for example in batch], [example.label for example in batch], pairs


def write(out: Path, units: Sequence[Unit], layout: Layout) -> None:
    """Write units as arrays of numbers (`Units` reads them)."""
    known: dict[tuple[int, ...], int] = {}  # runs of tokens, each kept once

    def place(ids: tuple[int, ...]) -> int:
        return known.setdefault(ids, len(known))

    prompts = [one for unit, _, _ in units for one in unit]
    heads, tails = [place(one.head) for one in prompts], [place(one.tail) for one in prompts]
    chunks = [[place(ids) for ids in one.chunks] for one in prompts]
    np.savez(
        out,
        tokens=np.asarray([token for ids in known for token in ids], dtype=np.int32),
        lengths=np.asarray([len(ids) for ids in known], dtype=np.int32),
        heads=np.asarray(heads, dtype=np.int32),
        tails=np.asarray(tails, dtype=np.int32),
        chunks=np.asarray([index for row in chunks for index in row], dtype=np.int32),
        counts=np.asarray([len(row) for row in chunks], dtype=np.int32),
        labels=np.asarray([label for _, labels, _ in units for label in labels], dtype=np.int8),
        units=np.asarray([len(unit) for unit, _, _ in units], dtype=np.int32),
        pairs=np.concatenate([np.zeros((0, 2), dtype=np.int64), *(pairs for _, _, pairs in units)]),
        paired=np.asarray([len(pairs) for _, _, pairs in units], dtype=np.int32),
        layout=np.asarray(layout),
    )


class Units:
    """Units on disk, read one after the other, and again from the first after the last."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as found:
            arrays = {name: found[name] for name in found.files}
        flat, ends = arrays["tokens"].tolist(), np.cumsum(arrays["lengths"]).tolist()
        self._runs = [tuple(flat[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
        self._arrays = arrays
        self._chunks = np.concatenate([[0], np.cumsum(arrays["counts"])])
        self._units = np.concatenate([[0], np.cumsum(arrays["units"])])
        self._pairs = np.concatenate([[0], np.cumsum(arrays["paired"])])
        self.layout: Layout = cast(Layout, str(arrays["layout"]))
        self._next = 0

    def __len__(self) -> int:
        return len(self._units) - 1

    def take(self) -> Unit:
        """The next unit."""
        unit = self._next % len(self)
        self._next += 1
        begin, end = int(self._units[unit]), int(self._units[unit + 1])
        prompts: list[EncodedPrompt] = []
        for i in range(begin, end):
            chunks = self._arrays["chunks"][self._chunks[i] : self._chunks[i + 1]].tolist()
            head, tail = int(self._arrays["heads"][i]), int(self._arrays["tails"][i])
            prompts.append(EncodedPrompt(self._runs[head], tuple(self._runs[c] for c in chunks), self._runs[tail]))
        pairs = self._arrays["pairs"][self._pairs[unit] : self._pairs[unit + 1]]
        return prompts, self._arrays["labels"][begin:end].tolist(), pairs


def main() -> None:
    """Draw and write."""
    from transformers import AutoTokenizer

    from isr_rag.scorers.embedded import verify

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE=WEIGHT")
    parser.add_argument("--layout", choices=sorted({*TOPIC_LAST, "full"}), default="late")
    parser.add_argument("--labels", type=int, required=True)
    parser.add_argument("--tokens", type=int, default=3000, help="computed tokens of a unit, about")
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    weights = {Path(path): float(weight) for path, _, weight in (one.rpartition("=") for one in given.files)}
    if len({path.name for path in weights}) < len(weights):
        raise ConfigurationError("files are weighed by their names, which must differ")
    units: list[Unit] = []
    count = 0
    encoder = PromptEncoder(AutoTokenizer.from_pretrained(verify()))
    for unit in draw(encoder, weights, given.layout, given.tokens, given.seed):
        units.append(unit)
        count += len(unit[0])
        if count >= given.labels:
            break
    write(given.out, units, given.layout)
    print(f"{given.out}: {count} labels in {len(units)} units")


if __name__ == "__main__":
    main()
