"""What an audit costs, on paper: tokens, forward passes, device hours and money for a million and a billion decisions.

    python benchmarks/plan.py --json plan.json             # from the rates below
    python benchmarks/plan.py --measure 16                 # with this machine's CPU rate

Tokens are counted, for the items that come with the package with the embedded model's tokenizer, and for longer
passages of assumed size. The CPU rate and the cascade's share are measured. GPU rates and prices are assumptions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from measuring import machine
from transformers import AutoTokenizer

from isr_lab.slice.sample import load_sample
from isr_lab.tables import markdown_table
from isr_rag import Chunk
from isr_rag._util.files import write_json
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.predicates import predicate_for
from isr_rag.core.scorer import ScoreRequest
from isr_rag.scorers import embedded
from isr_rag.scorers.local.encoding import EncodedPrompt, PromptEncoder
from isr_rag.scorers.local.packed.pack import pack_full, pack_invariant

M, FIRST = 6, 3
"""Orderings of a decision, and those that a cascade scores first."""


@dataclass(frozen=True)
class Rates:
    """What the plan rests on."""

    cpu_seconds_per_1000_tokens: float = 2.8
    """Measured with --measure 32 on two busy cores of an AMD EPYC: embedded adjudicator, fp32, one thread."""
    escalates: float = 0.66
    """Share of items that a cascade takes beyond 3 orderings: judge in a row, h* = 0.1 (`lab/reports/documents`)."""
    gpu_peak_tflops: float = 989.0
    """Dense bf16 peak of an H100 SXM by its data sheet."""
    gpu_utilisation: float = 0.4
    """Assumed share of the peak that prefilling reaches."""
    gpu_dollars: float = 2.5
    """Assumed price of one GPU hour."""
    cpu_dollars: float = 0.04
    """Assumed price of one core hour."""


@dataclass(frozen=True)
class Tokens:
    """Mean tokens and forward passes of one decision."""

    workload: str
    chunks: float
    prompt: float
    whole: float
    shared: float
    cascade_whole: float
    cascade_shared: float
    invariant: float
    passes: float
    cascade_passes: float


MODELS = {"7B": 7.6e9, "70B": 70.6e9}
"""Parameters, all of them active: 2 FLOP each for every token, attention left out."""


def main() -> None:
    """Count, compute, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--measure", type=int, default=0, help="items to measure the CPU rate with; 0: the stated rate")
    parser.add_argument("--escalates", type=float, default=Rates.escalates)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    measured = cpu_rate(given.measure) if given.measure else Rates.cpu_seconds_per_1000_tokens
    rates = Rates(cpu_seconds_per_1000_tokens=measured, escalates=given.escalates)
    encoder = PromptEncoder(AutoTokenizer.from_pretrained(embedded.setup(print)))
    sample = [segments(encoder, item) for item in load_sample()]
    head, tail = (
        round(fmean(len(part) for part in parts)) for parts in ([s.head for s in sample], [s.tail for s in sample])
    )
    passages = [EncodedPrompt(tuple(range(head)), tuple((c,) * 200 for c in range(10)), (9,) * tail)]
    loads = [count("short sentences", sample, rates), count("10 passages of 200 tokens", passages, rates)]
    plans = [plan(load, decisions, rates) for load in loads for decisions in (10**6, 10**9)]
    for load in loads:
        print(load)
    print(table(plans))
    if given.json:
        content = {"rates": asdict(rates), "tokens": [asdict(load) for load in loads], "plans": plans}
        write_json(given.json, {**content, "machine": machine()})


def segments(encoder: PromptEncoder, item: Any) -> EncodedPrompt:
    """An item of the sample as token ids."""
    predicate = predicate_for(question=item.question, answer=item.answer, claim=item.claim)
    encoded = encoder.encode(predicate.render([Chunk(c.text, c.title) for c in item.chunks]))
    return encoded


