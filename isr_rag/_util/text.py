"""Text from outside: safe to print and encode, cut into sentences, and told by its language.

Sentences take time in proportion to the text; languages are told by py3langid (naive Bayes over byte n-grams).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

LONGEST = 2000  # most characters of a text from outside that a message repeats

SURROGATE = re.compile("[\ud800-\udfff]")

# C0 and C1 controls without tab and newline, line and paragraph separators, and marks that reorder what is read.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")

SEGMENTED = 600
"""Characters given to the sentence splitter at a time: its time grows with the square of what it is given."""

MOST = 30  # more sentences than this in so many characters are not sentences, but numbers, abbreviations or marks

_ENCLOSING = re.compile(r"""["'()\[\]{}<>‘’“”„«»‹›「」『』（）]""")
_MOSTLY_ENCLOSING = 5
"""Text of which more than one character in five is a quotation mark or bracket has no sentences to look for."""

Span = tuple[int, int]  # first character and the one after the last

# Of languages: probabilities and a share that the functions below explain, and the characters that count.
_IMPOSSIBLE = 0.002
_SHARE = 0.05
_TOLD = 0.5
_READ = 2000


def well_formed(text: str) -> str:
    """Join surrogate pairs and replace unpaired halves by U+FFFD, so that every encoder takes the text."""
    if text.isascii() or SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def printable(text: str, longest: int | None = LONGEST) -> str:
    """The text without characters that control a terminal, and cut to `longest` characters (None: not cut)."""
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}… ({len(text):,} characters)"
    return _CONTROLS.sub("\ufffd", well_formed(text))


def in_markdown(text: str) -> str:
    """A text on one line without markup: no tag, link, picture or emphasis."""
    folded = " ".join(printable(text, None).split())
    return re.sub(r"([\\`*<\[\]])|(?<!\w)_|_(?!\w)", lambda found: "\\" + found.group(), folded)


def parts(text: str) -> list[Span]:
    """A text in parts of at most `SEGMENTED` characters, cut where it disturbs least."""
    start, found = 0, list[Span]()
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
    for start, end in parts(text):
        part = SURROGATE.sub("\ufffd", text[start:end])
        enclosing = not prose and _MOSTLY_ENCLOSING * len(_ENCLOSING.findall(part)) > len(part)
        found: list[Any] = [] if enclosing else boundaries("en", part)
        if enclosing or (len(found) > MOST and not prose):
            spans.append((start, end))
        else:
            spans += [(start + int(one["start_index"]), start + int(one["end_index"])) for one in found]
    return spans


def trimmed(text: str, first: int, last: int) -> Span:
    """A span without white space at its ends; empty, and at its end, if it has nothing else."""
    inner = text[first:last]
    start = first + len(inner) - len(inner.lstrip())
    return start, start + len(inner.strip())


def foreign_language(text: str, known: Collection[str]) -> str | None:
    """The likeliest language of a text that is almost certainly in none of the `known` ones (ISO 639-1); else None.

    Almost certainly: the detector gives them less than 0.2% together, also without names (words after the first with a
    capital). Of 1,984 English claims, questions and passages none lay that low; sentences of five words in German,
    French, Italian, Spanish, Russian and Chinese do.
    """
    text = text[:_READ]
    if not any(letter.isalpha() for letter in text):
        return None
    first, *others = re.findall(r"\w+", text)
    likeliest = None
    for one in (" ".join([first, *(word for word in others if not word[0].isupper())]), text):
        probabilities = dict(_identifier().rank(one))
        if sum(probabilities.get(language, 0.0) for language in known) >= _IMPOSSIBLE:
            return None
        likeliest = str(max(probabilities, key=lambda language: float(probabilities[language])))
    return likeliest


def sample(texts: Sequence[str]) -> str:
    """As much of several texts as counts for their language: the same of each, whatever their order."""
    each = max(_READ // max(len(texts), 1), 1)
    return " ".join(sorted(text[:each] for text in texts))


def languages_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The languages of at least 5% of the texts whose language can be told, sorted; empty where none can.

    A few words, numbers or code look a little like many languages; only what is likelier than not in one counts.
    """
    likeliest = (_identifier().rank(text[:_READ])[0] for text in texts)
    counts = Counter(str(language) for language, probability in likeliest if probability >= _TOLD)
    return tuple(sorted(language for language, count in counts.items() if count >= _SHARE * counts.total()))


@lru_cache(maxsize=1)
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
