"""Assemble the mix: split by shared documents, balance labels, cap sources, shuffle, write."""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from isr_lab.mix.blind import stratify
from isr_lab.mix.inputs import ReaderInputs
from isr_lab.mix.records import BadRow, Candidate, MixError, RowLog, read_text
from isr_lab.mix.sources import SOURCES, UNSEEN, Terms
from isr_lab.slice.asking import REFUTED
from isr_lab.slice.schema import Provenance, SliceItem, Split
from isr_lab.slice.text import fold
from isr_rag._util.files import write_atomically
from isr_rag.errors import ConfigurationError

TASKS = ("claim", "draft", "sufficiency")
CAPS_FOR = 25_000
"""Size of the training file that the sources' caps are meant for; for others they are scaled."""


@dataclass(frozen=True, slots=True)
class MixConfig:
    """How the mix is made.

    Attributes:
        train_items: items wanted in the training file; fewer where the sources do not give them.
        shares: parts of claims, drafts and sufficiency items.
        val_part: part of the document groups that go to validation.
        unseen_items: most items written for the two held-out sources together.
        seed: of every random choice.
        terms: licence terms that may enter training; sets with others are read for nothing.
        held_out: the slice's `held_out.json`: claims, questions and pages of its validation and test splits,
            which must not appear in training.
    """

    train_items: int = CAPS_FOR
    shares: tuple[float, float, float] = (0.45, 0.35, 0.20)
    val_part: float = 0.1
    unseen_items: int = 1_500
    seed: int = 42
    terms: frozenset[Terms] = frozenset({"open", "unstated"})
    held_out: Path | None = None

    def __post_init__(self) -> None:
        if self.train_items < 1 or self.unseen_items < 0 or not 0 < self.val_part < 1:
            raise ConfigurationError("train_items must be positive, unseen_items 0 or more, val_part between 0 and 1")
        if len(self.shares) != len(TASKS) or min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ConfigurationError(f"shares {self.shares} must be three parts that sum to 1")


@dataclass(slots=True)
class MixReport:
    """What was built, and what was left out.

    Attributes:
        counts: items by split, then `source/task`, then label.
        licenses: of every source in the training file.
        bad_rows: rows that could not be read.
        rows_read: rows by file.
        missing: sources whose folder is absent.
        excluded: sources left out for their licence terms.
        held_out: candidates dropped because their claim, question or page is held out, by source.
        largest_group: candidates in the largest group of one source that may not be split.
    """

    counts: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict[str, dict[str, dict[str, int]]])
    licenses: dict[str, str] = field(default_factory=dict[str, str])
    bad_rows: list[BadRow] = field(default_factory=list[BadRow])
    rows_read: dict[str, int] = field(default_factory=dict[str, int])
    missing: list[str] = field(default_factory=list[str])
    excluded: dict[str, str] = field(default_factory=dict[str, str])
    held_out: dict[str, int] = field(default_factory=dict[str, int])
    largest_group: int = 0

    def to_json(self) -> str:
        """As indented JSON with sorted keys."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def build_mix(raw: Path, out: Path, config: MixConfig) -> MixReport:
    """Read every source under `raw` and write `train`, `val` and `unseen` (JSONL) with `report.json`.

    The same files and settings give the same bytes.

    Raises:
        MixError: if no source is there, or one holds another schema.
        MissingDependencyError: if spaCy or its small English pipeline is not installed.
    """
    report, log = MixReport(), RowLog()
    held = _HeldOut.read(config.held_out)
    candidates: dict[str, list[Candidate]] = {}
    for name, source in SOURCES.items():
        if name not in UNSEEN and source.terms not in config.terms:
            report.excluded[name] = source.license
        elif not (raw / source.folder).is_dir():
            report.missing.append(name)
        else:
            found = _unique(source.read(ReaderInputs(raw, log, random.Random(f"{config.seed}:{name}"))))
            kept = [one for one in found if name in UNSEEN or not held.holds(one)]
            report.held_out[name] = len(found) - len(kept)
            candidates[name] = kept
    if not candidates:
        raise MixError(
            f"no source folder was found in {raw}; expected one of {sorted(s.folder for s in SOURCES.values())}"
        )
    report.bad_rows, report.rows_read = log.bad, log.read
    trained = {name: found for name, found in candidates.items() if name not in UNSEEN}
    group_of = _groups([one for found in candidates.values() for one in found])
    report.largest_group = max(
        Counter(group_of[one.keys[0]] for found in trained.values() for one in found).values(), default=0
    )
    tainted = {group_of[one.keys[0]] for name in UNSEEN for one in candidates.get(name, ())}
    val = _choose_val(trained, group_of, config)
    parts: dict[str, list[SliceItem]] = {
        "train": _select(trained, group_of, config, "train", tainted | val, wanted=None),
        "val": _select(trained, group_of, config, "val", tainted, wanted=val),
        "unseen": _unseen(candidates, group_of, config),
    }
    for name, items in parts.items():
        report.counts[name] = _counts(items)
        write_atomically(
            out / f"{name}.jsonl", "".join(f"{item.model_dump_json(exclude_none=True)}\n" for item in items)
        )
    report.licenses = {name: SOURCES[name].license for name in sorted({item.source for item in parts["train"]})}
    write_atomically(out / "report.json", report.to_json())
    return report


@dataclass(frozen=True, slots=True)
class _HeldOut:
    texts: frozenset[str] = frozenset()
    pages: frozenset[str] = frozenset()

    @classmethod
    def read(cls, path: Path | None) -> _HeldOut:
        if path is None:
            return cls()
        try:
            splits = json.loads(read_text(path)).values()
            texts, pages = ({str(one) for split in splits for one in split[name]} for name in ("texts", "pages"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MixError(
                f"{path} is not a held_out.json of the slice builder ({error}): build the slice again"
            ) from error
        return cls(frozenset(texts), frozenset(pages))

    def holds(self, one: Candidate) -> bool:
        pages = (fold(key.removeprefix("page:")) for key in one.keys if key.startswith("page:"))
        return fold(one.claim or one.question or "") in self.texts or not self.pages.isdisjoint(pages)


def _unique(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The first of candidates that ask the same about the same evidence."""
    seen: dict[tuple[object, ...], Candidate] = {}
    for one in candidates:
        evidence = tuple(sorted(chunk.text for chunk in one.chunks))
        seen.setdefault((one.claim, one.question, one.answer, evidence), one)
    return list(seen.values())


