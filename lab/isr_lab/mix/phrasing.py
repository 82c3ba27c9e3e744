"""Edits of a parsed sentence that keep or turn its truth: negation, frames around it, orders and roles."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from isr_lab.mix.annotate import Annotated
from isr_lab.mix.lexicon import NO_PASSIVE, STATIVE
from isr_lab.mix.rewrite import rewritings, root_of
from isr_lab.mix.text import normal

_BE = {"is", "was", "are", "were"}
_AUXILIARIES = _BE | {"has", "had", "have", "can", "will", "could", "would", "should", "must"}
_NEGATIVE = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot|hardly|only|few)\b|n['’]t\b", re.I
)
_FIXED_SCOPE = re.compile(
    r"\b(?:any|anyone|anything|until|either|yet|anymore|ever|because|not only|no longer|at all|but|though|although|"
    r"unless|whether|if|than|other|even|enough|so that)\b",
    re.I,
)
_PARTLY = re.compile(r"%|\b(?:some|several|both|also|many|most|all|every|each|percent|majority|half|part)\b", re.I)
_NAME = re.compile(r"[A-Z][a-zà-ÿ]+(?: (?:[A-Z]\.|de|van|von|[A-Z][a-zà-ÿ]+)){0,2}")
_TIME_PLACE = re.compile(r"^(.+?[^,]) ((?:in|on|by|since|during) (?:[A-Z][a-z]+ )?(?:\d{1,2}, )?\d{4})\.$")


def has_negation(text: str) -> bool:
    """Whether a text holds a negative word (or one that limits: only, few, hardly)."""
    return _NEGATIVE.search(text) is not None


@dataclass(frozen=True, slots=True)
class Forms:
    """Past tenses and participles by lemma, as seen in parsed texts."""

    past: Mapping[str, str]
    participle: Mapping[str, str]
    present: Mapping[str, str]

    @classmethod
    def of(cls, notes: Iterable[Annotated]) -> Forms:
        """The most frequent form of each lemma."""
        counts: dict[str, dict[str, Counter[str]]] = {tag: defaultdict(Counter) for tag in ("VBD", "VBN", "VBZ")}
        for note in notes:
            for token in note.tokens:
                if token.tag in counts and token.text.isalpha() and token.text.islower():
                    counts[token.tag][token.lemma][token.text] += 1
        best = {
            tag: {lemma: found.most_common(1)[0][0] for lemma, found in table.items()} for tag, table in counts.items()
        }
        return cls(best["VBD"], best["VBN"], best["VBZ"])


def simple(note: Annotated, most: int = 22) -> int | None:
    """The main verb's position where the sentence is one plain statement, short enough to be put into a frame."""
    root = root_of(note.tokens)
    if root is None or not 5 <= len(note.text.split()) <= most or not note.text.endswith("."):
        return None
    tokens = note.tokens
    if any(t.head == root and (t.dep in {"conj", "ccomp", "parataxis"}) for t in tokens):
        return None
    if has_negation(note.text) or '"' in note.text[:1] or ":" in note.text or ";" in note.text:
        return None
    subjects = [i for i, t in enumerate(tokens) if t.head == root and t.dep in {"nsubj", "nsubjpass"}]
    return root if len(subjects) == 1 and subjects[0] < root else None


def _from(note: Annotated, i: int) -> str:
    return note.text[note.tokens[i].start :]


def _upto(note: Annotated, i: int) -> str:
    return note.text[: note.tokens[i].start]


def negate(note: Annotated) -> str | None:
    """The plain statement denied with "not"; None if it is not plain."""
    root = simple(note, 30)
    if root is None or _FIXED_SCOPE.search(note.text) or _PARTLY.search(note.text):
        return None
    tokens = note.tokens
    helpers = [i for i, t in enumerate(tokens) if t.head == root and t.dep in {"aux", "auxpass"} and i < root]
    place = helpers[0] if helpers else root if tokens[root].lemma == "be" else None
    if place is not None:
        if tokens[place].text not in _AUXILIARIES:
            return None
        end = tokens[place].start + len(tokens[place].text)
        return f"{note.text[:end]} not{note.text[end:]}"
    token = tokens[root]
    verb = {"VBD": "did", "VBZ": "does", "VBP": "do"}.get(token.tag)
    if verb is None or not token.text.islower():
        return None
    return f"{_upto(note, root)}{verb} not {token.lemma}{note.text[token.start + len(token.text) :]}"


