"""Changing exactly one detail of a claim: a number, date, name, opposite, or its negation."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from isr_lab.mix.annotate import Annotated, Entity, Token
from isr_lab.mix.lexicon import CONTAINING, COUNTRIES, EXCLUSIVE, LOCATIVE, NATIONALITIES, UNIQUE_EVENTS
from isr_lab.mix.swaps import nearby_number, trimmed
from isr_lab.mix.text import contains, normal

_YEAR = re.compile(r"\b(?:1[0-9]|20)\d\d\b")
_NUMBER = re.compile(r"(?<![\w.,#/-])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w/-]|[.,]\d)")
_MONTHS = EXCLUSIVE[[words[0] for words in EXCLUSIVE].index("January")]
_OPPOSITES = [
    (group, re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(group, key=len, reverse=True)))})\b"))
    for group in EXCLUSIVE
]
_NAMED_BEFORE = re.compile(
    r"(?:\b(?:No|Number|Part|Hot|Vol|Volume|Chapter|Route|Highway|Top|Channel|Article|Act|BBC)\.? ?)$"
)
_AUXILIARIES = {"is", "was", "are", "were", "has", "had", "can", "will", "could"}


@dataclass(frozen=True, slots=True)
class Change:
    """A claim with one detail changed.

    Attributes:
        claim: the false claim.
        old: what stood there.
        new: what is there now.
        how: the kind of detail.
        at: character at which it starts.
        source: the sentence the new detail was taken from, if any.
    """

    claim: str
    old: str
    new: str
    how: str
    at: int
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Rival:
    """A name (or year) that is in a near sentence: its sort, the name, and that sentence."""

    sort: str
    name: str
    text: str


def _replaced(text: str, start: int, end: int, new: str) -> str:
    head, tail = text[:start], text[end:]
    article = re.search(r"\b([Aa])n? $", head)
    if article is not None:
        vowel = new[:1].lower() in "aeio" and not re.match(r"(?:Eu|eu|one\b|uni|Uni)", new)
        head = f"{head[: article.start()]}{article[1]}{'n' if vowel else ''} "
    return head + new + tail


def years(note: Annotated, rivals: Sequence[Rival], rng: random.Random) -> list[Change]:
    """Years moved by a few, or to a year out of a near sentence."""
    found: list[Change] = []
    near = [rival for rival in rivals if rival.sort == "year"][:6]
    for match in _YEAR.finditer(note.text):
        before, after = note.text[max(0, match.start() - 1) : match.start()], note.text[match.end() : match.end() + 2]
        if (before and before in "-–/:\"'“") or re.match(r" ?[-–/:'\"”]", after) or int(match.group()) < 1000:
            continue
        if re.search(r"\b(?:from|between) $", note.text[: match.start()]) or re.search(
            r"\b(?:to|until|through|and) $", note.text[: match.start()]
        ):
            continue
        options = [rival for rival in near if rival.name != match.group()]
        rival = rng.choice(options) if options and rng.random() < 0.5 else None
        new = rival.name if rival else nearby_number(match.group(), rng)
        claim = _replaced(note.text, match.start(), match.end(), new)
        found.append(Change(claim, match.group(), new, "year", match.start(), rival.text if rival else None))
    return found


def year_rivals(note: Annotated) -> list[Rival]:
    """The years of a sentence, as rivals."""
    return [Rival("year", year, note.text) for year in _YEAR.findall(note.text)]


def numbers(note: Annotated, rng: random.Random) -> list[Change]:
    """Counts and measures changed by a tenth to a half; numbers inside names and dates are left alone."""
    found: list[Change] = []
    names = [
        e
        for e in note.entities
        if e.label in {"WORK_OF_ART", "PRODUCT", "EVENT", "LAW", "FAC", "ORG", "PERSON", "DATE"}
    ]
    for match in _NUMBER.finditer(note.text):
        at = match.start()
        if any(e.start <= at < e.end for e in names) or _YEAR.fullmatch(match.group()):
            continue
        if _NAMED_BEFORE.search(note.text[:at]) or match.group() in {"0", "1"} or note.text[:at].count('"') % 2:
            continue
        new = nearby_number(match.group(), rng)
        if new != match.group():
            found.append(Change(_replaced(note.text, at, match.end(), new), match.group(), new, "number", at))
    return found


def days(note: Annotated, rng: random.Random) -> list[Change]:
    """The day of a full date changed."""
    found: list[Change] = []
    months = "|".join(_MONTHS)
    for match in re.finditer(
        rf"\b(?:(?:{months}) (\d{{1,2}})(?=,? \d{{4}})|(\d{{1,2}}) (?:{months})(?= \d{{4}}))", note.text
    ):
        group = 1 if match[1] else 2
        new = str(rng.choice([day for day in range(1, 28) if day != int(match[group])]))
        found.append(
            Change(_replaced(note.text, *match.span(group), new), match[group], new, "day", match.start(group))
        )
    return found


def opposites(note: Annotated, rng: random.Random) -> list[Change]:
    """A word changed for another of a set whose members exclude each other."""
    found: list[Change] = []
    names = [e for e in note.entities if e.label in {"PERSON", "ORG", "WORK_OF_ART", "EVENT", "FAC", "PRODUCT", "LAW"}]
    for group, pattern in _OPPOSITES:
        matches = list(pattern.finditer(note.text))
        if len({match.group() for match in matches}) != 1:
            continue
        for match in matches:
            before = note.text[: match.start()]
            inside = before.count('"') % 2 or before.endswith("-")
            if inside or any(e.start <= match.start() < e.end for e in names) or not _plain(note, match):
                continue
            new = rng.choice([word for word in group if word != match.group()])
            how = "number" if group[0] == "two" else "month" if group is _MONTHS else "opposite"
            found.append(Change(_replaced(note.text, *match.span(), new), match.group(), new, how, match.start()))
    return found


@dataclass(frozen=True, slots=True)
class _Use:
    """A word of a table where it is used.

    Attributes:
        word: as it is written.
        tokens: those that it covers.
        before: the text before it.
        rest: the text after it.
    """

    word: str
    tokens: Sequence[Token]
    before: str
    rest: str

    def is_followed(self, pattern: str) -> bool:
        """Whether the text after it begins with a pattern, white space aside."""
        return re.match(pattern, self.rest.lstrip()) is not None


_MAKERS = (
    r"(?i:director|producer|festival|score|industry|series|critic|actor|actress|studio|adaptation|award|version|noir)"
)
_PLAIN_USES: tuple[tuple[str, Callable[[_Use], bool]], ...] = (
    ("May March", lambda use: re.search(r"\d", use.before[-4:] + use.word + use.rest[:6]) is not None),
    (
        "before after",
        lambda use: use.is_followed(r"the|his|her|its|their|\d|[A-Z]") and use.tokens[-1].pos in {"ADP", "SCONJ"},
    ),
    (
        "left fell rose won lost opened closed joined began ended sold succeeded",
        lambda use: use.tokens[-1].tag == "VBD" and not use.is_followed("off|out|up|to|in |on |for|with|by"),
    ),
    ("above below", lambda use: use.is_followed(r"the sea|sea|the|\d") and use.tokens[-1].pos == "ADP"),
    ("north south east west", lambda use: use.is_followed(r"(?:of|side|bank|coast|end)\b")),
    (
        "country metal folk punk jazz",
        lambda use: use.is_followed("music|singer|band|musician|artist|song|album|rock"),
    ),
    (
        "film album novel",
        lambda use: not re.search(r"\b(?:in|of|on|for|and) $", use.before) and not use.is_followed(_MAKERS),
    ),
    (
        "major minor public private natural upper lower professional",
        lambda use: (
            bool(use.tokens) and use.tokens[-1].dep == "amod" and not use.is_followed("league|school|house|planet")
        ),
    ),
    (
        "two three four five six seven eight nine ten eleven twelve",
        lambda use: bool(use.tokens) and use.tokens[-1].dep == "nummod" and not use.is_followed(r"(?:or|to|and|-)\b"),
    ),
)
"""Words, and when each of them is used in its plain sense: not as part of a name or an idiom."""
_PLAIN_USE = {word: plain for words, plain in _PLAIN_USES for word in words.split()}


def _plain(note: Annotated, match: re.Match[str]) -> bool:
    """Whether a word of a table is used in its plain sense: not as part of a name or an idiom."""
    tokens = [t for t in note.tokens if match.start() <= t.start < match.end()]
    use = _Use(match.group(), tokens, note.text[: match.start()], note.text[match.end() :])
    if use.word in {"river", "lake", "island", "mountain"} and use.is_followed("in command|of|'"):
        return True
    if use.word in {"second", "man", "men", "boys"} and use.is_followed("in command|of|'"):
        return False
    if (known := _PLAIN_USE.get(use.word)) is not None and not (use.word in {"May", "March"} and known(use)):
        return known(use)
    return bool(tokens) and all(t.pos != "PROPN" or t.text in _MONTHS or use.word[0].isupper() for t in tokens)


def _sort(name: str, label: str) -> str | None:
    """What an entity may be swapped with; None for one that should stay."""
    words = name.split()
    if label == "PERSON":
        capital = all(word[:1].isupper() and word.isascii() and word.isalpha() for word in words)
        return "person" if 2 <= len(words) <= 3 and capital else None
    if label == "NORP":
        return "nationality" if name in NATIONALITIES else None
    if label == "GPE":
        if name in COUNTRIES:
            return "country"
        fits = all(word[:1].isupper() for word in words) and len(words) <= 3 and not set(words) & CONTAINING
        return "town" if fits and not name.isupper() else None
    if (
        label == "ORG"
        and len(words) >= 2
        and words[-1] in {"University", "Records", "Party", "Entertainment", "Pictures", "College", "School"}
    ):
        return f"org:{words[-1]}" if words[0] != "the" else None
    return None


def sorted_entities(note: Annotated) -> list[tuple[str, Entity]]:
    """The entities that may be swapped, with their sort. A town stands with the region behind it: both or none."""
    found: list[tuple[str, Entity]] = []
    for entity in note.entities:
        name = trimmed(entity.text)
        before = note.text[: entity.start].split()[-1:]
        if entity.label == "GPE" and not (before and (before[0].lower() in LOCATIVE or before[0].endswith(","))):
            continue
        sort = _sort(name, entity.label)
        if sort is not None and note.text[entity.start : entity.end].startswith(name):
            found.append((sort, Entity(name, entity.label, entity.start, entity.start + len(name))))
    merged: list[tuple[str, Entity]] = []
    for sort, entity in found:
        last = merged[-1] if merged else None
        if (
            last
            and last[0].startswith("town")
            and entity.label == "GPE"
            and note.text[last[1].end : entity.start] == ", "
        ):
            text = note.text[last[1].start : entity.end]
            merged[-1] = (f"town{text.count(',')}", Entity(text, "GPE", last[1].start, entity.end))
        else:
            merged.append((sort, entity))
    return merged


def names(note: Annotated, rivals: Sequence[Rival], fixed: str, rng: random.Random) -> list[Change]:
    """A name changed for one of the same sort out of a near sentence.

    Args:
        note: the claim.
        rivals: names of near sentences, nearest first.
        fixed: texts whose names may not be put in (title and source sentence).
        rng: chooses among the nearest few.
    """
    found: list[Change] = []
    root = next((t.start for t in note.tokens if t.dep == "ROOT"), 0)
    for sort, entity in sorted_entities(note):
        if entity.start < root and sort != "nationality" and not _in_opening(note.tokens, entity):
            continue
        words = set(normal(entity.text).split())
        options = {
            rival.name: rival
            for rival in reversed(rivals)
            if rival.sort == sort and not words & set(normal(rival.name).split()) and not contains(fixed, rival.name)
        }
        if options and not (sort == "town" and note.text[entity.end :].startswith(", ")):
            rival = options[rng.choice(list(options)[-4:])]
            claim = _replaced(note.text, entity.start, entity.end, rival.name)
            how = sort.split(":")[0].rstrip("0123456789")
            found.append(Change(claim, entity.text, rival.name, how, entity.start, rival.text))
    return found


def _in_opening(tokens: Sequence[Token], entity: Entity) -> bool:
    """Whether a name before the verb is in an opening phrase (`In Paris, ...`) and not in the subject."""
    return tokens[0].dep == "prep" and any(t.start == entity.start and t.head == 0 and t.dep == "pobj" for t in tokens)


def unique(note: Annotated, change: Change) -> bool:
    """Whether the changed detail follows a verb of what happens once, so the false claim may be denied."""
    roots = [t for t in note.tokens if t.dep == "ROOT"]
    short = len(note.tokens) <= 18 and note.text.count(",") <= 1
    return short and len(roots) == 1 and roots[0].lemma in UNIQUE_EVENTS and roots[0].start < change.at


def negated(note: Annotated) -> str | None:
    """The claim denied: `not` behind its first auxiliary, or `did not` before a past tense; None if unsure."""
    tokens = note.tokens
    roots = [i for i, t in enumerate(tokens) if t.dep == "ROOT"]
    if len(roots) != 1 or any(t.dep == "neg" or t.text.lower() in {"never", "no", "only"} for t in tokens):
        return None
    root = roots[0]
    if any(t.dep == "conj" and t.head == root and t.pos in {"VERB", "AUX"} for t in tokens):
        return None
    verbs = [i for i, t in enumerate(tokens) if t.head == root and t.dep in {"aux", "auxpass"} and i < root]
    place = verbs[0] if verbs else root if tokens[root].lemma == "be" else None
    if place is not None and tokens[place].text.lower() in _AUXILIARIES:
        end = tokens[place].start + len(tokens[place].text)
        return f"{note.text[:end]} not{note.text[end:]}"
    if place is None and tokens[root].tag == "VBD":
        start = tokens[root].start
        return f"{note.text[:start]}did not {tokens[root].lemma}{note.text[start + len(tokens[root].text) :]}"
    return None
