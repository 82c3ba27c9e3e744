"""Cut an answer into its parts: statements, and what is not judged and why.

Markdown is parsed by markdown-it, text is cut by `isr_rag._util.text`. Every character that is neither white space
nor a mark of markdown belongs to one part.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isr_rag._util.text import SURROGATE, Span, sentence_spans, trimmed
from isr_rag.audit.markers import Found, Markers
from isr_rag.audit.statement import VERB, Kind, may_state
from isr_rag.core.evidence import one_line, words

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LONGEST = 120  # words of the longest statement that is judged
BARE_ANSWER = 4  # words of the longest text that is read as a bare answer to the question

_TITLES = 8 * LONGEST  # characters of the longest headings that are read with what they stand over
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")
_WORDY = re.compile(r"[^\W_]")
_STRAY = re.compile(r"\*{1,3}|(?<!\w)_{1,3}|_{1,3}(?!\w)|^\s*#{1,6}\s+")
_FORMULA = re.compile(r"\$\$.*\$\$|\\\[.*\\\]|\\begin\{.*\\end\{\w+\*?\}", re.DOTALL)
_SOURCES = re.compile(r"^\W*(?:sources?|references?|citations?|bibliography|footnotes|further reading)\W*$", re.I)
_FEW = (  # words without a number, a name, or what begins a clause
    r"(?:\s+(?!\d|(?-i:[A-HJ-Z])|(?:because|since|that(?=\s+\S+\s+\w)|which|whos?e?|as|why|when|while|so|but|until|is|are|was|"
    r"were|has|had|it)\b)[\w'’-]+){0,6}"
)
_THANKS = r"(?:thanks?|thank you)(?: (?:so|very) much| a lot)?"
_YES = r"(?:sure|certainly|of course|absolutely|no problem|you['’]re welcome|here you (?:go|are))"
_OPENER = re.compile(rf"^\W*(?:{_YES}|{_THANKS}|great question|good question)[,!]\s+(?=\w)", re.IGNORECASE)


def english(file: str, **patterns: str) -> str:
    """The phrases of a file, one pattern a line, as one pattern; `<name>` in them is another one."""
    text = (Path(__file__).parent / f"{file}.txt").read_text("utf-8")
    for name, pattern in patterns.items():
        text = text.replace(f"<{name}>", pattern)
    return text.strip().replace("\n", "|")


_GREETING = re.compile(rf"\W*(?:{english('greetings', few=_FEW, yes=_YES, thanks=_THANKS)})\W*", re.IGNORECASE)
"""Greetings as a whole: what goes on after one may state a fact."""
_GREETING_WORDS = 14  # in a longer one the parts that take any words may state a fact

_REFUSAL = re.compile(english("refusals"), re.IGNORECASE)
_CLAUSE = re.compile(r"\s*[,;:–—]\s+|\s+(?=(?:but|however|although|though|yet|so|while|and|because|since)\b)", re.I)
_TURN = re.compile(r"(?:but|however|although|though|yet|so|while)\b\W*(?=\w)", re.IGNORECASE)
_ASIDE = re.compile(
    r"(?:(?:and|or) )?(?:please (?:contact|consult|ask|see|check)|wh(?:o|at|en|ere|y|ether)|how|if)\b", re.IGNORECASE
)
_ASKING = re.compile(
    r"(?i)\W*(?:(?:and|but|so|or|now|also|please),?\s+)?(?:(?:in|on|at|for|from|to|by|with|of|about)\s+)?(?:what|"
    r"which|who|whom|whose|when|where|why|how|is|are|was|were|did(?!\s+you\s+know\b)|do(?!\s+you\s+know\s+that\b)|"
    r"does|can|could|would|will|shall|should|may|might|must|has|have|had|am|any|anything|want|need|ready|curious|"
    r"interested)\b"
)
"""How a question begins; one that begins otherwise may state something ("It never opened, right?")."""
_AFFIRMED = re.compile(rf"\W*{_YES}\W*", re.IGNORECASE)
_YES_OR_NO_ASKED = re.compile(
    r"(?i)(?:^|[,;:.!?]\s)[^\w,;:.!?]*(?:(?:so|and|but|then)\s+)?(?:is|are|was|were|did|do|does|can|could|would|will|shall|"
    r"should|may|might|must|has|have|had|am)(?:n['’]t)?\b(?!\s+you\b)"
)
BOLD = 7  # the level of a heading that is a line in bold
TITLE = re.compile(r"(\*\*|__)(?=\S)[^*_\n]*[^*_\n\s.:!?。…](?:\1)")
"""A heading in bold; what ends with a full stop or colon is none."""
YES_OR_NO = re.compile(
    r"(?i)[\s*_]*(?:(?:yes|no|nope|yeah)[*_]*\s*(?:[,;:!–—]|-(?=\s))|(?:correct|incorrect|right|wrong|true|false)[*_]*[,;!])"
    r"[\s*_]*"
)
_WHOLE = {"table_open": Kind.TABLE, "fence": Kind.CODE, "html_block": Kind.HTML}
"""Tokens of markdown-it whose lines are not cut further."""

_TAG = re.compile(r"</?(?:br|b|i|u|em|strong|sup|sub|mark|small|code|kbd|ins|q|cite|p|div|span)\s*/?>", re.IGNORECASE)
"""Tags that show nothing by themselves."""

_ENDED = re.compile(r"[.!?。…][\s\"'”’)»*_:]*\Z")
_LATIN = re.compile(r"[A-Za-zÀ-ɏḀ-ỿ]")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an answer: its kind, and its characters in the answer."""

    kind: Kind
    span: Span
    plain: str = ""  # its words without markdown and markers
    markers: tuple[Found, ...] = ()  # the citation markers in it
    lead: str = ""  # the words that introduce the list it is an item of; empty elsewhere
    heading: str = ""  # the headings it is under, joined by colons; empty where there is none
    item: bool = False  # whether it is the first sentence of a list item


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of markdown, with the position of each of its characters in the answer."""

    kind: Kind
    text: str
    places: tuple[int, ...]
    depth: int  # of lists
    level: int = 0  # of a heading

    def span(self, first: int, last: int) -> Span:
        return self.places[first], self.places[last - 1] + 1


def cut(answer: str, markers: Markers, *, asked: bool = True) -> list[Part]:
    """The parts of an answer in their order; a yes or no before a sentence is one where something was `asked`."""
    parts: list[Part] = []
    heading, sources, titles, leads = "", False, dict[int, str](), dict[int, str]()
    blocks = list(_blocks(answer))
    for block, below in zip(blocks, [*blocks[1:], None], strict=False):
        bare = re.sub(r"[.,;]\Z", "", block.text.strip()).rstrip()
        kind = Kind.FORMULA if block.kind is Kind.STATEMENT and _FORMULA.fullmatch(bare) else block.kind
        leads = {depth: plain for depth, plain in leads.items() if depth < block.depth}
        lead = " ".join(leads.values())
        if kind is Kind.HEADING:
            titles = {level: title for level, title in titles.items() if level < block.level}
            titles[block.level] = plain = plain_text(block.text)
            heading = ": ".join(titles.values()).replace(":: ", ": ")  # it is read with each item under it
            heading, sources = heading if len(heading) <= _TITLES else "", bool(_SOURCES.match(plain))
            kind = Kind.STATEMENT if _states(plain) else kind
        if kind is not Kind.STATEMENT:
            parts.append(_whole(block, kind, markers))
            continue
        end = block.places[len(block.text.rstrip()) - 1]
        listed = below and below.depth > block.depth and (heading or not block.level) and not _ENDED.search(block.text)
        sources = sources or bool(_SOURCES.match(plain_text(block.text.split("\n", 1)[0])))
        for number, (first, last) in enumerate(_lines_of_sources(block, markers, sources)):
            if number % 2:
                parts += [_source(block, first, last, markers)] if first < last else []
                continue
            for part in _sentences(block, first, last, markers, asked=asked):
                if _SOURCES.match(part.plain):
                    sources = sources or not part.markers  # "Source: [1]" is a marker and no list
                    part = Part(Kind.MARKS if part.markers else Kind.HEADING, part.span, part.plain, part.markers)
                elif part.kind is Kind.STATEMENT and part.span[1] >= end and (part.plain.endswith(":") or listed):
                    # it ends its block, and so introduces a list, which may be one in another
                    leads[block.depth] = part.plain if VERB.search(part.plain) else f"{part.plain.rstrip(':')}:"
                    part = Part(Kind.HEADING, part.span, part.plain, part.markers, lead=lead, heading=heading)
                else:
                    part = replace(part, lead=lead, heading=heading)
                parts.append(part)
    return [
        replace(one, kind=kind_of(one.plain))  # it introduces no list that it is read with
        if one.kind is Kind.HEADING
        and _states(one.plain)
        and not f"{led}:".endswith((f"{one.plain}:", f"{one.plain}::"))
        else one
        for one, led in zip(parts, [*(part.lead for part in parts[1:]), ""], strict=False)
    ]


def _states(plain: str) -> bool:
    """Whether a heading, or the words before a list, must be judged."""
    return may_state(plain) and kind_of(plain) is not Kind.QUESTION


def _blocks(answer: str) -> Iterator[_Block]:
    found = [match for match in _LINE.finditer(answer) if match.group()]
    starts = [match.start() for match in found] or [0]
    lines = [SURROGATE.sub("\ufffd", match.group().rstrip("\r\n").replace("\0", "\ufffd")) for match in found]
    depth, table, level, number, bare = 0, False, 0, "", None
    for token in _markdown().parse(SURROGATE.sub("\ufffd", answer)):
        if token.type in ("table_open", "table_close"):
            table = token.nesting == 1
        elif token.type in ("heading_open", "heading_close"):
            level = int(token.tag[1]) if token.nesting == 1 and token.markup != "-" else 0  # above a line is any text
        elif token.type in ("list_item_open", "list_item_close"):
            if bare and token.nesting < 0:  # an item of nothing but its number, such as a year with a full stop
                bare.content = bare.info + bare.markup
                yield _inline(bare, starts, lines, level=0, depth=depth)
            depth += token.nesting
            number = f"{token.info}{token.markup} " if len(token.info) > 2 else ""  # no list is so long: a year
        bare = token if token.type == "list_item_open" and token.info else None
        if token.map and token.type in _WHOLE:
            first, last = token.map
            first, last = trimmed(answer, starts[first], starts[last] if last < len(starts) else len(answer))
            yield _Block(_WHOLE[token.type], answer[first:last], tuple(range(first, last)), depth=0)
        elif token.map and token.type == "inline" and not table and token.content.strip():
            if number and number + token.content.split("\n", 1)[0] in lines[token.map[0]]:
                token.content = number + token.content
            number = ""
            yield _inline(token, starts, lines, level=level, depth=depth)


def _inline(token: Any, starts: list[int], lines: list[str], *, level: int, depth: int) -> _Block:
    """A block of running text; each of its lines is found in the answer's line, after list and quote marks."""
    places: list[int] = []
    content, (first, end) = token.content, token.map
    begin = content.split("\n", 1)[0].lstrip()  # lines of a form feed and the like before it are not in the content
    first = next((at for at in range(first, min(end, len(lines))) if begin in lines[at]), first)
    for number, line in enumerate(content.split("\n")):
        if number:
            places.append(places[-1] + 1 if places else starts[first])
        at = first + number
        found = lines[at].rfind(line) if at < len(lines) else -1
        if found < 0 and at < len(lines) and (inner := lines[at].rfind(line.lstrip())) >= 0:
            blanks = len(line) - len(line.lstrip())  # a tab, which markdown-it has made spaces
            start = starts[at] + inner
            places += [start] * blanks + [*range(start, start + len(line) - blanks)]
            continue
        start = starts[at] + max(found, 0) if at < len(lines) else (places[-1] + 1 if places else 0)
        places.extend(range(start, start + len(line)))
    level = level or BOLD * bool(not depth and TITLE.fullmatch(content))
    return _Block(Kind.HEADING if level else Kind.STATEMENT, content, tuple(places), depth, level)


