"""The gate at work on real documents: the language reference that every Python installation carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from isr_rag.acquisition import acquire, widen
from isr_rag.adjudicators import AdjudicatorName
from isr_rag.bm25 import Bm25
from isr_rag.evidence import Chunk
from isr_rag.gate import ISRGate
from isr_rag.predicates import Supported
from isr_rag.references.protocol import Case
from isr_rag.references.verifier import Verifier
from isr_rag.sources import chunk_text

TOP_K = 4


@dataclass(frozen=True, slots=True)
class _Scene:
    title: str
    question: str
    answer: str


SCENES = (
    _Scene(
        "A draft that the evidence supports",
        "What does the pass statement do?",
        "It is a null operation: when it is executed, nothing happens.",
    ),
    _Scene(
        "A draft that the evidence contradicts",
        "What does the pass statement do?",
        "It ends the program and returns control to the operating system.",
    ),
    _Scene(
        "A draft about something the documents do not speak of",
        "Which country won the football World Cup of 1998?",
        "France won it.",
    ),
)

LOOP = _Scene(
    "",
    "How are default parameter values evaluated?",
    "They are evaluated from left to right when the function definition is executed.",
)


class Library:
    """BM25 over the topics of the language reference."""

    def __init__(self) -> None:
        from pydoc_data.topics import topics

        self.chunks: tuple[Chunk, ...] = tuple(
            chunk for topic, text in sorted(topics.items()) for chunk in chunk_text(text, topic)
        )
        self._index = Bm25([f"{chunk.title} {chunk.text}" for chunk in self.chunks])

    def search(self, query: str, top_k: int) -> Sequence[Chunk]:
        """The top_k chunks nearest to a query."""
        return [self.chunks[i] for i in self._index.best(query, top_k)]


def run(adjudicator: AdjudicatorName | None = None) -> None:
    """Print one decision after the other, an acquisition loop, and what the default gate makes of the first scene.

    Args:
        adjudicator: which one judges; the default one for None.
    """
    console = Console(highlight=False)
    library = Library()
    console.print(f"{len(library.chunks)} chunks of the Python language reference, retrieved by BM25.")
    console.print(
        "The adjudicator scores. Its training was short and on Wikipedia, so a plain verifier is the reference:\n"
        "p_ref is 1 when at least 90% of the words of the draft are in the evidence, and 0 otherwise.\n"
    )
    gate = ISRGate(adjudicator=adjudicator, reference=Verifier(words_stand_in_evidence))
    for scene in SCENES:
        console.rule(scene.title)
        console.print(f"question: {scene.question}\ndraft:    {scene.answer}", markup=False)
        evidence = library.search(scene.question, TOP_K)
        console.print("evidence: " + ", ".join(chunk.title or "" for chunk in evidence), markup=False)
        console.print(str(gate.decide(evidence, question=scene.question, answer=scene.answer)) + "\n", markup=False)
    console.rule("Acquiring more evidence: one chunk first, then six")
    console.print(f"question: {LOOP.question}\ndraft:    {LOOP.answer}", markup=False)
    trail = acquire(gate, widen(library.search, top_k=1, factor=6), question=LOOP.question, answer=LOOP.answer)
    console.print(f"{trail}\n", markup=False)
    console.rule("ISRGate() with no arguments, on the first draft")
    console.print("The shipped calibration decides. It was fitted on text like Wikipedia, and is not sure of this one.")
    first = SCENES[0]
    default = ISRGate(adjudicator=adjudicator).decide(
        library.search(first.question, TOP_K), question=first.question, answer=first.answer
    )
    console.print(str(default), markup=False)


def words_stand_in_evidence(case: Case) -> float:
    """1 if at least 90% of the words of a draft are in the evidence, else 0."""
    assert isinstance(case.predicate, Supported)
    draft = _words(case.predicate.answer or "")
    there = {word for chunk in case.chunks for word in _words(chunk.text)}
    return float(len(draft & there) >= 0.9 * len(draft))


def _words(text: str) -> set[str]:
    return {word.strip(".,:'\"()").lower() for word in text.split()}
