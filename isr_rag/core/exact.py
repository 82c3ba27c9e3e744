"""Quotations and numbers: whether those of a statement appear in the evidence, found by reading and not by a model.

A quotation must be there letter for letter, but for capitals. A number, date or time must be there with an equal
value, however it is written, or follow by converting units, by rounding ("about 35 million"), as the years between two
years, or, where the statement compares or adds up, as a sum or difference.
"""

from __future__ import annotations

import calendar
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from math import isfinite
from typing import Any

import numpy as np

from isr_rag._util.text import Span, parts, well_formed
from isr_rag.core.evidence import Chunk, one_line

_SUMMED = 300  # numbers of a text whose sums and differences are looked at
_SOUGHT = 50  # quotations, and runs of digits, of a text that are looked for
_SMALL = 12  # whole numbers up to here without a unit are often counted by the writer ("two reasons")

BARE = 6  # words of the longest draft that is likely to be nothing but the answer
_QUOTED_WORDS = 3  # of the shortest quotation: fewer in quotation marks are often a term or a title
_MINOR = "a an and as at but by de der des du for from if in into is it la le nor of on or over per than the to upon"
_MINOR_WORDS = frozenset([*_MINOR.split(), "with"])  # written small in titles
_MARKS = re.compile(r"[*_`\\\u00ad]|\[\^?\d[\d,; –-]*\]|【[^【】]*】")
_CITED = re.compile(r"(?im)(?<=[\[(, ])(?:pp?|pages?|lines?|document)\W{1,2}\d[\d–-]*(?=[\]),;])|^\d\d?[.)] |<sup>\d")
_LAYOUT = re.compile(r"\[(?=[^\[\]\n]*\]\()|\]\([^()\s]*\)|^(?:> ?)+|(?<=[a-z])-\s{1,9}(?=[a-z])", re.MULTILINE)
_FOLDS = str.maketrans('“”„‟«»‘’‚‛‹›"‐‑‒–—―−', "'" * 13 + "-" * 7)
_SINGLE = r"(?<!\w)['‘](?=[^\W\d])(?:[^'‘’]|(?<=\w)['’](?=\w)){1,400}['’](?!\w)"  # no "the '90s and the boys' ..."
_QUOTED = re.compile(rf"""(?<![\w"])"[^"]+"(?!\w)|“[^“”]+”|„[^„“”]+[“”]|«[^«»]+»|»[^«»]+«|{_SINGLE}""")
_OMITTED = re.compile(r"\[[^\[\]]*\]|\(?(?:\.\.\.|…|\. \. \.)\)?")
_MONTHS = {name: i for i in range(1, 13) for name in (calendar.month_name[i], calendar.month_abbr[i])} | {"Sept": 9}
_MONTH = rf"(?:{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_MONTH_SAID = re.compile(r"[A-Z]\w+|(?:(?<=\d )|(?<=\dth ))[a-z]+|\b[a-z]{3,9}(?= \d)")
_DAY = r"\d{1,2}(?:st|nd|rd|th)?\b"
_DATE = re.compile(
    rf"(?=[\dA-Z])(?:\b(?P<d1>{_DAY})(?: day)? (?:of )?(?P<m1>{_MONTH})(?:,? (?P<y1>\d{{4}})\b)?"
    rf"|\b(?P<m2>{_MONTH}) (?:the )?(?P<d2>{_DAY})(?!:)(?:,? (?P<y2>\d{{4}})\b)?"
    rf"|\b(?P<m3>{_MONTH}),? (?:of )?(?P<y3>\d{{4}})\b"
    r"|(?<!\d)(?P<y4>[12]\d{3})(?P<_>[-/.]?)(?P<m4>0?[1-9]|1[0-2])(?P=_)(?P<d4>[0-3]?\d)(?!\d)"
    r"|\b(?P<y5>[12]\d{3})-(?P<m5>0[1-9]|1[0-2])\b)"
)
_SLASHED = re.compile(r"(?<![\d./-])(\d\d?)([/.-])(\d\d?)\2([12]\d{3}|(?:(?<=/)|(?<=\d\d\.\d\d\.))\d\d)(?![./-]?\d)")
_YEARLESS = re.compile(r"(?<![\d./-])(\d\d?)(?:/(\d\d?)(?![\d/])|\.(\d\d?)\.(?!\d))")
_TIME = re.compile(r"(?<![\d:.])(\d\d?)(?:[:.]?([0-5]\d))?(?::[0-5]\d)?(?: ?([ap])\.?m\b|(?![\d:]))", re.IGNORECASE)
_NOONS = "noon|midday|midnight"
_TOLD = re.compile(rf"\b(?:(half|quarter) (past|after|to|before) (\d\d?|{_NOONS})|{_NOONS})\b", re.IGNORECASE)
_VALUE = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*(?:\.\d+)+|\d+"
_BEGINS = r"(?<![^\Wv])(?<!\wv)(?<![.,:/])(?<![A-Za-z)]-)(?<!\d{4}-)"  # no name: GPT-4; but v2.1, -5 and 10-20
_NUMBER = re.compile(rf"{_BEGINS}(?P<value>{_VALUE})(?P<tail>(?:(?:st|nd|rd|th)s?|['’]?s)\b)?")
_UNIT = re.compile(r"(?:(?: to | or | by | x |[-–])\d[\d.,]*){0,3}[ -]?(%|°\s?[CF]|[A-Za-zµ]{1,40}(?![A-Za-zµ]))")
_SHORT = re.compile(r"[kmµ]g|[kcmµn]m|K[GM]|[gGlh%]|[cd]l|lb|oz|ft|mi|yd|hr|m[slA]|(?i:[kmgt]b)|Hz|[kM]?[WV]|ha|°[CF]")
_NO_UNIT = re.compile(r"(?:all|are|bar|point|unit|count|turn|degree|mil|drop|per|cup|pct)s?", re.IGNORECASE)
_ONE_UNIT = re.compile(r"\b(?:an?|one|1|each|every|per|the|past|last|next) ([a-z]{3,40})\b", re.IGNORECASE)
_PART_OF_NAME = re.compile(r"[A-Za-z°%]|-\w*\d|:\d|\([a-z]\)| something")
_WORDS = "one two three four five six seven eight nine ten eleven twelve hundred thousand million".split()  # noqa: SIM905
_NAMED = re.compile(rf"(?<=[a-z,;]\s)(?:(?:{'|'.join(_WORDS).title()}|[A-Z]\w+t(?:y|een))\b[\s-]?)+")
_SHARE_BEFORE = re.compile(
    r"(?:\bone|\d)(?: \w+){0,3} (?:in|out of|of|for) (?:every |each |an? )?$|\b(?:every|per|each) $"
)
_SHARE_AFTER = re.compile(r" (?:\w+ )?(?:in|out of|of) (?:every|each|\d)|[ -](?:quarters?|halves|\d*(?:rd|th)s)\b")
_HEDGE = re.compile(
    r"(?:\b(?:about|around|roughly|approximately|nearly|almost|some|over|under|than|least|most|up to|many as|few as|"
    r"on|to|past|above|below|exceed\w*|upwards of|quite|within|circa|ca?\.)\s|[~≈]\s?)(?:an? |the )?[$€£]?$",
    re.IGNORECASE,
)
_COMPUTED = re.compile(
    r"\b(?:more|less|[a-z]+er|ahead|apart|short|total|together|in all|remain\w*|left|lies?|lay|passed|first)\b"
)
_HALVED = "mile|hour|minute|second|day|week|month|year|decade|century|foot|inch|pound|[lm][ei]t[er]+|dozen|[a-z]+illion"
_MANY = "hundred|thousand|[a-z]*illion|dozen"
_SCALES = {
    **{"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12, "dozen": 12.0},
    **{"k": 1e3, "K": 1e3, "M": 1e6, "mn": 1e6, "B": 1e9, "bn": 1e9, "lakh": 1e5, "crore": 1e7},
}
_FRACTION = r"(?<![\w.,/])(?:(\d+)[ -])?([1-9])/([2-9])\b(?!/)"
_COMMA = r"(?<![\w.,])([€£$] ?)?(\d{1,3}(?:\.\d{3})+|\d+),(\d\d?)(?(1)\b|(?= ?[€%°A-Za-z])(?! (?:and|or|are|is)\b))"
_SPACED = r"(?<![\w.,:/-])[1-9]\d{0,2}(?:[ \u00a0\u202f\u2009'’]\d{3})+\b(?! ?[\d:/-]|[.,]\d{3})"
_SCALED = rf"(?<![\w.])(?<![\d,],)(\d[\d,]*(?:\.\d+)?)(?! [kKMB]\b|(?<=\d{{3}}-\d\d)B)[ -]?({'|'.join(_SCALES)})\b"
_ENDS = rf"(?: ?[-–] ?| to |(?<=between \d) and |(?<=between \d\d) and )[$€£]?\d[\d.,]*( ?(?:{'|'.join(_SCALES)}))\b"
_REWRITTEN: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"(?<=[a-z])(?<!ty)-\s{1,9}(?!(?:and|or|to)\b)(?=[a-z])"), ""),  # a word over the end of a line
    (re.compile(r"(?<![\d/])(0?[1-9]|1[0-2])/((?:19|20)\d\d)\b(?!/)"), lambda m: f"{m[2]}-{int(m[1]):02}"),
    (re.compile(rf"-?\b({_MONTH})(?: ?['’]|(?<=\d-...)-)(\d\d)\b", re.I), lambda m: f" {m[1].title()} 20{m[2]}"),
    (re.compile(r"\b(\d\d?)(?= o.?clock|(?: ?[-–] ?| (?:to|until|and) )\d\d?(?:[:.]\d\d)? ?[ap]\.?m\b)"), r"\1:00"),
    (re.compile(r"(?<![\w.,])\d{1,2}(?:,\d\d)+,\d{3}\b"), lambda m: m[0].replace(",", "")),  # 1,20,000
    (re.compile(rf"(?<![\w.,])(?!(?:19|20)\d\d\b)(\d[\d.,]*)(?={_ENDS})"), r"\1\2"),
    (re.compile(_COMMA), lambda m: f"{m[1] or ''}{m[2].replace('.', '')}.{m[3]}"),
    (re.compile(_SPACED), lambda m: re.sub(r"\D", ",", m[0])),
    (re.compile(r"(?<=\d)(?: ?[°º]| degrees?)? ([CF]\b|(?i:celsius|fahrenheit)\b)"), lambda m: f" °{m[1][0].upper()}"),
    (re.compile(r"(?<=\d)(?<!\b0)[x×](?=\d)| × "), " x "),
    (re.compile(r"(?<=[A-Za-z])-\s{0,9}(?=[A-Za-z])|\s{2,}|[^\S ]"), " "),
    (re.compile(r"(\d?) ?([¼½¾⅐-⅞])"), lambda m: f"{int(m[1] or 0) + unicodedata.numeric(m[2]):.4g}"),
    (re.compile(_FRACTION), lambda m: f"{float(m[1] or 0) + int(m[2]) / int(m[3]):.4g}"),
    (re.compile(rf"\b(?:{_MANY}|ten|score)s\b|\b(?:several|few|multi) (?:{_MANY})\b", re.I), "many"),
    (re.compile(r"\b(\d\d)(\d\d)–(\d\d)\b(?![–.,]\d)"), lambda m: f"{m[1]}{m[2]}–{m[1] * (m[2] < m[3])}{m[3]}"),
    (re.compile(rf"\b(?:an?|one|1) ({_MANY}|hour|mile|foot|inch) and (?:a|one) half\b"), r"1.5 \1"),
    (re.compile(r"(\d) and (?:a|one) half\b"), r"\1.5"),
    (re.compile(rf"({'|'.join(_WORDS)}|t(?:y|een)) and (?:a|one) half\b", re.I), r"\1 point five"),
    (re.compile(rf"\bhalf (?=(?:an? )?(?:{_HALVED})\b)(?:an? )?", re.I), "0.5 "),
    (re.compile(r"\b(?:three|3) quarters of an? ", re.I), "0.75 "),
    (re.compile(rf"\b(?:(?:a|one) quarter of an? |(?:(?:a|one) )?quarter (?=(?:{_HALVED})\b))", re.I), "0.25 "),
    (re.compile(r"\ba (?=dozen\b)", re.I), "1 "),
    (re.compile(_SCALED), lambda m: f"{float(m[1].replace(',', '')) * _SCALES[m[2]]:.15g}"),
]
_ALSO = {  # what else the numbers of the evidence may be written as, besides what is rewritten in both texts
    **{
        r"\bhal(?:f|ves)\b": "0.5, 50",
        r"\bquarter\b": "0.25, 25",
        r"\bquarters\b": "0.75, 75",
        r"\b3rds?\b": "33, 66, 67",
    },
    **{r"\b(?:none|no|free)\b": "0", r"\b(?:single|once)\b": "1", r"\b(?:twice|double|both|pair|couple)\b": "2"},
    **{r"\b(\d{1,3})\.(\d{3})\b": r"\1\2", r"\b(\d{1,3})\.(\d{3})\.(\d{3})\b": r"\1\2\3"},
    **{r"\b(\d{1,3})\.(\d{3}),(\d\d)\b": r"\1\2.\3", r"(?<![\w.,])(\d+),(\d\d)\b(?!,)": r"\1.\2"},
    **{r"\b(\d\d)(?:p\b| ?(?:pence|cents?|¢))": r"0.\1", r"[$€£] ?0\.(\d\d)\b": r"\1"},
    **{r"\b(\d\d)\d\d ?[-–/] ?(\d\d)\b": r"\1\2"},
}
_HOURS = re.compile(r"\b(?:(\d{1,4})|an?) ?(?:h|hrs?|hours?),? (?:and )?([1-9]\d?) ?(?:m|mins?|minutes?)\b")
_UNITS = {"decade": "decennium", "decades": "decennium", "mph": "mile", "kph": "km", "kmh": "km"}  # as pint knows them
_RUN = re.compile(r"\d(?:[ ().,/-]{0,3}\d){6,33}")  # of a telephone or an account
_DECIMAL_SCALED = re.compile(r"\b(\d+\.\d+) (1(?:000){1,4})\b")


