"""`isr-rag demo`: the gate at work on a real document, the history of Python that comes with every Python."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from isr_rag._util.bm25 import Bm25
from isr_rag.core.decision import Decision
from isr_rag.core.evidence import Chunk
from isr_rag.core.settings import Orderings
from isr_rag.core.work import Asked
from isr_rag.errors import InvalidInputError
from isr_rag.gate import ISRGate
from isr_rag.gate.acquisition import acquire
from isr_rag.references import Oracle
from isr_rag.scorers.embedded import base_scorer, embedded_scorer

QUESTION = "Where did Python come from?"
SUPPORTED = "Python was created in the early 1990s by Guido van Rossum."
NEAR_MISS = "Python was created in the early 1990s by Richard Stallman."
ORDERED_QUESTION, ORDERED_DRAFT = "Who sponsors the Python Software Foundation?", "Zope Corporation"
NEXT = """your documents:     isr-rag check --claim "..." --evidence your-notes/
Python, frameworks: README.md
how often it answers, is wrong, and abstains: docs/coverage.md"""


def search(chunks: Sequence[Chunk], query: str, top_k: int) -> Sequence[Chunk]:
    """The top_k chunks nearest to a query, by BM25."""
    return [chunks[i] for i in Bm25([f"{chunk.title} {chunk.text}" for chunk in chunks]).best(query, top_k)]


def history() -> tuple[Chunk, ...]:
    """The paragraphs of Python's history, without addresses, from its licence; InvalidInputError if that is gone."""
    folders = (Path(sysconfig.get_path("stdlib")), Path(sys.base_prefix))
    for path in (folder / name for folder in folders for name in ("LICENSE.txt", "LICENSE")):
        if path.is_file():
            told = re.search(r"HISTORY OF THE SOFTWARE\n=+\n(.*?)\n    Release", path.read_text("utf-8"), re.DOTALL)
            if told is not None:
                plain = re.sub(r",\s+see\s+https?://[^\s)]+", "", told[1])
                paragraphs = (" ".join(paragraph.split()) for paragraph in plain.split("\n\n"))
                return tuple(Chunk(paragraph, "History of Python") for paragraph in paragraphs if paragraph)
    raise InvalidInputError("this Python carries no licence text (LICENSE.txt), whose history the demo decides about")


def run() -> None:
    """Answer a supported draft, refuse a near-miss, show the effect of order, and fetch what is missing."""
    console = Console(highlight=False, markup=False)
    library, gate = history(), ISRGate()
    evidence = search(library, QUESTION, 2)
    console.print(
        f"A user asks: {QUESTION}\nA retriever (BM25) searches the history of Python that comes with Python: "
        f"{len(library)} paragraphs.\nMay the draft of an answer go out? At most {gate.h_star:.0%} of those "
        "that do may be wrong.\n"
    )
    console.rule("1. The evidence carries the draft")
    _show(console, SUPPORTED, gate.decide(evidence, claim=SUPPORTED))
    console.rule("2. A near-miss: one name changed")
    _show(console, NEAR_MISS, gate.decide(evidence, claim=NEAR_MISS))
    console.rule("3. What order does to a model")
    _show_orders(console, library[:3])
    console.rule("4. The evidence does not suffice yet: fetch more, look again")
    trail = acquire(gate, lambda query, before, previous: search(library, QUESTION, 1 + before), claim=SUPPORTED)
    console.print(f"At most {gate.h_star:.0%} of the answers of both rounds together may be wrong.\n")
    for number, decision in enumerate(trail.decisions, start=1):
        console.print(f"round {number}, {decision.chunks} paragraph{'s' * (decision.chunks > 1)}")
        _show(console, SUPPORTED, decision)
    console.rule("5. Now you")
    console.print(NEXT)


def _show(console: Console, draft: str, decision: Decision) -> None:
    """A draft, the sentence of the evidence nearest to it, and the decision in words."""
    console.print(f"draft:    {draft}\nevidence: {decision.nearest.sentence if decision.nearest else 'none'}")
    console.print(decision.action.name, style="bold green" if decision.answered else "bold red", end="")
    if decision.p_ref is None:
        console.print(f": {decision.reason.value}\n")
    else:
        console.print(f": {decision.p_ref:.1%} of the cases at least as sure hold, {decision.p_star:.1%} must\n")


def _show_orders(console: Console, evidence: Sequence[Chunk]) -> None:
    """The judge's base model, which reads paragraphs in a row as models usually do, then the judge itself."""
    asked = Asked(question=ORDERED_QUESTION, answer=ORDERED_DRAFT)
    in_a_row = ISRGate(base_scorer(), Oracle(1.0), orderings=Orderings(m=6, family="exhaustive"))
    read = in_a_row.decide(evidence, **asked)
    console.print(f"question: {ORDERED_QUESTION}\ndraft:    {ORDERED_DRAFT}")
    for number, chunk in enumerate(evidence, start=1):
        console.print(f"[{number}] {chunk.text}", overflow="ellipsis", no_wrap=True)
    console.print("A model that reads one paragraph after the other says that the draft is supported with probability")
    for ordering, q in zip(read.orderings, read.q, strict=True):
        console.print(f"  {' '.join(f'[{i + 1}]' for i in ordering)}   {q:.3f}   {'yes' if q > 0.5 else 'no'}")
    console.print(
        f"{sum(q > 0.5 for q in read.q)} of {len(read.q)} orders say yes: nothing but the order changed. A gate goes "
        f"by the lowest, {min(read.q):.3f}."
    )
    blind = ISRGate(embedded_scorer(), Oracle(1.0)).decide(evidence, **asked)
    console.print(f"The judge reads the paragraphs side by side: {blind.q[0]:.3f} in every order.\n")
