"""Questions over two or more paragraphs: 2WikiMultihopQA and MuSiQue."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isr_lab.mix.annotate import annotate
from isr_lab.mix.evidence import Document, assemble
from isr_lab.mix.inputs import Origin, ReaderInputs, with_evidence
from isr_lab.mix.records import Candidate, Row, RowError, list_of, mapping_of, read_files, text_of
from isr_lab.mix.swaps import answer_kind, other_number, rivals
from isr_lab.mix.text import contains, normal, page_key, sentences, squeeze

_WIKI = ("multihop/2wiki_train500_migres.jsonl.gz", "multihop/wikihop_migres.jsonl.gz")
_MUSIQUE = ("multihop/musique_migres.jsonl.gz", "multihop/musique_full_20.json.gz")
_BUDGETS = (180, 320)


@dataclass(frozen=True, slots=True)
class _MultihopQuestion:
    file: str
    record: str
    question: str
    answer: str
    gold: tuple[Document, ...]
    others: tuple[Document, ...]
    answerable: bool = True


def read_multihop(inputs: ReaderInputs) -> list[Candidate]:
    """2WikiMultihopQA and MuSiQue: true and rival answers as drafts; a gold paragraph removed for sufficiency."""
    asked: list[_MultihopQuestion] = []

    def wiki(file: str, row: Row, record: str) -> Iterable[Candidate]:
        facts = {(str(title), int(i)) for title, i in list_of(row, "supporting_facts")}
        docs: list[Document] = []
        for title, parts in list_of(row, "context"):
            support = frozenset(i for i in range(len(parts)) if (title, i) in facts)
            docs.append(Document(tuple(_spaced(part) for part in parts), squeeze(title), support))
        asked.append(_asked(file, record, row, docs))
        return ()

    def musique(file: str, row: Row, record: str) -> Iterable[Candidate]:
        docs: list[Document] = []
        for value in list_of(row, "paragraphs"):
            paragraph = mapping_of(value, "a paragraph")
            parts = sentences(text_of(paragraph, "paragraph_text"))
            chosen = range(len(parts)) if paragraph.get("is_supporting") is True else range(0)
            docs.append(Document(parts, squeeze(text_of(paragraph, "title")), frozenset(chosen)))
        asked.append(_asked(file, record, row, docs, answerable=row.get("answerable") is not False))
        return ()

    list(read_files(inputs.raw, _WIKI, inputs.log, wiki))
    list(read_files(inputs.raw, _MUSIQUE, inputs.log, musique))
    return with_evidence(candidate for one in asked for candidate in _items(inputs, one))


def _spaced(text: str) -> str:
    """A sentence of 2WikiMultihopQA with the spaces back where its tokeniser moved them (`Bajo( born`)."""
    text = re.sub(r"(\w)\(\s*", r"\1 (", squeeze(text))
    text = re.sub(r"(\w)\" (\w[^\"]*)\"", r'\1 "\2"', text)
    return re.sub(r"(\w)- (?=(?!and\b|or\b|to\b)[a-z])", r"\1-", text)


def _asked(file: str, record: str, row: Row, docs: Sequence[Document], answerable: bool = True) -> _MultihopQuestion:
    gold = tuple(doc for doc in docs if doc.support)
    if len(gold) < 2 and answerable:
        raise RowError(f"{len(gold)} supporting paragraphs are in the context, at least 2 are needed")
    return _MultihopQuestion(
        file,
        record,
        squeeze(text_of(row, "question")),
        squeeze(text_of(row, "answer")),
        gold,
        tuple(doc for doc in docs if not doc.support and doc.sentences),
        answerable,
    )


def _slimmed(docs: Iterable[Document], rng: random.Random) -> list[Document]:
    """Gold paragraphs with only the sentences around their support, so the evidence stays short."""
    slim: list[Document] = []
    for doc in docs:
        near = sorted(
            {i + step for i in doc.support for step in (0, rng.choice((0, 1)))} & set(range(len(doc.sentences)))
        )
        near = near[:6]
        support = frozenset(place for place, i in enumerate(near) if i in doc.support)
        slim.append(Document(tuple(doc.sentences[i] for i in near), doc.title, support))
    return slim


def _items(inputs: ReaderInputs, one: _MultihopQuestion) -> Iterable[Candidate]:
    keys = (*(page_key(doc.title or "") for doc in one.gold), f"q:{normal(one.question)}")
    origin = Origin("multihop", one.file, one.record, keys, f"{one.file}:{one.record}")
    gold = _slimmed(one.gold, inputs.rng)
    if not one.answerable:
        chunks = assemble([*gold, *one.others], one.question, inputs.rng, budget=inputs.rng.randint(*_BUDGETS))
        yield origin.sufficiency(one.question, "insufficient", chunks, "unanswerable by its makers", f"{origin.unit}:s")
        return
    chunks = assemble([*gold, *one.others], one.question, inputs.rng, budget=inputs.rng.randint(*_BUDGETS))
    false = _false(one, inputs.rng)
    if false is not None:
        yield origin.draft(one.question, one.answer, "supported", chunks)
        yield origin.draft(one.question, false, "refuted", chunks, "rival answer")
    yield origin.sufficiency(one.question, "supported", chunks, unit=f"{origin.unit}:s")
    options = _removable(one, gold)
    if not options:
        return
    left_out = inputs.rng.choice(options)
    rest = [doc for i, doc in enumerate(gold) if i != left_out]
    name = gold[left_out].title or ""
    others = [doc for doc in one.others if not contains(" ".join(doc.sentences), one.answer) and doc.title != name]
    yield origin.sufficiency(
        one.question,
        "insufficient",
        assemble([*rest, *others], one.question, inputs.rng, budget=inputs.rng.randint(*_BUDGETS)),
        "one gold paragraph removed",
        f"{origin.unit}:s",
    )


def _removable(one: _MultihopQuestion, gold: Sequence[Document]) -> list[int]:
    """Gold paragraphs without which the question cannot be answered.

    For a comparison that is any of them; otherwise the only one that states the answer: with the answer still
    in sight, what a missing bridge leaves open is a matter of taste.
    """
    if normal(one.answer) in {"yes", "no"} or contains(one.question, one.answer):
        return list(range(len(gold)))
    stating = [i for i, doc in enumerate(gold) if contains(" ".join(doc.sentences), one.answer)]
    return stating if len(stating) == 1 else []


def _false(one: _MultihopQuestion, rng: random.Random) -> str | None:
    if normal(one.answer) in {"yes", "no"}:
        return "no" if normal(one.answer) == "yes" else "yes"
    if contains(one.question, one.answer):
        titles = [doc.title or "" for doc in one.gold]
        named = [t for t in titles if contains(one.question, t) and normal(t) != normal(one.answer)]
        return rng.choice(named) if named and any(normal(t) == normal(one.answer) for t in titles) else None
    texts = [" ".join(doc.sentences[:3]) for doc in (*one.gold, *one.others[:8])]
    notes = list(annotate(texts, names_only=True))
    options = rivals(one.answer, one.question, notes, answer_kind(one.answer, notes))
    return rng.choice(options[:6]) if options else other_number(one.answer, rng)
