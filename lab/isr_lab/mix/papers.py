"""QASPER: questions about scientific papers, answered by people from marked paragraphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from isr_lab.mix.evidence import Document, assemble, ranked
from isr_lab.mix.inputs import Origin, ReaderInputs, with_evidence
from isr_lab.mix.records import Candidate, Row, list_of, mapping_of, read_rows, text_of
from isr_lab.mix.text import normal, sentences, squeeze
from isr_lab.slice.schema import Kind

_FILE = "qasper/qasper_test_v0.3_trimmed.jsonl.gz"


def read_qasper(inputs: ReaderInputs) -> list[Candidate]:
    """QASPER: yes/no answers drafted both ways; sufficiency from marked paragraphs, and from the rest without them.

    Questions whose evidence is a table or figure, and those whose readers disagree on whether the paper
    answers them, are left out.
    """

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        paper, title = text_of(row, "id"), text_of(row, "title")
        paragraphs = [str(row.get("abstract") or "")]
        for value in list_of(row, "full_text"):
            paragraphs += [str(text) for text in list_of(mapping_of(value, "a section"), "paragraphs")]
        texts = [squeeze(text) for text in paragraphs if len(text.split()) > 8]
        for value in list_of(row, "qas"):
            qa = mapping_of(value, "a question")
            origin = Origin(
                "qasper",
                _FILE,
                text_of(qa, "question_id"),
                (f"qasper:{paper}",),
                f"qasper:{text_of(qa, 'question_id')}",
            )
            yield from _question(inputs, origin, title, squeeze(text_of(qa, "question")), list_of(qa, "answers"), texts)

    return with_evidence(read_rows(inputs.raw, _FILE, inputs.log, convert))


def _question(
    inputs: ReaderInputs, origin: Origin, title: str, question: str, answers: list[Any], texts: list[str]
) -> Iterable[Candidate]:
    missing = [bool(answer["unanswerable"]) for answer in answers]
    unit = f"{origin.unit}:s"
    near = _near(question, texts, answers)
    texts = [text for text in texts if text in near]
    if all(missing):
        docs = [Document(sentences(text), title) for text in texts]
        yield origin.sufficiency(
            question, "insufficient", assemble(docs, question, inputs.rng), "unanswerable by all readers", unit
        )
    if any(missing):
        return
    gold = {squeeze(text) for answer in answers for text in answer["evidence"]}
    marked = {squeeze(text) for answer in answers for text in answer["highlighted_evidence"]}
    if not gold or any(text.startswith("FLOAT SELECTED") for text in gold) or not gold <= set(texts):
        return
    docs = [_marked(text, marked if text in gold else set(), title) for text in texts if text in gold]
    if not all(doc.support for doc in docs):
        return
    rest = [Document(sentences(text), title) for text in texts if text not in gold]
    chunks = assemble([*docs, *rest], question, inputs.rng)
    yield origin.sufficiency(question, "supported", chunks, unit=unit)
    yield origin.sufficiency(
        question, "insufficient", assemble(rest, question, inputs.rng), "marked paragraphs removed", unit
    )
    verdicts = {answer["yes_no"] for answer in answers}
    if verdicts in ({True}, {False}):
        for answer in ("Yes", "No"):
            kind: Kind = "supported" if (answer == "Yes") in verdicts else "refuted"
            yield origin.draft(question, answer, kind, chunks, "yes/no answer drafted")


def _near(question: str, texts: list[str], answers: list[Any]) -> set[str]:
    """The marked paragraphs and the dozen nearest to the question: the rest of a paper is never shown."""
    gold = {squeeze(text) for answer in answers for text in answer["evidence"]}
    return gold | {texts[i] for i, _ in ranked(question, texts)[:12]}


def _marked(text: str, marked: set[str], title: str) -> Document:
    parts = sentences(text)
    near = frozenset(i for i, part in enumerate(parts) if any(_same(part, one) for one in marked))
    return Document(parts, title, near)


def _same(part: str, marked: str) -> bool:
    return normal(part) in normal(marked) or normal(marked) in normal(part)
