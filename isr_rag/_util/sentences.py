"""Sentences of running text with their places, in time in proportion to the text."""

from __future__ import annotations

import re
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


def _parts(text: str) -> list[Span]:
    """A text in parts of at most `SEGMENTED` characters, cut where it disturbs least."""
    start = 0
    found: list[Span] = []
    while len(text) - start > SEGMENTED:
        end = start + SEGMENTED
        for mark in ("\n\n", "\n", ". ", "。", " "):
            at = text.rfind(mark, start + SEGMENTED // 2, end)
            if at >= 0:
                end = at + len(mark)
                break
        found.append((start, end))
        start = end
    return [*found, (start, len(text))]


def sentence_spans(text: str, *, prose: bool = False) -> list[Span]:
    """The places of a text's sentences, which together cover it; white space belongs to the sentence before it.

    `prose` says that the text is known to have sentences, however short they are and however many brackets it has.
    """
    import sentencex

    boundaries = sentencex.get_sentence_boundaries  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module
    spans: list[Span] = []
    for start, end in _parts(text):
        part = text[start:end]
        if not prose and _MOSTLY_ENCLOSING * len(_ENCLOSING.findall(part)) > len(part):
            spans.append((start, end))
            continue
        found = cast(list[Any], boundaries("en", part))
        if not prose and len(found) > MOST:
            spans.append((start, end))
            continue
        for one in found:
            spans.append((start + int(one["start_index"]), start + int(one["end_index"])))
    return spans


def trimmed(text: str, first: int, last: int) -> Span:
    """A span without white space at its ends; empty, and at its end, if it has nothing else."""
    inner = text[first:last]
    start = first + len(inner) - len(inner.lstrip())
    return start, start + len(inner.strip())
