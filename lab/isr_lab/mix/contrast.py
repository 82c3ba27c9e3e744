"""Contrastive pairs from Wikipedia sentences: a claim, and its twin with exactly one detail changed.

Both twins see the same evidence, so only comparing the detail tells them apart.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from isr_lab.mix.annotate import Annotated, annotate
from isr_lab.mix.details import (
    Change,
    Rival,
    days,
    names,
    negated,
    numbers,
    opposites,
    sorted_entities,
    unique,
    year_rivals,
    years,
)
from isr_lab.mix.evidence import Document, Pool
from isr_lab.mix.inputs import Origin, ReaderInputs
from isr_lab.mix.lexicon import HEADWORDS
from isr_lab.mix.records import Candidate, Row, read_rows, text_of
from isr_lab.mix.rewrite import has_subject, reworded, rewritings, without_parentheses
from isr_lab.mix.text import contains, detokenise, normal, page_key, tokens
from isr_lab.slice.schema import SliceChunk

_FILE = "corpus/wiki_sentences.jsonl.gz"
SENTENCES = 14_000
"""Sentences drawn from the pool to make claims from; about a third give a pair."""
_VERBATIM = 0.35
_BIRTHS = 0.4
_RIVAL_SHOWN = 0.5
_FREQUENT = 3
_SENTENCE = re.compile(r'^["A-Z0-9][^|•{}\n]*[a-z0-9)"]\.$')
_CUT_SHORT = re.compile(r"(?:\b[A-Z]|\b(?:and|or|of|the|Dr|St|Mr|Mrs|No|vs|Inc|Jr|Sr|Lt|Col|Gen|Vol))\.$")
_DANGLING = re.compile(
    r"^(?:They|His|Her|Its|Their|This|These|Those|That|There|Here|However|In addition|Also|Then|Both|Such|"
    r"As|But|And|Or|Other|Others|Another|After|Before|When|While|Although|Following|Later|Since|If|We|I|You)\b"
)
_VAGUE = re.compile(r"\b(?:he|she|they|this|these|him|them|it|there)\b|\?|!|\.\.\.|\bmay refer to\b")
_PERSON = re.compile(
    r"^[^()]{3,40} \([^()]*(?:born|\d{4} ?[–-])|\b(?:is|was) an? [\w -]*(?:er|or|ist|ian|man|woman|actress)\b"
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    record: str
    title: str | None
    place: int | None
    text: str
    snapshot: str | None

    @property
    def page(self) -> str:
        """The title without its disambiguation."""
        return re.sub(r"\s*\([^()]*\)$", "", self.title or "")


def read_contrast(inputs: ReaderInputs) -> list[Candidate]:
    """Claims from single sentences with true and false twins; some with the true sentence absent."""
    pool: list[_Sentence] = []

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        title, place, snapshot = row.get("title"), row.get("sent_id"), row.get("snapshot")
        pool.append(
            _Sentence(
                record,
                detokenise(title.replace("_", " ")) if isinstance(title, str) else None,
                place if isinstance(place, int) else None,
                detokenise(text_of(row, "text")),
                snapshot if isinstance(snapshot, str) else None,
            )
        )
        return ()

    list(read_rows(inputs.raw, _FILE, inputs.log, convert))
    openings = {one.title or "": one.text for one in reversed(pool) if one.title and one.place == 0}
    standing = {one: claim for one in pool if (claim := _standing(one, openings)) is not None}
    sources = inputs.rng.sample(list(standing), min(SENTENCES, len(standing)))
    notes = list(annotate([standing[one] for one in sources]))
    search = _Search(pool, sources, notes)
    chosen = [(one, *_claim(note, inputs.rng)) for one, note in zip(sources, notes, strict=True) if has_subject(note)]
    kept = [(one, how, claim) for one, how, claim in chosen if 4 <= len(claim.split()) <= 26]
    abouts = annotate([claim for *_, claim in kept])
    changed = [
        (one, how, about, _change(about, one, search, inputs.rng))
        for (one, how, _), about in zip(kept, abouts, strict=True)
    ]
    pairs = [(one, how, about, change) for one, how, about, change in changed if change is not None]
    falses = annotate([change.claim for *_, change in pairs])
    return [
        candidate
        for (one, how, about, change), false in zip(pairs, falses, strict=True)
        for candidate in _pair(inputs, one, search, how, about, change, false)
    ]


def _claim(note: Annotated, rng: random.Random) -> tuple[str, str]:
    """How the claim is made and the claim; empty for most sentences that no rule rewrites."""
    options = [pair for pair in rewritings(note) if pair[0] != "birth" or rng.random() < _BIRTHS]
    if not options and rng.random() > _VERBATIM:
        return "", ""
    how, claim = rng.choice(options) if options else ("whole sentence", note.text)
    return how, without_parentheses(claim)


def standing_alone(text: str, title: str | None, place: int | None, opening: str) -> str | None:
    """The sentence as it can stand alone: "He", "It" or "The album" is replaced by the page's title where sure.

    Args:
        text: the sentence.
        title: of its page.
        place: its position on the page, if known.
        opening: the page's first sentence, or nothing.
    """
    page = re.sub(r"\s*\([^()]*\)$", "", title or "")
    if (
        not 8 <= len(text.split()) <= 34
        or _SENTENCE.match(text) is None
        or _CUT_SHORT.search(text)
        or _DANGLING.match(text)
        or text.count('"') % 2
        or text.count("(") != text.count(")")
    ):
        return None
    head = re.match(r"(He|She|It|The ([a-z]+)) (?=(?:is|was|has|had|were|[a-z]+ed)\b)", text)
    if head is not None:
        person = _PERSON.search(opening) is not None
        same = head[2] in HEADWORDS and re.search(rf"\b(?:is|was) an?\b[^,.]*\b{head[2]}\b", opening) is not None
        sure = place == 1 and (person if head[1] in {"He", "She"} else not person if head[1] == "It" else False)
        if not opening.startswith(page) or not (sure or same):
            return None
        text = f"{page} {text[head.end() :]}"
    return None if _VAGUE.search(text) or re.match(r"(?:He|She|It)\b", text) else text


def _standing(one: _Sentence, openings: Mapping[str, str]) -> str | None:
    return standing_alone(one.text, one.title, one.place, openings.get(one.title or "", ""))


class _Search:
    """Near sentences of the pool (as distractors) and of the annotated sentences (for rival names)."""

    def __init__(self, pool: Sequence[_Sentence], sources: Sequence[_Sentence], notes: Sequence[Annotated]) -> None:
        self._by_text = {one.text: one for one in reversed(pool) if 6 <= len(one.text.split()) <= 60}
        self._pool = Pool([Document((text,), one.title) for text, one in self._by_text.items()])
        self._sources = Pool([Document((one.text,), one.title) for one in sources])
        entities = [sorted_entities(note) for note in notes]
        first = Counter(e.text.split()[0] for found in entities for sort, e in found if sort == "person")
        self.first_names = frozenset(name for name, count in first.items() if count >= _FREQUENT)
        self._rivals = {
            one.text: [
                Rival(sort, e.text, one.text)
                for sort, e in found
                if sort != "person" or e.text.split()[0] in self.first_names
            ]
            + year_rivals(Annotated(one.text, (), ()))
            for one, found in zip(sources, entities, strict=True)
        }

    def sentence(self, text: str) -> _Sentence | None:
        """The sentence of the pool with this text."""
        return self._by_text.get(text)

    def fits(self, doc: Document, one: _Sentence, claim: str, change: Change) -> bool:
        """Whether a sentence can stand beside the source: it states neither the claim nor its twin."""
        text = doc.sentences[0]
        if text == one.text or _overlap(text, one.text) > 0.6:
            return False
        about = (
            (doc.title == one.title if one.title else False) or contains(text, one.page) or _overlap(text, claim) > 0.45
        )
        return not (about and (contains(text, change.new) or contains(text, change.old)))

    def distractors(self, one: _Sentence, claim: str, change: Change, k: int) -> list[_Sentence]:
        """The k nearest sentences that fit, best first."""
        found = self._pool.near(claim, k, lambda doc: self.fits(doc, one, claim, change))
        return [self._by_text[doc.sentences[0]] for doc in found]

    def rivals(self, one: _Sentence) -> list[Rival]:
        """Names and years out of the nearest annotated sentences."""
        near = self._sources.near(one.text, 40, lambda doc: doc.sentences[0] != one.text)
        return [rival for doc in near for rival in self._rivals[doc.sentences[0]]]


def _overlap(text: str, other: str) -> float:
    words, others = set(normal(text).split()), set(normal(other).split())
    return len(words & others) / max(1, len(others))


def _pair(
    inputs: ReaderInputs, one: _Sentence, search: _Search, how: str, about: Annotated, change: Change, false: Annotated
) -> Iterable[Candidate]:
    near = search.distractors(one, about.text, change, inputs.rng.randint(2, 6))
    taken = search.sentence(change.source) if change.source else None
    if taken is not None and taken not in near and inputs.rng.random() < _RIVAL_SHOWN:
        shown = search.fits(Document((taken.text,), taken.title), one, about.text, change)
        near = [*near[:5], taken] if shown else near
    if len(near) < 2:
        return
    key = page_key(one.title) if one.title else f"sentence:{normal(one.text)[:100]}"
    origin = Origin("contrast", _FILE, one.record, (key,), f"contrast:{one.record}")
    yield from _twins(inputs, origin, one, near, how, about, change, false)


def _twins(
    inputs: ReaderInputs,
    origin: Origin,
    one: _Sentence,
    near: Sequence[_Sentence],
    how: str,
    about: Annotated,
    change: Change,
    false: Annotated,
) -> Iterable[Candidate]:
    evidence, seed = _evidence([one, *near], one, inputs.rng), inputs.rng.random()

    def worded(text: str) -> str:
        return reworded(text, random.Random(seed))

    detail = f"{how}; {change.how}: {change.old} -> {change.new}"
    denied = negated(about) if unique(about, change) and inputs.rng.random() < 0.5 else None
    other = negated(false) if denied else None
    absent = [two for two in near if not contains(f"{two.title or ''} {two.text}", change.old)]
    yield origin.claim(worded(about.text), "supported", evidence, how)
    if denied and other:
        yield origin.claim(worded(denied), "refuted", evidence, f"{how}; denied")
        yield origin.claim(worded(change.claim), "refuted", evidence, detail)
        yield origin.claim(worded(other), "supported", evidence, f"{detail}; denied")
    elif inputs.rng.random() < 0.2 and len(absent) >= 2:
        absence = f"{how}; sentence absent"
        yield origin.claim(worded(about.text), "insufficient", _evidence(absent, one, inputs.rng), absence)
    else:
        yield origin.claim(worded(change.claim), "refuted", evidence, detail)


def _change(about: Annotated, one: _Sentence, search: _Search, rng: random.Random) -> Change | None:
    """One change, each possible kind equally likely, so none dominates; the page's own name stays."""
    rivals, fixed = search.rivals(one), f"{one.title or ''} {one.text}"
    groups = (
        years(about, rivals, rng),
        numbers(about, rng),
        days(about, rng),
        opposites(about, rng),
        names(about, rivals, fixed, rng),
        names(about, rivals, fixed, rng),
    )
    found = [rng.choice(group) for group in groups if group]
    fitting = [
        change
        for change in found
        if (not contains(fixed, change.new) or change.how in {"day", "number"})
        and not contains(one.title or "", change.old)
        and (change.how != "person" or change.old.split()[0] in search.first_names)
    ]
    return rng.choice(fitting) if fitting else None


def _evidence(chosen: Sequence[_Sentence], source: _Sentence, rng: random.Random) -> tuple[SliceChunk, ...]:
    chunks = [
        SliceChunk(
            text=one.text,
            title=one.title or None,
            sentence_id=one.place,
            is_support=one is source,
            snapshot=one.snapshot,
        )
        for one in chosen
        if tokens(one.text) <= 100
    ]
    rng.shuffle(chunks)
    return tuple(chunks)
