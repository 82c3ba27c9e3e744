"""What scoring asks a model: recorded without computing, scored elsewhere, played back.

recorder = Recorder(scorer)
score_labelled(ISRGate(scorer=recorder, ...), items)
recorder.asked.write(Path("asked.pkl"))
python -m isr_lab.elsewhere.asked --adapter FOLDER --out answers.npz asked.pkl      # elsewhere, on its GPU
score_labelled(ISRGate(scorer=Player(scorer, asked, answers), ...), items)          # here, at once
"""

from __future__ import annotations

import argparse
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isr_lab.training.data import packed
from isr_rag.core.prompt import Ordering
from isr_rag.core.scorer import ORDERED, Layout, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError
from isr_rag.scorers.local.encoding import EncodedPrompt
from isr_rag.scorers.local.scorer import LocalScorer


@dataclass(slots=True)
class Asked:
    """Prompts as a model read them, each once, in the order they were asked.

    Attributes:
        layout: of the scorer.
        prompts: with their chunks in the ordering asked for; without the order of chunks that stand side by side.
    """

    layout: Layout
    prompts: dict[EncodedPrompt, int] = field(default_factory=dict[EncodedPrompt, int])

    def place(self, prompt: EncodedPrompt, ordering: Ordering) -> EncodedPrompt:
        """What is computed for a prompt in an ordering."""
        if self.layout in ORDERED:
            return EncodedPrompt(prompt.head, tuple(prompt.chunks[i] for i in ordering), prompt.tail, prompt.labels)
        return EncodedPrompt(prompt.head, tuple(sorted(set(prompt.chunks))), prompt.tail, prompt.labels)

    def write(self, path: Path) -> None:
        """Write them for `read`."""
        rows = [(one.head, one.chunks, one.tail, one.labels) for one in self.prompts]
        path.write_bytes(pickle.dumps((self.layout, rows), protocol=4))

    @classmethod
    def read(cls, path: Path) -> Asked:
        """Those of a file that we wrote ourselves: it is a pickle."""
        layout, rows = pickle.loads(path.read_bytes())
        return cls(layout, {EncodedPrompt(*row): i for i, row in enumerate(rows)})


class _Instead:
    """A scorer whose network is not asked; everything else is that of the scorer it stands for."""

    def __init__(self, scorer: LocalScorer, asked: Asked) -> None:
        self.asked = asked
        self.identity, self.focus_words = scorer.identity, scorer.focus_words
        self.layout: Layout = scorer.layout
        self._encode = partial(scorer.encoder.encode, window=scorer.window, beside=scorer.layout not in ORDERED)

    def _odds(self, prompt: EncodedPrompt) -> float:
        raise NotImplementedError

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As the scorer's own."""
        found: list[Scores] = []
        for request in requests:
            prompt = self._encode(request.prompt)
            z = np.asarray([self._odds(self.asked.place(prompt, ordering)) for ordering in request.orderings])
            logprobs = -np.stack([np.logaddexp(0, -z), np.logaddexp(0, z)], axis=1)
            found.append(Scores(logprobs, passes=len(z) if self.layout in ORDERED else 1))
        return found


class Recorder(_Instead):
    """Notes in `asked` what a scorer would be asked, and answers with even odds."""

    def __init__(self, scorer: LocalScorer) -> None:
        super().__init__(scorer, Asked(scorer.layout))

    def _odds(self, prompt: EncodedPrompt) -> float:
        self.asked.prompts.setdefault(prompt, len(self.asked.prompts))
        return 0.0


class Player(_Instead):
    """Answers with what was scored elsewhere.

    `score` raises ConfigurationError for what was not asked when it was recorded, or not scored.
    """

    def __init__(self, scorer: LocalScorer, asked: Path, answers: Path) -> None:
        super().__init__(scorer, Asked.read(asked))
        with np.load(answers) as found:
            self._known: NDArray[np.float32] = found["odds"]

    def _odds(self, prompt: EncodedPrompt) -> float:
        at = self.asked.prompts.get(prompt)
        if at is None or not np.isfinite(self._known[at]):
            raise ConfigurationError("these answers are not to what is asked now: record and score it anew")
        return float(self._known[at])


def score(asked: Asked, scorer: LocalScorer, tokens: int = 16000) -> NDArray[np.float32]:
    """Log-odds of all prompts, shape (prompts,); neighbours share a pass of about so many tokens, and their chunks."""
    prompts = list(asked.prompts)
    odds = np.full(len(prompts), np.nan, dtype=np.float32)
    batch: list[int] = []
    known: set[object] = set()
    used = 0

    def compute() -> None:
        with scorer.engine.computing(medium=False):
            states = scorer.engine.packed(packed([prompts[i] for i in batch], asked.layout))
            for i, state in zip(batch, states, strict=True):
                yes, no = (scorer.engine.network.logits(state, ids).logsumexp(0) for ids in prompts[i].labels)
                odds[i] = float(yes - no)

    for i, prompt in enumerate(prompts):
        parts: list[object] = [prompt.chunks[: k + 1] for k in range(len(prompt.chunks))]
        if asked.layout not in ORDERED:
            parts = list(prompt.chunks)
        cost = len(prompt.tail) + sum(
            len(ids) for part, ids in zip(parts, prompt.chunks, strict=True) if part not in known
        )
        if batch and used + cost > tokens:
            compute()
            batch, known, used = [], set(), 0
            cost = len(prompt.tail) + sum(map(len, prompt.chunks))
        batch.append(i)
        known.update(parts)
        used += cost
    if batch:
        compute()
    return odds


def main() -> None:
    """Score recorded requests."""
    import torch

    from isr_rag.scorers.embedded import embedded_scorer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("asked", type=Path)
    parser.add_argument("--adapter", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=16000, help="of a pass, about")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    asked, begun = Asked.read(given.asked), time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scorer = embedded_scorer(given.adapter, keep_states=False, device=device, in_a_row=asked.layout == "row")
    torch.backends.cuda.matmul.allow_tf32 = True  # finer than the bfloat16 in which a CPU computes
    np.savez_compressed(given.out, odds=score(asked, scorer, given.tokens))
    print(f"{len(asked.prompts)} prompts, {time.monotonic() - begun:.0f} seconds; {given.out}")


if __name__ == "__main__":
    main()
