"""The sentence of the evidence that is nearest to what is judged, and the words of the claim that it lacks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from isr_rag.decision import Nearest
from isr_rag.evidence import Chunk, one_line, well_formed
from isr_rag.focus import first_words
from isr_rag.predicates import Predicate, Supported
from isr_rag.sentences import sentence_spans

_WORD = re.compile(r"\w+(?:[.,:]\d+)*")  # 1,200 and 3.5 are one word
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
    wanted = frozenset(_keys(predicate.query))
    best: tuple[int, int, str] | None = None
    found: tuple[int, str, frozenset[str]] | None = None
    for place, chunk in zip(places, chunks, strict=True):
        title = frozenset(_keys(chunk.title or ""))
        text = well_formed(chunk.text)
        for start, end in sentence_spans(text):
            sentence = one_line(text[start:end])
            has = title | frozenset(_keys(sentence))
            rank = (-len(wanted & has), len(sentence), sentence)
            if wanted & has and (best is None or rank < best):
                best, found = rank, (place, sentence, has)
    if found is None:
        return None
    place, sentence, has = found
    said = {key: word for word, key in reversed(_counted(_stated(predicate)))}
    lacking = [said[key] for key in dict.fromkeys(key for _, key in _counted(_stated(predicate))) if key not in has]
    return Nearest(place, first_words(sentence, _LONGEST), tuple(lacking[:_MOST]))


def _stated(predicate: Predicate) -> str:
    """What the evidence would have to say: the claim, or the answer to a question; nothing where it is asked."""
    if not isinstance(predicate, Supported):
        return ""
    return predicate.claim or predicate.answer or ""


def _keys(text: str) -> list[str]:
    return [key for _, key in _counted(text)]


def _counted(text: str) -> list[tuple[str, str]]:
    """The words that count, each with what it is compared by."""
    return [(word, _key(word)) for word in _WORD.findall(text) if word.casefold() not in _STOP]


def _key(word: str) -> str:
    folded = word.casefold()
    return folded if any(letter.isdigit() for letter in word) else folded[:_STEM]