def affirm(note: Annotated, forms: Forms) -> str | None:
    """A denied statement without its denial; None where more than the one "not" or "never" carries it."""
    tokens, root = note.tokens, root_of(note.tokens)
    marks = [i for i, t in enumerate(tokens) if t.text.lower() in {"not", "n't", "never"}]
    others = len(re.findall(_NEGATIVE, note.text))
    if root is None or len(marks) != 1 or others > 1 or _FIXED_SCOPE.search(note.text) or len(tokens) > 34:
        return None
    at = marks[0]
    if tokens[at].head != root or at == 0 or any(t.head == root and t.dep == "conj" for t in tokens):
        return None
    before = tokens[at - 1]
    after = note.text[tokens[at].start + len(tokens[at].text) :].lstrip()
    if tokens[at].text.lower() != "never" and before.text in {"did", "does", "do"}:
        if root != at + 1:
            return None
        table = {"did": forms.past, "does": forms.present}.get(before.text)
        verb = tokens[root].text if table is None else table.get(tokens[root].lemma)
        return (
            f"{_upto(note, at - 1)}{verb}{note.text[tokens[root].start + len(tokens[root].text) :]}" if verb else None
        )
    if before.text in _AUXILIARIES or tokens[at].text.lower() == "never":
        return f"{_upto(note, at).rstrip()} {after}"
    return None


def fronted(note: Annotated) -> str | None:
    """A date at the end moved to the front."""
    found = _TIME_PLACE.match(note.text)
    if found is None or root_of(note.tokens) is None or "," in found[1] or len(found[1].split()) > 16:
        return None
    head = (
        found[1] if note.tokens[0].pos in {"PROPN", "NUM"} or found[1][0] == '"' else found[1][0].lower() + found[1][1:]
    )
    return f"{found[2][0].upper()}{found[2][1:]}, {head}."


def clefted(note: Annotated) -> str | None:
    """`X wrote Y` as `It was X who wrote Y`, for a person as the subject."""
    root = simple(note)
    if root is None or note.tokens[root].tag != "VBD" or note.tokens[root].lemma == "be":
        return None
    people = [e for e in note.entities if e.label == "PERSON" and e.start == 0]
    if not people or note.text[people[0].end :].lstrip() != _from(note, root):
        return None
    return f"It was {people[0].text} who {_from(note, root)}"


def paraphrases(note: Annotated) -> list[tuple[str, str]]:
    """All rewritings that keep the meaning, as (name of the rule, text)."""
    found = [*rewritings(note), ("date first", fronted(note)), ("cleft", clefted(note))]
    return [(how, text) for how, text in found if text]


def clause(text: str, note: Annotated) -> str:
    """A statement as it stands after "that": no full stop, its first word small unless it is a name."""
    first = note.tokens[0]
    small = first.pos in {"DET", "ADP", "PRON", "SCONJ", "ADV"} and not first.text.isupper()
    head = text[0].lower() if small or (text[:1] == "A" and text[1:2] == " ") else text[0]
    return f"{head}{text[1:]}".rstrip(" .")


DENIED: tuple[tuple[str, bool], ...] = (
    ("It is not true that {x}.", True),
    ("It is false that {x}.", True),
    ("Contrary to a widespread belief, it is not the case that {x}.", True),
    ("Critics falsely claimed that {x}.", True),
    ("Early reports wrongly stated that {x}.", True),
    ("Some newspapers reported in error that {x}.", True),
    ("The rumour that {x} was later shown to be false.", True),
    ("It was long believed, mistakenly, that {x}.", True),
    ("A hoax article said that {x}.", False),
    ("No evidence was ever found that {x}.", False),
    ("It was never established whether {x}.", False),
    ("A spokesman denied that {x}.", False),
    ("It is not known whether {x}.", False),
    ("According to a legend, {x}.", False),
    ("In a novel published years later, {x}.", False),
)
"""Frames after which the statement is not supported; whether it is then contradicted."""

