"""The second layout: consecutive sentences of a page packed into passages of about 100 to 300 tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from isr_lab.slice.records import Record, Rival, Sentence

AIM_WORDS = 110
MOST_WORDS = 200

Page = tuple[str, str | None]
"""A page's title and the date of its text."""
Pages = Mapping[Page, Sequence[Sentence]]


def pages_of(sentences: Iterable[Sentence]) -> dict[Page, list[Sentence]]:
    """Sentences by page, each text once, untitled ones left out.

    A page's sentences are in the order of their ids, or as they came where ids repeat (several passages of a
    page, each counted from its own start).
    """
    pages: dict[Page, dict[str, Sentence]] = defaultdict(dict)
    for sentence in sentences:
        if sentence.title:
            pages[sentence.title, sentence.snapshot].setdefault(sentence.text, sentence)
    return {page: _ordered(list(group.values())) for page, group in pages.items()}


def _ordered(group: list[Sentence]) -> list[Sentence]:
    ids = [sentence.sentence_id for sentence in group if sentence.sentence_id is not None]
    if len(ids) < len(group) or len(set(ids)) < len(ids):
        return group
    return sorted(group, key=lambda sentence: sentence.sentence_id or 0)


def pack(sentences: Sequence[Sentence]) -> list[tuple[Sentence, frozenset[str]]]:
    """Consecutive sentences joined to passages of `AIM_WORDS` words or a little more, with their texts.

    A last passage that would be short joins the one before it when that stays within `MOST_WORDS`.
    """
    groups: list[list[Sentence]] = []
    length = 0
    for sentence in sentences:
        words = len(sentence.text.split())
        if not groups or length >= AIM_WORDS or length + words > MOST_WORDS:
            groups.append([])
            length = 0
        groups[-1].append(sentence)
        length += words
    if len(groups) > 1 and length < AIM_WORDS // 2 and _words(groups[-2]) + length <= MOST_WORDS:
        groups[-2:] = [groups[-2] + groups[-1]]
    return [_joined(group) for group in groups]


def _words(group: Sequence[Sentence]) -> int:
    return sum(len(sentence.text.split()) for sentence in group)


def _joined(group: Sequence[Sentence]) -> tuple[Sentence, frozenset[str]]:
    first = group[0]
    text = " ".join(sentence.text for sentence in group)
    return Sentence(text, first.title, first.sentence_id, first.snapshot), frozenset(s.text for s in group)


def as_passages(record: Record, pages: Pages) -> Record:
    """A record whose gold, own and rival evidence are whole passages.

    Args:
        record: a record of sentences.
        pages: all known sentences by page; a claim's record holds only gold sentences, so its pages come from here.
    """
    own = pages_of((*record.gold, *record.own, *(s for rival in record.rivals for s in rival.evidence)))
    packed: list[tuple[Sentence, frozenset[str]]] = []
    for page, sentences in own.items():
        known = pages.get(page, ()) if record.form == "claim" else ()
        packed += pack(known if _covers(known, sentences) else sentences)
    gold = _holding(packed, record.gold)
    rivals = tuple(Rival(rival.answer, _holding(packed, rival.evidence)) for rival in record.rivals)
    rest = tuple(passage for passage, _ in packed if passage not in gold)
    return replace(record, gold=gold, own=rest, rivals=rivals)


def _covers(known: Sequence[Sentence], sentences: Sequence[Sentence]) -> bool:
    texts = {sentence.text for sentence in known}
    return all(sentence.text in texts for sentence in sentences)


def _holding(packed: Sequence[tuple[Sentence, frozenset[str]]], wanted: Sequence[Sentence]) -> tuple[Sentence, ...]:
    texts = {(sentence.title, sentence.text) for sentence in wanted}
    return tuple(p for p, members in packed if any((p.title, text) in texts for text in members))
