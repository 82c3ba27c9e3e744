"""FEVER beyond the sentence: whole pages (ERASER) and evidence with a phrase removed (SufficientFacts)."""

from __future__ import annotations

import json
import re
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
    read_rows,
    read_text,
    text_of,
)
from isr_lab.mix.text import detokenise, normal, page_key, squeeze
from isr_lab.slice.schema import Kind

_CLAIMS = ("eraser_fever/val.jsonl.gz", "eraser_fever/test.jsonl.gz")
_PAGES = "eraser_fever/docs.json.gz"
_FACTS = "sufficient_facts/fever_sufficient_facts.jsonl.gz"
_KINDS: dict[str, Kind] = {"SUPPORTS": "supported", "REFUTES": "refuted"}
_SPAN = re.compile(r"<span[^>]*>(.*?)</span>")
_HEADING = re.compile(r"\[\[(.+?)\]\]")
NO_PAGE = "the page is not among the documents"


def page_title(docid: str) -> str:
    """The title a page identifier stands for."""
    return detokenise(docid.replace("_", " ").replace("-COLON-", ":"))


def read_eraser_fever(inputs: ReaderInputs) -> list[Candidate]:
    """FEVER claims with their gold sentences among the other sentences of the same page."""
    try:
        pages = mapping_of(json.loads(read_text(inputs.raw / _PAGES)), "the file")
    except (json.JSONDecodeError, RowError) as error:
        raise MixError(f"{_PAGES}: must map page identifiers to texts ({error})") from error

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        kind = _KINDS[one_of(row, "classification", _KINDS)]
        claim = text_of(row, "query")
        gold: dict[str, set[int]] = {}
        for part in list_of(row, "evidences")[0]:
            for i in range(part["start_sentence"], part["end_sentence"]):
                gold.setdefault(part["docid"], set()).add(i)
        if not all(docid in pages for docid in gold):
            raise RowError(NO_PAGE)
        docs = [_page(str(pages[docid]), docid, support) for docid, support in gold.items()]
        keys = (*(page_key(docid) for docid in gold), f"claim:{normal(claim)}")
        origin = Origin("eraser_fever", file, record, keys, f"eraser_fever:{normal(claim)}")
        chunks = assemble(docs, claim, inputs.rng, budget=inputs.rng.randint(120, 300))
        yield origin.claim(claim, kind, chunks, "gold sentences among others of the page")

    return with_evidence(read_files(inputs.raw, _CLAIMS, inputs.log, convert))


def _page(text: str, docid: str, support: set[int]) -> Document:
    lines = [detokenise(line) for line in text.split("\n")]
    kept = [i for i, line in enumerate(lines) if normal(line)]
    marked = frozenset(place for place, i in enumerate(kept) if i in support)
    if not marked:
        raise RowError(f"the gold sentence of {docid!r} is not on its page")
    return Document(tuple(lines[i] for i in kept), page_title(docid), marked)


def read_sufficient_facts(inputs: ReaderInputs) -> list[Candidate]:
    """FEVER claims against evidence with a phrase removed, as relabelled by people, and against all of it.

    Rows on which the annotators disagree are left out.
    """

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        before = _KINDS[one_of(row, "label_before", _KINDS)]
        after = text_of(row, "label_after")
        if one_of(row, "agreement", ("disagree", "agree_ei", "agree_nei", "all_nei")) == "disagree":
            return
        claim = text_of(row, "claim")
        full = _HEADING.split(_SPAN.sub(r"\1", text_of(row, "text_orig")))
        pairs = list(zip(full[1::2], full[2::2], strict=True))
        cut = [(str(title), str(text)) for title, text in list_of(row, "evidence")]
        keys = (*(page_key(title) for title, _ in pairs), f"claim:{normal(claim)}")
        origin = Origin("sufficient_facts", _FACTS, record, keys, f"sufficient_facts:{normal(claim)}")
        whole = [_facts(title, text) for title, text in pairs]
        yield origin.claim(claim, before, assemble(whole, claim, inputs.rng), "all evidence")
        kind: Kind = "insufficient" if after == "NOT ENOUGH" else before
        rest = [_facts(title, text) for title, text in cut if normal(text)]
        yield origin.claim(claim, kind, assemble(rest, claim, inputs.rng), "a phrase or sentence removed")

    return with_evidence(read_rows(inputs.raw, _FACTS, inputs.log, convert))


def _facts(title: str, text: str) -> Document:
    return Document((detokenise(squeeze(text)),), detokenise(title), frozenset({0}))
