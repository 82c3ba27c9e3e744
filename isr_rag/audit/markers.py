"""Citation markers in an answer: where they are, and which chunk each names.

Recognised are numbers as LlamaIndex, LangChain and most chat models write them (`[1]`, `[1, 3]`, `[2-4]`, `【1】`,
`[^1]`, `[doc 1]`, `(Source 1)`); titles in brackets (`[River guide]`, `(Source: River guide)`); and author with year
(`(Smith et al., 2020)`, `Smith (2020)`). Numbers count from 1, unless the answer has a `[0]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from isr_rag.core.evidence import Chunk, one_line

_WORDS = r"(?:sources?|docs?|documents?|passages?|chunk|refs?|reference|context|citation|cite)"
_AHEAD = rf"(?:{_WORDS}[\s_:#.-]*)?"
_PAGE = r"(?:,?\s*(?:pp?\.|pages?)\s*\d[\d–-]*)?"
_LIST = rf"\d{{1,3}}(?:\s*(?:,|;|-|–|and|&)\s*{_AHEAD}\d{{1,3}})*"  # one of four digits is a year
_NUMBERED = re.compile(
    rf"(?i)\[\^?\s*{_AHEAD}(?P<square>{_LIST})\^?{_PAGE}(?:†[\w.-]{{0,40}})?\s*\](?:\((?:\w+:/|[#/])[^()\s]*\)|(?!\())"
    rf"|【\s*{_AHEAD}(?P<thick>{_LIST})(?::\d+)?(?:†(?:[\w.:/-]{{0,40}}|[^】\n]{{0,60}}\.\w{{2,4}}))?\s*】"
    rf"|\(\s*{_WORDS}[\s_:#.-]*(?P<round>{_LIST}){_PAGE}\s*\)"
)
_NAMED = re.compile(rf"\[(?P<square>[^\[\]\n]{{2,120}})\](?!\()|\({_WORDS}\s*:\s*(?P<round>[^()\n]{{2,120}})\)", re.I)
_LINK = re.compile(r"\(\[(?P<text>[^\[\]\n]{1,120})\]\((?P<url>\w+://[^()\s]+)\)\)")
_YEAR = r"(?:1[89]|20)\d\d[a-z]?"
_SURNAME = r"(?<![\w'’-])[A-ZÀ-Ý][\w'’-]+"
_AUTHORS = rf"{_SURNAME}(?:(?:\s+et\s+al\.?)|(?:,?\s+(?:and|&)\s+{_SURNAME}))?"
_CITED = rf"{_AUTHORS},?\s+{_YEAR}"
_WORKS = re.compile(rf"\((?P<works>{_CITED}(?:\s*;\s*{_CITED})*)\)|(?P<author>{_AUTHORS})\s+\((?P<year>{_YEAR})\)")
_WORK = re.compile(rf"(?P<author>{_SURNAME})[^;]*?(?P<year>{_YEAR})")
_NAME = re.compile(r"[^\W\d_][\w'’-]*")
_ENTRY = re.compile(r"\s*(?:[-*+]\s+)?\[\^?(?P<number>\d{1,4})\](?::|\s)\s*(?P<rest>\S.*)")
_LONGEST_TITLE = 120  # characters of the longest title that is looked for in a list of sources
_MOST_NAMED = 10_000  # chunks that the markers of an answer name, one by one, before each counts for its first


@dataclass(frozen=True, slots=True)
class Found:
    """A marker in the answer."""

    start: int  # first character in the answer
    end: int  # the character after the last
    chunks: tuple[int, ...]  # the chunks that it names; empty if it names no chunk of the evidence
    apart: bool = True  # False if it is judged as a part of its sentence, as in `Smith (2020) showed`


class Markers:
    """Finds the markers of an answer; a list of sources at its end defines the numbers of the chunks."""

    def __init__(self, chunks: Sequence[Chunk], answer: str) -> None:
        self._chunks = chunks
        self._titles = {_folded(chunk.title): i for i, chunk in reversed(list(enumerate(chunks))) if chunk.title}
        self._names: dict[str, set[int]] = {}
        self._years: dict[str, set[int]] = {}
        for i, title in ((i, chunk.title) for i, chunk in enumerate(chunks) if chunk.title):
            for name in _NAME.findall(title.casefold()):
                for part in (name, *re.findall(r"\w+", name)):
                    self._names.setdefault(part, set()).add(i)
            for year in re.findall(_YEAR, title):
                for part in (year, year[:4]):
                    self._years.setdefault(part, set()).add(i)
        told = re.sub(r"`[^`\n]*`|\w\[0\]", "", answer)  # an index in code is no marker
        self._first = 0 if re.search(rf"\[\^?(?:{_WORDS}[\s_:#.-]*)?0\]", told, re.IGNORECASE) else 1
        self._entries, self._left = self._listed(answer), _MOST_NAMED

    def find(self, text: str) -> list[Found]:
        """The markers of a text, in their order."""
        found = [*self._numbered(text), *self._named(text), *self._linked(text), *self._works(text)]
        kept: list[Found] = []
        for one in sorted(found, key=lambda one: (one.start, -one.end)):
            if not kept or one.start >= kept[-1].end:
                kept.append(replace(one, chunks=self._counted(one.chunks)))
        return kept

    def entry(self, line: str) -> Found | None:
        """A line of a list of sources, such as `[1]: https://example.org` or `[2] Smith, J. A title`."""
        if (found := _ENTRY.match(line)) is None:
            return None
        return Found(line.index("["), line.index("]") + 1, self._counted(self._number(int(found["number"]))))

    def _counted(self, chunks: tuple[int, ...]) -> tuple[int, ...]:
        counted = chunks[: max(self._left, 1)]
        self._left -= len(counted)
        return counted

    def untitled(self, text: str) -> str:
        """An entry of a list of sources without its number, links and the titles of the chunks that it names."""
        found = _ENTRY.match(text)
        told = _folded(re.sub(r"(?<!\S)\S*://\S*", " ", found["rest"] if found else text))
        for i in self._entries.get(int(found["number"]), ())[:20] if found else ():
            told = told.replace(_folded(self._chunks[i].title), " ")
        return "" if told in self._titles else told.strip(" .,;")

    def _numbered(self, text: str) -> Iterator[Found]:
        for match in _NUMBERED.finditer(text):
            listed = re.sub(_WORDS, "", match["square"] or match["thick"] or match["round"], flags=re.IGNORECASE)
            numbers = dict.fromkeys(n for part in re.split(",|;|and|&", listed) for n in _range(part))
            chunks = dict.fromkeys(i for n in numbers for i in self._number(n))
            if chunks or "](" not in match.group():  # a linked number that names no chunk is said
                yield Found(*match.span(), tuple(chunks))

    def _number(self, number: int) -> tuple[int, ...]:
        at = number - self._first
        return self._entries.get(number, (at,) if 0 <= at < len(self._chunks) else ())

    def _named(self, text: str) -> Iterator[Found]:
        for match in _NAMED.finditer(text):
            at = self._titles.get(_folded(match["square"] or match["round"]))
            if at is not None:
                yield Found(*match.span(), (at,))
            elif match["round"]:
                yield Found(*match.span(), (), apart=False)  # what nothing of the evidence is called may be a statement

    def _linked(self, text: str) -> Iterator[Found]:
        """Links in parentheses whose text or address is a chunk's title, or that show nothing but their address."""
        for match in _LINK.finditer(text):
            url = re.split(r"[?#]", match["url"])[0]
            named = (self._titles.get(_folded(one)) for one in (match["text"], match["url"], url, url.rstrip("/")))
            chunk = next((i for i in named if i is not None), None)
            if chunk is not None or ("." in match["text"] and match["text"].casefold() in url.casefold()):
                yield Found(*match.span(), () if chunk is None else (chunk,))

    def _works(self, text: str) -> Iterator[Found]:
        for match in _WORKS.finditer(text):
            works = match["works"] or f"{match['author']} {match['year']}"
            told = ((work["author"].casefold(), work["year"]) for work in _WORK.finditer(works))
            pairs = ((self._names.get(name, set()), self._years.get(year, set())) for name, year in told)
            # the chunks whose title holds both: a name with a year is no citation unless the evidence has such a work
            if chunks := dict.fromkeys(i for named, dated in pairs for i in sorted(named & dated)):
                yield Found(*match.span(), tuple(chunks), apart=match["works"] is not None)

    def _listed(self, answer: str) -> Mapping[int, tuple[int, ...]]:
        """The numbers of a list of sources whose entries hold the title of a chunk."""
        entries: dict[int, tuple[int, ...]] = {}
        sizes = {len(title) for title in self._titles if 3 < len(title) <= _LONGEST_TITLE}
        for line in answer.splitlines():
            if match := _ENTRY.match(line):
                rest = _folded(match["rest"])
                parts = (rest[at : at + size] for size in sizes for at in range(len(rest) - size + 1))
                if named := {self._titles[part] for part in parts if part in self._titles}:
                    entries[int(match["number"])] = tuple(sorted(named))
        return entries


def _range(part: str) -> range:
    ends = [int(number) for number in re.findall(r"\d+", part)]
    last = ends[-1] if 0 <= ends[-1] - ends[0] < 50 else ends[0]
    return range(ends[0], last + 1)


def _folded(text: str | None) -> str:
    return one_line(text or "").casefold()
