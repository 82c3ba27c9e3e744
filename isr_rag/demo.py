"""The gate at work on a real document: the history of Python that comes with every Python."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from isr_rag.acquisition import acquire
from isr_rag.adjudicators import AdjudicatorName
from isr_rag.batch import Asked
from isr_rag.bm25 import Bm25
from isr_rag.decision import Decision
from isr_rag.errors import InvalidInputError
from isr_rag.evidence import Chunk
from isr_rag.gate import ISRGate
from isr_rag.references import Oracle
from isr_rag.scorers.embedded import embedded_scorer

QUESTION = "Where did Python come from?"
SUPPORTED = "Python was created in the early 1990s by Guido van Rossum."
NEAR_MISS = "Python was created in the early 1990s by Richard Stallman."
LOOP_H_STAR = 0.2
ORDERED_QUESTION, ORDERED_DRAFT = "Who developed Python?", "BeOpen.com"


class Library:
    """BM25 over the paragraphs that tell the history of Python."""

    def __init__(self) -> None:
        self.chunks = history()
        self._index = Bm25([f"{chunk.title} {chunk.text}" for chunk in self.chunks])

    def search(self, query: str, top_k: int) -> Sequence[Chunk]:
        """The top_k paragraphs nearest to a query."""
        return [self.chunks[i] for i in self._index.best(query, top_k)]


def history() -> tuple[Chunk, ...]:
    """The paragraphs of Python's history, from the licence that every installation carries, without web addresses.

    Raises:
        InvalidInputError: if this installation has no such text.
    """
    folders = (Path(sysconfig.get_path("stdlib")), Path(sys.base_prefix))
    for path in (folder / name for folder in folders for name in ("LICENSE.txt", "LICENSE")):
        if path.is_file():
            told = re.search(r"HISTORY OF THE SOFTWARE\n=+\n(.*?)\n    Release", path.read_text("utf-8"), re.DOTALL)
            if told is not None:
                plain = re.sub(r",\s+see\s+https?://[^\s)]+", "", told[1])
                paragraphs = (" ".join(paragraph.split()) for paragraph in plain.split("\n\n"))
                return tuple(Chunk(paragraph, "History of Python") for paragraph in paragraphs if paragraph)
    raise InvalidInputError(
        "this installation of Python carries no licence text (LICENSE.txt), whose history the demo decides about"
    )


def run(adjudicator: AdjudicatorName | None = None) -> None:
    """Answer a supported draft, refuse a near-miss, watch the order matter, and fetch what is missing.

    Args:
        adjudicator: which one judges; the default one for None.
    """
    console = Console(highlight=False, markup=False)
    library, gate = Library(), ISRGate(adjudicator=adjudicator)
    evidence = library.search(QUESTION, 2)
    console.print(
        f"A user asks: {QUESTION}\nA retriever (BM25) searches the history of Python that comes with Python: "
        f"{len(library.chunks)} paragraphs.\nMay the draft of an answer go out? At most {gate.h_star:.0%} of those "
        "that do may be wrong.\n"
    )
    console.rule("1. The evidence carries the draft")
    _show(console, SUPPORTED, evidence, gate.decide(evidence, claim=SUPPORTED))
    console.rule("2. A near-miss: one name changed")
    _show(console, NEAR_MISS, evidence, gate.decide(evidence, claim=NEAR_MISS))
    console.rule("3. What order does to a model")
    _show_orders(console, library, adjudicator)
    console.rule("4. The evidence does not suffice yet: fetch more, look again")
    patient = gate.with_h_star(LOOP_H_STAR)
    trail = acquire(patient, lambda query, look, previous: library.search(QUESTION, 1 + look), claim=SUPPORTED)
    console.print(
        f"At most {patient.h_star:.0%} may be wrong here. Two looks share that: {trail.h_star_per_look:.1%} each.\n"
    )
    for look, decision in enumerate(trail.decisions):
        console.print(f"look {look + 1}, {decision.chunks} {'paragraph' if decision.chunks == 1 else 'paragraphs'}")
        _show(console, SUPPORTED, trail.evidence[: decision.chunks], decision)
    console.rule("5. Now you")
    console.print(
        'your documents:     isr-rag check --claim "..." --evidence your-notes/\n'
        "Python, frameworks: README.md\n"
        "how often it answers, and is wrong: docs/coverage.md\n"
        "where it abstains:  docs/abstains.md"
    )


def _show(console: Console, draft: str, evidence: Sequence[object], decision: Decision) -> None:
    """A draft, the sentence of the evidence nearest to it, and the decision in words."""
    console.print(f"draft:    {draft}\nevidence: {nearest_sentence(evidence, draft)}")
    style = "bold green" if decision.answered else "bold red"
    console.print(decision.action.name, style=style, end="")
    if decision.p_ref is None:
        console.print(f": {decision.reason.value}\n")
    else:
        console.print(f": {decision.p_ref:.1%} of the cases as sure as this hold, {decision.p_star:.1%} must\n")


def _show_orders(console: Console, library: Library, adjudicator: AdjudicatorName | None) -> None:
    """The adjudicator's own network, once with paragraphs in a row, as models usually read, once side by side."""
    from isr_rag.scorers.local.scorer import LocalScorer

    beside = embedded_scorer(adjudicator=adjudicator)
    in_a_row = LocalScorer(
        beside.engine.network, beside.encoder, name="the adjudicator's network", window=beside.window
    )
    evidence = library.chunks[:3]
    asked = Asked(question=ORDERED_QUESTION, answer=ORDERED_DRAFT)
    read = ISRGate(scorer=in_a_row, reference=Oracle(1.0), m=6, orderings="exhaustive").decide(evidence, **asked)
    console.print(f"question: {ORDERED_QUESTION}\ndraft:    {ORDERED_DRAFT}")
    for number, chunk in enumerate(evidence, start=1):
        console.print(f"[{number}] {chunk.text}", overflow="ellipsis", no_wrap=True)
    console.print("A model that reads one paragraph after the other says that the draft is supported with probability")
    for ordering, q in zip(read.orderings, read.q, strict=True):
        shown = " ".join(f"[{i + 1}]" for i in ordering)
        console.print(f"  {shown}   {q:.3f}   {'yes' if q > 0.5 else 'no'}")
    yes = sum(q > 0.5 for q in read.q)
    console.print(
        f"{yes} of {len(read.q)} orders say yes: nothing but the order changed. A gate goes by the "
        f"lowest, {min(read.q):.3f}."
    )
    blind = ISRGate(scorer=beside, reference=Oracle(1.0)).decide(evidence, **asked)
    console.print(f"The adjudicator reads the paragraphs side by side: {blind.q[0]:.3f} in every order.\n")


def nearest_sentence(evidence: Sequence[object], draft: str) -> str:
    """The sentence of the evidence whose words are nearest to a draft's."""
    import sentencex

    segment = sentencex.segment  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module
    sentences: list[str] = [
        s.strip() for chunk in evidence if isinstance(chunk, Chunk) for s in segment("en", chunk.text)
    ]
    return sentences[Bm25(sentences).best(draft, 1)[0]]
