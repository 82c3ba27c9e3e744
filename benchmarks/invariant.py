"""The order-invariant model that is bundled: one pass for all orderings, and its kept chunk states.

    python benchmarks/invariant.py --json invariant.json --plot invariant.png

Contestants on the same evidence: `trie` scores six banded orderings of the full prompt (float32, the precise path of
every other model); `one_pass` scores the late layout, nothing kept; `warm` scores another claim about chunks whose
states are kept.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import interleaved, machine, plot_lines, real_chunks
from transformers import AutoTokenizer

from isr_rag import Chunk, Supported
from isr_rag._util.files import write_json
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.scorer import ScoreRequest
from isr_rag.scorers import embedded
from isr_rag.scorers.local.scorer import LocalScorer
from isr_rag.scorers.local.states import StateCache


def log_odds(scorer: LocalScorer, requests: list[ScoreRequest], item: int) -> float:
    """Log-odds of yes for one item's first ordering."""
    scored = scorer.score([requests[item]])[0]
    return float(scored.logprobs[0, 0] - scored.logprobs[0, 1])


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 5, 10, 20, 40])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()

    embedded.setup(print)
    late = embedded.embedded_scorer()
    tokenizer = AutoTokenizer.from_pretrained(embedded.model_directory())
    scorer = partial(LocalScorer, late.engine.network, late.encoder)  # the same weights behind every contestant
    warm = StateCache(memory=2**32)
    scorers = {
        "trie": scorer(name="trie"),
        "one_pass": scorer(name="one_pass", layout="late"),
        "warm": scorer(name="warm", layout="late", states=warm),
    }
    rows: list[dict[str, Any]] = []
    for n in given.sizes:
        requests: dict[str, list[ScoreRequest]] = {name: [] for name in scorers}
        for item in range(given.items):
            texts = [Chunk(text) for text in real_chunks(tokenizer, 43, n, start=item * n)]
            claim = Supported(claim=" ".join(texts[0].text.split()[:12]))
            for name, scorer in scorers.items():
                m = 6 if name == "trie" else 1
                prompt = claim.render(texts, topic_first=name == "trie")
                requests[name].append(ScoreRequest(prompt, draw_orderings(n, m, seed=item)))
                if scorer.states is not None:
                    scorer.index([Supported(claim="another").render(texts, topic_first=False)])

        found = interleaved(
            {name: partial(log_odds, scorer, requests[name]) for name, scorer in scorers.items()}, given.items
        )
        exact = np.asarray(found["one_pass"]["results"])
        row = {
            "n": n,
            "seconds": {name: entry["seconds"] for name, entry in found.items()},
            "log_odds_moved": float(np.abs(np.asarray(found["warm"]["results"]) - exact).max()),
        }
        rows.append(row)
        trie = row["seconds"]["trie"]
        shown = ", ".join(f"{name} {value:.3f}s ({value / trie:.2f})" for name, value in row["seconds"].items())
        print(f"n={n}: {shown}; log-odds moved {row['log_odds_moved']}", flush=True)
    ratios = {
        f"{name}_of_trie_n{row['n']}_m6": round(row["seconds"][name] / row["seconds"]["trie"], 4)
        for row in rows
        for name in ("one_pass", "warm")
    }
    if given.json:
        write_json(given.json, {"ratios": ratios, "rows": rows, "machine": machine()})
    if given.plot:
        plot_lines(
            given.plot,
            {name: [(row["n"], row["seconds"][name]) for row in rows] for name in scorers},
            title="One decision about chunks of 48 tokens",
            x="chunks n",
            y="seconds",
            log=True,
        )


if __name__ == "__main__":
    main()