ADMITTED: tuple[str, ...] = (
    "It is true that {x}.",
    "It is not disputed that {x}.",
    "Nobody denies that {x}.",
    "Early reports rightly stated that {x}.",
    "Critics correctly pointed out that {x}.",
    "It was later confirmed that {x}.",
    "Contrary to what some believed, {x}.",
    "There is no doubt that {x}.",
    "The rumour that {x} was later shown to be true.",
    "It is not a myth that {x}.",
    "Records show beyond doubt that {x}.",
    "It was not until later that people learned that {x}.",
    "Although some refused to believe it, {x}.",
    "Never in doubt was the fact that {x}.",
    "As is well known, {x}.",
)
"""Frames after which the statement is supported, many of them with a negative word."""


@dataclass(frozen=True, slots=True)
class Deed:
    """A plain statement in the past as subject, verb and rest."""

    head: str
    lemma: str
    past: str
    participle: str
    rest: str
    agent: bool

    @property
    def statement(self) -> str:
        """The statement itself."""
        return f"{self.head}{self.past}{self.rest}."

    @property
    def denied(self) -> str:
        """The statement with "did not"."""
        return f"{self.head}did not {self.lemma}{self.rest}."


def deed(note: Annotated, forms: Forms) -> Deed | None:
    """A statement of what somebody did, for frames that say whether it was done."""
    root = simple(note)
    if root is None:
        return None
    token, tokens = note.tokens[root], note.tokens
    if token.tag != "VBD" or token.lemma in STATIVE or not token.text.islower() or token.lemma not in forms.participle:
        return None
    if any(t.head == root and t.dep in {"aux", "auxpass", "advcl", "expl"} for t in tokens):
        return None
    if (root and tokens[root - 1].pos == "ADV") or re.search(r"\b(?:and|who|which)\b", _upto(note, root)):
        return None
    rest = note.text[token.start + len(token.text) :].rstrip(" .")
    if "," in rest or not 2 <= len(rest.split()) <= 14 or re.search(r"\b(?:also|to|first|both)\b", rest):
        return None
    subject = (
        next(i for i, t in enumerate(tokens) if t.head == root and t.dep == "nsubj")
        if any(t.head == root and t.dep == "nsubj" for t in tokens)
        else None
    )
    if subject is None or tokens[subject].tag not in {"NNP", "NN"}:
        return None
    named = any(
        e.label in {"PERSON", "ORG", "NORP", "GPE"} and e.start <= tokens[subject].start < e.end for e in note.entities
    )
    return Deed(_upto(note, root), token.lemma, token.text, forms.participle[token.lemma], rest, named)


NOT_DONE: tuple[tuple[str, str, bool, bool], ...] = (
    ("{h}planned to {v}{r}, but never did.", "{h}planned to {v}{r}.", True, True),
    ("{h}wanted to {v}{r}, but was prevented from doing so.", "{h}wanted to {v}{r}.", True, True),
    ("{h}was expected to {v}{r}, but did not.", "{h}was expected to {v}{r}.", True, True),
    ("{h}failed to {v}{r}.", "{h}failed to {v}{r}.", True, True),
    ("{h}refused to {v}{r}.", "{h}refused to {v}{r}.", True, True),
    ("{h}almost {p}{r}.", "{h}came close to being the one that {p}{r}.", True, False),
    ("{h}was asked to {v}{r}, but declined.", "{h}was asked to {v}{r}.", True, True),
    ("{h}tried in vain to {v}{r}.", "{h}tried to {v}{r}.", True, True),
    ("{h}hoped to {v}{r}.", "{h}hoped to {v}{r}.", False, True),
    ("{h}may have {n}{r}.", "{h}may have {n}{r}.", False, True),
    ("{h}is said by some to have {n}{r}.", "{h}may have {n}{r}.", False, False),
    ("{h}threatened to {v}{r}.", "{h}threatened to {v}{r}.", False, True),
    ("{h}had promised to {v}{r}.", "{h}promised to {v}{r}.", False, True),
    ("{h}announced plans to {v}{r}.", "{h}planned to {v}{r}.", False, True),
)
"""Evidence, a claim it supports, whether the deed is contradicted, whether that claim is one."""

