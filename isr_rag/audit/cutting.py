"""An answer cut into its parts: what states something, and what does not and why it is not judged.

Markdown is parsed by markdown-it; sentences are those of `isr_rag.sentences`. Every character that is not white space
or a mark of markdown belongs to one part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from isr_rag.audit.clauses import clauses
from isr_rag.audit.markers import Found, Markers
from isr_rag.audit.statement import Kind, Span
from isr_rag.evidence import one_line
from isr_rag.focus import words
from isr_rag.sentences import sentence_spans

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LONGEST = 120
"""Words of the longest statement that is judged."""

_CLAUSES = 8
"""Words from which on a sentence may state several facts."""

_LEADING = 3
"""Words by which a clause is found in the answer."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")
_WORDY = re.compile(r"[^\W_]")
_STRAY = re.compile(r"\*{1,3}|~~|(?<!\w)_{1,3}|_{1,3}(?!\w)|^\s*#{1,6}\s+")
_FORMULA = re.compile(r"^\s*(?:\$\$.*\$\$|\\\[.*\\\]|\\begin\{.*\\end\{\w+\*?\})\s*[.,;]?\s*$", re.DOTALL)
_SOURCES = re.compile(
    r"^\W*(?:sources?|references?|citations?|bibliography|footnotes|further reading)\W*$", re.IGNORECASE
)
_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|dear|greetings|good (?:morning|afternoon|evening|day)|welcome|thanks?|thank you|sure|"
    r"certainly|of course|absolutely|no problem|you['’]re welcome|"
    r"(?:that['’]s|what) an? (?:great|good|excellent|interesting)|(?:great|good|excellent) question|"
    r"i(?:['’]d| would) be (?:happy|glad)|i(?:['’]m| am) (?:happy|glad) to|happy to help|"
    r"i hope (?:this|that|it)|hope (?:this|that|it) helps|(?:please )?(?:let me know|feel free)|"
    r"if you (?:have|need|want|would like)[^.]*\b(?:let me know|feel free|ask|question)|"
    r"(?:best|kind|warm) regards|sincerely|"
    r"(?:here['’]s|here is|here are|below is|below are|the following is)\s+(?:an?|the|some|my|your)\s+[^.]*\b"
    r"(?:answer|summary|overview|list|breakdown|explanation|response|points|facts|details|information)\b|"
    r"(?:according to|based on) (?:the |your )?(?:\w+ ){0,2}(?:context|evidence|documents?|passages?|sources?)\W*$)",
    re.IGNORECASE,
)
_GREETING_WORDS = 14
"""Beyond so many words a sentence that begins like a greeting may go on to state something."""

