"""The Factuality Slice builder: raw files in, three splits with data card and report out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from isr_lab.slice.card import write_card
from isr_lab.slice.config import PASSAGE_CAP, SliceConfig
from isr_lab.slice.contexts import Assembler, weak_support
from isr_lab.slice.download import check_lock, fetch_originals
from isr_lab.slice.drafts import Drafter, Names
from isr_lab.slice.items import Case, ItemMaker
from isr_lab.slice.passages import as_passages, pack, pages_of
from isr_lab.slice.pool import Pool
from isr_lab.slice.readers.controls import read_controls
from isr_lab.slice.readers.corpus import read_corpus
from isr_lab.slice.readers.fever import read_fever
from isr_lab.slice.readers.hotpot import read_hotpot
from isr_lab.slice.readers.nq import read_nq
from isr_lab.slice.readers.popqa import read_popqa
from isr_lab.slice.records import Record, Sentence
from isr_lab.slice.report import BuildReport
from isr_lab.slice.schema import SliceItem
from isr_lab.slice.splits import SHARES, assign, drop_repeated
from isr_lab.slice.statistics import gather
from isr_lab.slice.text import TokenCap, digest, fold
from isr_rag._util.files import sha256_of, write_atomically

StepProgress = Callable[[str, int, int], None]
"""Called with a step's name, what is done and what there is to do."""


def build_slice(
    raw: Path | None, out: Path, config: SliceConfig, progress: StepProgress = lambda step, done, total: None
) -> BuildReport:
    """Build the slice into `out`: train, val and test as JSON lines, a data card, a report and held-out keys.

    The same raw files and settings give the same bytes, on any machine.

    Args:
        raw: folder with the raw files; None downloads the originals into `out/raw`.
        out: folder to write, made if missing.
        config: all settings.
        progress: told how far the build is.

    Raises:
        MissingSourceError: if a source has no file.
        SourceSchemaError: if a file has another schema than its name promises.
        DownloadError: if the originals cannot be fetched.
        HashMismatchError: if a raw file is not what was pinned or recorded for its folder.
    """
    passages = config.layout == "passages"
    cap = TokenCap(config.tokenizer or _embedded_tokenizer(), PASSAGE_CAP if passages else config.token_cap)
    report = BuildReport(out)
    if raw is None:
        raw = out / "raw"
        fetch_originals(raw, progress)
    records, background = _read(raw, config, report, progress)
    check_lock(raw, {name: value for one in report.sources.values() for name, value in one.files.items()})
    if passages:
        pages = pages_of(background)
        records = [as_passages(record, pages) for record in records]
        background = [passage for page in pages.values() for passage, _ in pack(page)]
    progress("index", 0, 1)
    pool = Pool(_sentences(background, records), config.k1, config.b)
    report.pool = len(pool)
    records = list(_with_evidence(records, pool, report))
    splits, report.splits = assign(records, config.near_duplicate, config.seed)
    pool.own({page: splits[i][0] for i, record in enumerate(records) for page in record.pages})
    names = Names(pool.sentences)
    by_key = {record.key: splits[i][0] for i, record in enumerate(records)}
    maker = ItemMaker(config, Assembler(config, cap), Drafter(records, by_key, names))
    items: list[SliceItem] = []
    for place, record in enumerate(records):
        if place % 200 == 0:
            progress("items", place, len(records))
        split, group = splits[place]
        scores = pool.scores(record.text)
        hits = pool.ranking(scores, split, 2 * config.candidates)
        items.extend(maker.make(Case(record, split, group, hits, partial(pool.score_of, scores))))
    report.without_draft = maker.without_draft
    progress("items", len(records), len(records))
    _write(out, items, records, splits, config, report)
    return report


def _embedded_tokenizer() -> str:
    """The tokenizer file of the adjudicator's base model, which is set up if it is not yet."""
    from isr_rag.scorers.embedded import setup

    return str(setup() / "tokenizer.json")