DONE: tuple[str, ...] = (
    "{h}managed to {v}{r}.",
    "{h}went on to {v}{r}.",
    "{h}had planned to {v}{r}, and did so.",
    "{h}did not fail to {v}{r}.",
    "{h}was not expected to {v}{r}, but did.",
    "{h}at first refused to {v}{r}, but did so in the end.",
    "{h}decided to {v}{r}, and did so.",
    "{h}was asked to {v}{r}, and did.",
    "{h}did indeed {v}{r}.",
    "{h}never regretted having {n}{r}.",
)
"""Evidence from which it follows that it was done."""


def in_frame(frame: str, done: Deed) -> str:
    """A frame filled with a deed."""
    return frame.format(h=done.head, v=done.lemma, p=done.past, n=done.participle, r=done.rest)


_SYMMETRIC = re.compile(
    r"\b(?:with|between|married|met|wed|versus|vs|both|respectively|like|alongside|sister|brother|cousin|twin|"
    r"partner|rival|friend|siblings?|co-\w+|collaborat\w+|similar|same|border\w*|equal\w*|spouse|wife|husband|"
    r"fought|together|join\w*|each other|either|or|connect\w*|link\w*|runs?|extend\w*|born|including|such as|"
    r"merge\w*|shared?|known|called|named|formerly|now|aka|near|neighbou?r\w*|opposite|and)\b",
    re.I,
)


def swapped_roles(note: Annotated) -> list[tuple[str, str]]:
    """The sentence with two names of the same kind exchanged, as (what, text); every word is kept."""
    found: list[tuple[str, str]] = []
    entities = [e for e in note.entities if e.label in {"PERSON", "ORG", "GPE", "NORP"}]
    for one, other in ((a, b) for i, a in enumerate(entities) for b in entities[i + 1 :] if a.label == b.label):
        between = note.text[one.end : other.start]
        inner = [t for t in note.tokens if one.end <= t.start < other.start]
        verbs = [t for t in inner if t.pos == "VERB"]
        moved = one.label == "GPE" and re.search(r"^ to ", between) and "from" in note.text[: one.start][-6:]
        if set(normal(one.text).split()) & set(normal(other.text).split()) or _SYMMETRIC.search(between):
            continue
        if (
            (not verbs and not moved)
            or "(" in between
            or "'" in (note.text[one.end : one.end + 1], note.text[other.end : other.end + 1])
        ):
            continue
        if not all(_swappable(e.text, e.label, note.text, e.start, e.end) for e in (one, other)):
            continue
        if one.label == "ORG" and one.text.split()[-1] != other.text.split()[-1] and not verbs:
            continue
        if one.label == "PERSON" and len(one.text.split()) != len(other.text.split()):
            continue
        before = note.text[: one.start].split()[-1:]
        if (before and before[0].lower() in {"and", "or"}) or note.text[other.end :].lstrip()[:4] in {"and ", "or "}:
            continue
        if "," in (note.text[other.end : other.end + 1], note.text[one.end : one.end + 1], between.rstrip()[-1:]):
            continue
        if one.label == "NORP" and one.text.endswith("s") != other.text.endswith("s"):
            continue
        text = f"{note.text[: one.start]}{other.text}{between}{one.text}{note.text[other.end :]}"
        found.append((f"{one.text} <-> {other.text}", text))
    return found


def _swappable(name: str, label: str, text: str, start: int, end: int) -> bool:
    """Whether a name is whole and of a kind that reads well in another's place."""
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    if (
        "-" in around
        or '"' in around
        or (text[end : end + 2] == " " + text[end + 1 : end + 2].upper() and text[end + 1 : end + 2].isalpha())
    ):
        return False
    if (
        text[:start].split()[-1:]
        and re.fullmatch(r"[A-Z]\w*", text[:start].split()[-1])
        and start > 1
        and not text[:start].rstrip().endswith(",")
    ):
        return text[:start].split()[-1] in {
            "In",
            "On",
            "At",
            "From",
            "By",
            "After",
            "Before",
            "When",
            "King",
            "Emperor",
            "President",
        }
    return (
        _NAME.fullmatch(name) is not None
        if label in {"PERSON", "GPE", "NORP"}
        else name[0].isupper() and len(name.split()) <= 4
    )


