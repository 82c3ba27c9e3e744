"""Recency controls: TimeQA (time-scoped questions over one page) and SituatedQA (dated questions, joined to NQ)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from isr_lab.slice.files import Row, find, read_json_array, read_jsonl, rows_of, text_of, texts_of
from isr_lab.slice.records import Record, Rival, Sentence, SourceReport
from isr_lab.slice.text import contains, digest, fold, restore_treebank, split_sentences, squeeze

TIMEQA_LICENSE = "BSD-3-Clause (TimeQA); passages CC BY-SA (Wikipedia)"
SITUATED_LICENSE = "not stated (SituatedQA); passages CC BY-SA 3.0 (Natural Questions)"
_TIMEQA = ("controls_recency/timeqa_human_annotated_train.json", "controls_recency/timeqa_human_annotated_test.json")
_SITUATED = tuple(f"controls_recency/situatedqa_temp.{split}.jsonl" for split in ("train", "dev", "test"))
_YEAR = re.compile(r"\b(1[0-9]{3}|20[0-9]{2})\b")
_SHORTEST = 5
EVIDENCE_YEAR = 2018


@dataclass(frozen=True, slots=True)
class _Timed:
    """One question of a TimeQA page with its answers and the sentences that hold them."""

    question: str
    answers: tuple[str, ...]
    gold: tuple[Sentence, ...]


def read_controls(raw: Path, nq: Sequence[Record]) -> tuple[list[Record], SourceReport]:
    """Timed and stale records; none, with a note, when the files are not there (they are optional).

    Args:
        raw: the raw folder.
        nq: NQ-Open records, whose passages are the dated evidence of SituatedQA's questions.
    """
    report = SourceReport("controls")
    records: list[Record] = []
    for name in _TIMEQA:
        path = find(raw, name)
        if path is None:
            report.notes.append(f"no {name}")
        else:
            records.extend(_read_timeqa(path, report))
    paths = [path for name in _SITUATED if (path := find(raw, name)) is not None]
    if not paths:
        report.notes.append("no controls_recency/situatedqa_temp.*.jsonl")
    records.extend(_read_situated(paths, nq, report))
    return records, report


def _read_timeqa(path: Path, report: SourceReport) -> Iterable[Record]:
    for position, row in read_json_array(path, report, ("index", "link", "questions", "paras")):
        try:
            title = restore_treebank(text_of(row, "link").removeprefix("/wiki/").replace("_", " "))
            paragraphs = texts_of(row, "paras")
            timed = _questions(row["questions"], paragraphs, title)
        except (ValueError, IndexError, KeyError, TypeError) as error:
            report.refuse(path.name, position, f"{type(error).__name__}: {error}")
            continue
        page = [s for i, paragraph in enumerate(paragraphs) for s in _sentences(paragraph, title, i)]
        for number, one in enumerate(timed):
            yield _timed_record(one, timed, page, title, f"{text_of(row, 'index')}#{number}", path.name)
            report.used += 1


def _sentences(paragraph: str, title: str, index: int) -> list[Sentence]:
    """Sentences of a paragraph that are not headings; ids are paragraph * 1000 + sentence."""
    parts = split_sentences(restore_treebank(paragraph))
    return [
        Sentence(part, title, index * 1000 + i, None) for i, part in enumerate(parts) if len(part.split()) >= _SHORTEST
    ]


def _questions(value: object, paragraphs: list[str], title: str) -> list[_Timed]:
    if not isinstance(value, list):
        raise ValueError("'questions' is not a list")
    timed: list[_Timed] = []
    for entry in cast("list[object]", value):
        question, annotations = cast("tuple[str, object]", entry)
        answers: list[str] = []
        gold: list[Sentence] = []
        for annotation in rows_of(annotations, "annotations"):
            answer = restore_treebank(str(annotation["answer"]))
            if not answer:
                continue
            answers.append(answer)
            place = int(str(annotation["para"]))
            gold.extend(_holding(paragraphs[place], title, place, answer, int(str(annotation["from"]))))
        timed.append(_Timed(squeeze(question), tuple(dict.fromkeys(answers)), tuple(dict.fromkeys(gold))))
    return timed


def _holding(paragraph: str, title: str, place: int, answer: str, start: int) -> list[Sentence]:
    """The sentence of the paragraph that holds the answer, the nearest to its offset when several do."""
    sentences = _sentences(paragraph, title, place)
    aim = start / max(1, len(paragraph))
    total = max(1, sum(len(s.text) for s in sentences))
    best: tuple[float, Sentence] | None = None
    before = 0
    for sentence in sentences:
        middle = (before + len(sentence.text) / 2) / total
        before += len(sentence.text)
        if contains(fold(sentence.text), fold(answer)) and (best is None or abs(middle - aim) < best[0]):
            best = (abs(middle - aim), sentence)
    return [best[1]] if best else []


def _timed_record(
    one: _Timed, page_questions: list[_Timed], page: list[Sentence], title: str, key: str, file: str
) -> Record:
    """Gold only where its sentence states a year: else the time could not be judged from the evidence."""
    rivals: dict[str, Rival] = {}
    for other in page_questions:
        for answer in other.answers:
            dated = tuple(s for s in other.gold if contains(fold(s.text), fold(answer)) and _YEAR.search(s.text))
            if dated and not _same(answer, one.answers):
                rivals.setdefault(fold(answer), Rival(answer, dated))
    gold = tuple(s for s in one.gold if _YEAR.search(s.text))
    present = [a for a in one.answers if any(contains(fold(s.text), fold(a)) for s in gold)]
    return Record(
        source="controls",
        key=digest(key, one.question)[:16],
        dataset="TimeQA",
        file=file,
        record=key,
        license=TIMEQA_LICENSE,
        form="timed",
        text=one.question,
        answers=tuple(dict.fromkeys([*present, *one.answers])),
        gold=gold,
        own=tuple(s for s in page if s not in one.gold),
        pages=(fold(title),),
        rivals=tuple(rivals.values()),
    )


def _same(answer: str, others: Iterable[str]) -> bool:
    folded = fold(answer)
    return any(contains(folded, fold(o)) or contains(fold(o), folded) for o in others)


def _read_situated(paths: list[Path], nq: Sequence[Record], report: SourceReport) -> Iterable[Record]:
    """Questions asked as of a year after the evidence, where the answer has changed since."""
    passages = {fold(record.text): record for record in nq if record.gold}
    seen: set[str] = set()
    for path in paths:
        for number, row in read_jsonl(path, report, ("question", "edited_question", "date", "answer", "any_answer")):
            try:
                record = _stale_record(row, passages, path.name, number)
            except ValueError as error:
                report.refuse(path.name, number, str(error))
                continue
            question = fold(text_of(row, "question"))
            if record is None or question in seen:
                report.skip("SituatedQA question without dated evidence whose answer changed, or there already")
                continue
            seen.add(question)
            report.used += 1
            yield record


def _stale_record(row: Row, passages: dict[str, Record], file: str, number: int) -> Record | None:
    known = passages.get(fold(text_of(row, "question")))
    years = [int(year) for year in _YEAR.findall(text_of(row, "date"))]
    if known is None or not years or years[-1] <= EVIDENCE_YEAR:
        return None
    current, ever = texts_of(row, "answer"), texts_of(row, "any_answer")
    old = known.answers[0]
    if not current or _same(old, current) or not _same(old, ever):
        return None
    return Record(
        source="controls",
        key=digest(row["edited_question"])[:16],
        dataset="SituatedQA",
        file=file,
        record=str(number),
        license=SITUATED_LICENSE,
        form="stale",
        text=squeeze(text_of(row, "edited_question")),
        answers=tuple(dict.fromkeys(current)),
        own=tuple(s for s in known.own if not any(contains(fold(s.text), fold(a)) for a in current)),
        pages=known.pages,
        rivals=(Rival(old, known.gold),),
    )
