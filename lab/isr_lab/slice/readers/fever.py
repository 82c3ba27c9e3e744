"""FEVER: the excerpts with evidence texts, and the original release with its Wikipedia dump."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from isr_lab.slice.files import (
    MissingSourceError,
    Row,
    SourceSchemaError,
    find,
    opened,
    read_json_array,
    read_jsonl,
    read_text,
    read_zip_jsonl,
    text_of,
    texts_of,
)
from isr_lab.slice.records import FeverLabel, Record, Sentence, SourceReport
from isr_lab.slice.text import digest, fold, page_title, restore_treebank

SNAPSHOT = "2017-06"
LICENSE = "CC BY-SA 3.0 (FEVER annotations and Wikipedia)"
_EXCERPTS = ("fever/athnlp_validation.jsonl", "fever/athnlp_test.jsonl")
_LABELLED = "fever/labelled_dev_19998.json"
_PAGES = ("fever/docs.json", "more/eraser_fever/docs.json")
_ORIGINALS = ("fever/shared_task_dev.jsonl", "fever/paper_dev.jsonl", "fever/train.jsonl")
_DUMP_SHARE = 160
"""One page in this many of the dump's five million goes into the pool: about 170,000 sentences."""
_VERDICTS: dict[str, FeverLabel] = {
    "SUPPORTS": "SUPPORTS",
    "REFUTES": "REFUTES",
    "NOT ENOUGH INFO": "NOT ENOUGH INFO",
}


@dataclass(slots=True)
class FeverData:
    """FEVER as read.

    Attributes:
        claims: supported and refuted claims with their evidence.
        unverifiable: NOT ENOUGH INFO claims (for Controls).
        sentences: further sentences of FEVER's own pages, for the pool.
        titles: page title of each evidence text, where known.
    """

    claims: list[Record] = field(default_factory=list[Record])
    unverifiable: list[Record] = field(default_factory=list[Record])
    sentences: list[Sentence] = field(default_factory=list[Sentence])
    titles: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class _Claim:
    """All annotations of one claim text."""

    text: str
    verdicts: set[str] = field(default_factory=set[str])
    pages: list[str] = field(default_factory=list[str])
    evidence: list[str] = field(default_factory=list[str])
    where: str = ""
    file: str = ""


def read_fever(raw: Path, also: frozenset[str] = frozenset()) -> tuple[FeverData, SourceReport]:
    """FEVER from a raw folder: the original files when their Wikipedia dump is there, else the excerpts.

    Args:
        raw: the raw folder.
        also: folded titles of further pages to take from the Wikipedia dump for the pool.

    Raises:
        MissingSourceError: if neither is there.
        SourceSchemaError: if a file has another schema.
    """
    report = SourceReport("fever")
    pages = find(raw, "fever/wiki-pages.zip")
    if pages is not None:
        return _read_original(raw, pages, also, report), report
    excerpts = [path for name in _EXCERPTS if (path := find(raw, name)) is not None]
    if not excerpts:
        raise MissingSourceError(
            f"{raw} holds no FEVER: expected {' and '.join(_EXCERPTS)} (excerpts with evidence texts), "
            "or fever/shared_task_dev.jsonl with fever/wiki-pages.zip (the original release)"
        )
    return _read_excerpts(raw, excerpts, report), report


