"""Plain text: undoing corpus tokenisation, sentences, and a token estimate that is the same on every machine."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from typing import cast

import sentencex

from isr_lab.slice.text import restore_treebank

_PIECES = re.compile(r"[A-Za-z]+|\d|[^\w\s]|[^\W\d_a-zA-Z]")
_TIGHT = re.compile(r"([$£€])\s+(?=\d)")
_HYPHEN = re.compile(r"(\w) (-) (\w)")
_SPACED_HYPHENS = re.compile(r"[a-z] - [a-z]")
_EMPTY = re.compile(r"\(\s*[;,]?\s*\)\s?")
_WORDS = re.compile(r"\w+")
TOKENS_PER_PIECE = 1.1
"""SmolLM2 tokens for one letter run, digit or sign, measured on these sets (1.05 to 1.16 by source)."""


def squeeze(text: str) -> str:
    """One line, single spaces, NFC."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def detokenise(text: str) -> str:
    """Undo the Penn-style tokenisation of FEVER, MultiRC and NQ texts; drop brackets left empty by their makers."""
    text = _TIGHT.sub(r"\1", restore_treebank(text))
    text = _HYPHEN.sub(r"\1\2\3", text) if _SPACED_HYPHENS.search(text) else text
    return _EMPTY.sub("", text)


@functools.lru_cache(maxsize=50_000)
def sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text, each on one line, in order."""
    found: list[str] = []
    for paragraph in text.split("\n"):
        if paragraph.strip():
            parts = sentencex.segment("en", squeeze(paragraph))  # pyright: ignore[reportAttributeAccessIssue]
            found += [squeeze(part) for part in cast(Iterable[str], parts)]
    return tuple(part for part in found if _WORDS.search(part))


def tokens(text: str) -> int:
    """Estimated number of SmolLM2 tokens."""
    return round(TOKENS_PER_PIECE * len(_PIECES.findall(text)))


def normal(text: str) -> str:
    """For comparing: lower case, words only, single spaces."""
    return " ".join(_WORDS.findall(unicodedata.normalize("NFKC", text).casefold()))


def contains(text: str, part: str) -> bool:
    """Whether the words of `part` are in `text` as a run of whole words."""
    return f" {normal(part)} " in f" {normal(text)} "


def page_key(title: str) -> str:
    """The key under which all items about one Wikipedia page stay in one split."""
    return f"page:{normal(detokenise(title.replace('_', ' ')))}"
