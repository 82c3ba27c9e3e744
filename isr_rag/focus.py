"""Cutting each chunk to the sentences that matter for the question, under a budget of words.

Chunks as people have them are long, and a small model on a CPU cannot read thirty of them in a second. Sentences
are ranked by BM25 (k1 = 1.2, b = 0.75) against the predicate's words; every chunk keeps its best sentence, its
place and its title, and the rest of the budget goes to the best sentences anywhere. What is left out of the middle
is marked with an ellipsis, and the decision says how much was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import cast

import numpy as np
from numpy.typing import NDArray

from isr_rag.decision import Focus
from isr_rag.evidence import Chunk, one_line

_LONGEST = 60
"""Words after which text without a sentence end (tables, code) is cut all the same."""


def words(text: str) -> int:
    """Length of a text in white-space separated words."""
    return len(text.split())


def focus(chunks: Sequence[Chunk], query: str, budget: int) -> tuple[tuple[Chunk, ...], Focus | None]:
    """Cut chunks to the sentences nearest to a query.

    Args:
        chunks: the evidence; read only.
        query: what the evidence must be about.
        budget: words to keep over all chunks. Every chunk keeps its best sentence even where that exceeds it.

    Returns:
        As many chunks, in the same order, and what was read; the chunks as they are and None when they fit.
    """
    total = sum(words(chunk.text) for chunk in chunks)
    if total <= budget:
        return tuple(chunks), None
    sentences = [list(_sentences(chunk.text)) for chunk in chunks]
    places = [(c, s) for c, row in enumerate(sentences) for s in range(len(row))]
    titled = [f"{chunks[c].title or ''} {sentences[c][s]}" for c, s in places]
    scores = _bm25(titled, query)
    ranked = [places[int(i)] for i in np.argsort(-scores, kind="stable")]
    first_of_chunk = {c: (c, s) for c, s in reversed(ranked)}
    kept = set(first_of_chunk.values())
    left = budget - sum(words(sentences[c][s]) for c, s in kept)
    for c, s in ranked:
        size = words(sentences[c][s])
        if (c, s) not in kept and size <= left:
            kept.add((c, s))
            left -= size
    cut = tuple(
        replace(chunk, text=_joined(row, [s for s in range(len(row)) if (c, s) in kept]))
        for c, (chunk, row) in enumerate(zip(chunks, sentences, strict=True))
    )
    read = sum(words(sentences[c][s]) for c, s in kept)
    return cut, Focus(words_read=read, words_total=total, budget=budget)


def _sentences(text: str) -> Iterator[str]:
    import sentencex

    found = sentencex.segment("en", text)  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module
    for sentence in cast(Iterable[str], found):
        parts = one_line(sentence).split()
        for start in range(0, len(parts), _LONGEST):
            yield " ".join(parts[start : start + _LONGEST])


def _bm25(texts: list[str], query: str) -> NDArray[np.float64]:
    """BM25 of each text for the query; zeros where they share no word."""
    import bm25s

    def tokens(lines: list[str]) -> list[list[str]]:
        found = bm25s.tokenize(lines, stopwords="en", return_ids=False, show_progress=False)
        return cast(list[list[str]], found)

    corpus = tokens(texts)
    vocabulary = set(chain.from_iterable(corpus))
    known = [token for token in tokens([query])[0] if token in vocabulary]
    if not known:
        return np.zeros(len(texts))
    index = bm25s.BM25(k1=1.2, b=0.75)
    index.index(corpus, show_progress=False)
    return np.asarray(index.get_scores(known), dtype=np.float64)


def _joined(sentences: list[str], kept: list[int]) -> str:
    parts: list[str] = []
    for position, s in enumerate(kept):
        if position and s != kept[position - 1] + 1:
            parts.append("…")
        parts.append(sentences[s])
    return " ".join(parts)