def _whole(block: _Block, kind: Kind, markers: Markers) -> Part:
    first, last = trimmed(block.text, 0, len(block.text))
    plain = plain_text(block.text[first:last]) if kind is Kind.HEADING else ""
    found = tuple(markers.find(block.text)) if kind is Kind.HEADING else ()
    return Part(kind, block.span(first, last), plain, tuple(_moved(block, one) for one in found))


def _lines_of_sources(block: _Block, markers: Markers, sources: bool) -> Iterator[Span]:
    """Spans of running text and of entries of a list of sources, in turn; the first is text and may be empty."""
    start = at = 0
    for line in block.text.split("\n"):
        entry = markers.entry(line)
        listed = sources and line.strip() and not _SOURCES.match(plain_text(line))
        noted = entry is not None and (line.lstrip().startswith("[^") or line[entry.end : entry.end + 1] == ":")
        if listed or noted:  # one that states something is text by itself
            end = at if may_state(markers.untitled(plain_text(line)), named=True) else at + len(line)
            yield start, at
            yield at, end
            start = end
        at += len(line) + 1
    yield start, len(block.text)


def _source(block: _Block, first: int, last: int, markers: Markers) -> Part:
    first, last = trimmed(block.text, first, last)
    entry = markers.entry(line := block.text[first:last])
    found = (_moved(block, entry, first),) if entry is not None else ()
    return Part(Kind.SOURCES, block.span(first, last), plain_text(line), found, item=block.depth > 0)


