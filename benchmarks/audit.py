"""What an audit costs: against the statements of an answer, and against the chunks of its evidence.

    python benchmarks/audit.py --json audit.json --plot audit.png

The evidence is real text in chunks of 150 words; half of the statements are sentences of it, the other half the same
sentences with another number or name in them. Each place is a fresh process-wide cache of chunk states, so that every
audit reads its evidence once. Reported are tokens computed, forward passes, seconds of wall clock and of processor
time, and the memory that the process came to.
"""

from __future__ import annotations

import argparse
import re
import time
from importlib.resources import files
from json import loads
from pathlib import Path
from typing import Any

import psutil
from measuring import machine, plot_lines

from isr_rag import ISRGate
from isr_rag._util.files import write_json
from isr_rag._util.text import sentence_spans
from isr_rag.scorers import embedded
from isr_rag.scorers.local.states import StateCache

WORDS = 150


def real_evidence(count: int) -> tuple[list[str], list[str]]:
    """Chunks of real text of about `WORDS` words, and a full sentence of each."""
    lines = files("isr_lab").joinpath("data/slice_sample.jsonl").read_text("utf-8").splitlines()
    texts = dict.fromkeys(chunk["text"] for line in lines for chunk in loads(line)["chunks"])
    chunks: list[str] = []
    gathered: list[str] = []
    for text in texts:
        gathered.append(text)
        if sum(len(one.split()) for one in gathered) >= WORDS:
            chunks.append(" ".join(" ".join(gathered).split()[:WORDS]))
            gathered = []
        if len(chunks) == count:
            break
    chunks = (chunks * (count // len(chunks) + 1))[:count]
    sentences: list[str] = []
    for chunk in chunks:
        found = [chunk[a:b].strip() for a, b in sentence_spans(chunk)]
        sentences.append(next((one for one in found if 8 <= len(one.split()) <= 30 and one[-1] == "."), found[0]))
    return chunks, sentences


def real_answer(sentences: list[str], statements: int) -> str:
    """An answer of so many statements: sentences of the evidence, every other one with a detail changed."""
    said: list[str] = []
    for i in range(statements):
        text = sentences[i % len(sentences)]
        said.append(re.sub(r"\d+|(?<=\s)[A-Z]\w+", "Bergen" if i % 4 == 1 else "17", text, count=1) if i % 2 else text)
    return " ".join(said)


def measure(gate: ISRGate, scorer: Any, statements: int, chunks: int) -> dict[str, Any]:
    """One audit with nothing kept from before."""
    evidence, sentences = real_evidence(chunks)
    answer = real_answer(sentences, statements)
    scorer.states = StateCache()
    before, wall, processor = scorer.engine.computed_tokens, time.perf_counter(), time.process_time()
    audit = gate.audit(answer=answer, evidence=evidence)
    row = {
        "statements": sum(one.judged for one in audit.statements),
        "chunks": chunks,
        "tokens": scorer.engine.computed_tokens - before,
        "passes": audit.passes,
        "seconds": round(time.perf_counter() - wall, 2),
        "processor_seconds": round(time.process_time() - processor, 2),
        "memory_mb": round(psutil.Process().memory_info().rss / 2**20),
        "states_mb": round(scorer.states.nbytes / 2**20),
    }
    print(row, flush=True)
    return row


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--statements", type=int, nargs="+", default=[1, 5, 10, 20, 40])
    parser.add_argument("--chunks", type=int, nargs="+", default=[1, 2, 5, 10, 20, 40])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()

    embedded.setup(print)
    gate = ISRGate()
    scorer: Any = gate.scorer
    measure(gate, scorer, 2, 2)  # what a first audit loads
    by_statements = [measure(gate, scorer, n, 10) for n in given.statements]
    by_chunks = [measure(gate, scorer, 10, n) for n in given.chunks]
    if given.json:
        about = {"scorer": scorer.identity, "words_of_a_chunk": WORDS, "machine": machine()}
        write_json(given.json, {**about, "by_statements": by_statements, "by_chunks": by_chunks})
    if given.plot:
        plot_lines(
            given.plot,
            {
                "statements (10 chunks)": [(row["statements"], row["tokens"]) for row in by_statements],
                "chunks (10 statements)": [(row["chunks"], row["tokens"]) for row in by_chunks],
            },
            title="An audit of statements over chunks of 150 words",
            x="statements, or chunks",
            y="tokens computed",
        )


if __name__ == "__main__":
    main()
