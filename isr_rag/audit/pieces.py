"""Evidence in pieces that do not depend on the question, so that a scorer that caches states reads each piece once.

A gate trims long evidence to the sentences nearest to its question. An audit asks many questions about the same
evidence. It reads whole pieces instead: those nearest to each statement, up to the gate's limit of words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from isr_rag._util.bm25 import Bm25
from isr_rag._util.text import Span, sentence_spans, trimmed
from isr_rag.audit.context import Context
from isr_rag.core.evidence import Chunk, Focus, first_words, one_line, words
from isr_rag.core.work import Item

WHOLE = 200
"""Words of the longest chunk that is read whole. Longer ones are cut when the evidence exceeds the gate's limit."""

PIECE = 120  # words of one piece of a longer chunk


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk, or a part of it: its index, its first character and the one after the last, and its size in words.

    `text` is what the model reads, under the chunk's title.
    """

    chunk: int
    start: int
    end: int
    text: Chunk
    size: int


class Pieces:
    """The evidence of one answer, of which at most `budget` words are read for one statement (None: all) of `asked`."""

    def __init__(self, chunks: Sequence[Chunk], budget: int | None, asked: Iterable[Item]) -> None:
        self.chunks, self._queries = tuple(chunks), [one_line(" ".join(map(str, item.values()))) for item in asked]
        whole = [_piece(i, chunk, 0, len(chunk.text)) for i, chunk in enumerate(chunks)]
        self.total = sum(one.size for one in whole)
        self._budget = budget if budget is not None and self.total > budget else None
        most = self.total if self._budget is None else min(WHOLE, self._budget)
        size = min(PIECE, most)
        self.pieces = [one for piece in whole for one in ([piece] if piece.size <= most else _cut(piece, size))]
        self._alone: dict[int, dict[Span, str]] = {}

    @cached_property
    def _index(self) -> Bm25:
        texts = (f"{piece.text.title or ''} {piece.text.text}" for piece in self.pieces)
        return Bm25(texts, self._queries, digits=True)

    def ranked(self, query: str) -> list[int]:
        """All pieces, the nearest to a query first."""
        return self._index.best(one_line(query), len(self.pieces))

    def read(self, query: str, first: Collection[int] = ()) -> tuple[int, ...]:
        """Indices of the pieces to read for a query, in the order of the evidence.

        The nearest piece of each chunk in `first` is chosen before all others.
        """
        if self._budget is None:
            return tuple(range(len(self.pieces)))
        ranked = self.ranked(query)
        wanted: dict[int, int] = {}
        for i in ranked:
            if self.pieces[i].chunk in first:
                wanted.setdefault(self.pieces[i].chunk, i)
        kept: list[int] = []
        left = self._budget
        for i in dict.fromkeys([*wanted.values(), *ranked]):
            if self.pieces[i].size <= left:
                kept.append(i)
                left -= self.pieces[i].size
        return tuple(sorted(kept or ranked[:1]))

    def focus(self, read: Sequence[int]) -> Focus | None:
        """How much was read; None if all of it was."""
        read_words = sum(self.pieces[i].size for i in read)
        return None if self._budget is None else Focus(read_words, self.total, self._budget)

    def sentences(self, piece: Piece) -> list[Span]:
        """The sentences of a piece, in characters of its chunk's text."""
        text = self.chunks[piece.chunk].text[piece.start : piece.end]
        spans = (trimmed(text, first, last) for first, last in sentence_spans(text))
        return [(piece.start + first, piece.start + last) for first, last in spans if first < last]

    def by_themselves(self, chunk: int) -> dict[Span, str]:
        """The sentences of a chunk in words that stand alone, by their characters in its text."""
        if chunk not in self._alone:
            context, text = Context(None, self.chunks[chunk].title or ""), self.chunks[chunk].text
            found: dict[Span, str] = {}
            for piece in self.pieces:
                for first, last in self.sentences(piece) if piece.chunk == chunk else ():
                    found[first, last] = context.resolved(text[first:last])
                    context.note(text[first:last])
            self._alone[chunk] = found
        return self._alone[chunk]

    def without(self, piece: Piece, spans: Collection[Span]) -> Chunk | None:
        """A piece without some of its sentences; None if nothing is left."""
        text = self.chunks[piece.chunk].text
        joined = " ".join(text[a:b] for a, b in self.sentences(piece) if (a, b) not in spans)
        return Chunk(joined, piece.text.title) if one_line(joined) else None


def _piece(i: int, chunk: Chunk, start: int, end: int) -> Piece:
    text = chunk if (start, end) == (0, len(chunk.text)) else Chunk(chunk.text[start:end].strip(), chunk.title)
    return Piece(i, start, end, text, words(text.text) + words(chunk.title or ""))


def _cut(whole: Piece, most: int) -> list[Piece]:
    """Cut a chunk into pieces of at most `most` words, between sentences unless a sentence is longer."""
    text = whole.text.text
    room = max(most - words(whole.text.title or ""), most // 2, 1)
    starts, size = [0], 0
    for first, last in sentence_spans(text):
        more = words(text[first:last])
        if size and size + more > room:
            starts.append(first)
            size = 0
        while more > room:  # a very long sentence
            first += len(first_words(text[first:last], room))
            starts.append(first)
            more = words(text[first:last])
        size += more
    spans = pairwise([*starts, len(text)])
    return [_piece(whole.chunk, whole.text, start, end) for start, end in spans if one_line(text[start:end])]
