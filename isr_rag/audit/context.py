"""Rewrite statements so that they can be judged alone.

The model was trained and calibrated on claims that stand alone. A pronoun at the beginning is therefore replaced by the
subject of the sentence before, an item of a list is put after the words that introduce it, and a bare answer
("In 1951.") is judged together with the question. If no subject is found, the sentence is judged as it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from isr_rag.audit.cutting import BARE_ANSWER, Part, english
from isr_rag.audit.statement import VERB
from isr_rag.core.work import Item

_FRAGMENT = 6  # words of the longest list item with a verb that is read with its heading
_LONGEST_SUBJECT = 100  # characters of the longest subject that is put in place of each pronoun

_PRONOUN = re.compile(
    r"(?i)^(?P<before>(?:[^\w\s]+\s+)?(?:(?:in|on|at|during|after|before|since|from|by|as|when|while|later|then|today|also|"
    r"additionally|furthermore|moreover|however|finally|there)\b[^,.;]{0,60},\s+)?)"
    r"(?P<own>he|she|it|they|his|her|its|their)\b(?!\s*['’]s\b)"
)
_POSSESSIVE = {"his": "he", "her": "she", "its": "it", "their": "they"}
_SIGN = re.compile(r"^[^\w\s]+\s+")  # such as an emoji
_EXPLETIVE = re.compile(
    r"(?i)\bit\s+(?:is|was|has been|may be|might be|can be|seems|appears|takes|follows|turns)\s+"
    r"(?:also\s+|not\s+|\w+ly\s+)?"
    r"(?:important|worth|possible|impossible|likely|unlikely|clear|known|believed|estimated|said|thought|reported|"
    r"necessary|essential|common|difficult|hard|easy|true|that|to|out)\b"
)
_NAME = r"[A-ZÀ-Ý][\w.'’&-]*(?:\s+\d{1,4}(?:\.\d+)*[A-Za-z]{0,2}\b(?!,\d|%))?"  # "Apollo 11"
_LINK = r"(?:of|the|de|la|du|von|van|der|den|and|&|for|in|y|al|el|bin|ibn)"
_SUBJECT = re.compile(rf"^(?:(?:The|A|An|Sir|Dr\.?|Mr\.?|Mrs\.?|Ms\.?)\s+)?{_NAME}(?:\s+(?:{_LINK}\s+){{0,2}}{_NAME})*")
_WORDS = r"(?:(?!wh|(?:that|and|but)\b)[\w'’-]+\s+){1,6}?"
_THING = re.compile(rf"The\s+(?:{_WORDS}(?={VERB.pattern})|{_WORDS}(?=\w+(?:s|ed)\b))")  # "The cover is ..."
_NAMES = re.compile(rf"(?:\bthe\s+)?{_NAME}(?:\s+(?:{_LINK}\s+){{0,2}}{_NAME})*")
_BARE = re.compile(rf"(?i)(?:{english('bare_answers')})\b(?!.*\w\wed\b)")  # "In 1990 it closed." is none
_NO_SUBJECT = re.compile(rf"(?i)^(?:{english('no_subject')})\b")
_NEW = re.compile(r"(?i)^(?:an?(?!\.)|one|another|some|several|few|many|two|three)\b")  # "A bridge fell. It was old."
_ENDING = re.compile(r"(?<=[^:?])$")  # where a title lacks the colon before what it stands over
_LABEL = re.compile(r"^\w+:\s+")
_ASIDE = re.compile(r"\s*\([^()]*\)\s*")


@dataclass(slots=True)
class Context:
    """What was said so far in one answer.

    Attributes:
        question: the question; None where none was given.
        subject: what the last sentence was about; empty if unknown.
        heading, lead: what the last sentence stands under, and what introduces the list that it is in.
    """

    question: str | None
    subject: str = ""
    heading: str = ""
    lead: str = ""
    _introduced: str = ""  # the lead with its pronoun replaced, and the subject before the list
    _before: str = ""
    _stood: tuple[str, str] = "", ""  # a subject, and the pronoun that last stood for it
    _thing: str | None = None  # what "it" is instead, as the last sentence begins with it; empty if unknown
    _told: bool = False  # a sentence of its own has been met under this heading

    def __post_init__(self) -> None:
        if self.question:
            names = [name for name in _NAMES.findall(self.question[1:]) if not _NO_SUBJECT.match(name)]
            if len(set(names)) == 1:
                self.subject = names[0]

    def asked(self, part: Part, before: str = "") -> Item:
        """The item to ask a gate about for the next statement: a claim, or the question with an answer.

        `before` is a question or a lead right before it, which is what a bare answer then belongs to.
        """
        text, titled = part.plain, f": {part.heading}".endswith(f": {part.plain}")
        words = len(text.split())
        self._enter(part)
        if part.item and part.lead:
            self.note(text)
            return {"claim": f"{self._introduced} {text}"}
        title = before or ("" if titled else part.heading)
        question = title if title.endswith("?") else self.question
        bare = words <= BARE_ANSWER or (words <= 3 * BARE_ANSWER and not self._told and _BARE.match(text))
        if question and not part.lead and bare and not VERB.search(text):
            named = "" if title in ("", question) else f"{title.rstrip(':')}: "
            return {"question": question, "answer": named + text.rstrip(",;:–—-! ")}
        self._told, claim = True, text if titled else self.resolved(text)
        if not titled:
            self.note(text)
        if part.item and part.heading and claim == text and text[-1] not in ".!。":
            short = words <= _FRAGMENT or not VERB.search(text)
            claim = f"{_ENDING.sub(':', part.heading)} {claim}" if short else claim
        return {"claim": claim}

    def _enter(self, part: Part) -> None:
        """What a pronoun stands for is looked for under the same heading, and in the same list or before it."""
        if part.heading != self.heading:
            self.heading, self.subject, self.lead, self._thing, self._told = part.heading, "", "", None, False
        if part.lead != self.lead:
            self.subject = self._before = self._before if self.lead else self.subject
            self.lead = ""
            self._introduced, self.lead = self.resolved(part.lead), part.lead
            self.subject, self._thing = "" if part.lead else self.subject, None

    def resolved(self, text: str) -> str:
        """The sentence with a leading pronoun replaced by the subject of the one before, or after its title."""
        found = _PRONOUN.match(text)
        if found is None or _EXPLETIVE.search(text[: found.end() + 60]):
            return text
        own = found["own"].lower()
        stood, pronoun = self._stood, _POSSESSIVE.get(own, own)
        name = self.subject if self._thing is None or pronoun not in ("it", "they") else self._thing
        other = stood[0] == name and stood[1] != pronoun and {stood[1], pronoun} != {"it", "they"}
        if not 0 < len(name) <= _LONGEST_SUBJECT or other:  # "Her husband was Pierre. He died."
            return f"{self._introduced if self.lead else _ENDING.sub(':', self.heading)} {text}".strip()
        self._stood = name, pronoun
        if found["before"] and name.startswith(("The ", "A ", "An ")):
            name = name[0].lower() + name[1:]
        elif not found["before"]:
            name = name[0].upper() + name[1:]
        name += "'s" * (own in _POSSESSIVE)
        return f"{found['before']}{name}{text[found.end() :]}"

    def pointed(self, text: str) -> tuple[str, ...]:
        """How a sentence begins up to a leading pronoun, with what it stands for and as it is; nothing without one."""
        found = _PRONOUN.match(text)
        if found is None or _EXPLETIVE.search(text[: found.end() + 60]):
            return ()
        return self.resolved(text)[: found.end() - len(text) or None], found.group()

    def note(self, claim: str) -> None:
        """Remember what a sentence is about."""
        claim = _ASIDE.sub(" ", _LABEL.sub("", _SIGN.sub("", claim)))
        if _NO_SUBJECT.match(claim):
            if _NEW.match(claim):
                self.subject, self._thing = "", None
            return
        found, thing = _SUBJECT.match(claim), _THING.match(claim)
        named = found is None or found.group() not in ("The", "A", "An")
        self._thing = None if named else thing.group().rstrip() if thing else ""
        if named:
            self.subject = found.group().rstrip(".,'’ ") if found else ""