def count(name: str, items: Sequence[EncodedPrompt], rates: Rates) -> Tokens:
    """Mean tokens of one decision about these items, whole and with shared beginnings, with and without a cascade."""
    rows: list[tuple[float, ...]] = []
    for item in items:
        orderings = draw_orderings(len(item.chunks), M)
        early, late = orderings[:FIRST], orderings[FIRST:]
        prompt = len(item.head) + sum(map(len, item.chunks)) + len(item.tail)
        more = rates.escalates if late else 0.0
        first = len(pack_full([item], [early]).input_ids)
        rest = len(pack_full([item], [late]).input_ids) if late else 0
        passes = len(early) + more * len(late)
        shared = len(pack_full([item], [orderings]).input_ids)
        alone = len(pack_invariant([item]).input_ids)
        tokens = (prompt, prompt * len(orderings), shared, prompt * passes, first + more * rest, alone)
        rows.append((len(item.chunks), *tokens, len(orderings), passes))
    return Tokens(name, *(round(fmean(column), 2) for column in zip(*rows, strict=True)))


def cpu_rate(items: int) -> float:
    """CPU seconds of the embedded adjudicator per 1,000 prompt tokens, one thread, the best of the batches."""
    torch.set_num_threads(1)
    scorer = embedded.embedded_scorer()
    requests = []
    for item in load_sample()[:items]:
        predicate = predicate_for(question=item.question, answer=item.answer, claim=item.claim)
        prompt = predicate.render([Chunk(c.text, c.title) for c in item.chunks], topic_first=False)
        requests.append(ScoreRequest(prompt, (tuple(range(len(item.chunks))),)))
    best = float("inf")
    for start in range(0, len(requests), 8):
        before, begun = scorer.engine.computed_tokens, time.process_time()
        scorer.score(requests[start : start + 8])
        spent, tokens = time.process_time() - begun, scorer.engine.computed_tokens - before
        best = min(best, 1000 * spent / tokens)
    return best


def plan(load: Tokens, decisions: int, rates: Rates) -> dict[str, Any]:
    """Device hours and money for one workload and number of decisions, by model and by what is saved."""
    schemes = {
        "every ordering whole": (load.whole, load.passes),
        "prefix sharing": (load.shared, load.passes),
        "cascade": (load.cascade_whole, load.cascade_passes),
        "both": (load.cascade_shared, load.cascade_passes),
    }
    rows: list[dict[str, Any]] = []
    for model, parameters in MODELS.items():
        per_second = rates.gpu_utilisation * rates.gpu_peak_tflops * 1e12 / (2 * parameters)
        for scheme, (tokens, passes) in schemes.items():
            hours = decisions * tokens / per_second / 3600
            rows.append(row(model, scheme, decisions, tokens, passes, hours, rates.gpu_dollars))
    cpu_hours = decisions * load.invariant / 1000 * rates.cpu_seconds_per_1000_tokens / 3600
    rows.append(row("embedded, CPU cores", "one pass", decisions, load.invariant, 1, cpu_hours, rates.cpu_dollars))
    return {"workload": load.workload, "decisions": decisions, "rows": rows}


def row(
    model: str, scheme: str, decisions: int, tokens: float, passes: float, hours: float, price: float
) -> dict[str, Any]:
    """One line of the plan."""
    return {
        "model": model,
        "scheme": scheme,
        "tokens": decisions * tokens,
        "passes": decisions * passes,
        "hours": hours,
        "dollars": hours * price,
    }


def table(plans: Sequence[dict[str, Any]]) -> str:
    """The plan as Markdown: a table a workload, with a million and a billion decisions side by side."""
    costs = ("tokens", "passes", "device hours", "US$")
    header = ["model", "computed", *(f"1e6: {name}" for name in costs), *(f"1e9: {name}" for name in costs)]
    lines: list[str] = []
    for million, billion in zip(plans[::2], plans[1::2], strict=True):
        rows = [
            [small["model"], small["scheme"], *_cells(small), *_cells(large)]
            for small, large in zip(million["rows"], billion["rows"], strict=True)
        ]
        lines += ["", million["workload"], "", markdown_table(header, rows)]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> list[str]:
    counts = [f"{row[name]:.2g}".replace("e+0", "e").replace("e+", "e") for name in ("tokens", "passes")]
    return [*counts, *(short(row[name]) for name in ("hours", "dollars"))]


def short(value: float) -> str:
    """Two significant digits, without an exponent."""
    digits = 1 - int(f"{value:.1e}".split("e")[1])
    return f"{round(value, digits):,.{max(digits, 0)}f}"


if __name__ == "__main__":
    main()