def turned_passive(note: Annotated, forms: Forms) -> tuple[str, str] | None:
    """`X defeated Y in Z` as the true `Y was defeated by X in Z` and the false `X was defeated by Y in Z`."""
    root = simple(note, 24)
    if root is None:
        return None
    token, tokens = note.tokens[root], note.tokens
    participle = forms.participle.get(token.lemma)
    if token.tag != "VBD" or participle is None or token.lemma in NO_PASSIVE or "," in note.text:
        return None
    names = [e for e in note.entities if e.label in {"PERSON", "ORG", "GPE", "NORP"}]
    subject = next((e for e in names if e.start == 0 and note.text[e.end :].lstrip() == _from(note, root)), None)
    thing = next(
        (
            e
            for e in names
            if e.start == token.start + len(token.text) + 1
            and any(t.dep == "dobj" and t.head == root and e.start <= t.start < e.end for t in tokens)
        ),
        None,
    )
    if subject is None or thing is None or subject.label != thing.label:
        return None
    if not re.match(r"(?: (?:in|on|at|by|during|for|after|before|to)\b|\.)", note.text[thing.end :]):
        return None
    tail, verb = note.text[thing.end :], "was" if thing.label != "NORP" else "were"
    return (
        f"{thing.text} {verb} {participle} by {subject.text}{tail}",
        f"{subject.text} {verb} {participle} by {thing.text}{tail}",
    )


def swapped_figures(note: Annotated) -> tuple[str, str] | None:
    """Two years or two counts of one sentence exchanged, a verb or noun between them; (what, text)."""
    figures = [
        m
        for m in re.finditer(r"(?<![\w.,$€£/–-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w/–-]|[.,]\d)", note.text)
        if not note.text[: m.start()].endswith(("No. ", "#"))
    ]
    years = [m for m in figures if re.fullmatch(r"(?:1[0-9]|20)\d\d", m.group())]
    counts = [m for m in figures if m not in years and not _dated(note.text, m)]
    for group in (years, counts):
        if len(group) == 2 and group[0].group() != group[1].group():
            one, other = group
            between = note.text[one.end() : other.start()]
            inner = [t for t in note.tokens if one.end() <= t.start < other.start()]
            if len(between.split()) >= 3 and any(t.pos in {"VERB", "NOUN"} for t in inner) and "(" not in between:
                text = f"{note.text[: one.start()]}{other.group()}{between}{one.group()}{note.text[other.end() :]}"
                return f"{one.group()} <-> {other.group()}", text
    return None


def _dated(text: str, match: re.Match[str]) -> bool:
    month = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
    return bool(re.search(rf"{month} $", text[: match.start()]) or re.match(rf" {month}", text[match.end() :]))


_OPENING = re.compile(r"^(After|Before) ([^,]{8,70}), ([A-Z][^,;:]{12,110})\.$")
_CLOSING = re.compile(
    r"^([A-Z][^,;:]{12,110}?) (after|before) ((?:the|his|her|its|their|being|becoming|[A-Z]|\w+ing)\b[^,;:]{5,70})\.$"
)
_NOT_TIME = re.compile(
    r"\b(?:named|look\w*|soon|shortly|immediately|years?|months?|days?|weeks?|hours?|just|long|even|only|day|model\w*|"
    r"called|titled|sought|patterned|minutes?|seconds?|not|until|decades?|remained?|year|night|lived|shot|named|two|hearing|"
    r"tried|charged|charges|appear\w*|case|court|judge|testif\w*|came|comes|took|and|or|during|time|place) $"
)


def order(note: Annotated) -> tuple[str, str] | None:
    """An order in time told the other way round: (true, false)."""
    found = _OPENING.match(note.text)
    if found and not has_negation(note.text):
        word = found[1].lower()
        other = "before" if word == "after" else "after"
        return f"{found[3]} {word} {found[2]}.", f"{found[3]} {other} {found[2]}."
    found = _CLOSING.match(note.text)
    if found and not _NOT_TIME.search(f"{found[1]} ") and not has_negation(note.text) and note.tokens[0].pos == "PROPN":
        token = next((t for t in note.tokens if t.text == found[2]), None)
        if token is None or token.pos not in {"ADP", "SCONJ"} or re.search(r"\b(?:is|was) an? ", found[1]):
            return None
        other = "before" if found[2] == "after" else "after"
        if len(note.text) % 2:
            return note.text, f"{found[1]} {other} {found[3]}."
        return f"{found[2].capitalize()} {found[3]}, {found[1]}.", f"{other.capitalize()} {found[3]}, {found[1]}."
    return None


