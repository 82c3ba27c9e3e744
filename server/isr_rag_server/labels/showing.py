"""What a person sees who labels a case: what was asked, and the sentences of the evidence nearest to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isr_rag._util.bm25 import Bm25
from isr_rag._util.text import sentence_spans, well_formed
from isr_rag.core.evidence import as_chunks, one_line
from isr_rag.core.predicates import predicate_for

SENTENCES = 4


@dataclass(frozen=True, slots=True)
class Card:
    """A case to label.

    Attributes:
        asked: lines with what is asked.
        task: the question to the person.
        sentences: the nearest sentences of the evidence, nearest first, each with the title of its chunk.
        others: how many sentences of the evidence are not shown.
    """

    asked: tuple[str, ...]
    task: str
    sentences: tuple[str, ...]
    others: int


def card(item: Mapping[str, Any], *, sentences: int = SENTENCES) -> Card:
    """What to show of an item.

    Args:
        item: `evidence`, and some of `question`, `answer` and `claim`.
        sentences: how many sentences to show at most.

    Raises:
        InvalidInputError: if it is not an item to decide about.
    """
    texts = {name: item.get(name) for name in ("question", "answer", "claim")}
    predicate = predicate_for(**texts)
    chunks = as_chunks(item["evidence"])
    found: list[str] = []
    for chunk in chunks:
        text, source = well_formed(chunk.text), f"  [{one_line(chunk.title)}]" if chunk.title else ""
        found += [f"{one_line(text[start:end])}{source}" for start, end in sentence_spans(text)]
    nearest = Bm25(found).best(predicate.query, sentences) if found else []
    sufficient = texts["claim"] is None and texts["answer"] is None
    return Card(
        asked=tuple(f"{name}: {text}" for name, text in texts.items() if text is not None),
        task="Does the evidence suffice to answer?" if sufficient else "Does the evidence support it?",
        sentences=tuple(found[i] for i in nearest),
        others=len(found) - len(nearest),
    )