def _sentences(block: _Block, first: int, last: int, markers: Markers, *, asked: bool) -> Iterator[Part]:
    """The sentences of running text; a marker after the full stop belongs to the sentence before it."""
    text = block.text[first:last]
    if not text.strip():
        return
    found = markers.find(text)  # in order, and apart from one another
    starts = [one.start for one in found]
    spans: list[list[int]] = []
    for start, end in sentence_spans(text, prose=True):
        begins, before = start, bisect_left(starts, start)
        for one in (found[i] for i in range(before, len(found)) if found[i].apart):
            if one.start >= end or text[begins : one.start].strip(" \t\n.,;"):
                break
            begins = min(one.end, end)
        inside = before > 0 and start < found[before - 1].end
        if spans and (inside or not _WORDY.search(text[begins:end]) or not _WORDY.search(text, *spans[-1])):
            spans[-1][1] = end
        elif spans and begins > start:
            spans[-1][1] = begins
            spans.append([begins, end])
        else:
            spans.append([start, end])
    spans = [piece for start, end in spans for piece in _answered(text, start, end)] if asked else spans
    for number, (start, end) in enumerate(spans):
        start, end = _balanced(text, *trimmed(text, start, end))
        if start == end:
            continue
        own = found[bisect_left(starts, start) : bisect_left(starts, end)]
        gaps = pairwise([(0, start), *((one.start, one.end) for one in own if one.apart), (end, end)])
        bare = "".join(text[last:first] for (_, last), (first, _) in gaps)
        plain = re.sub(r"\s+([.,;:!?])", r"\1", plain_text(bare)).lstrip(": ")
        span = block.span(first + start, first + end)
        placed = tuple(_moved(block, one, first) for one in own)
        yield Part(kind_of(plain), span, plain, placed, item=block.depth > 0 and first + number == 0)


