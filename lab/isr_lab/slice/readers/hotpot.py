"""HotpotQA: the original distractor or fullwiki JSON, and excerpts in the same schema as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from isr_lab.slice.files import (
    MissingSourceError,
    Row,
    find,
    read_json_array,
    read_jsonl,
    text_of,
)
from isr_lab.slice.records import Record, Sentence, SourceReport
from isr_lab.slice.text import fold, squeeze

SNAPSHOT = "2017-10"
LICENSE = "CC BY-SA 4.0 (HotpotQA)"
_FIELDS = ("_id", "question", "answer", "supporting_facts", "context")
_ORIGINAL = "hotpotqa/hotpot_dev_distractor_v1.json"
_EXCERPTS = ("hotpotqa/merged_hotpot.jsonl", "hotpotqa/merged_fullwiki_incomplete.jsonl")


def read_hotpot(raw: Path) -> tuple[list[Record], SourceReport]:
    """HotpotQA records; those whose context lacks a gold fact have the form `incomplete`.

    Raises:
        MissingSourceError: if no HotpotQA file is there.
        SourceSchemaError: if a file has another schema.
    """
    report = SourceReport("hotpotqa")
    original = find(raw, _ORIGINAL)
    paths = [original] if original else [path for name in _EXCERPTS if (path := find(raw, name)) is not None]
    if not paths:
        raise MissingSourceError(f"{raw} holds no HotpotQA: expected {_ORIGINAL} or {' and '.join(_EXCERPTS)}")
    records: dict[str, Record] = {}
    for path in paths:
        rows = (
            read_json_array(path, report, _FIELDS) if ".jsonl" not in path.name else read_jsonl(path, report, _FIELDS)
        )
        for number, row in rows:
            try:
                record = _record(row, path.name, number)
            except ValueError as error:
                report.refuse(path.name, number, str(error))
                continue
            if record.key in records:
                report.skip("the question is there already with its gold facts")
                continue
            records[record.key] = record
            report.used += 1
    return list(records.values()), report


def _record(row: Row, file: str, number: int) -> Record:
    question, answer = squeeze(text_of(row, "question")), squeeze(text_of(row, "answer"))
    context = dict(_context(row["context"]))
    facts = list(dict.fromkeys(_facts(row["supporting_facts"])))
    if not facts:
        raise ValueError("no supporting facts")
    missing = [title for title, _ in facts if title not in context]
    places = [(title, index) for title, index in facts if title in context]
    for title, index in places:
        if not 0 <= index < len(context[title]):
            raise ValueError(f"supporting fact {index} of {title!r}, which has {len(context[title])} sentences")
    gold = [_sentence(context, title, index) for title, index in places if context[title][index]]
    own = [
        _sentence(context, title, index)
        for title, texts in context.items()
        for index, text in enumerate(texts)
        if text and (title, index) not in places
    ]
    return Record(
        source="controls" if missing else "hotpotqa",
        key=text_of(row, "_id"),
        dataset="HotpotQA",
        file=file,
        record=f"{number} ({row['_id']})",
        license=LICENSE,
        form="incomplete" if missing else "multihop",
        text=question,
        answers=(answer,),
        gold=tuple(gold),
        own=tuple(own),
        pages=tuple(dict.fromkeys(fold(title) for title, _ in facts)),
        missing=tuple(dict.fromkeys(fold(title) for title in missing)),
        answer_type=str(row.get("type", "")),
    )


def _sentence(context: dict[str, list[str]], title: str, index: int) -> Sentence:
    return Sentence(context[title][index], title, index, SNAPSHOT)


def _context(value: object) -> Iterator[tuple[str, list[str]]]:
    if not isinstance(value, list):
        raise ValueError("'context' is not a list of [title, sentences]")
    for entry in cast("list[object]", value):
        match entry:
            case [str() as title, list() as texts]:
                yield title, [squeeze(str(text)) for text in cast("list[object]", texts)]
            case _:
                raise ValueError("a context entry is not [title, sentences]")


def _facts(value: object) -> Iterator[tuple[str, int]]:
    if not isinstance(value, list):
        raise ValueError("'supporting_facts' is not a list of [title, sentence]")
    for entry in cast("list[object]", value):
        match entry:
            case [str() as title, int() as index]:
                yield title, index
            case _:
                raise ValueError("a supporting fact is not [title, sentence]")