def quotations(text: str) -> list[Span]:
    """The places of the quotations of at least three words in a text, without their marks; titles are none."""
    spans = ((match.start() + 1, match.end() - 1) for match in _QUOTED.finditer(text))
    return [span for span in spans if _is_quoted(text[slice(*span)].split())]


def _is_quoted(said: list[str]) -> bool:
    title = all(word[0].isupper() for word in said if word.lower() not in _MINOR_WORDS)
    return len(said) >= _QUOTED_WORDS and not (title and said[0][0].isupper())


def missing_quotes(quoted: Sequence[str], evidence: Sequence[Chunk]) -> list[str]:
    """Those of some quotations that no single chunk has, letter for letter, and all after the fiftieth.

    White space, markdown, the kind of quotation marks and dashes, and capitals do not count. Where words are left out
    (…) or put in brackets, what is around them must be there in this order.
    """
    sources = [_letters(f"{chunk.title or ''}\n{chunk.text}") for chunk in evidence] if quoted else []
    whole = (re.sub(r"\[(\w)\](?=\w)", r"\1", one) for one in quoted[:_SOUGHT])  # "[t]he bridge"
    sought, split = cache(_sought), map(_OMITTED.split, whole)
    found = {i for i, one in enumerate(split) if any(_quotes(map(sought, one), source) for source in sources)}
    return [one for i, one in enumerate(quoted) if i not in found]