def _read(
    raw: Path, config: SliceConfig, report: BuildReport, progress: StepProgress
) -> tuple[list[Record], list[Sentence]]:
    """Capped, deduplicated records of all sources, and the sentences of the pool."""
    progress("read", 0, 6)
    hotpot, hotpot_report = read_hotpot(raw)
    nq, nq_report = read_nq(raw)
    popqa, popqa_report = read_popqa(raw, config.popularity_below)
    fever, fever_report = read_fever(raw, frozenset(page for record in popqa for page in record.pages))
    controls, controls_report = read_controls(raw, nq)
    corpus, corpus_report = read_corpus(raw, fever.titles)
    reports = (fever_report, hotpot_report, nq_report, popqa_report, controls_report, corpus_report)
    report.sources = {one.source: one for one in reports}
    caps = config.caps
    groups = (
        (fever.claims, caps["fever"]),
        ([r for r in hotpot if r.form == "multihop"], caps["hotpotqa"]),
        (nq, caps["nq_open"]),
        (popqa, caps["popqa"]),
        (fever.unverifiable, caps["controls"]),
        (controls, caps["controls"]),
        ([r for r in hotpot if r.form == "incomplete"], caps["controls"]),
    )
    everything = [record for group, _ in groups for record in group]
    kept, report.splits.exact = drop_repeated(everything, report.sources)
    alive = {id(record) for record in kept}
    chosen = [record for group, cap in groups for record in _capped(group, cap, config.seed) if id(record) in alive]
    background = [*corpus, *fever.sentences]
    background += [s for record in everything for s in (*record.gold, *record.own)]
    return chosen, background


def _capped(records: Sequence[Record], cap: int, seed: int) -> list[Record]:
    """At most `cap` records, in an order drawn from the seed."""
    return sorted(records, key=lambda record: digest(seed, record.source, record.key))[:cap]


def _with_evidence(records: Iterable[Record], pool: Pool, report: BuildReport) -> Iterator[Record]:
    """Questions without a gold passage get retrieved sentences that hold the answer as support, or are left out."""
    for record in records:
        if record.form != "extractive" or record.gold:
            yield record
            continue
        found = weak_support(record, pool)
        if found is None:
            one = report.sources[record.source]
            one.skip("no retrieved sentence holds the answer")
            one.used -= 1
        else:
            yield found


def _sentences(background: Iterable[Sentence], records: Iterable[Record]) -> Iterator[Sentence]:
    yield from background
    for record in records:
        yield from record.gold
        yield from record.own
        for rival in record.rivals:
            yield from rival.evidence


def _write(
    out: Path,
    items: Sequence[SliceItem],
    records: Sequence[Record],
    splits: Mapping[int, tuple[str, str]],
    config: SliceConfig,
    report: BuildReport,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for split, _ in SHARES:
        chosen = sorted((item for item in items if item.split == split), key=lambda item: digest(item.id))
        report.counts[split] = len(chosen)
        lines = (item.model_dump_json(exclude_none=True) + "\n" for item in chosen)
        report.outputs[f"{split}.jsonl"] = _written(out / f"{split}.jsonl", lines)
    held = {
        split: {
            "pages": sorted({p for i, r in enumerate(records) if splits[i][0] == split for p in r.pages}),
            "texts": sorted({fold(r.text) for i, r in enumerate(records) if splits[i][0] == split}),
        }
        for split in ("val", "test")
    }
    text = json.dumps(held, ensure_ascii=False, indent=0, sort_keys=True) + "\n"
    report.outputs["held_out.json"] = _written(out / "held_out.json", [text])
    card = write_card(config, report, gather(items))
    report.outputs["DATA_CARD.md"] = _written(out / "DATA_CARD.md", [card])
    account = {
        "config": config.as_dict(),
        "counts": report.counts,
        "pool": report.pool,
        "splits": asdict(report.splits),
        "without_draft": report.without_draft,
        "sources": {name: asdict(one) for name, one in report.sources.items()},
        "outputs": report.outputs,
    }
    write_atomically(out / "report.json", [json.dumps(account, ensure_ascii=False, indent=1) + "\n"])


def _written(path: Path, parts: Iterable[str]) -> str:
    """Write a text file whole or not at all; returns its sha256."""
    write_atomically(path, parts)
    return sha256_of(path)
