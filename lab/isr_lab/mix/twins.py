"""Contrast of one evidence sentence: statements it supports beside statements that keep nearly every word.

Each kind is aimed at something a reader may skip: who did what to whom, whether it was denied, planned or done,
which came first, how far a statement reaches. All items of one sentence see the same evidence.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from isr_lab.mix import phrasing
from isr_lab.mix.annotate import Annotated, annotate
from isr_lab.mix.contrast import standing_alone
from isr_lab.mix.details import Rival, days, names, numbers, opposites, sorted_entities, years
from isr_lab.mix.inputs import Origin, ReaderInputs
from isr_lab.mix.phrasing import Forms
from isr_lab.mix.records import Candidate, Row, list_of, read_files, read_rows, text_of
from isr_lab.mix.rewrite import has_subject, reworded, without_parentheses
from isr_lab.mix.text import contains, detokenise, normal, page_key, sentences, squeeze, tokens
from isr_lab.slice.asking import REFUTED
from isr_lab.slice.schema import Kind, SliceChunk

PER_KIND = 900
"""Sentences used for each kind at most."""
SENTENCES = 30_000
"""Sentences parsed at most."""
_CORPUS = "corpus/wiki_sentences.jsonl.gz"
_SQUAD = "squad11_train44/paragraphs.jsonl.gz"
_SELQA = tuple(f"selqa/ass_{part}.jsonl.gz" for part in ("dev", "test"))
_RARE = re.compile(
    r"\b(?:not|never|n't|than|after|before|nominated|some of|most of|many of|several of|one of|may have|plans to|"
    r"defeated|beat|succeeded|replaced|killed|appointed|taught|acquired|at least|up to|more than|nearly|almost|"
    r"usually|often|mainly|mostly|million|miles)\b"
)
_SHARE_OF_RARE = 0.6
_FREQUENT = 4
"""First names seen less often are not trusted to be people's."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text in sentences with its title, and where it came from."""

    file: str
    record: str
    title: str | None
    sentences: tuple[str, ...]

    @property
    def key(self) -> str:
        """Sentences of one page stay in one split."""
        return page_key(self.title) if self.title else f"sentence:{normal(self.sentences[0])[:100]}"


@dataclass(frozen=True, slots=True)
class Target:
    """A sentence to make twins of, as it stands alone."""

    passage: Passage
    place: int
    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """A statement about the evidence: whether it follows, whether it is contradicted, how it was made."""

    text: str
    follows: bool
    contradicted: bool
    how: str


@dataclass(frozen=True, slots=True)
class Twins:
    """Statements about one evidence sentence; `evidence` is None where it is the original sentence."""

    kind: str
    said: tuple[Said, ...]
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """What the makers of twins are handed."""

    forms: Forms
    rng: random.Random
    rivals: Callable[[Target], list[Rival]]
    known: Callable[[str], bool]


_WHOLE = frozenset({"active", "time last", "date first", "cleft"})


def _true(note: Annotated, bench: Bench, verbatim: float = 0.5) -> Said:
    """The statement verbatim, reworded, or told in another order; never shortened, or length would tell."""
    options = [pair for pair in phrasing.paraphrases(note) if pair[0] in _WHOLE]
    if options and bench.rng.random() > verbatim:
        how, text = bench.rng.choice(options)
        return Said(text, True, False, how)
    return Said(note.text, True, False, "verbatim")


def _false(text: str, how: str, *, contradicted: bool = True) -> Said:
    return Said(text, False, contradicted, how)