def _letters(text: str) -> str:
    text = _LAYOUT.sub("", text.replace("\ufdfa", " "))  # of which NFKC makes eighteen characters
    text = "".join([unicodedata.normalize("NFKC", text[first:last]) for first, last in parts(text)])
    return re.sub(r" ?-+ ?", "-", one_line(_MARKS.sub("", text).translate(_FOLDS)).casefold())


def _sought(part: str) -> re.Pattern[str]:
    piece = _letters(part).strip(" .,;:!?'-")
    return re.compile(rf"(?<!\w){re.escape(piece)}(?!\w)" if piece else "")


def _quotes(pieces: Iterator[re.Pattern[str]], source: str) -> bool:
    at = 0
    return all((at := found.end() if (found := one.search(source, at)) else -1) >= 0 for one in pieces)


def missing_numbers(text: str, evidence: Sequence[Chunk], question: str | None, *, bare: bool = False) -> list[str]:
    """The numbers and dates of a text, in digits, that neither the evidence nor its question has.

    Not checked are ordinals, shares ("one in twenty"), the sign of a number, numbers in names (GPT-4), markers of
    citations, and small whole numbers without a unit, which writers count themselves.

    `question` is what the text answers (None for a claim); `bare`: it is a mere answer, so small numbers count too.
    """
    written = _HOURS.sub(_minutes, _digits(_NAMED.sub("that ", _CITED.sub(" ", _MARKS.sub(" ", text)))))
    numbers = list(_NUMBER.finditer(written))
    if not numbers:
        return []
    known = _Numbers("\n".join([question or "", *(f"{chunk.title or ''}\n{chunk.text}" for chunk in evidence)]))
    dates, times = list(_dates(written)), [one for one in _TIME.finditer(written) if one[3] or ":" in one[0]]
    runs = (one.span() for one in [*_RUN.finditer(written)][:_SOUGHT] if re.sub(r"\D", "", one[0]) in known.runs)
    spans = (*(span for span, _ in dates), *(one.span() for one in times), *runs)
    found_as_whole = {place for span in spans for place in range(*span)}
    computed = not bare and bool(_COMPUTED.search(written))
    unknown = {span for span, _ in dates} - {span for span, date in dates if known.date(*date)}
    missing = [written[slice(*span)] for span in sorted(unknown)]
    missing += [one[0] for one in times if known.times.isdisjoint(_clock(one))]
    for match in numbers:
        value, tail, (first, last) = match["value"], match["tail"] or "", match.span()
        before, after = written[max(0, first - 30) : first], written[last : last + 20]
        unit = _unit_at(written, last)
        decade = tail.strip("'’") == "s" and value.isdigit()
        named = (tail[:1].isalpha() and tail != "s") or (unit is None and _PART_OF_NAME.match(after))
        shared = _SHARE_BEFORE.search(before) or _SHARE_AFTER.match(after)
        counted = unit is None and value.isdigit() and float(value) <= (0 if bare else _SMALL)
        if named or shared or counted or first in found_as_whole:
            continue
        found = known.decade(value) if decade else known.number(value, unit, hedged=bool(_HEDGE.search(before)))
        if not found and not (computed and known.computed(value)):
            missing.append(written[first:last])
    return missing


