"""False answers that round right: another entity, date or number of the same kind."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

from isr_lab.mix.annotate import Annotated
from isr_lab.mix.text import contains, normal

_YEAR = re.compile(r"(?:1\d|20)\d\d")
_MONTH = re.compile(
    r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b", re.I
)
_MERGED = {"FAC": "PLACE", "GPE": "PLACE", "LOC": "PLACE", "LANGUAGE": "NORP", "QUANTITY": "CARDINAL"}
_USED = {"PERSON", "NORP", "PLACE", "ORG", "WORK_OF_ART", "EVENT", "CARDINAL", "ORDINAL", "MONEY", "PERCENT"}


def kind_of(text: str, label: str) -> str | None:
    """The kind of an entity within which a swap reads naturally; None for one that should not be swapped.

    Dates are told apart by form (a year, a day, a month with year), numbers by digits or words.
    """
    label = _MERGED.get(label, label)
    if label == "DATE":
        if _YEAR.fullmatch(text):
            return "YEAR"
        if _MONTH.search(text) and re.search(r"\d", text):
            return f"DATE{len(re.findall(r'[0-9]+', text))}"
        return None
    if label in {"CARDINAL", "MONEY", "PERCENT"}:
        return f"{label}{'#' if re.search(r'[0-9]', text) else 'w'}{len(text.split()) > 1}"
    return label if label in _USED else None


def trimmed(text: str) -> str:
    """An entity without its possessive and without quotation marks or commas around it."""
    return re.sub(r"(?:['’]s|['’])$", "", text.strip(" \"'“”,.;:()")).strip()


def answer_kind(answer: str, contexts: Iterable[Annotated]) -> str | None:
    """The kind of the entity that the answer is, judged where it is in a context."""
    wanted = normal(answer)
    if _YEAR.fullmatch(answer.strip()):
        return "YEAR"
    for context in contexts:
        for entity in context.entities:
            if normal(trimmed(entity.text)).removeprefix("the ") == wanted.removeprefix("the "):
                return kind_of(trimmed(entity.text), entity.label)
    return None


def rivals(answer: str, question: str, contexts: Iterable[Annotated], kind: str | None) -> list[str]:
    """Entities of the answer's kind that are neither the answer nor named in the question, in order."""
    if kind is None:
        return []
    found: dict[str, str] = {}
    words = set(normal(answer).split())
    for context in contexts:
        for entity in context.entities:
            text = trimmed(entity.text)
            name = normal(text)
            if (
                name
                and kind_of(text, entity.label) == kind
                and not words & set(name.split())
                and not contains(question, text)
            ):
                found.setdefault(name, text)
    return list(found.values())


def other_number(answer: str, rng: random.Random) -> str | None:
    """The same text with its only number changed a little; None unless there is exactly one."""
    numbers = re.findall(r"\d[\d,]*(?:\.\d+)?", answer)
    if len(numbers) != 1:
        return None
    return answer.replace(numbers[0], nearby_number(numbers[0], rng), 1)


def nearby_number(number: str, rng: random.Random) -> str:
    """A different number of the same look: years move by 2 to 15, others by a tenth to a half, at least 1."""
    plain = number.replace(",", "")
    if "." in plain:
        places = len(plain.split(".")[1])
        value = float(plain)
        moved = value + rng.choice((-1, 1)) * max(value * rng.uniform(0.15, 0.5), 10.0**-places)
        text = f"{abs(moved):.{places}f}"
        return text if text != plain else f"{value + 1:.{places}f}"
    value = int(plain)
    if _YEAR.fullmatch(number):
        moved_year = value + rng.choice((-1, 1)) * rng.randint(2, 15)
        return str(moved_year if moved_year <= 2023 or value > 2023 else value - rng.randint(2, 15))
    step = max(1, round(value * rng.uniform(0.1, 0.5)))
    moved_int = value + step if value <= step or rng.random() < 0.5 else value - step
    return f"{moved_int:,}" if "," in number else str(moved_int)
