"""Evidence for one item: documents cut into chunks, the support kept, the rest chosen by BM25."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from isr_lab.mix.text import sentences, squeeze, tokens
from isr_lab.slice.schema import SliceChunk
from isr_rag._util.bm25 import Bm25

CHUNK_TOKENS = 90
BUDGET_TOKENS = 310


@dataclass(frozen=True, slots=True)
class Document:
    """A text in sentences; `support` holds the indices of the sentences known to carry the support."""

    sentences: tuple[str, ...]
    title: str | None = None
    support: frozenset[int] = field(default_factory=frozenset[int])


def document(text: str, title: str | None = None, is_support: Callable[[str], bool] | None = None) -> Document:
    """Cut a text into sentences and mark those that `is_support` holds for."""
    parts = sentences(text)
    support = frozenset(i for i, part in enumerate(parts) if is_support is not None and is_support(part))
    return Document(parts, squeeze(title) if title else None, support)


def judged(text: str, title: str | None = None) -> Document:
    """A text that its makers judged as a whole: every sentence counts as support, none may be left out."""
    parts = sentences(text)
    return Document(parts, squeeze(title) if title else None, frozenset(range(len(parts))))


def ranked(query: str, texts: Sequence[str]) -> list[tuple[int, float]]:
    """Positions and BM25 scores (k1 = 1.2, b = 0.75), best first, ties by position."""
    found = [round(float(score), 4) for score in Bm25(texts).scores(query)]
    return sorted(enumerate(found), key=lambda pair: (-pair[1], pair[0]))


def chunks_of(doc: Document, rng: random.Random) -> list[SliceChunk]:
    """Chunks of one to three sentences and at most `CHUNK_TOKENS` tokens; a longer sentence is cut at a word."""
    chunks: list[SliceChunk] = []
    start = 0
    while start < len(doc.sentences):
        end, last = start + 1, min(start + rng.choice((1, 1, 2, 2, 3)), len(doc.sentences))
        while end < last and tokens(" ".join(doc.sentences[start : end + 1])) <= CHUNK_TOKENS:
            end += 1
        supports = bool(doc.support.intersection(range(start, end)))
        for part in _shortened(" ".join(doc.sentences[start:end]), CHUNK_TOKENS + 30):
            chunks.append(SliceChunk(text=part, title=doc.title, sentence_id=start, is_support=supports))
        start = end
    return chunks


def _shortened(text: str, cap: int) -> list[str]:
    if tokens(text) <= cap:
        return [text]
    words, parts, current = text.split(), list[str](), list[str]()
    for word in words:
        current.append(word)
        if tokens(" ".join(current)) >= cap - 10:
            parts.append(" ".join(current))
            current = []
    return [*parts, " ".join(current)] if current else parts


def assemble(
    documents: Iterable[Document],
    query: str,
    rng: random.Random,
    *,
    budget: int = BUDGET_TOKENS,
    extra: Sequence[SliceChunk] = (),
    ordered: bool = False,
) -> tuple[SliceChunk, ...]:
    """All supporting chunks, then those nearest to the query while the token budget lasts; shuffled.

    Args:
        documents: what the evidence is taken from.
        query: the claim, or the question (never the label).
        rng: draws chunk sizes and the order.
        budget: tokens in all; supporting chunks may exceed it.
        extra: chunks of other documents that compete for the remaining budget.
        ordered: keep the order of the documents (a text whose parts need their order).
    """
    pool = [chunk for doc in documents for chunk in chunks_of(doc, rng)] + list(extra)
    if not pool:
        return ()
    if sum(tokens(chunk.text) for chunk in pool) <= budget:
        if not ordered:
            rng.shuffle(pool)
        return tuple(pool)
    found = ranked(query, [f"{chunk.title or ''} {chunk.text}" for chunk in pool])
    keep = {i for i, chunk in enumerate(pool) if chunk.is_support}
    used = sum(tokens(pool[i].text) for i in keep)
    for i, _ in found:
        cost = tokens(pool[i].text)
        if i not in keep and (used + cost <= budget or not keep):
            keep.add(i)
            used += cost
    score_of = dict(found)
    chosen = [pool[i].model_copy(update={"score": score_of[i]}) for i in sorted(keep)]
    if not ordered:
        rng.shuffle(chosen)
    return tuple(chosen)


class Pool:
    """Documents of one source, searched by BM25, for distractors and near misses."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = list(documents)
        texts = [f"{doc.title or ''} {' '.join(doc.sentences)}" for doc in self._documents]
        self._index = Bm25(texts)

    def near(self, query: str, k: int, fits: Callable[[Document], bool]) -> list[Document]:
        """The k best documents for the query among those that fit, best first; fewer where fewer fit."""
        found = np.round(self._index.scores(query), 4)
        wide = min(len(found), 40 + 10 * k)
        least = max(float(np.partition(found, -wide)[-wide]), 1e-4)
        best = np.flatnonzero(found >= least)
        chosen: list[Document] = []
        for i in best[np.argsort(-found[best], kind="stable")][:wide]:
            if len(chosen) < k and fits(self._documents[int(i)]):
                chosen.append(self._documents[int(i)])
        return chosen
