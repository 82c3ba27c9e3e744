"""What the cascade saves and what it changes: forward passes and decisions against a fixed m = 12.

    python benchmarks/cascade.py --items 40 --json cascade.json

Items are those that come with the package; the model is the embedded one without its adapter, which sees the order.
The reference is an oracle of the item's label (the paper's audit) or of a fixed probability.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from measuring import machine

from isr_lab.slice.sample import load_sample
from isr_rag import ISRGate, TransformersScorer
from isr_rag._util.files import write_json
from isr_rag.core.settings import Orderings
from isr_rag.references import Oracle
from isr_rag.scorers import embedded


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, default=63)
    parser.add_argument("--m", type=int, default=12)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    scorer = TransformersScorer(embedded.setup(print), device="cpu")
    report: dict[str, Any] = {}
    for name in ("gold labels", "constant 0.97"):
        passes: Counter[str] = Counter()
        differing: list[str] = []
        exact = 0
        items = load_sample()[: given.items]
        for item in items:
            reference = Oracle(float(item.label) if name == "gold labels" else 0.97)
            asked = {"question": item.question, "answer": item.answer, "claim": item.claim}
            evidence = [{"text": chunk.text, "title": chunk.title} for chunk in item.chunks]
            fixed, cascade = (
                ISRGate(
                    scorer=scorer,
                    reference=reference,
                    orderings=Orderings(m=given.m, family="uniform", cascade=cascade),
                ).decide(evidence, **asked)
                for cascade in (False, True)
            )
            passes["fixed"] += fixed.passes
            passes["cascade"] += cascade.passes
            exact += cascade.passes < fixed.passes and cascade.m == given.m
            if fixed.action != cascade.action:
                differing.append(item.id)
        share = passes["cascade"] / passes["fixed"]
        report[name] = {"share_of_passes": share, "differing": differing, "exact_stops": exact, "items": len(items)}
        print(f"{name}: {share:.0%} of the passes, {exact} exact stops, {len(differing)} decisions differ")
    if given.json:
        write_json(given.json, {"results": report, "machine": machine()})


if __name__ == "__main__":
    main()