def _groups(candidates: Sequence[Candidate]) -> dict[str, str]:
    """For every key, the name of its connected component: keys of one candidate belong together."""
    keys = sorted({key for one in candidates for key in one.keys})
    place = {key: i for i, key in enumerate(keys)}
    edges = sorted({(place[one.keys[0]], place[key]) for one in candidates for key in one.keys})
    rows, columns = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(edges)), (rows, columns)), shape=(len(keys), len(keys)))
    _, component = connected_components(graph, directed=False)
    first: dict[int, str] = {}
    for key, i in zip(keys, component.tolist(), strict=True):
        first.setdefault(i, key)
    return {key: first[i] for key, i in zip(keys, component.tolist(), strict=True)}


def _choose_val(trained: Mapping[str, Sequence[Candidate]], group_of: Mapping[str, str], config: MixConfig) -> set[str]:
    """Groups for validation: of every source, groups drawn until they hold `val_part` of its candidates."""
    val: set[str] = set()
    owner: dict[str, str] = {}
    for name, found in trained.items():
        sizes = Counter(group_of[one.keys[0]] for one in found)
        for group in sizes:
            owner.setdefault(group, name)
        mine = sorted(group for group in sizes if owner[group] == name)
        random.Random(f"{config.seed}:val:{name}").shuffle(mine)
        room = config.val_part * sum(sizes.values())
        taken = sum(sizes[group] for group in sizes if group in val)
        for group in mine:
            if taken < room and (sizes[group] <= 1.5 * (room - taken) or (taken == 0 and sizes[group] <= 2 * room)):
                val.add(group)
                taken += sizes[group]
    return val


