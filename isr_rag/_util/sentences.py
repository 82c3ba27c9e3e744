"""Sentences of running text with their places, in time in proportion to the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

SEGMENTED = 600
"""Characters given to the sentence splitter at a time: its time grows with the square of what it is given."""

MOST = 30
"""More sentences than this in so many characters are not sentences, but numbers, abbreviations or marks."""

_ENCLOSING = re.compile(r"""["'()\[\]{}<>‘’“”„«»‹›「」『』（）]""")
_MOSTLY_ENCLOSING = 5
"""Text of which more than one character in five is a quotation mark or bracket has no sentences to look for."""

Span = tuple[int, int]
"""First character and the one after the last."""


def parts(text: str) -> Iterator[Span]:
    """A text in parts of at most `SEGMENTED` characters, cut where it disturbs least."""
    start = 0
    while len(text) - start > SEGMENTED:
        end = start + SEGMENTED
        for mark in ("\n\n", "\n", ". ", "。", " "):
            found = text.rfind(mark, start + SEGMENTED // 2, end)
            if found >= 0:
                end = found + len(mark)
                break
        yield start, end
        start = end
    yield start, len(text)


def sentence_spans(text: str, *, prose: bool = False) -> Iterator[Span]:
    """The places of a text's sentences, which together cover it; white space belongs to the sentence before it.

    `prose` says that the text is known to have sentences, however short they are and however many brackets it has.
    """
    import sentencex

    boundaries = sentencex.get_sentence_boundaries  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module
    for start, end in parts(text):
        part = text[start:end]
        if not prose and _MOSTLY_ENCLOSING * len(_ENCLOSING.findall(part)) > len(part):
            yield start, end
            continue
        found = [(int(one["start_index"]), int(one["end_index"])) for one in cast(list[Any], boundaries("en", part))]
        if not prose and len(found) > MOST:
            yield start, end
            continue
        for first, last in found:
            yield start + first, start + last