def _answered(text: str, first: int, last: int) -> list[list[int]]:
    """The span of a sentence; of one that begins with yes or no two, since both must be judged."""
    found = YES_OR_NO.match(text, first, last)
    if found is None or words(text[found.end() : last]) <= BARE_ANSWER:
        return [[first, last]]
    return [[first, found.end()], [found.end(), last]]


def kind_of(plain: str) -> Kind:
    """What a sentence without markdown is."""
    if not _WORDY.search(plain):
        return Kind.MARKS
    length = words(plain)
    if plain.rstrip("\"'”’)»* ").endswith(("?", "？", "؟")):
        *before, last = re.split(r"[,;:]\s+|[，、；：،؛]\s*", plain)
        asks = _ASKING.match(last) or not (before or is_latin(plain))
        return Kind.QUESTION if asks and all(_refuses(one) or not may_state(one) for one in before) else Kind.STATEMENT
    if length <= LONGEST and _refuses(plain):  # a longer text of "I do not" would take its square
        return Kind.REFUSAL
    if length <= _GREETING_WORDS and _GREETING.fullmatch(_OPENER.sub("", plain)):
        return Kind.GREETING
    return Kind.TOO_LONG if length > LONGEST else Kind.STATEMENT


def _refuses(plain: str) -> bool:
    """Whether a sentence says that something is not known, and states nothing beside it."""
    clauses = _CLAUSE.split(_REFUSAL.sub(r"; \g<0>", plain))
    beside = [_REFUSAL.search(one) or _ASIDE.match(one) or _GREETING.fullmatch(one) for one in clauses]
    told = [(i, clauses[i]) for i, nothing in enumerate(beside) if not nothing]
    turned = any(words(one) > (2 if _TURN.match(one) else 3) or may_state(one.rstrip(".! ")) for _, one in told)
    stated = any(_factual(one if i == 0 else f"- {one}") for i, one in told)
    return bool(_REFUSAL.search(plain)) and len(told) < len(clauses) and not turned and not stated


