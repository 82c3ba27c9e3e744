"""Evidence: chunks as callers have them, the quoting of their text, and what of them is read.

Quoting keeps a chunk's text from passing for anything else. What is read is whole chunks or, under a budget of words,
their sentences nearest to the question by BM25 (k1 = 1.2, b = 0.75): first the best one of each chunk, then the best
ones anywhere. Chunks keep their places, and an ellipsis marks what is left out of the middle. Every step takes time in
proportion to the text. `nearest` finds the sentence that a person should look at first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum
from typing import cast

import numpy as np

from isr_rag._util.bm25 import Bm25
from isr_rag._util.text import sentence_spans, well_formed
from isr_rag.errors import InvalidInputError, InvalidTypeError

# Zero-width and bidirectional-control characters: invisible to a person, and able to split or hide a token.
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
# Known markers, and what is written as control tokens usually are: a word in angle brackets that is not a tag of
# HTML and no address, capitals with an underscore in square brackets, a word between marks.
_HTML = (
    "a|abbr|address|article|aside|b|blockquote|body|br|button|canvas|caption|center|cite|code|col|dd|del|details|"
    "dfn|div|dl|dt|em|figcaption|figure|font|footer|form|h[1-6]|head|header|hr|html|i|iframe|input|ins|kbd|label|"
    "legend|li|link|main|map|mark|meta|nav|ol|option|p|param|path|picture|pre|q|rp|rt|ruby|samp|script|section|select|"
    "small|source|span|strike|strong|style|sub|summary|sup|svg|table|tbody|td|template|textarea|tfoot|th|thead|time|"
    "title|tr|track|tt|u|ul|var|wbr"
)
_SQUARE = (
    "INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|SYSTEM_PROMPT|IMG|IMG_BREAK|IMG_END|PREFIX|MIDDLE|SUFFIX|"
    "ARGS|CALL_ID|AUDIO|BEGIN_AUDIO|THINK|MODEL_SETTINGS|TRANSCRIBE|[gs]?MASK|CLS|SEP|PAD|UNK|BOS|EOS|EOT|EOM|USER|"
    "ASSISTANT|SYSTEM|start_header_id|end_header_id|(?:unused|control_|reserved_?)\\d{1,4}|@[A-Z]{2,12}@|"
    "[A-Z]{2,20}(?:_[A-Z0-9]{1,20}){1,4}"
)
_CONTROL_TOKENS = re.compile(
    r"<(?=\|[^<>|\n]{1,64}\|>)"  # ChatML, Llama 3, Phi, Qwen, Cohere: <|im_start|>
    r"|<(?=｜[^<>｜\n]{1,64}｜>)"  # DeepSeek: <｜User｜>
    rf"|<(?=/?[^\s<>@./]{{1,64}}>)(?!/?(?:{_HTML})/?>)"  # Gemma, StarCoder, Nemotron: <start_of_turn>
    r"|<(?=</?SYS>>)"  # Llama 2: <<SYS>>
    rf"|\[(?=/?(?:{_SQUARE})\])"  # Mistral, GLM, BERT: [/INST]
    r"|\[(?=\|[^\[\]|\n]{1,64}\|\])"  # EXAONE: [|user|]
    r"|\|(?=\|\|[A-Z_]{3,40}\|\|\|)"  # OLMo: |||IP_ADDRESS|||
    r"|>(?=>[A-Z]{3,40}<<)"  # Falcon: >>QUESTION<<
    r"|\](?=~!?b[\[\]])|\[(?=e~\[)"  # MiniMax: ]~b]
)

_LONGEST = 60  # words after which text without a sentence end (tables, code) is cut all the same
_MOST_LACKING = 6  # most words of a claim that are shown as lacking in the nearest sentence

# Scripts written without spaces (Thai to Khmer, kana, Han): each character counts. Elsewhere a run of more than 24
# characters without a space (an encoded file, a long address) counts as several words.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]{{1,24}}")

# What words of a claim and a sentence are compared by: in any case, by their first letters, numbers as they are.
_TERM = re.compile(r"\w+(?:[.,:]\d+)*")  # 1,200 and 3.5 are one word
_DIGIT = re.compile(r"\d")
_STEM = 6
_COMMON = (
    "a an and are as at be but by for from had has have if in into is it its of on or that the their then there these "
    "they this to was were which will with"
)
_STOP = frozenset(_COMMON.split())
_WHITE = dict.fromkeys((code for code in range(0x3001) if not chr(code).split()), " ")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One retrieved passage.

    Attributes:
        text: the passage as retrieved, not empty.
        title: the document's title, shown to the model before the text; None for no title.
    """

    text: str
    title: str | None = None


EvidenceLike = str | Mapping[str, object] | Chunk
"""What a caller may give for one chunk: a string, a mapping with `text` and optional `title`, or a Chunk."""
Chunks = Sequence[EvidenceLike]


