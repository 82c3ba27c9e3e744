"""False draft answers that round right: the same type, from the same evidence where there is one."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from isr_lab.slice.records import Record, Sentence
from isr_lab.slice.text import contains, digest, fold, stems

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}} (?:{_MONTHS})(?:,? \d{{4}})?|(?:{_MONTHS}) \d{{1,2}}(?:, \d{{4}})?|(?:{_MONTHS}) \d{{4}})\b"
)
_YEAR = re.compile(r"\b(?:1[0-9]{3}|20[0-2][0-9])\b")
_NUMBER = re.compile(r"\b\d[\d,]*(?:\.\d+)?\b")
_NUMBER_WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_NAME = re.compile(r"[A-Z][\w'’\-]*\.?(?:(?: (?:of|the|de|la|von|van|da|del|and the|of the))? [A-Z][\w'’\-]*)*")
_BORN = re.compile(
    r"\bborn\b|\b(?:is|was) an? [^.]{0,60}\b(?:actor|actress|singer|politician|player|writer|author|"
    r"director|musician|footballer|poet|composer|journalist|producer|comedian|painter|"
    r"scientist|rapper|wrestler|king|queen|lawyer|officer|model|coach|historian)\b"
)
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(rf"\b(?:is|was|are|were) (?:an?|the|one of)\b[^.]{{0,70}}\b(?:{words})\b"))
    for kind, words in (
        ("screen", "film|movie|series|sitcom|show|drama"),
        ("song", "song|single|album|EP|track"),
        ("book", "novel|book|play|poem|magazine|newspaper|journal|comic"),
        ("group", "band|group|duo|orchestra|team|club|company|corporation|organization|university|college|school"),
        (
            "place",
            "city|town|village|municipality|county|country|state|province|island|river|mountain|lake|capital|"
            "region|district|suburb|community|neighborhood|peninsula|continent",
        ),
        ("species", "species|genus|breed|plant|fish|bird"),
    )
)
_WHO = re.compile(
    r"^(?:who|whom|whose)\b|\b(?:which|what) (?:actor|actress|singer|author|director|person|president|"
    r"man|woman|king|queen|player|writer|musician|artist|composer|poet)\b",
    re.I,
)
_WHERE = re.compile(
    r"^(?:where)\b|\b(?:which|what|in what|in which) (?:city|town|country|state|county|place|region|"
    r"village|island|province)\b",
    re.I,
)
_ASKED = re.compile(r"\b(?:who|whom|whose|when|where|why|how many|how much|how|what|which)\b", re.I)
_JOINING = re.compile(r"^(?:[\s,;&/]|\band\b|\bor\b|\bwith\b|[A-Z][\w'’.\-]*)*$")
_CALENDAR = frozenset(f"{_MONTHS}|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday".split("|"))
_SMALL = frozenset(
    {
        "The",
        "A",
        "An",
        "In",
        "It",
        "He",
        "She",
        "His",
        "Her",
        "They",
        "This",
        "On",
        "At",
        "As",
        "For",
        "After",
        "Its",
        "Their",
        "When",
        "While",
        "From",
        "By",
        "But",
        "And",
        "Following",
        "There",
        "Both",
        "During",
        "Although",
        "These",
        "Some",
        "One",
        "Since",
        "Before",
        "With",
        "Other",
        "Most",
        "Many",
    }
)


@dataclass(frozen=True, slots=True)
class FalseDraft:
    """A wrong answer; `carrier` is the sentence it was taken from, None when from elsewhere."""

    answer: str
    carrier: Sentence | None
    origin: str


class Names:
    """What the pool says about names: which titles are people, places, films; which words are given names."""

    def __init__(self, sentences: Iterable[Sentence]) -> None:
        self.kinds: dict[str, str] = {}
        given: dict[str, int] = defaultdict(int)
        for sentence in sentences:
            title = sentence.title or ""
            bare = title.split(" (")[0]
            if sentence.sentence_id not in (0, None) or fold(bare) in self.kinds:
                continue
            if not fold(sentence.text).startswith(fold(bare).split(" ")[0]):
                continue
            kind = "person" if _BORN.search(sentence.text) and 2 <= len(bare.split()) <= 4 else None
            kind = kind or next((name for name, pattern in _KINDS if pattern.search(sentence.text)), None)
            if kind:
                self.kinds[fold(bare)] = kind
                if kind == "person":
                    given[fold(bare).split(" ")[0]] += 1
        self._given = frozenset(word for word, count in given.items() if count >= 3)

    def kind(self, name: str) -> str | None:
        """`person`, `place`, `screen`, `song`, `book`, `group`, `species`, or None when unknown."""
        folded = fold(name)
        known = self.kinds.get(folded)
        words = folded.split(" ")
        if known is None and 2 <= len(words) <= 3 and words[0] in self._given and " of " not in name:
            return "person"
        return known


def answer_type(question: str, answer: str, names: Names) -> str:
    """The type of an answer, by its form first, then by the question and by what is known about the name."""
    folded = fold(answer)
    if folded in ("yes", "no"):
        return "yesno"
    if _DATE.search(answer):
        return "date"
    if _YEAR.fullmatch(answer.strip()):
        return "year"
    if _NUMBER.search(answer) or (folded.split(" ")[:1] and folded.split(" ")[0] in _NUMBER_WORDS):
        return "number"
    if not answer[:1].isupper():
        return "word"
    known = names.kind(answer)
    if known:
        return known
    if _WHO.search(question):
        return "person"
    return "place" if _WHERE.search(question) else "name"


class Drafter:
    """Draws false drafts.

    Args:
        records: all records with answers; their answers stand in for each other within a split.
        splits: split of each record key.
        names: what is known about names.
    """

    def __init__(self, records: Sequence[Record], splits: Mapping[str, str], names: Names) -> None:
        self.names = names
        bank: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
        for record in records:
            for answer in record.answers[:1]:
                bank[self._key(record, splits[record.key])].setdefault(answer, record.text)
        self._bank = {key: list(answers.items()) for key, answers in bank.items()}

    def _key(self, record: Record, split: str) -> tuple[str, str, str]:
        if record.source == "popqa":
            return (record.source, split, record.answer_type)
        asked = _ASKED.search(record.text)
        return (record.source, split, f"{self.type_of(record)} {asked.group().lower() if asked else ''}")

    def type_of(self, record: Record) -> str:
        """Type of the record's preferred answer."""
        return answer_type(record.text, record.answers[0], self.names)

    def draw(
        self, record: Record, split: str, evidence: Sequence[Sentence], chance: random.Random
    ) -> FalseDraft | None:
        """One false draft, or None when nothing of the right type can be found.

        Args:
            record: a record with answers.
            split: its split; other records' answers come from the same one.
            evidence: distractor sentences in retrieval order, searched after the gold ones.
            chance: the only source of choice.
        """
        kind = self.type_of(record)
        if kind == "yesno":
            return FalseDraft("no" if fold(record.answers[0]) == "yes" else "yes", None, "flipped")
        banned = [fold(answer) for answer in record.answers]
        question = fold(record.text)
        other = _other_option(record, banned, question)
        if other:
            return FalseDraft(other, None, "the other option")
        if record.source == "popqa":
            return self._from_bank(record, split, banned, evidence, chance)
        if kind != "word":
            near = self._spans(record.gold, kind, banned, question, record.answers[0])
            far = self._spans(evidence, kind, banned, question, record.answers[0])
            for found, origin in (
                ((near, "gold"), (far, "distractor"))
                if chance.random() < 0.5
                else ((far, "distractor"), (near, "gold"))
            ):
                if found:
                    answer, carrier = found[chance.randrange(min(len(found), 8))]
                    return FalseDraft(_fit(answer, record.answers[0]), carrier, origin)
        return _perturbed(record, kind, chance) or self._from_bank(record, split, banned, evidence, chance)

    def _spans(
        self, sentences: Sequence[Sentence], kind: str, banned: list[str], question: str, answer: str
    ) -> list[tuple[str, Sentence]]:
        found: dict[str, tuple[str, Sentence]] = {}
        for sentence in sentences:
            for span in self._typed_spans(sentence, kind, answer):
                folded = fold(span)
                if not folded or folded in found or _clashes(folded, banned) or contains(question, folded):
                    continue
                if _beside(sentence.text, span, answer):
                    continue
                found[folded] = (span, sentence)
        return list(found.values())

    def _typed_spans(self, sentence: Sentence, kind: str, answer: str) -> list[str]:
        text = sentence.text
        if kind == "date":
            full = bool(re.search(r"\d{4}", answer)) and bool(re.search(r"\b\d{1,2}\b", answer))
            return [m for m in _DATE.findall(text) if not full or (_YEAR.search(m) and re.search(r"\b\d{1,2}\b", m))]
        if kind == "year":
            return _YEAR.findall(text)
        if kind == "number":
            unit = re.search(r"\d[\d,.]*\s*([a-z]+|%)\s*$", answer)
            if unit:
                return [m.group() for m in re.finditer(rf"\b\d[\d,.]* ?{re.escape(unit.group(1))}\b", text)]
            return (
                [n for n in _NUMBER.findall(text) if n.isdigit() == answer.isdigit() and not _YEAR.fullmatch(n)]
                if _NUMBER.fullmatch(answer)
                else []
            )
        if kind == "word":
            return []
        spans = [_trimmed(m.group(), m.start() == 0) for m in _NAME.finditer(text)]
        title = (sentence.title or "").split(" (")[0]
        spans = [span for span in (title, *spans) if span]
        if kind == "name":
            words = len(answer.split())
            return [s for s in spans if self.names.kind(s) is None and abs(len(s.split()) - words) <= 1 and len(s) > 3]
        return [span for span in spans if self.names.kind(span) == kind]

    def _from_bank(
        self, record: Record, split: str, banned: list[str], evidence: Sequence[Sentence], chance: random.Random
    ) -> FalseDraft | None:
        """Another record's answer of the same type, one that is in the distractors where there is one.

        It must not be on the record's own page, where it might be right too; of those left, the answers to the
        most similar questions are drawn from.
        """
        page = [fold(s.text) for s in record.gold]
        titles = {s.title for s in record.gold}
        page += [fold(s.text) for s in record.own if s.title in titles]
        words = stems(record.text)
        length = len(record.answers[0].split())
        fitting = [
            (other, question)
            for other, question in self._bank.get(self._key(record, split), [])
            if abs(len(other.split()) - length) <= max(1, length // 3)
            and other.islower() == record.answers[0].islower()
            and not _clashes(fold(other), banned)
            and not contains(fold(record.text), fold(other))
            and not any(contains(text, fold(other)) for text in page)
        ]
        texts = [(s, fold(s.text)) for s in evidence]
        carried = [(o, s) for o, _ in fitting for s, text in texts if contains(text, fold(o))]
        if carried:
            answer, carrier = carried[chance.randrange(len(carried))]
            return FalseDraft(answer, carrier, "distractor")
        if not fitting:
            return None
        nearest = sorted(fitting, key=lambda pair: (-len(words & stems(pair[1])), digest(record.key, pair[0])))[:5]
        return FalseDraft(nearest[chance.randrange(len(nearest))][0], None, "other record")


def _other_option(record: Record, banned: list[str], question: str) -> str | None:
    """In "which is older, A or B?" the gold page's name that is asked about and is not the answer."""
    if " or " not in f" {question} ":
        return None
    names = list(dict.fromkeys((sentence.title or "").split(" (")[0] for sentence in record.gold))
    asked = [name for name in names if contains(question, fold(name))]
    left = [name for name in asked if not _clashes(fold(name), banned)]
    return left[0] if len(asked) == 2 and len(left) == 1 else None


def _trimmed(span: str, first: bool) -> str:
    """A capitalised span without a leading function word, or nothing when only a sentence's first word is left."""
    words = span.split()
    if any(word.rstrip(".") in _CALENDAR for word in words):
        return ""
    while words and words[0] in _SMALL and not (len(words) > 1 and words[0] in ("The", "A")):
        words = words[1:]
        first = False
    if len(words) > 1 and words[0] in ("The", "A") and first:
        words = words[1:]
    if len(words) == 1 and (first or words[0] in _SMALL):
        return ""
    return " ".join(words).rstrip(".'’-")


def _clashes(folded: str, banned: list[str]) -> bool:
    """Whether a candidate says the same as an accepted answer, in part or in whole."""
    words = set(folded.split())
    for answer in banned:
        if contains(folded, answer) or contains(answer, folded):
            return True
        others = set(answer.split())
        if words & others and len(words & others) >= 0.5 * min(len(words), len(others)):
            return True
    return False


def _beside(text: str, span: str, answer: str) -> bool:
    """Whether the two are in one enumeration ("A, B and C"), where both may well be right."""
    one, other = text.find(span), text.find(answer)
    if one < 0 or other < 0:
        return False
    between = text[one + len(span) : other] if one < other else text[other + len(answer) : one]
    return bool(_JOINING.match(between))


def _fit(answer: str, model: str) -> str:
    """The draft in lower case when the true answer is."""
    return answer.lower() if model.islower() else answer


def _perturbed(record: Record, kind: str, chance: random.Random) -> FalseDraft | None:
    """Another year, day or number in the true answer's place; None for answers of other types."""
    answer = record.answers[0]
    if kind in ("date", "year"):
        changed = _other_date(answer, chance)
    elif kind == "number":
        changed = _other_number(answer, chance)
    else:
        return None
    return FalseDraft(changed, None, "number") if changed else None


def _other_date(answer: str, chance: random.Random) -> str | None:
    year = _YEAR.search(answer)
    if year:
        shift = chance.choice((-9, -7, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 7, 9))
        return _put(answer, year, str(int(year.group()) + shift))
    day = _NUMBER.search(answer)
    return _put(answer, day, str(int(day.group().replace(",", "")) % 27 + 1)) if day else None


def _other_number(answer: str, chance: random.Random) -> str | None:
    number = _NUMBER.search(answer)
    if number:
        written = number.group()
        value = float(written.replace(",", ""))
        other = value + chance.choice((1, 2, 3)) if value < 20 else value * chance.choice((0.8, 1.2, 1.5, 2))
        text = f"{other:,.0f}" if "," in written else f"{other:.{len(written.partition('.')[2])}f}"
        return _put(answer, number, text) if text != written else None
    words = answer.split()
    if words and words[0].lower() in _NUMBER_WORDS:
        others = [word for word in _NUMBER_WORDS if word != words[0].lower()]
        word = others[chance.randrange(len(others))]
        return " ".join([word.capitalize() if words[0][0].isupper() else word, *words[1:]])
    return None


def _put(text: str, match: re.Match[str], new: str) -> str:
    return f"{text[: match.start()]}{new}{text[match.end() :]}"