_UNITS: tuple[tuple[str, ...], ...] = (
    ("million", "billion", "thousand"),
    ("kilometres", "metres"),
    ("kilometers", "meters", "miles"),
    ("km", "m"),
    ("years", "months", "weeks", "days"),
    ("hours", "minutes"),
    ("kilograms", "tonnes"),
    ("acres", "hectares"),
    ("inches", "feet"),
    ("percent", "percentage points"),
)


def units(note: Annotated, rng: random.Random) -> list[tuple[str, str]]:
    """A unit behind a figure changed for another; (what, text)."""
    found: list[tuple[str, str]] = []
    for group in _UNITS:
        for match in re.finditer(rf"(?<=\d )(?:{'|'.join(group)})\b(?! \()", note.text):
            if len(re.findall("|".join(rf"\b{unit}\b" for unit in group), note.text)) == 1:
                new = rng.choice([unit for unit in group if unit != match.group()])
                found.append(
                    (f"{match.group()} -> {new}", f"{note.text[: match.start()]}{new}{note.text[match.end() :]}")
                )
    return found


_SCOPE: tuple[tuple[str, str, str, str | None], ...] = (
    (r"\b(?:was|were) nominated for\b", "won", "nominated, won", "was nominated without success for"),
    (r"\bwas shortlisted for\b", "won", "shortlisted, won", "was shortlisted without success for"),
    (r"\b[Mm]ost of the\b", "all of the", "most, all", "few of the"),
    (r"\b[Ss]ome of the\b", "all of the", "some, all", "none of the"),
    (r"\b[Ss]everal of the\b", "all of the", "several, all", "none of the"),
    (r"\b[Mm]any of the\b", "all of the", "many, all", "few of the"),
    (r"\b(?:mainly|mostly|primarily|largely)\b", "exclusively", "mostly, only", "only in small part"),
    (r"(?<!most )\b(?:usually|often|sometimes|frequently|generally)\b", "always", "often, always", "rarely"),
    (r"(?<!over )(?<!no )\bmore than (?=\d)", "fewer than ", "more, fewer", None),
    (r"\bfewer than (?=\d)", "more than ", "fewer, more", None),
    (r"(?<!no )\bless than (?=\d)", "more than ", "less, more", None),
    (r"\bat least (?=\d|one|two|three|four|five)", "at most ", "least, most", None),
    (r"\bup to (?=\d)", "at least ", "up to, at least", None),
    (r"\bover (?=\d[\d,]* )", "under ", "over, under", None),
    (r"\b(?:[Nn]early|[Aa]lmost) (?=\d)", "more than ", "nearly, more than", None),
    (r"\b[Aa]lmost all\b", "all", "almost all, all", "few"),
    (r"\bfinished second\b", "finished first", "second, first", None),
    (r"\bprobably\b", "certainly", "probably, certainly", None),
    (r"\b(?:is|was) believed to have been\b", "is known to have been", "believed, known", None),
    (r"\bco-(?=(?:wrote|founded|directed|produced)\b)", "single-handedly ", "together, alone", None),
)
"""What was said, what would go further, a name, and what denies the stronger."""


def scoped(note: Annotated) -> list[tuple[str, str, str]]:
    """A statement stretched beyond what was said: (what, stronger text, text that denies the stronger one)."""
    found: list[tuple[str, str, str]] = []
    for pattern, stronger, how, denial in _SCOPE:
        matches = list(re.finditer(pattern, note.text))
        if len(matches) != 1 or (how.endswith(", won") and re.search(r"\bw[io]n", note.text)):
            continue
        at = matches[0]

        def put(word: str, at: re.Match[str] = at) -> str:
            word = word[0].upper() + word[1:] if at.start() == 0 else word
            return f"{note.text[: at.start()]}{word}{note.text[at.end() :]}"

        found.append((how, put(stronger), put(denial) if denial else note.text))
    return found


def overlap(text: str, other: str) -> float:
    """The share of the other text's words that are in the text."""
    words, others = set(normal(text).split()), set(normal(other).split())
    return len(words & others) / max(1, len(others))
