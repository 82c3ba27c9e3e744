"""Reading comprehension turned into drafts and sufficiency items: SQuAD 2.0 and QED."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isr_lab.mix.annotate import Annotated, annotate
from isr_lab.mix.evidence import Document, Pool, assemble, chunks_of, document
from isr_lab.mix.inputs import Origin, ReaderInputs, with_evidence
from isr_lab.mix.records import (
    BadRow,
    Candidate,
    MixError,
    Row,
    RowError,
    list_of,
    mapping_of,
    read_rows,
    read_text,
    text_of,
)
from isr_lab.mix.swaps import answer_kind, other_number, rivals
from isr_lab.mix.text import contains, detokenise, normal, page_key, squeeze

_SQUAD = "squad2_train/train-v2.0_10articles.json.gz"
_QED = "qed/qed-dev.jsonl.gz"
_LONGEST_ANSWER = 60


@dataclass(frozen=True, slots=True)
class ReadingQuestion:
    """One question about one passage; `answers` is empty when the passage does not answer it."""

    record: str
    question: str
    answers: tuple[str, ...]
    passage: str
    title: str
    bait: str | None = None


def read_squad2(inputs: ReaderInputs) -> list[Candidate]:
    """SQuAD 2.0: the answer and a rival of its kind as drafts; the paragraph and its neighbours for sufficiency."""
    try:
        articles = list_of(mapping_of(json.loads(read_text(inputs.raw / _SQUAD)), "the file"), "data")
    except (json.JSONDecodeError, RowError) as error:
        raise MixError(f"{_SQUAD}: not the SQuAD schema ({error})") from error
    asked: list[ReadingQuestion] = []
    inputs.log.read[_SQUAD] = 0
    for article in articles:
        title = text_of(article, "title").replace("_", " ")
        for paragraph in list_of(article, "paragraphs"):
            for row in list_of(paragraph, "qas"):
                inputs.log.read[_SQUAD] += 1
                try:
                    asked.append(_squad_question(row, text_of(paragraph, "context"), title))
                except RowError as error:
                    inputs.log.bad.append(BadRow(_SQUAD, inputs.log.read[_SQUAD], str(error)))
    inputs.log.check(_SQUAD)
    return _items(inputs, "squad2", _SQUAD, asked)


def _squad_question(row: Row, context: str, title: str) -> ReadingQuestion:
    answers = [text_of(mapping_of(a, "an answer"), "text") for a in list_of(row, "answers")]
    impossible = row.get("is_impossible") is True
    if bool(answers) == impossible:
        raise RowError("a question has answers exactly when it is not impossible")
    bait = [str(a["text"]) for a in row.get("plausible_answers") or ()]
    return ReadingQuestion(
        text_of(row, "id"), squeeze(text_of(row, "question")), tuple(answers), context, title, bait[0] if bait else None
    )


def read_qed(inputs: ReaderInputs) -> list[Candidate]:
    """QED: Natural Questions over one paragraph, with the answers inside it marked."""
    asked: list[ReadingQuestion] = []

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        annotation = mapping_of(row.get("annotation"), "'annotation'")
        found = [
            squeeze(detokenise(mapping_of(answer["paragraph_reference"], "a reference")["string"]))
            for answer in annotation.get("answer") or ()
        ]
        if not found and annotation.get("explanation_type") != "none":
            found = [
                squeeze(detokenise(a["string"])) for group in list_of(row, "original_nq_answers")[:1] for a in group
            ]
        passage = detokenise(text_of(row, "paragraph_text"))
        answers = tuple(text for text in found if contains(passage, text)) if len(found) == 1 else ()
        if found and not answers:
            return ()
        asked.append(
            ReadingQuestion(record, text_of(row, "question_text"), answers, passage, text_of(row, "title_text"))
        )
        return ()

    list(read_rows(inputs.raw, _QED, inputs.log, convert))
    return _items(inputs, "qed", _QED, asked)


def _items(inputs: ReaderInputs, source: str, file: str, asked: Sequence[ReadingQuestion]) -> list[Candidate]:
    passages = list(dict.fromkeys(one.passage for one in asked))
    notes = dict(zip(passages, annotate(passages, names_only=True), strict=True))
    title_of = {one.passage: one.title for one in asked}
    documents = {passage: document(passage, title_of[passage]) for passage in passages}
    pool = Pool(list(documents.values()))
    siblings: dict[str, list[str]] = {}
    for one in asked:
        siblings.setdefault(one.passage, []).extend(one.answers[:1])
    found: list[Candidate] = []
    for one in asked:
        origin = Origin(
            source, file, one.record, (page_key(one.title), f"q:{normal(one.question)}"), f"{source}:{one.record}"
        )
        doc = documents[one.passage]
        if not one.answers:
            found += _impossible(inputs, origin, one, doc)
            continue
        marked = Document(
            doc.sentences,
            doc.title,
            frozenset(i for i, part in enumerate(doc.sentences) if contains(part, one.answers[0])),
        )
        found += _drafts(inputs, origin, one, marked, notes[one.passage], siblings[one.passage])
        found += _enough(inputs, origin, one, marked, pool)
    return with_evidence(found)


def _impossible(inputs: ReaderInputs, origin: Origin, one: ReadingQuestion, doc: Document) -> Iterable[Candidate]:
    chunks = assemble([doc], one.question, inputs.rng, budget=inputs.rng.randint(120, 300))
    yield origin.sufficiency(
        one.question, "insufficient", chunks, "unanswerable by its makers", unit=f"{origin.unit}:s"
    )
    if one.bait and len(one.bait) <= _LONGEST_ANSWER:
        yield origin.draft(one.question, one.bait, "insufficient", chunks, "plausible answer, unanswerable question")


def _drafts(
    inputs: ReaderInputs, origin: Origin, one: ReadingQuestion, doc: Document, notes: Annotated, siblings: Sequence[str]
) -> Iterable[Candidate]:
    answer = one.answers[0].strip(" .,;:")
    if len(answer) > _LONGEST_ANSWER:
        return
    false, how = false_answer(one, answer, notes, siblings, inputs.rng)
    if false is None:
        return
    chunks = assemble([doc], one.question, inputs.rng, budget=inputs.rng.randint(120, 300))
    yield origin.draft(one.question, answer, "supported", chunks)
    yield origin.draft(one.question, false, "refuted", chunks, how)


def false_answer(
    one: ReadingQuestion, answer: str, notes: Annotated, siblings: Sequence[str], rng: random.Random
) -> tuple[str | None, str]:
    """A wrong answer that rounds right, and how it was made; None where none can be made safely."""
    kind = answer_kind(answer, [notes])
    options = rivals(answer, one.question, [notes], kind)
    known = {normal(text) for text in one.answers}
    options = [text for text in options if normal(text) not in known]
    if options:
        return rng.choice(options), "rival of the same kind in the passage"
    if any(sign.isdigit() for sign in answer):
        return other_number(answer, rng), "number changed"
    if kind is not None:
        return None, ""
    words = set(normal(answer).split())
    others = [
        text
        for text in dict.fromkeys(siblings)
        if not words & set(normal(text).split())
        and not any(sign.isdigit() for sign in text)
        and text[:1].isupper() == answer[:1].isupper()
        and answer_kind(text, [notes]) is None
        and 0.5 <= len(text) / len(answer) <= 2
        and not contains(one.question, text)
    ]
    return (rng.choice(others), "answer to another question about the passage") if others else (None, "")


def _enough(
    inputs: ReaderInputs, origin: Origin, one: ReadingQuestion, doc: Document, pool: Pool
) -> Iterable[Candidate]:
    def fits(other: Document) -> bool:
        text = " ".join(other.sentences)
        return other.sentences != doc.sentences and not any(contains(text, answer) for answer in one.answers)

    far = pool.near(f"{one.title} {one.question}", 3, fits)
    if len(far) < 2:
        return
    unit, budget = f"{origin.unit}:s", inputs.rng.randint(120, 300)
    extra = [chunk for chunk in chunks_of(far[0], inputs.rng)][:3]
    yield origin.sufficiency(
        one.question, "supported", assemble([doc], one.question, inputs.rng, extra=extra, budget=budget), unit=unit
    )
    rest = Document(tuple(part for i, part in enumerate(doc.sentences) if i not in doc.support), doc.title)
    removed = bool(rest.sentences) and (origin.source == "qed" or inputs.rng.random() < 0.5)
    near = [rest, *far[:1]] if removed else far
    yield origin.sufficiency(
        one.question,
        "insufficient",
        assemble(near, one.question, inputs.rng, budget=budget),
        "answer sentences removed" if removed else "neighbouring passages without the answer",
        unit=unit,
    )