def _read_excerpts(raw: Path, excerpts: list[Path], report: SourceReport) -> FeverData:
    claims: dict[str, _Claim] = {}
    for path in excerpts:
        for number, row in read_jsonl(path, report, ("claim", "label", "evidence")):
            try:
                claim = _claim(claims, row, path.name, str(number))
                claim.evidence.extend(
                    text for raw_text in texts_of(row, "evidence") if (text := restore_treebank(raw_text))
                )
            except ValueError as error:
                report.refuse(path.name, number, str(error))
    data = FeverData()
    unverifiable: dict[str, _Claim] = {}
    labelled = find(raw, _LABELLED)
    if labelled is None:
        report.notes.append(f"no {_LABELLED}: page titles are unknown and there are no NOT ENOUGH INFO claims")
    else:
        for position, row in read_json_array(labelled, report, ("claim", "label", "evidence_pages")):
            try:
                known = claims if restore_treebank(text_of(row, "claim")) in claims else unverifiable
                claim = _claim(known, row, labelled.name, f"id {row.get('id', position)}")
                claim.pages.extend(texts_of(row, "evidence_pages"))
            except ValueError as error:
                report.refuse(labelled.name, position, str(error))
    pages = _page_sentences(raw, report)
    data.titles = _titles(claims, pages)
    data.sentences = [sentence for group in pages.values() for sentence in group]
    ids = {(s.title, s.text): s for s in data.sentences}
    for claim in claims.values():
        gold = [_gold(text, data.titles.get(text), ids) for text in dict.fromkeys(claim.evidence)]
        _add(claim, gold, data, report)
    for claim in unverifiable.values():
        _add(claim, [], data, report)
    return data


def _gold(text: str, title: str | None, ids: dict[tuple[str | None, str], Sentence]) -> Sentence:
    return ids.get((title, text)) or Sentence(text, title, None, SNAPSHOT)


def _claim(claims: dict[str, _Claim], row: Row, file: str, where: str) -> _Claim:
    text, verdict = restore_treebank(text_of(row, "claim")), text_of(row, "label")
    if verdict not in _VERDICTS:
        raise ValueError(f"the label {verdict!r} is none of {list(_VERDICTS)}")
    claim = claims.setdefault(text, _Claim(text, where=where, file=file))
    claim.verdicts.add(verdict)
    return claim


def _add(claim: _Claim, gold: list[Sentence], data: FeverData, report: SourceReport) -> None:
    """Turn one claim into a record, or say why not."""
    if len(claim.verdicts) > 1:
        report.skip("claim with several labels")
        return
    verdict = _VERDICTS[next(iter(claim.verdicts))]
    if verdict != "NOT ENOUGH INFO":
        if not gold:
            report.skip("no evidence text for a SUPPORTS or REFUTES claim")
            return
        if any(sentence.title is None for sentence in gold):
            report.skip("evidence whose page title is unknown")
            return
    titles = [*(page_title(page) for page in claim.pages), *(s.title for s in gold if s.title)]
    record = Record(
        source="controls" if verdict == "NOT ENOUGH INFO" else "fever",
        key=digest(claim.text)[:16],
        dataset="FEVER",
        file=claim.file,
        record=claim.where,
        license=LICENSE,
        form="claim",
        text=claim.text,
        verdict=verdict,
        gold=tuple(gold),
        pages=tuple(dict.fromkeys(fold(title) for title in titles)),
    )
    (data.unverifiable if verdict == "NOT ENOUGH INFO" else data.claims).append(record)
    report.used += 1


def _page_sentences(raw: Path, report: SourceReport) -> dict[str, list[Sentence]]:
    """Sentences of whole pages, from `{page: "sentence\\nsentence"}`; empty when there is no such file."""
    path = find(raw, *_PAGES)
    if path is None:
        return {}
    opened(path, report)
    try:
        pages: object = json.loads(read_text(path, report))
    except json.JSONDecodeError as error:
        raise SourceSchemaError(f"{path} is not JSON ({error})") from error
    if not isinstance(pages, dict):
        raise SourceSchemaError(f"{path} is not an object of pages")
    result: dict[str, list[Sentence]] = {}
    for name, text in sorted(cast("dict[str, object]", pages).items()):
        if not isinstance(text, str):
            report.refuse(path.name, name, "its text is not a string")
            continue
        title = page_title(name)
        lines = (restore_treebank(line) for line in text.split("\n"))
        result[name] = [Sentence(line, title, i, SNAPSHOT) for i, line in enumerate(lines) if line]
    return result