def _digits(text: str, threshold: int = 3) -> str:
    """A text with its number words in digits, those up to the threshold excepted."""
    from text_to_num import alpha2digit

    text = well_formed(text)  # which is all that the library takes
    for pattern, new in _REWRITTEN:
        text = pattern.sub(new, text)
    text = "".join([alpha2digit(text[first:last], "en", threshold) for first, last in parts(text)])
    return _DECIMAL_SCALED.sub(lambda m: f"{float(m[1]) * int(m[2]):.15g}", text)


def _dates(text: str) -> Iterator[tuple[Span, tuple[int | None, int, int | None]]]:
    """The dates in a text: year, month and day; 3/4/2024 twice, once for each order."""
    for match in _DATE.finditer(text):
        named = {name[0]: part for name, part in match.groupdict("").items() if part and name != "_"}
        given = {name: _MONTHS.get(part.rstrip(".")) or int(re.sub(r"\D", "", part)) for name, part in named.items()}
        yield match.span(), (given.get("y"), given["m"], given.get("d"))
    for match in _SLASHED.finditer(text):
        first, second, year = int(match[1]), int(match[3]), int(match[4])
        year += 0 if year > 99 else 1900 if year >= 50 else 2000
        yield from ((match.span(), (year, *order)) for order in ((second, first), (first, second)))


