"""PopQA: long-tail questions; the excerpts with the subject's page, and the original TSV without evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

from isr_lab.slice.files import (
    MissingSourceError,
    Row,
    find,
    read_json_array,
    read_table,
    rows_of,
    text_of,
)
from isr_lab.slice.readers.nq import passage_sentences
from isr_lab.slice.records import Record, Sentence, SourceReport
from isr_lab.slice.text import contains, fold, squeeze

LICENSE = "MIT (PopQA); passages CC BY-SA (Wikipedia)"
_PARAGRAPHS = "popqa/popqa_1000_gold_paragraphs.json"
_RETRIEVED = "popqa/retrieved_e5_top3_popqa1000.json"
_ORIGINALS = ("popqa/popqa.tsv", "popqa/test.tsv")
_DOCUMENT = re.compile(r'Doc \d+\(Title: "(?P<title>.*?)"\) (?P<text>.*?)(?=\nDoc \d+\(Title: |</information>|$)', re.S)
PAPER_POPULARITY = 50


def read_popqa(raw: Path, popularity_below: int) -> tuple[list[Record], SourceReport]:
    """PopQA records whose subject's popularity lies under the limit.

    Raises:
        MissingSourceError: if no PopQA file is there.
        SourceSchemaError: if a file has another schema.
    """
    report = SourceReport("popqa")
    path, retrieved = find(raw, _PARAGRAPHS), find(raw, _RETRIEVED)
    found = list(_from_paragraphs(path, report)) if path else []
    found += list(_from_retrieval(retrieved, report)) if retrieved else []
    if not found:
        original = find(raw, *_ORIGINALS)
        if original is None:
            expected = " or ".join((_PARAGRAPHS, _RETRIEVED, *_ORIGINALS))
            raise MissingSourceError(f"{raw} holds no PopQA: expected {expected}")
        found = list(_from_table(original, report))
    rare = sum(popularity < PAPER_POPULARITY for _, popularity in found)
    below = [(record, popularity) for record, popularity in found if popularity < popularity_below]
    report.notes.append(
        f"{rare} usable questions with popularity < {PAPER_POPULARITY} (the paper's filter), "
        f"{len(below)} with popularity < {popularity_below} (the filter used), of {len(found)}"
    )
    report.skip(f"popularity of {popularity_below} or more", len(found) - len(below))
    records: dict[str, Record] = {}
    for record, _ in below:
        if fold(record.text) in records:
            report.skip("the question is there already")
        else:
            records[fold(record.text)] = record
            report.used += 1
    return list(records.values()), report


def _answers(row: Row) -> tuple[str, ...]:
    given = row.get("possible_answers") or row.get("golden_answers")
    if isinstance(given, str):
        given = json.loads(given)
    if not isinstance(given, list) or not given:
        raise ValueError("no possible answers")
    return tuple(dict.fromkeys(squeeze(str(answer)) for answer in cast("list[object]", given) if str(answer).strip()))


def _popularity(value: object) -> int:
    try:
        return int(str(value))
    except ValueError as error:
        raise ValueError(f"the popularity 's_pop' is {value!r}, not a number") from error


def _record(row: Row, file: str, where: str, relation: str, sentences: list[Sentence]) -> Record:
    answers = _answers(row)
    gold = [s for s in sentences if any(contains(fold(s.text), fold(a)) for a in answers)]
    present = [a for a in answers if any(contains(fold(s.text), fold(a)) for s in gold)]
    return Record(
        source="popqa",
        key=str(row["id"]),
        dataset="PopQA",
        file=file,
        record=where,
        license=LICENSE,
        form="extractive",
        text=squeeze(text_of(row, "question")),
        answers=tuple(dict.fromkeys([*present, *answers])),
        gold=tuple(gold),
        own=tuple(s for s in sentences if s not in gold),
        pages=tuple(dict.fromkeys(fold(s.title) for s in sentences if s.title)),
        answer_type=relation,
    )


def _from_paragraphs(path: Path, report: SourceReport) -> Iterator[tuple[Record, int]]:
    """Only paragraph 0, the subject's page, is evidence; paragraph 1 is the answer's own page."""
    for position, row in read_json_array(path, report, ("id", "question", "prop", "s_pop", "paragraphs")):
        try:
            paragraph = rows_of(row["paragraphs"], "paragraphs")[0]
            sentences = passage_sentences(text_of(paragraph, "title"), text_of(paragraph, "text"), None)
            record = _record(row, path.name, str(position), text_of(row, "prop"), sentences)
            popularity = _popularity(row["s_pop"])
        except (ValueError, IndexError) as error:
            report.refuse(path.name, position, str(error) or "no paragraphs")
            continue
        if record.gold:
            yield record, popularity
        else:
            report.skip("no sentence of the subject's page holds the answer")


def _from_retrieval(path: Path, report: SourceReport) -> Iterator[tuple[Record, int]]:
    """Passages retrieved for a question; only one whose title is the subject's page can support."""
    for position, row in read_json_array(path, report, ("id", "question", "metadata", "output", "golden_answers")):
        try:
            metadata, output = (cast("Row", row[name]) for name in ("metadata", "output"))
            documents = list(_DOCUMENT.finditer(text_of(output, "final_response")))
            page = fold(text_of(metadata, "s_wiki_title"))
            subject = [d for d in documents if fold(d["title"]) == page]
            others = [d for d in documents if fold(d["title"]) != page]
            sentences = [s for d in subject[:1] for s in _document_sentences(d)]
            record = _record(row, path.name, str(position), text_of(metadata, "prop"), sentences)
            popularity = _popularity(metadata["s_pop"])
        except (ValueError, KeyError, TypeError) as error:
            report.refuse(path.name, position, str(error))
            continue
        if not record.gold:
            report.skip("no retrieved passage of the subject's page holds the answer")
            continue
        own = [s for i, d in enumerate(others, start=1) for s in _document_sentences(d, i)]
        yield replace(record, own=(*record.own, *own)), popularity


def _document_sentences(match: re.Match[str], number: int = 0) -> list[Sentence]:
    title, text = match["title"], squeeze(match["text"].replace('""', '"'))
    if text.startswith(f"{title} "):  # the index repeats the title before the text
        text = text[len(title) + 1 :]
    return passage_sentences(title, text, "2018-12", number)


def _from_table(path: Path, report: SourceReport) -> Iterator[tuple[Record, int]]:
    """The original TSV: questions, answers and popularity, no evidence."""
    for number, row in read_table(path, report, ("id", "prop", "s_pop", "question", "possible_answers"), "\t"):
        try:
            record = _record(row, path.name, str(number), text_of(row, "prop"), [])
            title = row.get("s_wiki_title") or row.get("subj")
            popularity = _popularity(row["s_pop"])
        except ValueError as error:
            report.refuse(path.name, number, str(error))
            continue
        yield replace(record, pages=(fold(str(title)),) if title else ()), popularity