def as_chunks(evidence: Chunks) -> tuple[Chunk, ...]:
    """Check evidence and turn it into chunks; the caller's objects are only read.

    Raises:
        InvalidTypeError: if evidence is not a sequence of strings, mappings or chunks.
        InvalidInputError: if a chunk's text is empty.
    """
    given: object = evidence  # callers do not all check types
    if isinstance(given, (str, bytes, Mapping, Set)) or not isinstance(given, Iterable):
        wanted = f"a list of chunks in the retriever's order, not {type(evidence).__name__}"
        raise InvalidTypeError(f"evidence must be {wanted}: wrap a single chunk in a list")
    return tuple([_as_chunk(item, position) for position, item in enumerate(evidence)])


def _as_chunk(item: object, position: int) -> Chunk:
    if isinstance(item, Chunk):
        item = {"text": item.text, "title": item.title}
    elif isinstance(item, str):
        item = {"text": item}
    elif not isinstance(item, Mapping):
        wanted = 'give a string, a mapping {"text": ..., "title": ...} or a Chunk'
        raise InvalidTypeError(f"evidence[{position}] is {type(item).__name__}; {wanted}")
    fields = cast(Mapping[str, object], item)
    if "text" not in fields:
        raise InvalidInputError(f"evidence[{position}] has no 'text'; its keys are {sorted(map(str, fields))}")
    text, title = fields["text"], fields.get("title")
    if not isinstance(text, str):
        raise InvalidTypeError(f"evidence[{position}] has a text of type {type(text).__name__}, not str")
    if title is not None and not isinstance(title, str):
        raise InvalidTypeError(f"evidence[{position}] has a title of type {type(title).__name__}, not str")
    if not one_line(text):
        raise InvalidInputError(f"evidence[{position}] is empty or only white space: drop it before deciding")
    return Chunk(well_formed(text), title and well_formed(title))


def one_line(text: str) -> str:
    """Fold every run of white space to one space and drop invisible characters: no text can start a line."""
    text = (text if text.isascii() else _INVISIBLE.sub("", well_formed(text))).translate(_WHITE)
    while "  " in text:  # a list of the words would take twenty times the text
        text = text.replace("  ", " ")
    return text.strip(" ")


def neutralise(text: str, control_tokens: Iterable[str] = ()) -> str:
    """Break every control token in a text: it is then read as the characters it consists of.

    A space goes in after the first character of each known role marker (`<|im_start|>` becomes `< |im_start|>`), and of
    each of `control_tokens`, those of one tokenizer.
    """
    text = _CONTROL_TOKENS.sub(r"\g<0> ", text)
    own = _pattern(tuple(control_tokens))
    return own.sub(r"\g<0> ", text) if own else text


@lru_cache(maxsize=64)
def _pattern(control_tokens: tuple[str, ...]) -> re.Pattern[str] | None:
    """The first character of any of the tokens, where the rest follows: overlapping ones are all found."""
    tokens = sorted({token for token in control_tokens if len(token) > 1})
    return re.compile("|".join(f"{re.escape(t[0])}(?={re.escape(t[1:])})" for t in tokens)) if tokens else None


def quote(chunk: Chunk) -> str:
    """One chunk as one quoted line `> title: text` that ends in one newline: no text in it can begin a line."""
    text = neutralise(one_line(chunk.text))
    title = neutralise(one_line(chunk.title)) if chunk.title else ""
    return f"> {title}: {text}\n" if title else f"> {text}\n"


@dataclass(frozen=True, slots=True)
class Focus:
    """How much of the evidence was read when it was cut: words read, words in all, and the limit; titles included."""

    words_read: int
    words_total: int
    budget: int


@dataclass(frozen=True, slots=True)
class Nearest:
    """The sentence of the evidence whose words are nearest to what was judged: where to look, by words alone.

    Attributes: chunk: index of the caller's chunk. sentence: at most 60 words of it, on one line. lacking: at most six
    words of the claim that neither it nor its title has; empty for a draft, whose words go nowhere before its release.
    """

    chunk: int
    sentence: str
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """The part of the evidence that the model reads."""

    chunks: tuple[Chunk, ...]  # what is read of each chunk that is read at all, in the caller's order
    places: tuple[int, ...]  # the index of each of them in the caller's evidence
    focus: Focus | None = None  # how much was read; None where nothing was cut for a budget

    def without(self, chunks: Collection[int]) -> Reading:
        """The same without some of its chunks, by their index in `chunks`."""
        kept = [i for i in range(len(self.chunks)) if i not in chunks]
        gone = sum(_size(self.chunks[i]) for i in chunks)
        focus = self.focus and replace(self.focus, words_read=self.focus.words_read - gone)
        return Reading(tuple(self.chunks[i] for i in kept), tuple(self.places[i] for i in kept), focus)


def words(text: str) -> int:
    """Length of a text in words; where a script has no spaces, in characters."""
    return sum(1 for _ in _WORD.finditer(text))  # a list of all of them takes twenty times the text


