"""Memory of a forward pass: what is stated, and what the process really takes, by tokens and orderings.

    python benchmarks/memory.py --json memory.json

Every size runs in a process of its own; `peak` is its largest resident set beyond the largest
that loading the model took: 0 where a pass needs no more than that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from measuring import machine

from isr_rag._util.files import write_json

ONE = """
import json, resource, sys
sys.path.insert(0, {folder!r})
from measuring import real_chunks
from transformers import AutoTokenizer
from isr_rag import Chunk, Supported, TransformersScorer
from isr_rag.core.orderings import draw_orderings
from isr_rag.scorers import embedded
from isr_rag.core.scorer import ScoreRequest
layout, n, m = {layout!r}, {n}, {m}
late = layout == "late"
scorer = embedded.embedded_scorer() if late else TransformersScorer(embedded.model_directory(), device="cpu")
tokenizer = AutoTokenizer.from_pretrained(embedded.model_directory())
texts = [Chunk(text) for text in real_chunks(tokenizer, 43, n)]
prompt = Supported(claim="It is so.").render(texts, topic_first=not late)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, computed = peak(), scorer.engine.computed_tokens
scorer.score([ScoreRequest(prompt, draw_orderings(n, m, family="uniform"))])
tokens = scorer.engine.computed_tokens - computed
print(json.dumps({{"tokens": tokens, "peak": peak() - before, "stated": tokens * scorer.bytes_per_token}}))
"""


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for layout, n, m in (("full", 10, 1), ("full", 10, 6), ("full", 60, 1), ("late", 10, 1), ("late", 60, 1)):
        code = ONE.format(folder=str(Path(__file__).parent), layout=layout, n=n, m=m)
        done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
        found = {"layout": layout, "n": n, "m": m, **json.loads(done.stdout.splitlines()[-1])}
        rows.append(found)
        print(
            f"{layout}, n={n}, m={m}: {found['tokens']} tokens, peak {found['peak'] / 1e6:.0f} MB, "
            f"stated {found['stated'] / 1e6:.0f} MB"
        )
    if given.json:
        write_json(given.json, {"rows": rows, "machine": machine()})


if __name__ == "__main__":
    main()
