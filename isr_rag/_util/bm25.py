"""BM25 as every search of this package sets it up: k1 = 1.2, b = 0.75, English stop words left out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

_OTHER = " "  # stands for all words that no query has
_WORDS = r"\b\w\w+\b"


class Bm25:
    """An index over one text or more; where `queries` are given, of the words of these alone: others score zero.

    With `digits` single digits count, too: "7" may be all that tells two rows apart.
    """

    def __init__(self, texts: Iterable[str], queries: Sequence[str] | None = None, *, digits: bool = False) -> None:
        left, corpus = iter(texts), list[list[str]]()
        self._pattern = r"\b(?:\w\w+|\d)\b" if digits else _WORDS
        asked = None if queries is None else {word: word for query in tokens(queries, self._pattern) for word in query}
        alike: dict[tuple[str, ...], list[str]] = {}  # of the words of a few queries many texts have the same
        while found := tokens(list(islice(left, 1000)), self._pattern):
            if asked is not None:
                told = ([asked.get(word, _OTHER) for word in words] for words in found)
                found = [alike.setdefault(tuple(row), row) for row in told]
            corpus += found
        self._size = len(corpus)
        self._vocabulary = set(chain.from_iterable(corpus)) - {_OTHER}
        if self._vocabulary:
            self._index = _library().BM25(k1=1.2, b=0.75)
            self._index.index(corpus, show_progress=False)

    def scores(self, query: str) -> NDArray[np.float64]:
        """Score of each text for a query, shape (texts,), float64; zeros where they share no word."""
        known = [token for token in tokens([query], self._pattern)[0] if token in self._vocabulary]
        found = self._index.get_scores(known) if known else np.zeros(self._size)
        return np.asarray(found, dtype=np.float64)

    def best(self, query: str, k: int) -> list[int]:
        """Positions of the k best texts, best first, ties in their order; fewer where there are fewer texts."""
        return [int(i) for i in np.argsort(-self.scores(query), kind="stable")[:k]]


def tokens(texts: Sequence[str], pattern: str = _WORDS, *, stopwords: str = "en") -> list[list[str]]:
    """The words of each text, by default those of two letters or more, without a list of stop words of bm25s."""
    found = _library().tokenize(list(texts), True, pattern, stopwords, return_ids=False, show_progress=False)
    return cast(list[list[str]], found)


def _library() -> Any:
    """The module bm25s, which sets its log to DEBUG when it is imported: that is undone."""
    import bm25s

    own = logging.getLogger("bm25s")
    if own.level == logging.DEBUG:
        own.setLevel(logging.NOTSET)
    return bm25s
