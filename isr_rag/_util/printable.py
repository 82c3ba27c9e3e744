"""Make text from outside safe to print and to encode."""

from __future__ import annotations

import re

LONGEST = 2000
"""Most characters of a text from outside that a message repeats."""

_SURROGATE = re.compile("[\ud800-\udfff]")

# C0 and C1 controls without tab and newline, line and paragraph separators, and marks that reorder what is read.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def well_formed(text: str) -> str:
    """Join surrogate pairs and replace unpaired halves by U+FFFD, so that every encoder takes the text."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def printable(text: str, longest: int | None = LONGEST) -> str:
    """The text without characters that control a terminal, and cut to `longest` characters (None: not cut)."""
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}… ({len(text):,} characters)"
    return _CONTROLS.sub("\ufffd", well_formed(text))
