"""The sentence of the evidence that is nearest to what is judged, and the words of the claim that it lacks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from isr_rag._util.printable import well_formed
from isr_rag._util.sentences import sentence_spans
from isr_rag.core.decision import Nearest
from isr_rag.core.evidence import Chunk, one_line
from isr_rag.core.focus import first_words
from isr_rag.core.predicates import Predicate, Supported

_WORD = re.compile(r"\w+(?:[.,:]\d+)*")  # 1,200 and 3.5 are one word
_DIGIT = re.compile(r"\d")
_WHITE = re.compile(r"\s+")
_COMMON = (
    "a an and are as at be but by for from had has have if in into is it its of on or that the their then there these "
    "they this to was were which will with"
)
_STOP = frozenset(_COMMON.split())
_STEM = 6
_LONGEST, _MOST = 60, 6
"""The most words of the sentence and of the claim that are shown."""


def nearest(predicate: Predicate, chunks: Sequence[Chunk], places: Sequence[int]) -> Nearest | None:
    """Find the sentence that shares most words with what is judged; a title counts with each sentence of its chunk.

    Words are compared without regard to case, by their first six letters; numbers as they stand. Words such as “the”
    and “was” do not count. This is about words alone: it says where to look, not what the model saw.

    Args:
        predicate: what is judged.
        chunks: what was read of the evidence.
        places: the index of each of them in the caller's evidence.

    Returns:
        None where no sentence shares a word with it. Of sentences with equally many, the shortest.
    """
    wanted = _keys(predicate.query).keys()
    best: tuple[int, int, str] | None = None
    found: tuple[int, str, set[str]] | None = None
    for place, chunk in zip(places, chunks, strict=True):
        title = _keys(chunk.title or "").keys()
        text = well_formed(chunk.text)
        for start, end in sentence_spans(text):
            sentence = _WHITE.sub(" ", text[start:end]).strip()
            has = title | _keys(sentence).keys()
            rank = (-len(wanted & has), len(sentence), sentence)
            if rank[0] and (best is None or rank < best):
                best, found = rank, (place, sentence, has)
    if found is None:
        return None
    place, sentence, has = found
    claim = predicate.claim if isinstance(predicate, Supported) else None  # a draft's words stay out of decisions
    lacking = [word for key, word in _keys(claim or "").items() if key not in has]
    return Nearest(place, first_words(one_line(sentence), _LONGEST), tuple(lacking[:_MOST]))


def _keys(text: str) -> dict[str, str]:
    """What the words that count are compared by, each with the first word of it."""
    found: dict[str, str] = {}
    for word in _WORD.findall(text):
        folded = word.casefold()
        if folded not in _STOP:
            found.setdefault(folded if _DIGIT.search(folded) else folded[:_STEM], word)
    return found