def _clock(time: re.Match[str]) -> set[tuple[int, int]]:
    """The hour and minute that a time may stand for, in the morning and in the afternoon where it does not say."""
    hour, minute = int(time[1]), int(time[2] or 0)
    return {(hour % 12 + 12 * (half in "pP") if hour <= 12 else hour, minute) for half in time[3] or "ap"}


def _told(time: re.Match[str]) -> set[tuple[int, int]]:
    """As `_clock`, of "half past 9", "quarter to midnight", and noon."""
    part, side, hour = time[1] or "", time[2] or "past", (time[3] or time[0]).lower()
    apart = {"half": 30, "quarter": 15, "": 0}[part.lower()] * (1 if side.lower() in ("past", "after") else -1)
    minutes = apart + (60 * int(hour) if hour.isdigit() else 0 if hour == "midnight" else 720)
    return {divmod((minutes + half) % 1440, 60) for half in ((0, 720) if hour.isdigit() else (0,))}


@lru_cache(maxsize=1)
def _registry() -> Any:
    import pint

    registry: Any = pint.UnitRegistry()
    registry.define("decennium = 10 * year")
    return registry


@lru_cache(maxsize=4096)
def _unit(word: str) -> Any:
    """The unit that a word names; None for any other word."""
    if (len(word) < 3 and not _SHORT.fullmatch(word)) or _NO_UNIT.fullmatch(word):
        return None
    from pint.errors import PintError

    for name in (word.upper() if word[1:] == "b" else word, word.lower()):
        name = _UNITS.get(name, name)
        try:
            unit = _registry().parse_units(name)
        except (PintError, AttributeError, ValueError, TypeError):
            continue
        return None if unit.dimensionless and not re.search("percent|byte", str(unit)) else unit
    return None


