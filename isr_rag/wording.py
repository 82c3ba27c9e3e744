"""What the words alone show: how far the words of a claim, or of a question and its answer, are in the evidence.

A small language model overlooks a word that differs in a sentence which otherwise agrees, and an answer that is said of
something else. Words cannot say that something is supported, but they see that; a calibration weighs both
(`Combination`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from isr_rag.evidence import Chunk
from isr_rag.predicates import Predicate, Supported

_WORD = re.compile(r"\w+(?:[.,:]\d+)*")  # 1,200 and 3.5 are one word
VERSION = "wording/1"
"""How words are counted and compared; calibrations that weigh the wording are tied to it."""
_LONG = 4
_STEM = 6


@dataclass(frozen=True, slots=True)
class Wording:
    """How far the words of a claim, a question, or a question and its answer are in the evidence.

    Words of at least four letters, capitalised words other than the first, and numbers count; of an answer every word.
    They are compared without regard to case, by their first six letters; numbers as they stand.

    Attributes:
        absent: share of the words that are in no chunk, in [0, 1].
        nearest: share of the words that are in the chunk that has most of them, in [0, 1].
        answered: share of the answer's words that are in the chunk that has most words of the question, in [0, 1];
            1 where no answer is judged.
    """

    absent: float
    nearest: float
    answered: float

    def __str__(self) -> str:
        """In words, for a decision's reference."""
        return f"{self.nearest:.0%} of the words in one chunk, {self.absent:.0%} in none"


def compare(predicate: Predicate, chunks: Sequence[Chunk]) -> Wording:
    """Compare the words of what is judged with those of the evidence, titles included.

    Args:
        predicate: what is judged.
        chunks: the evidence, at least one chunk; their order does not matter.
    """
    has = [frozenset(map(_key, _WORD.findall(f"{chunk.title or ''} {chunk.text}"))) for chunk in chunks]
    wanted = _counted(predicate.query)
    answered = 1.0
    if isinstance(predicate, Supported) and predicate.question is not None and predicate.answer is not None:
        about = [_share(_counted(predicate.question), own) for own in has]
        answer = list(map(_key, _WORD.findall(predicate.answer)))
        answered = max(_share(answer, own) for own, share in zip(has, about, strict=True) if share == max(about))
    return Wording(
        absent=1.0 - _share(wanted, frozenset[str]().union(*has)),
        nearest=max(_share(wanted, own) for own in has),
        answered=answered,
    )


def _share(wanted: Collection[str], own: Set[str]) -> float:
    """Share of the words that are there; 1 where none is wanted."""
    return sum(key in own for key in wanted) / len(wanted) if wanted else 1.0


def _counted(text: str) -> list[str]:
    """The words that count, as they are compared."""
    words = _WORD.findall(text)
    return [_key(word) for place, word in enumerate(words) if _counts(word, first=place == 0)]


def _counts(word: str, *, first: bool) -> bool:
    return len(word) >= _LONG or _is_number(word) or (word[0].isupper() and not first)


def _is_number(word: str) -> bool:
    return any(letter.isdigit() for letter in word)


def _key(word: str) -> str:
    folded = word.casefold()
    return folded if _is_number(word) else folded[:_STEM]
