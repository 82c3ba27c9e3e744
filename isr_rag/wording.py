"""What the words alone show: how far a claim's words stand in its evidence.

A small language model overlooks a word that differs in a sentence which otherwise agrees. Words cannot say that
something is supported, but they see that; a calibration weighs both (:class:`~isr_rag.calibration.Combination`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from isr_rag.evidence import Chunk

_WORD = re.compile(r"\w+(?:[.,:]\d+)*")  # 1,200 and 3.5 are one word
_LONG = 4
_STEM = 6


@dataclass(frozen=True, slots=True)
class Wording:
    """How far the words of a claim or question stand in its evidence.

    Words of at least four letters, capitalised words other than the first, and numbers count. They are compared
    without regard to case, by their first six letters; numbers as they stand.

    Attributes:
        absent: share of the words that stand in no chunk, in [0, 1].
        nearest: share of the words that stand in the chunk that has most of them, in [0, 1].
    """

    absent: float
    nearest: float


def compare(text: str, chunks: Sequence[Chunk]) -> Wording:
    """Compare the words of a claim or question with those of its evidence, titles included.

    Args:
        text: what is judged: a predicate's ``query``.
        chunks: the evidence, at least one chunk; their order does not matter.
    """
    words = [word for place, word in enumerate(_WORD.findall(text)) if _counts(word, first=place == 0)]
    if not words:
        return Wording(absent=0.0, nearest=1.0)
    wanted = [_key(word) for word in words]
    has = [{_key(word) for word in _WORD.findall(f"{chunk.title or ''} {chunk.text}")} for chunk in chunks]
    anywhere = set[str]().union(*has)
    return Wording(
        absent=sum(key not in anywhere for key in wanted) / len(wanted),
        nearest=max(sum(key in own for key in wanted) for own in has) / len(wanted),
    )


def _counts(word: str, *, first: bool) -> bool:
    return len(word) >= _LONG or _is_number(word) or (word[0].isupper() and not first)


def _is_number(word: str) -> bool:
    return any(letter.isdigit() for letter in word)


def _key(word: str) -> str:
    folded = word.casefold()
    return folded if _is_number(word) else folded[:_STEM]