def _minutes(time: re.Match[str]) -> str:
    return f"{60 * int(time[1] or 1) + int(time[2])} minutes"


def _unit_at(text: str, place: int) -> Any:
    match = _UNIT.match(text, place)
    return None if match is None else _unit(match[1].replace(" ", ""))


class _Numbers:
    """The numbers and dates of a text: each value with the units that it has there, None among them for no unit."""

    def __init__(self, text: str) -> None:
        text = _digits(text, 0)
        text = "\n".join([text, *map(_minutes, _HOURS.finditer(text))])
        self.runs = re.sub(r"(?<=\d)[ ().,/-]{1,3}(?=\d)", "", text)
        dates = [date for _, date in _dates(text)]
        apart = _SLASHED.sub(" ", _DATE.sub(" ", text))
        self.times = {one for time in _TIME.finditer(text) for one in _clock(time)}
        self.times |= {one for told in _TOLD.finditer(text) for one in _told(told)}
        self._apart = {float(one.replace(",", "")) for one in re.findall(_VALUE, apart) if one.count(".") < 2}
        months = {_MONTHS[name] for name in map(str.title, _MONTH_SAID.findall(apart)) if name in _MONTHS}
        told = [*dates, *((None, month, None) for month in months)]
        for a, b in (map(int, filter(None, found)) for found in _YEARLESS.findall(text)):
            told += [(None, a, b), (None, b, a)]
        self._dates = {(y, month, d) for year, month, day in told for y in (year, 0) for d in (day, 0)}  # 0: any
        text += "\n".join(
            ["", *(one.expand(new) for old, new in _ALSO.items() for one in re.finditer(old, text, re.I))]
        )
        self._written = sorted({f"{one}." for one in re.findall(_VALUE, text)})
        self._values = defaultdict[float, set[Any]](set)
        for match in re.finditer(_VALUE, text):
            if match[0].count(".") < 2:
                self._values[float(match[0].replace(",", ""))].add(_unit_at(text, match.end()))
        for part in (part for year, _, day in dates for part in (year, day) if part):
            self._values[float(part)].add(None)
        for match in _ONE_UNIT.finditer(text):
            if (unit := _unit(match[1])) is not None:
                self._values[1.0].add(unit)
        self._all = sorted(filter(isfinite, self._values))
        self._few = {round(one, 6) for one in [*self._values][:_SUMMED] if isfinite(one)}
        years = sum(1 << int(one) for one in self._all if 1000 <= one <= 2100 and one.is_integer())
        self._between = [span for span in range(1101) if years & years >> span]
        self._bare = [one for one in self._all if None in self._values[one]]
        self._base = defaultdict[Any, list[float]](list)  # by units, and by dimensions
        for one in self._all:
            for unit in self._values[one] - {None}:
                self._base[unit].append(one)
        for unit, values in [*self._base.items()]:
            self._base[unit] = _in_base(values, unit)
            self._base[unit.dimensionality] = sorted(self._base[unit.dimensionality] + self._base[unit])

    def date(self, year: int | None, month: int, day: int | None) -> bool:
        """Whether the text has a date; its day and year may also stand apart from any date, or its year be left out."""
        y, d = (0 if part is None or part in self._apart else part for part in (year, day))
        return (y, month, d) in self._dates or (y in self._values and (None, month, d) in self._dates)

    def decade(self, value: str) -> bool:
        """Whether it has a year of a decade or century ("the 1930s", "the 1800s"), or the century itself."""
        first, long = float(value), 100 if value.endswith("00") else 10
        return bisect_left(self._all, first) < bisect_left(self._all, first + long) or first / 100 + 1 in self._values

    def number(self, value: str, unit: Any, *, hedged: bool) -> bool:
        """Whether a number follows from one of the text; takes hardly longer where the text has many."""
        at = bisect_left(self._written, f"{value}.")
        if "." in value and any(one.startswith(f"{value}.") for one in self._written[at : at + 1]):
            return True  # also of versions: 3.12 where 3.12.4 is
        if value.count(".") > 1 or not isfinite(wanted := float(value.replace(",", ""))):
            return False
        whole, _, decimals = value.replace(",", "").lstrip("0").partition(".")
        rounding = 0.5 * 10.0 ** (-len(decimals) if decimals else len(whole) - len(whole.rstrip("0")))
        off = rounding if hedged or wanted >= 1e6 else 1e-9 * wanted
        if _within(self._all if unit is None else self._bare, wanted - off, wanted + off):
            return True
        if unit is not None:
            about = max(rounding, 0.01 * wanted)
            *far, low, high = _in_base([wanted - about, wanted + about, wanted - off, wanted + off], unit)
            same, others = self._base[unit], self._base[unit.dimensionality]
            if _within(same, low, high) or _within(others, *far) > _within(same, *far):
                return True
        return str(unit) == "year" and any(abs(span - wanted) <= off for span in self._between)

    def computed(self, value: str) -> bool:
        """Whether a number is the sum or difference of two of the text, of its first ones where it has many."""
        wanted = float("nan") if value.count(".") > 1 else float(value.replace(",", ""))
        return any(round(one - wanted, 6) in self._few or round(wanted - one, 6) in self._few for one in self._few)


def _in_base(values: list[float], unit: Any) -> list[float]:
    with np.errstate(all="ignore"):
        return list(_registry().Quantity(np.array(values), unit).to_base_units().magnitude)


def _within(some: list[float], low: float, high: float) -> int:
    return bisect_right(some, high) - bisect_left(some, low)
