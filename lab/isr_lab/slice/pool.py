"""The sentence pool with its BM25 index: hard negatives for every record, in the same order on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from isr_lab.slice.records import Sentence
from isr_lab.slice.text import STOPWORDS, fold

_QUANTUM = 4096.0
OPEN = "open"


class Pool:
    """Sentences (or passages) under a BM25 index over `title text`.

    The scoring is Lucene's (idf `log(1 + (N - df + .5) / (df + .5))`, no `k1 + 1` in the numerator). Term
    weights are rounded to 1/4096, so sums are exact in float32 and scores do not depend on the machine.

    Args:
        sentences: the pool; repeated (title, text) pairs count once.
        k1, b: BM25's parameters.
    """

    def __init__(self, sentences: Iterable[Sentence], k1: float, b: float) -> None:
        import bm25s

        unique: dict[tuple[str | None, str], Sentence] = {(s.title, s.text): s for s in sentences if s.title}
        self.sentences = list(unique.values())
        self._position = {key: i for i, key in enumerate(unique)}
        self._tokens = [self.tokens(f"{s.title} {s.text}") for s in self.sentences]
        titles = {title: fold(title) for title in {s.title for s in self.sentences} if title}
        self.pages = [titles[s.title or ""] for s in self.sentences]
        self._owners = np.full(len(self.pages), OPEN)
        index = cast("Any", bm25s.BM25(k1=k1, b=b, method="lucene", dtype="float64"))
        index.index(self._tokens, show_progress=False)
        index.scores["data"] = (np.round(index.scores["data"] * _QUANTUM) / _QUANTUM).astype(np.float32)
        index.dtype = "float32"
        self._index = index
        self._tokens = []

    def own(self, owners: Mapping[str, str]) -> None:
        """Give pages to splits: an owned page is a distractor only within its split.

        Args:
            owners: split of each folded page title that is some record's gold page.
        """
        self._owners = np.array([owners.get(page, OPEN) for page in self.pages])

    def __len__(self) -> int:
        return len(self.sentences)

    @staticmethod
    def tokens(text: str) -> list[str]:
        """The words BM25 counts: case, accents and punctuation folded away."""
        return fold(text).split()

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """BM25 score of every pool sentence for the query's content words, shape (len(self),)."""
        vocabulary = cast("dict[str, int]", self._index.vocab_dict)
        known = [token for token in self.tokens(query) if token in vocabulary and token not in STOPWORDS]
        if not known:
            return np.zeros(len(self.sentences), dtype=np.float32)
        return cast("npt.NDArray[np.float32]", self._index.get_scores(known))

    def ranking(self, scores: npt.NDArray[np.float32], split: str, depth: int) -> list[Sentence]:
        """The `depth` best sentences with a positive score that `split` may use, best first, ties in pool order."""
        allowed = (scores > 0) & ((self._owners == OPEN) | (self._owners == split))
        places = np.flatnonzero(allowed)
        if len(places) > depth:
            cut = np.partition(scores[places], len(places) - depth)[len(places) - depth]
            places = places[scores[places] >= cut]
        order = np.lexsort((places, -scores[places]))[:depth]
        return [self.sentences[i] for i in places[order]]

    def score_of(self, scores: npt.NDArray[np.float32], sentence: Sentence) -> float | None:
        """The score of one sentence; None when it is not in the pool."""
        place = self._position.get((sentence.title, sentence.text))
        return None if place is None else round(float(scores[place]), 4)