def affirms(plain: str, question: str | None) -> bool:
    """Whether a word of assent ("Absolutely!") says yes to a question, and not only that it will be answered."""
    return bool(question and _AFFIRMED.fullmatch(plain) and _YES_OR_NO_ASKED.search(question))


def is_latin(plain: str) -> bool:
    """Whether at least half of the letters are Latin."""
    return 2 * len(_LATIN.findall(plain)) >= sum(map(str.isalpha, plain))


def _factual(plain: str) -> bool:
    """Whether a sentence holds a number or a name behind its first word, and so may state a fact."""
    said = re.findall(r"[\w'’]+|^-", plain)
    return any(w[0].isdigit() or (i > 0 and w[0].isupper() and not re.match(r"I\b", w)) for i, w in enumerate(said))


def _moved(block: _Block, found: Found, by: int = 0) -> Found:
    return Found(block.places[found.start + by], block.places[found.end + by - 1] + 1, found.chunks, found.apart)


def _balanced(text: str, first: int, last: int) -> Span:
    """A sentence without an unpaired mark of emphasis at its beginning or end."""
    for mark in ("**", "__", "*", "_", "~~"):
        inner = text[first:last]
        if inner.count(mark) % 2:
            if inner.startswith(mark):
                first += len(mark)
            elif inner.endswith(mark):
                last -= len(mark)
    return trimmed(text, first, last)


def plain_text(text: str) -> str:
    """The words of inline markdown, on one line."""
    found: list[str] = []
    for token in _markdown().parseInline(text.lstrip())[0].children or ():
        if token.type in ("text", "code_inline", "image"):
            found.append(token.content)
        elif token.type == "html_inline" and not _TAG.fullmatch(token.content):
            found.append(token.content)  # a reader may see it
        if title := token.attrGet("title"):
            found.append(f" {title} ")
        if token.type in ("softbreak", "hardbreak"):
            found.append(" ")
    return one_line(_STRAY.sub("", "".join(found)))


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Indented text is read as text, and "[1]: https://..." is kept rather than resolved.
    return MarkdownIt("commonmark").enable("table").disable(["code", "reference"])
