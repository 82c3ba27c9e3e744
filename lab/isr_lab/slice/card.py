"""The data card: what a build holds, how it was made, where it departs from the paper, and what reading it showed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import cast

from isr_lab.slice.config import PASSAGE_CAP, SliceConfig
from isr_lab.slice.report import BuildReport
from isr_lab.slice.splits import SHARES
from isr_lab.slice.statistics import SIZE_BANDS, Statistics
from isr_lab.tables import markdown_table

_SOURCES = ("fever", "hotpotqa", "nq_open", "popqa", "controls")
_KINDS = ("supported", "refuted", "insufficient", "outdated")
_BAD_SHOWN = 20
PAPER_ITEMS, PAPER_COVERAGE, PAPER_MULTI_HOP, PAPER_POOL = 3059, 0.76, 0.42, 200_000


def write_card(config: SliceConfig, report: BuildReport, figures: Statistics) -> str:
    """The card as Markdown. It holds no date and no path, so equal builds have equal cards."""
    parts = (
        _head(config, report, figures),
        _counts(figures),
        _deviations(config, report, figures),
        _left_out(report),
        _reading(),
        _licences(figures),
    )
    return "\n".join(line for part in parts for line in (*part, ""))


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield from markdown_table(header, rows).splitlines()


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f}%)" if whole else "none"


def _head(config: SliceConfig, report: BuildReport, figures: Statistics) -> Iterator[str]:
    yield "# Factuality Slice: data card"
    yield ""
    yield (
        f"{figures.items} yes/no adjudications over evidence from FEVER, HotpotQA, NQ-Open, PopQA and Controls "
        f"({_share(figures.positive, figures.items)} with label 1), {figures.chunks} chunks, layout "
        f"`{config.layout}`. Distractors come from BM25 (k1 = {config.k1:g}, b = {config.b:g}) over {report.pool} "
        f"{'passages' if config.layout == 'passages' else 'sentences'}. Seed {config.seed}; equal inputs and "
        "settings give equal bytes."
    )
    yield ""
    yield "Settings: `" + json.dumps(config.as_dict(), sort_keys=True) + "`"


def _counts(figures: Statistics) -> Iterator[str]:
    splits = [split for split, _ in SHARES]
    yield "## Counts"
    yield ""
    yield from table(
        ("source", *splits, *_KINDS, "claims", "drafts", "sufficiency"),
        (
            (
                source,
                *(figures.by_source_split[source, split] for split in splits),
                *(figures.by_source_kind[source, kind] for kind in _KINDS),
                *(figures.by_source_task[source, task] for task in ("claim", "draft", "sufficiency")),
            )
            for source in _SOURCES
        ),
    )
    yield ""
    yield from table(
        ("source", "construction", "label", "items"),
        ((s, c, label, count) for (s, c, label), count in sorted(figures.by_construction.items())),
    )
    yield ""
    bands = [*SIZE_BANDS, *sorted(band for band in figures.sizes if band not in SIZE_BANDS)]
    yield from table(("n", "items"), ((f"{low} to {high}", figures.sizes[low, high]) for low, high in bands))
    yield ""
    yield f"- Answer coverage: the true answer occurs in the context of {_covered(figures)} supported drafts."
    yield (f"- False drafts that stand in their own context: {_share(figures.false_in_context, figures.false_drafts)}.")
    yield (
        f"- Multi-hop: {_share(figures.hotpot_multi, figures.hotpot)} supported HotpotQA items have two or more "
        "gold facts."
    )
    dated = sum(figures.snapshots.values())
    yield "- Evidence dates: " + ", ".join(
        f"{year} {100 * count / dated:.1f}%" for year, count in sorted(figures.snapshots.items())
    )


def _covered(figures: Statistics) -> str:
    return _share(figures.answer_covered, figures.supported_drafts)


def _deviations(config: SliceConfig, report: BuildReport, figures: Statistics) -> Iterator[str]:
    yield "## Where this departs from the paper's Appendix H"
    yield ""
    popqa = report.sources.get("popqa")
    caps = ", ".join(f"{source} {cap}" for source, cap in config.caps.items() if cap < 1_000_000) or "none"
    for number, line in enumerate(
        (
            f"Size: {figures.items} items instead of {PAPER_ITEMS}; caps (records): {caps}; "
            f"{'one item' if config.items == 'one' else 'all items'} per record.",
            f"PopQA: popularity < {config.popularity_below} instead of < 50. {' '.join(popqa.notes) if popqa else ''}",
            f"Pool: {report.pool} instead of {PAPER_POOL} units; BM25 indexes title and text, and leaves stop words "
            "out of the query.",
            f"Chunks: text beyond {PASSAGE_CAP if config.layout == 'passages' else config.token_cap} tokens is not cut "
            "off but goes into further chunks, so that no support is lost.",
            f"Sizes: n from {config.n[0]} to {config.n[1]}"
            + (f", {100 * config.n_tail:.0f}% up to {config.tail_to}" if config.n_tail else "")
            + "; items with more support than that keep all of it.",
            f"Answer coverage {_covered(figures)} instead of {100 * PAPER_COVERAGE:.0f}%: a supported draft is made "
            "only where a sentence holds the answer (yes and no, which stand nowhere, aside).",
            f"Multi-hop: {_share(figures.hotpot_multi, figures.hotpot)} instead of {100 * PAPER_MULTI_HOP:.0f}%: both "
            "gold facts are always kept.",
            "FEVER claims stay claims; they are not rewritten as true/false questions. QA sources give drafts "
            "(question and answer, right or wrong) and sufficiency questions.",
            "Controls also hold claims and multi-hop questions whose gold evidence was taken out, and time-scoped "
            "questions with their right answer, so that a dated answer is not wrong by being dated.",
            "NQ-Open and PopQA evidence is the annotated or the subject's page where the raw files hold it; a page "
            "that settles a record of one split is a distractor in no other split.",
        ),
        start=1,
    ):
        yield f"{number}. {line.strip()}"


def _left_out(report: BuildReport) -> Iterator[str]:
    yield "## What was left out"
    yield ""
    yield from table(
        ("source", "files", "records read", "used", "unreadable"),
        ((name, ", ".join(one.files), one.read, one.used, len(one.bad)) for name, one in report.sources.items()),
    )
    yield ""
    for name, one in report.sources.items():
        for reason, count in sorted(one.skipped.items()):
            yield f"- {name}: {count} × {reason}"
        for note in one.notes:
            yield f"- {name}: {note}"
        for bad in one.bad[:_BAD_SHOWN]:
            yield f"- {name}: {bad.file}, record {bad.record}: {bad.reason}"
        if len(one.bad) > _BAD_SHOWN:
            yield f"- {name}: and {len(one.bad) - _BAD_SHOWN} more unreadable records (all in report.json)"
    splits = report.splits
    yield (
        f"- Splits: {splits.exact} repeated records dropped; {splits.groups} groups by shared page or near-duplicate "
        f"wording (largest {splits.largest}); {splits.near_pairs} near-duplicate pairs of different pages were kept "
        "in one split, so none had to be dropped."
    )
    yield f"- {report.without_draft} questions have no false draft: none of the right type was found."


def _reading() -> Iterator[str]:
    verdicts = load_verdicts()
    yield "## What reading items by hand showed"
    yield ""
    constructed = verdicts["constructed"]
    yield (
        f"{len(constructed)} items of the constructed kinds, drawn at random from a build with all records, were read "
        "one by one. Labels were not changed after reading; a wrong item counts in every figure as it is labelled. "
        "Shares over some 50 items are known to about 0.05."
    )
    yield ""
    by_kind: dict[str, Counter[str]] = {}
    for verdict in constructed:
        by_kind.setdefault(verdict["kind"], Counter())[verdict["verdict"]] += 1
    names = sorted({name for counts in by_kind.values() for name in counts} - {"right"})
    yield from table(
        ("construction", "read", "right", *names),
        (
            (kind, sum(counts.values()), counts["right"], *(counts[name] for name in names))
            for kind, counts in sorted(by_kind.items())
        ),
    )
    dropped = Counter((verdict["kind"], verdict["verdict"]) for verdict in verdicts["tried_and_dropped"])
    yield ""
    yield "Tried, read and left out of the builder: " + ", ".join(
        f"{kind}: {count} {name}" for (kind, name), count in sorted(dropped.items())
    )
    errors = Counter(error["verdict"] for error in verdicts["surest_errors"])
    yield ""
    yield f"The {errors.total()} surest errors of the trained adjudicator among 700 test items: " + ", ".join(
        f"{name} {count}" for name, count in sorted(errors.items())
    )
    yield ""
    yield "Items found wrong:"
    for verdict in constructed:
        if verdict["verdict"] != "right":
            yield f"- `{verdict['id']}` ({verdict['verdict']}): {verdict['reason']}"


def load_verdicts() -> Mapping[str, list[dict[str, str]]]:
    """The hand-written verdicts that ship with the package: lists of `{id, kind, verdict, reason}`."""
    text = resources.files("isr_lab.slice").joinpath("verdicts.json").read_text(encoding="utf-8")
    return cast("Mapping[str, list[dict[str, str]]]", json.loads(text))


def _licences(figures: Statistics) -> Iterator[str]:
    yield "## Licences"
    yield ""
    yield from table(
        ("data set", "licence", "items"),
        ((dataset, text, count) for (dataset, text), count in sorted(figures.licenses.items())),
    )
    yield ""
    yield "Each item names its data set, file, record and licence in `provenance`."