def _select(
    trained: Mapping[str, Sequence[Candidate]],
    group_of: Mapping[str, str],
    config: MixConfig,
    split: Split,
    excluded: set[str],
    wanted: set[str] | None,
) -> list[SliceItem]:
    size = config.train_items if split == "train" else config.train_items * config.val_part / (1 - config.val_part)
    chosen: list[Candidate] = []
    for place, task in enumerate(TASKS):
        pools: dict[str, list[list[Candidate]]] = {}
        strata: dict[int, str] = {}
        limits: dict[str, int] = {}
        for name, found in trained.items():
            usable = [
                one
                for one in found
                if one.task == task
                and group_of[one.keys[0]] not in excluded
                and (wanted is None or group_of[one.keys[0]] in wanted)
            ]
            pools[name] = _units(usable, random.Random(f"{config.seed}:{split}:{task}:{name}"))
            cap = SOURCES[name].caps[place] * size / CAPS_FOR
            strata |= stratify(usable)
            limits[name] = min(round(cap), _quotas([usable], len(usable), strata).total())
        level = _level(list(limits.values()), round(size * config.shares[place]))
        for name, units in pools.items():
            chosen += _balanced(units, min(limits[name], level) // 2, strata)
    random.Random(f"{config.seed}:{split}:order").shuffle(chosen)
    return [_item(one, group_of, split) for one in chosen]


def _labels(candidates: Iterable[Candidate]) -> tuple[int, int]:
    counts = Counter(one.label for one in candidates)
    return counts[0], counts[1]


def _units(candidates: Iterable[Candidate], rng: random.Random) -> list[list[Candidate]]:
    units: dict[str, list[Candidate]] = defaultdict(list)
    for one in candidates:
        units[one.unit].append(one)
    found = list(units.values())
    rng.shuffle(found)
    return found


def _level(limits: Sequence[int], wanted: int) -> int:
    """The smallest size at which sources cut to it give the wanted number together."""
    low, high = 0, max(limits, default=0)
    while low < high:
        middle = (low + high) // 2
        if sum(min(limit, middle) for limit in limits) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


def _balanced(units: Sequence[Sequence[Candidate]], each: int, strata: Mapping[int, str]) -> list[Candidate]:
    """Up to `each` of both labels, as many of either in every stratum.

    Whole units with both labels are taken while they fit, then single items of what is missing.
    """
    quota = _quotas(units, each, strata)
    chosen, left = list[Candidate](), list[Candidate]()
    for unit in units:
        needs = Counter((strata[id(one)], one.label) for one in unit)
        if len({one.label for one in unit}) == 2 and all(quota[cell] >= count for cell, count in needs.items()):
            chosen += unit
            quota.subtract(needs)
        else:
            left += unit
    for one in left:
        if quota[strata[id(one)], one.label] > 0:
            chosen.append(one)
            quota[strata[id(one)], one.label] -= 1
    return chosen


def _quotas(units: Iterable[Sequence[Candidate]], each: int, strata: Mapping[int, str]) -> Counter[tuple[str, int]]:
    counts = Counter((strata[id(one)], one.label) for unit in units for one in unit)
    fewest = {name: min(counts[name, 0], counts[name, 1]) for name in sorted({name for name, _ in counts})}
    quota, given, seen = Counter[tuple[str, int]](), 0, 0
    total = sum(fewest.values())
    for name, count in fewest.items():
        seen += count
        share = min(each, total) * seen // max(1, total) - given
        given += share
        quota[name, 0] = quota[name, 1] = share
    return quota


def _unseen(
    candidates: Mapping[str, Sequence[Candidate]], group_of: Mapping[str, str], config: MixConfig
) -> list[SliceItem]:
    present = [name for name in UNSEEN if name in candidates]
    chosen: list[Candidate] = []
    for name in present:
        rng = random.Random(f"{config.seed}:unseen:{name}")
        single = [[one] for one in candidates[name]]
        rng.shuffle(single)
        each = min(config.unseen_items // len(present) // 2, *_labels(candidates[name]))
        chosen += _balanced(single, each, dict.fromkeys((id(one) for one in candidates[name]), ""))
    random.Random(f"{config.seed}:unseen:order").shuffle(chosen)
    return [_item(one, group_of, "test") for one in chosen]


def _item(one: Candidate, group_of: Mapping[str, str], split: Split) -> SliceItem:
    return item_of(one, one.unit, split, group_of[one.keys[0]], SOURCES[one.source].license)


def item_of(one: Candidate, unit: str, split: Split, group: str, license_: str) -> SliceItem:
    """A candidate as an item; `unit` is its unit as the id names it."""
    # the checksum tells candidates of one unit apart, the same on every machine
    text = json.dumps([one.claim, one.question, one.answer, [chunk.text for chunk in one.chunks]])
    return SliceItem(
        id=f"{one.source}:{unit}:{one.task}:{one.label}:{zlib.crc32(text.encode()):08x}",
        source=one.source,
        split=split,
        group=group,
        question=one.question,
        claim=one.claim,
        answer=one.answer,
        label=1 if one.label else 0,
        kind=one.kind,
        chunks=one.chunks,
        provenance=Provenance(
            dataset=one.source.removeprefix(REFUTED),
            file=one.file,
            record=one.record,
            license=license_,
            construction=one.construction,
        ),
    )


def _counts(items: Iterable[SliceItem]) -> dict[str, dict[str, int]]:
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for item in items:
        table[f"{item.source}/{item.task}"][str(item.label)] += 1
    return {name: dict(sorted(counts.items())) for name, counts in sorted(table.items())}
