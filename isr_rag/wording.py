"""What the words alone show against a claim: the ways in which the nearest sentence of the evidence falls short of it.

A small language model overlooks a name, a number or a "not" that differs in a sentence which otherwise agrees. Words
cannot say that something is supported, but they see that. Every feature counts *against* the claim, in [0, 1], and is
monotone: with the model's probability held fixed, a claim never gains by a word taken out of the evidence, by an
invented word or number put into the claim, or by a further chunk that shares none of its words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from isr_rag.evidence import Chunk
from isr_rag.focus import split_sentences
from isr_rag.predicates import Predicate, Sufficient

VERSION = "wording/2"
"""How words are counted and compared; calibrations that weigh the wording are tied to it."""

FEATURES = ("missing", "details", "negation", "order")
"""The features of one sentence, in their order; each in [0, 1], 0 where nothing speaks against the claim."""

NO_COMMON_WORD = (1.0, 1.0, 1.0, 1.0)
"""The features of a sentence that shares no word with the claim: the worst of each."""

_WORD = re.compile(r"\w+(?:[.,:]\d+)*")  # 1,200 and 3.5 are one word
_NEGATION = re.compile(r"\b(?:not|no|never|none|nor|neither|nobody|nothing|without|cannot)\b|n['’]t\b", re.IGNORECASE)
_UNITS = frozenset(
    {
        "km",
        "kilometre",
        "kilometer",
        "mile",
        "miles",
        "metre",
        "meter",
        "metres",
        "meters",
        "feet",
        "foot",
        "inch",
        "inches",
        "cm",
        "mm",
        "kg",
        "gram",
        "grams",
        "tonne",
        "tonnes",
        "pound",
        "pounds",
        "litre",
        "liter",
        "percent",
        "thousand",
        "million",
        "billion",
        "trillion",
        "second",
        "seconds",
        "minute",
        "minutes",
        "hour",
        "hours",
        "day",
        "days",
        "week",
        "weeks",
        "month",
        "months",
        "year",
        "years",
        "decade",
        "decades",
        "century",
        "euro",
        "euros",
        "dollar",
        "dollars",
        "yen",
        "kb",
        "mb",
        "gb",
        "tb",
        "kw",
        "mw",
        "gw",
        "degrees",
        "celsius",
        "fahrenheit",
    }
)
_ASKING = frozenset(("what", "when", "where", "which", "whose", "whom", "does"))
_LONG, _STEM, _MANY = 4, 6, 3

Features = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Wording:
    """How the evidence's sentences fall short of what is judged.

    Words of at least four letters, capitalised words other than the first, numbers and units count. They are compared
    without regard to case, by their first six letters; numbers as they stand. A title counts with each sentence.

    Attributes:
        sentences: for each sentence that no other beats in everything, its `FEATURES`, shape (k, 4), k >= 1:
            `missing`: share of the claim's words that are not in the sentence;
            `details`: names, numbers and units of the claim that are not in it, of at most 3;
            `negation`: 1 where one of claim and sentence is negated (an odd number of times) and the other is not;
            `order`: 1 where two names or numbers of the claim are not found in the sentence in that order.
    """

    sentences: tuple[Features, ...]

    def __str__(self) -> str:
        """In words, for a decision's reference."""
        nearest = min(self.sentences, key=sum)
        return f"{1.0 - nearest[0]:.0%} of the words in the nearest sentence"


def compare(predicate: Predicate, chunks: Sequence[Chunk]) -> Wording:
    """Compare the words of what is judged with each sentence of the evidence, titles included.

    Args:
        predicate: what is judged.
        chunks: the evidence, at least one chunk; their order does not matter.
    """
    claim = _Claim(predicate.query, negatable=not isinstance(predicate, Sufficient))
    found = {
        claim.against(f"{chunk.title or ''} . {sentence}", sentence)
        for chunk in chunks
        for sentence in split_sentences(chunk.text)
    }
    return Wording(_undominated(found or {NO_COMMON_WORD}))


class _Claim:
    """What is judged, taken apart once."""

    def __init__(self, text: str, *, negatable: bool) -> None:
        words = _WORD.findall(text)
        details = [
            _key(word)
            for place, word in enumerate(words)
            if _is_number(word) or word.casefold() in _UNITS or (word[0].isupper() and place > 0)
        ]
        long = [_key(word) for word in words if len(word) >= _LONG and word.casefold() not in _ASKING]
        self._words = frozenset([*long, *details])
        self._details = frozenset(details)
        self._in_order = details if len(self._details) > 1 else []
        self._negatable, self._negated = negatable, _is_negated(text)

    def against(self, titled: str, sentence: str) -> Features:
        """The features of one sentence; `titled` has its chunk's title in front."""
        places: dict[str, list[int]] = {}
        for place, word in enumerate(_WORD.findall(titled)):
            places.setdefault(_key(word), []).append(place)
        shared = self._words & places.keys()
        if not shared:
            return NO_COMMON_WORD
        missing = len(self._details - places.keys())
        return (
            1.0 - len(shared) / len(self._words),
            min(missing, _MANY) / _MANY,
            float(self._negatable and self._negated != _is_negated(sentence)),
            float(self._turned(places)),
        )

    def _turned(self, places: Mapping[str, Sequence[int]]) -> bool:
        """Whether two details are not found in the claim's order: one is missing, or begins after the other's end."""
        latest = -1
        for detail in self._in_order:
            if detail not in places or latest > places[detail][-1]:
                return True
            latest = max(latest, places[detail][0])
        return False


def _undominated(found: Collection[Features]) -> tuple[Features, ...]:
    """Those that no other one equals or beats in every feature, sorted."""

    def beaten(one: Features) -> bool:
        return any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in found)

    return tuple(sorted(one for one in found if not beaten(one)))


def _is_negated(text: str) -> bool:
    return _count(_NEGATION.finditer(text)) % 2 == 1


def _count(found: Iterable[object]) -> int:
    return sum(1 for _ in found)


def _is_number(word: str) -> bool:
    return any(letter.isdigit() for letter in word)


def _key(word: str) -> str:
    folded = word.casefold()
    return folded if _is_number(word) else folded[:_STEM]