def choose(chunks: Sequence[Chunk], query: str, budget: int | None) -> Reading:
    """Choose what to read: the sentences nearest to a query, of at most `budget` words with titles (None: no limit).

    A chunk of which not even the best sentence fits is left out, unless none fits at all: then that sentence is cut.
    """
    if budget is None or (total := sum(map(_size, chunks))) <= budget:
        return Reading(tuple(chunks), tuple(range(len(chunks))))
    titles = ["" if chunk.title is None else first_words(one_line(chunk.title), _LONGEST) for chunk in chunks]
    sentences = [list(split_sentences(chunk.text)) for chunk in chunks]
    sizes = [[words(sentence) for sentence in row] for row in sentences]
    places = [(c, s) for c, row in enumerate(sentences) for s in range(len(row))]
    query = one_line(query)
    scores = Bm25((f"{titles[c]} {sentences[c][s]}" for c, s in places), [query], digits=True).scores(query)
    of, best_of = np.array([c for c, _ in places]), np.zeros(len(chunks))
    np.maximum.at(best_of, of, scores)
    alike = sorted(range(len(chunks)), key=lambda c: (-best_of[c], titles[c], chunks[c].text))  # whatever their order
    ranked = [places[i] for i in np.lexsort((np.argsort(alike)[of], -scores))]

    left = budget
    best: dict[int, int] = {}
    for c, s in ranked:
        best.setdefault(c, s)
    kept: dict[int, set[int]] = {}
    for c, s in best.items():
        size = words(titles[c]) + sizes[c][s]
        if size <= left:
            kept[c] = {s}
            left -= size
    if not kept:
        c, s = ranked[0]
        titles[c], sentences[c][s], kept[c], left = "", first_words(sentences[c][s], budget), {s}, 0
    for c, s in ranked:
        if c in kept and s not in kept[c] and sizes[c][s] <= left:
            kept[c].add(s)
            left -= sizes[c][s]
    read = tuple(Chunk(_joined(sentences[c], sorted(kept[c])), titles[c] or None) for c in sorted(kept))
    return Reading(read, tuple(sorted(kept)), Focus(sum(map(_size, read)), total, budget))


def _size(chunk: Chunk) -> int:
    return words(f"{chunk.text.replace('…', '')} {chunk.title or ''}")


def first_words(text: str, most: int) -> str:
    """The first words of a text, `most` at most."""
    for count, word in enumerate(_WORD.finditer(text), start=1):
        if count == most:
            return text[: word.end()]
    return text


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of a text in order, each on one line and of at most `_LONGEST` words."""
    whole = well_formed(text)
    for start, end in sentence_spans(whole):
        yield from _pieces(whole[start:end])


def _pieces(sentence: str) -> Iterator[str]:
    spans = [word.span() for word in _WORD.finditer(sentence)]
    while spans:
        last = most = min(_LONGEST, len(spans))
        if most < len(spans):  # cut where a line ends, so that the rows of a table stay whole
            ends = (i for i in range(most, 0, -1) if "\n" in sentence[spans[i - 1][1] : spans[i][0]])
            last = next(ends, most)
        yield one_line(sentence[spans[0][0] : spans[last - 1][1]])
        spans = spans[last:]


def _joined(sentences: list[str], kept: list[int]) -> str:
    parts: list[str] = []
    for position, s in enumerate(kept):
        if position and s != kept[position - 1] + 1:
            parts.append("…")
        parts.append(sentences[s])
    return " ".join(parts)


def nearest(query: str, claim: str | None, chunks: Sequence[Chunk], places: Sequence[int]) -> Nearest | None:
    """The sentence that shares most words with what is judged, the shortest of equals; None where no word is shared.

    Numbers, and words that few sentences have, count for more. A title counts with each sentence of its chunk; words
    such as “the” do not count. Of a long sentence the best part is shown. `claim` is what may be shown of the query
    (None for a draft), `places` has the index of each chunk in the caller's evidence.
    """
    wanted = _keys(query).keys()
    found: list[tuple[int, str, set[str], set[str]]] = []
    for place, chunk in zip(places, chunks, strict=True):
        title, text = _keys(chunk.title or "").keys(), well_formed(chunk.text)
        for sentence in (text[start:end] for start, end in sentence_spans(text)):
            has = title | _keys(sentence).keys()
            parts = ((part, wanted & (title | _keys(part).keys())) for part in _pieces(sentence))
            found += [(place, part, has, shared) for part, shared in parts if shared]
    if not found:
        return None
    count = Counter(key for *_, shared in found for key in shared)
    weight = {key: (3 if key[0].isdigit() else 1) / number for key, number in count.items()}
    ranks = ((-fsum(weight[key] for key in one[3]), len(one[1]), one[1], i) for i, one in enumerate(found))
    place, part, has, _ = found[min(ranks)[-1]]
    lacking = [word for key, word in _keys(claim or "").items() if key not in has]
    return Nearest(place, part, tuple(lacking[:_MOST_LACKING]))


def _keys(text: str) -> dict[str, str]:
    """What the words that count are compared by, each with the first word of it."""
    found: dict[str, str] = {}
    for word in _TERM.findall(text):
        folded = word.casefold().removesuffix(".00")
        if folded not in _STOP:
            found.setdefault(folded if _DIGIT.search(folded) else folded[:_STEM], word)
    return found
