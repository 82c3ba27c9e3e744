"""Deterministic text work of the slice builder: restoring, folding, splitting and capping sentences."""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from isr_rag.errors import ConfigurationError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_BRACKET = re.compile("|".join(_BRACKETS))
_NO_SPACE_BEFORE = re.compile(r"\s+([,.;:!?%)\]}]|'s\b|'re\b|'ve\b|'ll\b|'d\b|'m\b|n't\b)")
_NO_SPACE_AFTER = re.compile(r"([(\[{])\s+")
_QUOTED = re.compile(r'"\s*([^"]*?)\s*"')
_INITIAL = re.compile(r"\b([A-Z]) \.")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w+")
_ARTICLES = frozenset({"a", "an", "the"})
_STOPWORDS = """
a an and are as at be been being but by can could did do does for from had has have he her him his how i in into is
it its of on only or she so some than that the their them then there these they this those to was were what when
where which while who whom whose why will with would you not no also any all one
"""
STOPWORDS = frozenset(_STOPWORDS.split())
_SUFFIX = re.compile(r"(?:ations?|ings?|ions?|ers?|ors?|ies|ed|es|ly|s|e|y)$")


def restore_treebank(text: str) -> str:
    """Undo Penn-Treebank tokenisation as FEVER and TimeQA carry it (`-LRB-`, doubled quotes, `word ,`)."""
    text = _BRACKET.sub(lambda match: _BRACKETS[match.group()], text)
    text = text.replace("``", '"').replace("''", '"').replace("--", "\u2013")
    text = _INITIAL.sub(r"\1.", text)
    text = _NO_SPACE_BEFORE.sub(r"\1", text)
    text = _NO_SPACE_AFTER.sub(r"\1", text)
    text = _QUOTED.sub(r'"\1"', text)
    return squeeze(text)


def squeeze(text: str) -> str:
    """Fold white space to single spaces and strip."""
    return _SPACE.sub(" ", text).strip()


def page_title(title: str) -> str:
    """A page's title as people write it: no underscores, brackets restored."""
    return squeeze(
        _BRACKET.sub(lambda match: _BRACKETS[match.group()], title.replace("_", " ")).replace("-COLON-", ":")
    )


@lru_cache(maxsize=1 << 19)
def fold(text: str) -> str:
    """Case, accents, punctuation and articles folded away: how answers, titles and duplicates are compared."""
    plain = text.casefold()
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    return " ".join(word for word in _WORD.findall(plain) if word not in _ARTICLES)


def contains(folded_text: str, folded_answer: str) -> bool:
    """Whether a folded answer is in a folded text as whole words; an empty answer never does."""
    return bool(folded_answer) and f" {folded_answer} " in f" {folded_text} "


@lru_cache(maxsize=1 << 16)
def stems(text: str) -> frozenset[str]:
    """Crude stems of the content words, for asking whether two texts talk about the same thing."""
    return frozenset(stem(word) for word in fold(text).split() if word not in STOPWORDS and len(word) > 1)


def stem(word: str) -> str:
    """A word without its commonest English endings (at least three letters stay); numbers stay whole."""
    if word.isdigit():
        return word
    shorter = _SUFFIX.sub("", word)
    return shorter if len(shorter) >= 3 else word


def split_sentences(text: str) -> list[str]:
    """Sentences of running English text."""
    import sentencex

    found = sentencex.segment("en", squeeze(text))  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module
    return [part for part in map(squeeze, cast("Iterable[str]", found)) if part]


def digest(*parts: object) -> str:
    """A hexadecimal sha256 over the parts' texts: the only source of order and chance in the builder."""
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).hexdigest()


def generator(*parts: object) -> random.Random:
    """A random generator that depends on nothing but the parts."""
    return random.Random(int(digest(*parts)[:16], 16))


class TokenCap:
    """Cuts texts into pieces of at most `limit` tokens, at spaces, losing nothing.

    Args:
        tokenizer: path of a `tokenizer.json`, or the name of a tokenizer on the Hugging Face Hub.
        limit: tokens per piece, at least 8.

    Raises:
        ConfigurationError: if the tokenizer cannot be loaded or the limit is too small.
    """

    def __init__(self, tokenizer: str, limit: int) -> None:
        if limit < 8:
            raise ConfigurationError(f"a cap of {limit} tokens is too small for a sentence; give at least 8")
        self.limit = limit
        self._tokenizer = _load_tokenizer(tokenizer)
        self._pieces: dict[str, tuple[str, ...]] = {}

    def count(self, text: str) -> int:
        """Tokens of a text, special tokens not counted."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def pieces(self, text: str) -> tuple[str, ...]:
        """The text whole, or cut into consecutive pieces of nearly equal length within the cap."""
        known = self._pieces.get(text)
        if known is None:
            known = self._pieces[text] = self._cut(text)
        return known

    def _cut(self, text: str) -> tuple[str, ...]:
        total = self.count(text)
        if total <= self.limit:
            return (text,)
        share = total / -(-total // self.limit)
        pieces: list[str] = []
        current, done = "", 0
        for word in (part for whole in text.split(" ") for part in self._short_words(whole)):
            longer = f"{current} {word}" if current else word
            if current and (self.count(longer) > self.limit or done + self.count(current) >= share * (len(pieces) + 1)):
                done += self.count(current)
                pieces.append(current)
                current = word
            else:
                current = longer
        return (*pieces, current)

    def _short_words(self, word: str) -> list[str]:
        """A word as it is, or in halves until each is within the cap (unbroken strings such as addresses)."""
        if self.count(word) <= self.limit:
            return [word]
        middle = len(word) // 2
        return self._short_words(word[:middle]) + self._short_words(word[middle:])


def _load_tokenizer(name: str) -> Tokenizer:
    from tokenizers import Tokenizer

    path = Path(name)
    if path.is_dir():
        path = path / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path)) if path.exists() else Tokenizer.from_pretrained(name)
    except Exception as error:  # the library raises bare Exception for a bad file and for an unknown name
        raise ConfigurationError(
            f"no tokenizer could be loaded from {name!r} ({error}); give the path of a tokenizer.json"
        ) from error
