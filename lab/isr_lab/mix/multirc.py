"""MultiRC in the ERASER packaging: proposed answers to questions over several sentences."""

from __future__ import annotations

import json
from collections.abc import Iterable

from isr_lab.mix.evidence import Document, assemble
from isr_lab.mix.inputs import Origin, ReaderInputs, with_evidence
from isr_lab.mix.records import (
    Candidate,
    MixError,
    Row,
    RowError,
    list_of,
    mapping_of,
    one_of,
    read_files,
    read_text,
    text_of,
)
from isr_lab.mix.text import detokenise, normal
from isr_lab.slice.schema import Kind

_FILES = ("eraser_multirc/val.jsonl.gz", "eraser_multirc/test.jsonl.gz")
_TEXTS = "eraser_multirc/docs.json.gz"


def read_multirc(inputs: ReaderInputs) -> list[Candidate]:
    """MultiRC: each proposed answer is a draft over its gold sentences and their neighbours in the text."""
    try:
        texts = mapping_of(json.loads(read_text(inputs.raw / _TEXTS)), "the file")
    except (json.JSONDecodeError, RowError) as error:
        raise MixError(f"{_TEXTS}: must map document identifiers to texts ({error})") from error

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        truth = one_of(row, "classification", ("True", "False"))
        question, found, answer = text_of(row, "query").partition(" || ")
        if not found or not normal(answer):
            raise RowError("field 'query' must be 'question || answer'")
        gold = [mapping_of(part, "an evidence part") for part in list_of(row, "evidences")[0]]
        name = text_of(gold[0], "docid")
        if name not in texts:
            raise RowError(f"document {name!r} is not among the documents")
        lines = [detokenise(line) or "." for line in str(texts[name]).split("\n")]
        support = frozenset(i for part in gold for i in range(part["start_sentence"], part["end_sentence"]))
        origin = Origin("eraser_multirc", file, record, (f"multirc:{name}",), f"{file}:{record}")
        kind: Kind = "supported" if truth == "True" else "refuted"
        chunks = assemble([Document(tuple(lines), None, support)], detokenise(question), inputs.rng, ordered=True)
        yield origin.draft(detokenise(question), detokenise(answer), kind, chunks)

    return with_evidence(read_files(inputs.raw, _FILES, inputs.log, convert))