_REFUSAL = re.compile(
    r"\bi(?: do not| don['’]t| can['’]t| cannot| can not| could not| couldn['’]t| am unable| am not able| am not sure|"
    r" am sorry| am afraid|['’]m (?:unable|not able|not sure|sorry|afraid))\b"
    r"(?:[^.]*\b(?:know|answer|find|tell|say|determine|sure|provide|confirm|information|evidence|help|to)\b|\W*$)"
    r"|\b(?:the|this|these|your|provided|given|available)\s+(?:[\w-]+\s+){0,2}"
    r"(?:context|evidence|documents?|passages?|sources?|information|texts?)\s+(?:provided\s+|given\s+|above\s+)?"
    r"(?:do|does|did|is|are|was|were)(?:\s+not|n['’]t)\s+(?:\w+\s+){0,2}"
    r"(?:say|state|mention|contain|provide|include|specify|specified|give|answer|enough|sufficient|discuss|address|"
    r"indicate|clear|hold)"
    r"|\bthere(?: is|['’]s) (?:no|not enough|insufficient) (?:\w+ )?(?:information|evidence|mention|answer)\b"
    r"|\bno (?:relevant )?information (?:is|was) (?:available|given|provided|found)\b",
    re.IGNORECASE,
)
_OPINION = re.compile(
    r"^\W*(?:i (?:\w+ly )?(?:think|believe|feel|suppose|guess|would (?:say|argue|recommend|suggest)|recommend|suggest|"
    r"prefer|like|love)|in my (?:\w+ )?(?:opinion|view)|personally|to me)\b",
    re.IGNORECASE,
)
_LATIN = re.compile(r"[A-Za-zÀ-ɏḀ-ỿ]")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an answer.

    Attributes:
        kind: what it is.
        span: its characters in the answer.
        plain: its words without markdown and markers.
        markers: the citation markers in it.
        lead: the words that introduce the list it is an item of; empty elsewhere.
        heading: the heading it is under; empty where there is none.
        item: whether it is the whole of a list item.
        sentence: the characters of the sentence that it is in; its own where it is a whole one, and None for blocks.
    """

    kind: Kind
    span: Span
    plain: str = ""
    markers: tuple[Found, ...] = ()
    lead: str = ""
    heading: str = ""
    item: bool = False
    sentence: Span | None = None


@dataclass(frozen=True, slots=True)
class _Block:
    """Running text or a block of another kind, with the place of each of its characters in the answer."""

    kind: Kind
    text: str
    places: tuple[int, ...]
    item: bool

    def span(self, first: int, last: int) -> Span:
        return self.places[first], self.places[last - 1] + 1


def cut(answer: str, markers: Markers, *, split: bool = False) -> list[Part]:
    """The parts of an answer, in their order.

    Args:
        answer: the answer, plain or in markdown.
        markers: finds its citation markers.
        split: cut coordinate clauses as well, where the parser is installed.
    """
    parts: list[Part] = []
    heading, lead, sources = "", "", False
    for block in _blocks(answer):
        if block.kind is Kind.HEADING:
            part = _whole(block, Kind.HEADING, markers)
            heading, lead, sources = part.plain, "", bool(_SOURCES.match(part.plain))
            parts.append(part)
            continue
        if block.kind is not Kind.STATEMENT:
            parts.append(_whole(block, block.kind, markers))
            continue
        if _FORMULA.match(block.text):
            parts.append(_whole(block, Kind.FORMULA, markers))
            continue
        if not block.item:
            lead = ""
        for number, (first, last) in enumerate(_lines_of_sources(block, markers, sources)):
            if number % 2:
                parts.append(_source(block, first, last, markers))
                continue
            for part in _sentences(block, first, last, markers):
                if _SOURCES.match(part.plain):
                    sources = True
                    part = Part(Kind.HEADING, part.span, part.plain, part.markers)
                elif part.kind is Kind.STATEMENT and _introduces(part, block):
                    lead = part.plain
                    part = Part(Kind.HEADING, part.span, part.plain, part.markers, heading=heading)
                else:
                    part = replace(part, lead=lead if block.item else "", heading=heading, sentence=part.span)
                    if split and part.kind is Kind.STATEMENT:
                        parts += _split(answer, part)
                        continue
                parts.append(part)
    return parts


def _blocks(answer: str) -> Iterator[_Block]:
    """The blocks of a markdown text."""
    starts = [match.start() for match in _LINE.finditer(answer) if match.group()] or [0]
    lines = [match.group().rstrip("\r\n").replace("\0", "\ufffd") for match in _LINE.finditer(answer) if match.group()]
    tokens = _markdown().parse(answer.replace("\ud800", "\ufffd"))
    items: list[bool] = []
    table: list[int] | None = None
    heading = False
    for token in tokens:
        if token.type == "table_open" and token.map:
            table = token.map
            yield _block_of(Kind.TABLE, answer, starts, lines, *table)
        elif token.type == "table_close":
            table = None
        elif token.type == "list_item_open":
            items.append(True)
        elif token.type == "list_item_close":
            items.pop()
        elif token.type in ("heading_open", "heading_close"):
            heading = token.type == "heading_open"
        elif token.type in ("fence", "code_block") and token.map:
            yield _block_of(Kind.CODE, answer, starts, lines, *token.map)
        elif token.type == "html_block" and token.map:
            yield _block_of(Kind.HTML, answer, starts, lines, *token.map)
        elif token.type == "inline" and token.map and table is None and token.content.strip():
            yield _inline(token, starts, lines, heading=heading, item=bool(items))


def _block_of(kind: Kind, answer: str, starts: list[int], lines: list[str], first: int, last: int) -> _Block:
    start = starts[first] + len(lines[first]) - len(lines[first].lstrip())
    end = starts[last] if last < len(starts) else len(answer)
    text = answer[start:end].rstrip()
    return _Block(kind, text, tuple(range(start, start + len(text))), item=False)


def _inline(token: Any, starts: list[int], lines: list[str], *, heading: bool, item: bool) -> _Block:
    """Running text, each line of which stands somewhere in a line of the answer."""
    places: list[int] = []
    first, content = token.map[0], token.content
    for number, line in enumerate(content.split("\n")):
        if number:
            places.append(places[-1] + 1 if places else starts[first])
        at = first + number
        found = lines[at].find(line) if at < len(lines) else -1
        start = starts[at] + max(found, 0) if at < len(lines) else (places[-1] + 1 if places else 0)
        places.extend(range(start, start + len(line)))
    return _Block(Kind.HEADING if heading else Kind.STATEMENT, content, tuple(places), item)


def _whole(block: _Block, kind: Kind, markers: Markers) -> Part:
    first, last = _trimmed(block.text, 0, len(block.text))
    if first == last:
        return Part(kind, block.span(0, len(block.text)))
    plain = plain_text(block.text[first:last]) if kind is Kind.HEADING else ""
    found = tuple(markers.find(block.text)) if kind is Kind.HEADING else ()
    return Part(kind, block.span(first, last), plain, tuple(_moved(block, one) for one in found))


def _lines_of_sources(block: _Block, markers: Markers, sources: bool) -> Iterator[Span]:
    """Running text and entries of a list of sources in turn, beginning with running text, which may be empty."""
    start = at = 0
    for line in block.text.split("\n"):
        entry = markers.entry(line)
        if entry is not None and (sources or line.lstrip().startswith("[^") or line[entry.end : entry.end + 1] == ":"):
            yield start, at
            yield at, at + len(line)
            start = at + len(line)
        at += len(line) + 1
    if sources and start == 0 and block.text.strip() and not _SOURCES.match(plain_text(block.text.split("\n")[0])):
        yield 0, 0
        yield 0, len(block.text)
        start = len(block.text)
    yield start, len(block.text)


def _source(block: _Block, first: int, last: int, markers: Markers) -> Part:
    first, last = _trimmed(block.text, first, last)
    line = block.text[first:last]
    entry = markers.entry(line)
    found = (_moved(block, entry, first),) if entry is not None else ()
    return Part(Kind.SOURCES, block.span(first, last), plain_text(line), found, item=block.item)


def _sentences(block: _Block, first: int, last: int, markers: Markers) -> Iterator[Part]:
    """The sentences of running text; a marker behind the full stop belongs to the sentence before it."""
    text = block.text[first:last]
    if not text.strip():
        return
    found = markers.find(text)
    apart = [one for one in found if one.apart]
    spans: list[list[int]] = []
    for start, end in sentence_spans(text, prose=True):
        begins = start
        for one in apart:
            if begins <= one.start and one.start < end and not text[begins : one.start].strip(" \t\n.,;"):
                begins = max(begins, min(one.end, end))
        inside = any(one.start < start < one.end for one in found)
        if spans and (inside or not _WORDY.search(text[begins:end])):
            spans[-1][1] = end
        elif spans and begins > start:
            spans[-1][1] = begins
            spans.append([begins, end])
        else:
            spans.append([start, end])
    whole = len(spans) == 1 and block.item
    for start, end in spans:
        start, end = _balanced(text, *_trimmed(text, start, end))
        if start == end:
            continue
        own = [one for one in found if start <= one.start < end]
        bare = "".join(
            c for i, c in enumerate(text[start:end], start) if not any(o.start <= i < o.end and o.apart for o in own)
        )
        plain = re.sub(r"\s+([.,;:!?])", r"\1", plain_text(bare))
        span = block.span(first + start, first + end)
        yield Part(kind_of(plain), span, plain, tuple(_moved(block, one, first) for one in own), item=whole)


def _split(answer: str, whole: Part) -> list[Part]:
    """The coordinate clauses of a sentence, where each can be found in the answer."""
    found = clauses(whole.plain) if len(whole.plain.split()) >= _CLAUSES else []
    places = [whole.span[0]]
    for clause in found[1:]:
        first = re.findall(r"\w+", whole.plain[clause.start :])[:_LEADING]
        there = re.compile(r"\W+".join(map(re.escape, first))).search(answer, places[-1], whole.span[1])
        if there is None:
            return [whole]
        places.append(there.start())
    parts: list[Part] = []
    for k, clause in enumerate(found):
        start, end = places[k], places[k + 1] if k + 1 < len(found) else whole.span[1]
        while end > start and answer[end - 1].isspace():
            end -= 1
        own = tuple(marker for marker in whole.markers if start <= marker.start < end)
        parts.append(replace(whole, span=(start, end), plain=clause.text, markers=own, item=False))
    return parts if len(parts) > 1 else [whole]


def kind_of(plain: str) -> Kind:
    """What a sentence without markdown is."""
    if not _WORDY.search(plain):
        return Kind.MARKS
    length = words(plain)
    if plain.rstrip("\"'”’)»* ").endswith(("?", "？", "؟")):
        return Kind.QUESTION
    if _REFUSAL.search(plain):
        return Kind.REFUSAL
    if length <= _GREETING_WORDS and _GREETING.match(plain):
        return Kind.GREETING
    if _OPINION.match(plain) and not _factual(plain):
        return Kind.OPINION
    if length > LONGEST:
        return Kind.TOO_LONG
    return Kind.STATEMENT


def is_latin(plain: str) -> bool:
    """Whether at least half of the letters are Latin."""
    letters = [c for c in plain if c.isalpha()]
    return 2 * len(_LATIN.findall(plain)) >= len(letters)


def _factual(plain: str) -> bool:
    """Whether an opinion holds a number or a name, so that it may state a fact all the same."""
    said = re.findall(r"[\w'’]+", plain)
    return any(
        w[0].isdigit() or (i > 0 and w[0].isupper() and w not in ("I", "I'd", "I’d")) for i, w in enumerate(said)
    )


def _introduces(part: Part, block: _Block) -> bool:
    """Whether a sentence ends its block with a colon, so that what follows is its list."""
    return part.plain.endswith(":") and part.span[1] >= block.places[len(block.text.rstrip()) - 1]


def _moved(block: _Block, found: Found, by: int = 0) -> Found:
    return Found(block.places[found.start + by], block.places[found.end + by - 1] + 1, found.chunks, found.apart)


def _trimmed(text: str, first: int, last: int) -> Span:
    while first < last and text[first].isspace():
        first += 1
    while last > first and text[last - 1].isspace():
        last -= 1
    return first, last


def _balanced(text: str, first: int, last: int) -> Span:
    """A sentence without a mark of emphasis that begins with it and ends elsewhere, or the other way round."""
    for mark in ("**", "__", "*", "_", "~~"):
        inner = text[first:last]
        if inner.count(mark) % 2:
            if inner.startswith(mark):
                first += len(mark)
            elif inner.endswith(mark):
                last -= len(mark)
    return _trimmed(text, first, last)


def plain_text(text: str) -> str:
    """Words of inline markdown, on one line."""
    found: list[str] = []
    for token in _markdown().parseInline(text.lstrip())[0].children or ():
        if token.type in ("text", "code_inline"):
            found.append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            found.append(" ")
        elif token.type == "image":
            found.append(token.content)
    return one_line(_STRAY.sub("", "".join(found)))


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Text that is merely indented is text; a source such as "[1]: https://..." is to be seen, not resolved.
    return MarkdownIt("commonmark").enable("table").disable(["code", "reference"])
