"""NQ-Open: questions with a gold passage where there is one, questions and answers alone otherwise."""

from __future__ import annotations

from pathlib import Path

from isr_lab.slice.files import (
    MissingSourceError,
    Row,
    SourceSchemaError,
    find,
    read_jsonl,
    rows_of,
    text_of,
    texts_of,
)
from isr_lab.slice.records import Record, Sentence, SourceReport
from isr_lab.slice.text import contains, digest, fold, split_sentences, squeeze

SNAPSHOT = "2018-12"
LICENSE = "CC BY-SA 3.0 (Natural Questions)"
_ORACLE = "nq_open/nq-open-oracle.jsonl"
_TWENTY = "nq_open/nq-open-20_total_documents_441items.jsonl"
_ORIGINALS = ("nq_open/NQ-open.dev.jsonl", "nq_open/nq-dev-kilt.jsonl")


def read_nq(raw: Path) -> tuple[list[Record], SourceReport]:
    """NQ-Open records; those without a gold passage have no gold and are given evidence from the pool.

    Raises:
        MissingSourceError: if no NQ-Open file is there.
        SourceSchemaError: if a file has another schema.
    """
    report = SourceReport("nq_open")
    oracle = find(raw, _ORACLE)
    if oracle is not None:
        return _read_passages(raw, oracle, report), report
    for name in _ORIGINALS:
        path = find(raw, name)
        if path is not None:
            return _read_questions(path, report), report
    raise MissingSourceError(f"{raw} holds no NQ-Open: expected {_ORACLE} or {' or '.join(_ORIGINALS)}")


def passage_sentences(title: str, text: str, snapshot: str | None, number: int = 0) -> list[Sentence]:
    """Sentences of a record's passage `number`; ids are passage * 1000 + sentence."""
    return [Sentence(part, title, 1000 * number + i, snapshot) for i, part in enumerate(split_sentences(text))]


def _read_passages(raw: Path, oracle: Path, report: SourceReport) -> list[Record]:
    retrieved: dict[str, list[Sentence]] = {}
    twenty = find(raw, _TWENTY)
    if twenty is not None:
        for number, row in read_jsonl(twenty, report, ("question", "ctxs")):
            try:
                passages = [p for p in rows_of(row["ctxs"], "ctxs") if not p.get("isgold")]
                retrieved[fold(text_of(row, "question"))] = [
                    sentence
                    for i, passage in enumerate(passages, start=1)
                    for sentence in passage_sentences(text_of(passage, "title"), text_of(passage, "text"), SNAPSHOT, i)
                ]
                report.used += 1
            except ValueError as error:
                report.refuse(twenty.name, number, str(error))
    records: list[Record] = []
    for number, row in read_jsonl(oracle, report, ("question", "answers", "ctxs")):
        try:
            record = _record(row, oracle.name, number, retrieved)
        except ValueError as error:
            report.refuse(oracle.name, number, str(error))
            continue
        if record.gold:
            records.append(record)
            report.used += 1
        else:
            report.skip("no single sentence of the gold passage holds the answer")
    return records


def _record(row: Row, file: str, number: int, retrieved: dict[str, list[Sentence]]) -> Record:
    question, answers = squeeze(text_of(row, "question")), [squeeze(a) for a in texts_of(row, "answers")]
    if not answers:
        raise ValueError("no answer")
    gold: list[Sentence] = []
    own: list[Sentence] = []
    pages: list[str] = []
    for passage in rows_of(row["ctxs"], "ctxs"):
        if not passage.get("isgold"):
            continue
        title = text_of(passage, "title")
        pages.append(fold(title))
        for sentence in passage_sentences(title, text_of(passage, "text"), SNAPSHOT):
            holds = any(contains(fold(sentence.text), fold(answer)) for answer in answers)
            (gold if holds else own).append(sentence)
    if not pages:
        raise ValueError("no passage is marked as gold")
    present = [a for a in answers if any(contains(fold(s.text), fold(a)) for s in gold)]
    return Record(
        source="nq_open",
        key=digest(fold(question))[:16],
        dataset="NQ-Open",
        file=file,
        record=str(number),
        license=LICENSE,
        form="extractive",
        text=question,
        answers=tuple(dict.fromkeys([*present, *answers])),
        gold=tuple(gold),
        own=(*own, *retrieved.get(fold(question), ())),
        pages=tuple(pages),
    )


def _read_questions(path: Path, report: SourceReport) -> list[Record]:
    """`{question, answer: [..]}` (NQ-open) or `{input, output: [{answer}]}` (KILT)."""
    records: list[Record] = []
    for number, row in read_jsonl(path, report, ()):
        try:
            if "question" in row:
                question, answers = text_of(row, "question"), texts_of(row, "answer")
            elif "input" in row:
                question = text_of(row, "input")
                outputs = rows_of(row.get("output"), "output")
                answers = [str(o["answer"]) for o in outputs if o.get("answer")]
            else:
                raise ValueError(f"neither 'question' nor 'input'; it has {sorted(row)[:8]}")
            if not answers:
                raise ValueError("no answer")
        except ValueError as error:
            report.refuse(path.name, number, str(error))
            continue
        answers = list(dict.fromkeys(squeeze(answer) for answer in answers))
        records.append(
            Record(
                source="nq_open",
                key=digest(fold(question))[:16],
                dataset="NQ-Open",
                file=path.name,
                record=str(number),
                license=LICENSE,
                form="extractive",
                text=squeeze(question),
                answers=tuple(answers),
            )
        )
        report.used += 1
    if not records:
        raise SourceSchemaError(f"{path} has not one usable record; the first problem: {report.bad[0].reason}")
    return records