def _negation(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    denied = phrasing.negate(note)
    if denied is None:
        return
    if bench.rng.random() < 0.4:
        yield Twins("negation", (_true(note, bench), _false(denied, "negation added")))
    else:
        other = _true(note, bench)
        said = (Said(denied, True, False, "verbatim"), _false(other.text, f"negation dropped; {other.how}"))
        yield Twins("negated_evidence", said, denied)


def _natural_negation(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    bare = phrasing.affirm(note, bench.forms)
    if bare is not None:
        yield Twins("natural_negation", (_true(note, bench), _false(bare, "negation dropped")))


def _denial(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    if phrasing.simple(note) is None:
        return
    inner, denied = phrasing.clause(note.text, note), phrasing.negate(note)
    if bench.rng.random() < 0.5:
        frame, sure = bench.rng.choice(phrasing.DENIED)
        said = [_false(note.text, f"denied: {frame}", contradicted=sure)]
        if denied and sure:
            said.append(Said(denied, True, False, f"denied: {frame}"))
    else:
        frame = bench.rng.choice(phrasing.ADMITTED)
        said = [Said(_true(note, bench).text, True, False, f"admitted: {frame}")]
        if denied:
            said.append(_false(denied, f"admitted: {frame}"))
    yield Twins("denial", tuple(said), frame.format(x=inner)[0].upper() + frame.format(x=inner)[1:])


def _modality(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    done = phrasing.deed(note, bench.forms)
    if done is None or not done.agent:
        return
    if bench.rng.random() < 0.5:
        frame, weaker, sure, usable = bench.rng.choice(phrasing.NOT_DONE)
        said = [_false(done.statement, f"not done: {frame}", contradicted=sure)]
        if sure and bench.rng.random() < 0.5:
            said.append(Said(done.denied, True, False, f"not done: {frame}"))
        elif usable:
            said.append(Said(phrasing.in_frame(weaker, done), True, False, f"not done: {frame}"))
    else:
        frame = bench.rng.choice(phrasing.DONE)
        said = [Said(done.statement, True, False, f"done: {frame}")]
        wrong = bench.rng.choice((done.denied, phrasing.in_frame("{h}failed to {v}{r}.", done)))
        said.append(_false(wrong, f"done: {frame}"))
    yield Twins("modality", tuple(said), phrasing.in_frame(frame, done))


def _roles(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    voices = phrasing.turned_passive(note, bench.forms)
    swaps = phrasing.swapped_roles(note)
    if voices is not None:
        said = [Said(voices[0], True, False, "passive"), _false(voices[1], "passive, roles exchanged")]
        said += [_false(text, f"roles: {what}") for what, text in swaps[:1]] + [
            Said(note.text, True, False, "verbatim")
        ]
        yield Twins("roles", tuple(said))
    elif swaps:
        what, text = bench.rng.choice(swaps)
        yield Twins("roles", (_true(note, bench, 0.6), _false(text, f"roles: {what}")))


def _figures(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    swap = phrasing.swapped_figures(note)
    if swap is not None:
        yield Twins("figures", (_true(note, bench, 0.6), _false(swap[1], f"figures: {swap[0]}")))


def _order(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    told = phrasing.order(note)
    if told is not None:
        yield Twins("order", (Said(told[0], True, False, "clauses moved"), _false(told[1], "order turned")))


def _scope(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    found = phrasing.scoped(note)
    if found:
        how, stronger, denial = bench.rng.choice(found)
        if bench.rng.random() < 0.5:
            yield Twins("scope", (_true(note, bench, 0.6), _false(stronger, how, contradicted=False)))
        else:
            said = (Said(stronger, True, False, f"{how}; stronger stated"), _false(denial, how, contradicted=False))
            yield Twins("scope", said, stronger)


def _quantity(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    options = [(f"{c.how}: {c.old} -> {c.new}", c.claim) for c in (*numbers(note, bench.rng), *days(note, bench.rng))]
    options += [(f"year: {c.old} -> {c.new}", c.claim) for c in years(note, bench.rivals(target), bench.rng)]
    options += [(f"unit: {what}", text) for what, text in phrasing.units(note, bench.rng)]
    if options:
        units = [pair for pair in options if pair[0].startswith("unit")]
        how, text = bench.rng.choice(units or options)
        yield Twins("quantity", (_true(note, bench), _false(text, how)))


def _opposite(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    options = opposites(note, bench.rng)
    if options:
        change = bench.rng.choice(options)
        yield Twins(
            "opposite", (_true(note, bench), _false(change.claim, f"{change.how}: {change.old} -> {change.new}"))
        )


def _entity(note: Annotated, target: Target, bench: Bench) -> Iterable[Twins]:
    options = names(note, bench.rivals(target), target.text, bench.rng)
    options = [change for change in options if change.how != "person" or bench.known(change.old)]
    if options:
        change = bench.rng.choice(options)
        how = f"{change.how}: {change.old} -> {change.new}"
        yield Twins("entity", (_true(note, bench), _false(change.claim, how, contradicted=False)))


MAKERS: tuple[Callable[[Annotated, Target, Bench], Iterable[Twins]], ...] = (
    _natural_negation,
    _order,
    _roles,
    _scope,
    _figures,
    _modality,
    _entity,
    _negation,
    _denial,
    _quantity,
    _opposite,
)
"""Rarest first: a sentence is used for the first two kinds that fit and are not yet full."""


def read_passages(inputs: ReaderInputs) -> list[Passage]:
    """Wikipedia pages of the sentence pool, SQuAD paragraphs and SelQA sections."""
    found: list[Passage] = []
    pages: dict[str, list[tuple[int, str]]] = defaultdict(list)

    def page(row: Row, record: str) -> Iterable[Candidate]:
        title, text = row.get("title"), detokenise(text_of(row, "text"))
        if isinstance(title, str) and title:
            pages[detokenise(title.replace("_", " "))].append((int(record), squeeze(text)))
        return ()

    def paragraph(row: Row, record: str) -> Iterable[Candidate]:
        parts = sentences(text_of(row, "context"))
        found.append(Passage(_SQUAD, record, text_of(row, "title").replace("_", " "), parts))
        return ()

    def section(file: str, row: Row, record: str) -> Iterable[Candidate]:
        parts = tuple(squeeze(str(text)) for text in list_of(row, "candidates") if str(text).strip())
        if parts:
            found.append(Passage(file, record, text_of(row, "article"), parts))
        return ()

    if (inputs.raw / _CORPUS).is_file():
        list(read_rows(inputs.raw, _CORPUS, inputs.log, page))
    if (inputs.raw / _SQUAD).is_file():
        list(read_rows(inputs.raw, _SQUAD, inputs.log, paragraph))
    if (inputs.raw / _SELQA[0]).is_file():
        list(read_files(inputs.raw, _SELQA, inputs.log, section))
    for title, lines in pages.items():
        found.append(Passage(_CORPUS, str(lines[0][0]), title, tuple(dict.fromkeys(text for _, text in lines))))
    return found


def read_twins(inputs: ReaderInputs, held: Callable[[Passage], bool] = lambda passage: False) -> list[Candidate]:
    """Twins of every kind, at most `PER_KIND` sentences each, out of at most `SENTENCES` parsed sentences."""
    passages = [one for one in read_passages(inputs) if len(one.sentences) >= 2 and not held(one)]
    targets = _targets(passages, inputs.rng)
    notes = list(annotate([target.text for target in targets]))
    forms = Forms.of(notes)
    entities: dict[str, list[Rival]] = defaultdict(list)
    named = [
        (target, sort, entity)
        for target, note in zip(targets, notes, strict=True)
        for sort, entity in sorted_entities(note)
    ]
    first = Counter(entity.text.split()[0] for _, sort, entity in named if sort == "person")
    for target, sort, entity in named:
        if sort != "person" or first[entity.text.split()[0]] >= _FREQUENT:
            entities[target.passage.key].append(Rival(sort, entity.text, target.text))

    def rivals(target: Target) -> list[Rival]:
        about = set(normal(target.passage.title or "").split())
        near = (one for one in entities[target.passage.key] if one.text != target.text)
        return [one for one in near if not about & set(normal(one.name).split())]

    bench, full = Bench(forms, inputs.rng, rivals, lambda name: first[name.split()[0]] >= _FREQUENT), Counter[str]()
    strangers = [target for target in targets if len(target.text.split()) <= 30]
    found: list[Candidate] = []
    usable = [(target, note) for target, note in zip(targets, notes, strict=True) if has_subject(note)]
    worded = [_worded(note, inputs.rng) for _, note in usable]
    again = iter(annotate([text for text in worded if text]))
    for (target, original), text in zip(usable, worded, strict=True):
        note = next(again) if text else original
        used = 0
        for make in MAKERS:
            if used == 2:
                break
            for twins in make(note, target, bench):
                if full[twins.kind] < PER_KIND:
                    made = list(_items(inputs, target, twins, strangers))
                    full[twins.kind] += bool(made)
                    used += bool(made)
                    found += made
    return found


def _worded(note: Annotated, rng: random.Random) -> str | None:
    """A rewriting of the sentence from which both twins are made; None to make them from the sentence itself."""
    options = phrasing.paraphrases(note)
    return without_parentheses(rng.choice(options)[1]) if options and rng.random() < 0.5 else None


def _targets(passages: Sequence[Passage], rng: random.Random) -> list[Target]:
    found: list[Target] = []
    for passage in passages:
        opening = passage.sentences[0] if passage.file == _CORPUS else ""
        for place, text in enumerate(passage.sentences):
            alone = standing_alone(text, passage.title, place, opening)
            if alone is not None:
                found.append(Target(passage, place, without_parentheses(alone)))
    rng.shuffle(found)
    rare = [one for one in found if _RARE.search(one.text)][: int(SENTENCES * _SHARE_OF_RARE)]
    chosen = [*rare, *[one for one in found if not _RARE.search(one.text)][: SENTENCES - len(rare)]]
    rng.shuffle(chosen)
    return chosen


def _items(inputs: ReaderInputs, target: Target, twins: Twins, strangers: Sequence[Target]) -> Iterable[Candidate]:
    said = [one for one in twins.said if 4 <= len(one.text.split()) <= 40]
    if not any(not one.follows for one in said):
        return
    claims = [one.text for one in twins.said]
    shown = twins.evidence or target.passage.sentences[target.place]
    title = target.passage.title
    chunks = [SliceChunk(text=squeeze(shown), title=title, is_support=True)]
    for text in _beside(inputs, target, claims, strangers, edited=twins.evidence is not None):
        chunks.append(text)
    random.Random("|".join(chunk.text for chunk in chunks)).shuffle(chunks)
    source = f"twins/{twins.kind}"
    unit = f"{source}:{target.passage.file[:6]}{target.passage.record}:{target.place}"
    origin = Origin(source, target.passage.file, target.passage.record, (target.passage.key,), unit)
    other = Origin(f"{REFUTED}{source}", origin.file, origin.record, origin.keys, unit)
    seed = inputs.rng.random()
    for one in (replace(one, text=reworded(one.text, random.Random(seed))) for one in said):
        kind: Kind = "supported" if one.follows else "refuted" if one.contradicted else "insufficient"
        made = origin.claim(one.text, kind, chunks, one.how)
        yield replace(made, chunks=tuple(chunks))  # what only does not follow has its support marked, too
        yield other.claim(
            one.text, "supported" if one.contradicted else "refuted" if one.follows else "insufficient", chunks, one.how
        )


def _beside(
    inputs: ReaderInputs, target: Target, claims: Sequence[str], strangers: Sequence[Target], *, edited: bool
) -> list[SliceChunk]:
    """Sentences of the same page that state neither twin, then strangers; none to seven of them."""
    wanted = inputs.rng.choice((0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7))
    least = 0.4 if edited else 0.55
    own = target.passage.sentences[target.place]
    near = [
        text
        for text in target.passage.sentences
        if text != own
        and len(text.split()) >= 5
        and tokens(text) <= 70
        and all(phrasing.overlap(text, claim) <= least for claim in claims)
    ]
    inputs.rng.shuffle(near)
    chunks = [SliceChunk(text=squeeze(text), title=target.passage.title) for text in near[:wanted]]
    while len(chunks) < wanted:
        other = inputs.rng.choice(strangers)
        text = other.passage.sentences[other.place]
        if other.passage.key != target.passage.key and not contains(text, target.passage.title or "|"):
            chunks.append(SliceChunk(text=squeeze(text), title=other.passage.title))
    return chunks