def _titles(claims: dict[str, _Claim], pages: dict[str, list[Sentence]]) -> dict[str, str]:
    """Page title of each evidence text: from whole pages, from claims with one page, else by elimination."""
    titles: dict[str, str] = {}
    texts_by_page = {name: {s.text for s in group} for name, group in pages.items()}
    for claim in claims.values():
        named = list(dict.fromkeys(claim.pages))
        for text in claim.evidence:
            for page in named if len(named) == 1 else [p for p in named if text in texts_by_page.get(p, ())][:1]:
                titles.setdefault(text, page_title(page))
    for claim in claims.values():
        open_pages = list(dict.fromkeys(page_title(page) for page in claim.pages))
        taken = {titles[text] for text in claim.evidence if text in titles}
        open_texts = [text for text in dict.fromkeys(claim.evidence) if text not in titles]
        left = [page for page in open_pages if page not in taken]
        for text in open_texts:
            named = [page for page in open_pages if fold(text).startswith(fold(page.split(" (")[0]))]
            if len(named) == 1:
                titles[text] = named[0]
            elif len(left) == 1:
                titles[text] = left[0]
    return titles


def _read_original(raw: Path, pages: Path, also: frozenset[str], report: SourceReport) -> FeverData:
    """The original release: claims with page and sentence ids, sentences from the zipped Wikipedia dump.

    The pool gets the claims' pages, those of `also`, and one page of `_DUMP_SHARE`, chosen by hash.
    """
    claims: dict[str, tuple[_Claim, list[tuple[str, int]]]] = {}
    for path in (path for name in _ORIGINALS if (path := find(raw, name)) is not None):
        for number, row in read_jsonl(path, report, ("claim", "label", "evidence")):
            try:
                text = restore_treebank(text_of(row, "claim"))
                claim = _claim({}, row, path.name, f"{number} (id {row.get('id')})")
                known, places = claims.setdefault(text, (claim, []))
                known.verdicts |= claim.verdicts
                places.extend(_places(row["evidence"]))
            except ValueError as error:
                report.refuse(path.name, number, str(error))
    if not claims:
        raise MissingSourceError(f"{raw} holds fever/wiki-pages.zip but none of {', '.join(_ORIGINALS)}")
    wanted = {page for _, places in claims.values() for page, _ in places}
    data = FeverData()
    sentences: dict[tuple[str, int], Sentence] = {}
    for name, number, line in _dump_lines(pages, report, wanted, also):
        sentences[name, number] = Sentence(line, page_title(name), number, SNAPSHOT)
    data.sentences = list(sentences.values())
    for claim, places in claims.values():
        claim.pages = [page for page, _ in places]
        gold = [sentences[place] for place in dict.fromkeys(places) if place in sentences]
        _add(claim, gold, data, report)
    return data


def _places(evidence: object) -> Iterator[tuple[str, int]]:
    """`(page, sentence)` of every annotation `[annotation id, evidence id, page, sentence]`."""
    if not isinstance(evidence, list):
        raise ValueError("'evidence' is not a list of evidence sets")
    for group in cast("list[object]", evidence):
        for place in cast("list[object]", group) if isinstance(group, list) else [group]:
            if not isinstance(place, list) or len(cast("list[object]", place)) != 4:
                raise ValueError("an evidence entry is not [annotation id, evidence id, page, sentence]")
            page, number = cast("list[object]", place)[2:]
            if isinstance(page, str) and isinstance(number, int):
                yield page, number


def _dump_lines(
    path: Path, report: SourceReport, wanted: set[str], also: frozenset[str]
) -> Iterator[tuple[str, int, str]]:
    """Page, sentence number and restored text of the wanted pages of `wiki-pages.zip`."""
    for member, number, row in read_zip_jsonl(path, report, ("id", "lines")):
        page = str(row["id"])
        chosen = page in wanted or int(digest(page)[:8], 16) % _DUMP_SHARE == 0
        if not chosen and fold(page_title(page)) not in also:
            continue
        for line in str(row["lines"]).split("\n"):
            index, _, rest = line.partition("\t")
            text = restore_treebank(rest.split("\t")[0])
            if not index.isdigit():
                report.refuse(f"{path.name}/{member}", number, f"page {page}: a line without its number")
            elif text:
                yield page, int(index), text
