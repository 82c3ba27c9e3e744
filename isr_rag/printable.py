"""Text from outside as it may be shown: nothing in it controls a terminal, and nothing is endless."""

from __future__ import annotations

import re

from isr_rag.evidence import well_formed

LONGEST = 2000
"""Characters of a text from outside that a message repeats at most."""

# C0 and C1 controls without tab and newline, line and paragraph separators, and marks that reorder what is read.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str, longest: int | None = LONGEST) -> str:
    """A text without control characters, and cut to a length.

    Args:
        text: anything, from a file name to a server's words.
        longest: characters to keep at most; None for all.
    """
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}… ({len(text):,} characters)"
    return _CONTROLS.sub("\ufffd", well_formed(text))
