"""The adjudicator's curriculum: short pairs, then contrast, questions and the mix, with everything to judge it by.

Besides the training files it writes validation items of every kind, calibration items (at least half of them from
sources that are not trained on, over all numbers of chunks), and whole sources kept unseen. No claim or question,
and no supporting sentence of thirteen or more words, is shared between training and any of the others.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from isr_lab.mix.distractors import Distractors
from isr_lab.mix.inputs import ReaderInputs
from isr_lab.mix.public_sets import SETS, UNSEEN_ITEMS, WIKIPEDIA
from isr_lab.mix.records import Candidate, MixError, RowLog, read_text
from isr_lab.mix.staging import HeldOut, balanced, by_group, items_of, part_of
from isr_lab.mix.text import tokens
from isr_lab.mix.twins import Passage, read_twins
from isr_lab.slice.asking import REFUTED
from isr_lab.slice.schema import SliceItem, Task
from isr_lab.slice.text import fold
from isr_rag._util.files import write_atomically

LONGEST = 430
"""Tokens of evidence in a training item at most."""
_SHARES = {"val": 0.06, "calib": 0.06}
_POOLED = frozenset(f"twins/{kind}" for kind in ("negation", "negated_evidence", "natural_negation", "denial"))
_KEPT_FOR_CALIBRATION = frozenset({"boolq", "strategyqa", "expertqa", "contract_nli"})
_CALIBRATION_DOMAINS = ("podcast", "sales_email", "scitldr", "samsum")
_REFUTED_SHARE = 0.17


_CALIBRATION: dict[Task, dict[str, int]] = {
    "claim": {"conjnli_dev": 300, "summedits": 270, "contract_nli": 160, "expertqa": 160, "slice": 360, "held": 360},
    "draft": {"boolq": 340, "strategyqa": 300, "slice": 420, "held": 160},
    "sufficiency": {"clapnq": 300, "nomiracl": 160, "boolq": 80, "slice": 320, "held": 160},
}
_TWINS = {"corpus/": f"{WIKIPEDIA} 3.0/4.0", "squad11": "CC BY-SA 4.0", "selqa/a": f"Apache-2.0; {WIKIPEDIA}"}


@dataclass(slots=True)
class CurriculumReport:
    """What was written, and what was left out.

    Attributes:
        counts: items by file, then `source/task`, then label.
        licenses: of every source in a training file.
        missing: sets whose folder is absent.
        bad_rows: rows that could not be read, by file.
        cleaned: items left out by file because they share a text with what training or judging already has.
    """

    counts: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict[str, dict[str, dict[int, int]]])
    licenses: dict[str, str] = field(default_factory=dict[str, str])
    missing: list[str] = field(default_factory=list[str])
    bad_rows: dict[str, int] = field(default_factory=dict[str, int])
    cleaned: dict[str, int] = field(default_factory=dict[str, int])

    def to_json(self) -> str:
        """As indented JSON with sorted keys."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def build_curriculum(raw: Path, slice_dir: Path, mix_dir: Path, out: Path, seed: int = 42) -> CurriculumReport:
    """Write the curriculum's files (JSONL of items) and `report.json` into `out`.

    Args:
        raw: folder with one folder per set (`SETS`) and `corpus`.
        slice_dir: what `isr-lab slice build --preset training` wrote.
        mix_dir: what `isr-lab mix build` wrote, with the slice's `held_out.json`.
        out: folder to write.
        seed: everything drawn depends on it.

    Raises:
        MixError: if a folder lacks its files, or a set holds another schema.
        MissingDependencyError: if spaCy or its small English pipeline is not installed.
    """
    report = CurriculumReport()
    work = _Work(raw, out, seed, report)
    slices = {split: _licensed(_read(slice_dir / f"{split}.jsonl")) for split in ("train", "val", "test")}
    judged = HeldOut()
    for split in ("val", "test"):
        judged.add(slices[split], only_support=True)
    sets = {name: [one for one in found if not judged.holds(one)] for name, found in work.candidates().items()}
    short = work.parts({n: c for n, c in sets.items() if SETS[n].use == "short"})
    work.write("stage1_short", short["train"])
    work.write("slice_train", slices["train"])
    trained = HeldOut()
    trained.add(short["train"])
    trained.add(slices["train"])

    questions = work.parts({n: c for n, c in sets.items() if SETS[n].use == "questions"})
    further = work.parts({n: c for n, c in sets.items() if SETS[n].use == "mix"})
    twins = work.twins(_held_pages(slice_dir))
    mixed = [_read(mix_dir / f"{name}.jsonl") for name in ("train", "val")]
    kept = [[one for one in items if not _for_calibration(one) and _size(one) <= LONGEST + 20] for items in mixed]
    untrained = [one for items in mixed for one in items if _for_calibration(one)]
    untrained += [one for n, c in sets.items() if SETS[n].use == "calibration" for one in work.items(n, c)]

    val_slice, calib_slice = _halves(slices["val"])
    judging = {
        "slice_val": val_slice,
        "slice_test": slices["test"],
        "val_stage1": short["val"],
        "val_questions": questions["val"],
        "val_mix": [*kept[1], *further["val"]],
        "val_contrast": twins["val"],
    }
    judging |= {f"unseen_{name}": items for name, items in work.unseen(sets, _read(mix_dir / "unseen.jsonl")).items()}
    held = [*short["calib"], *questions["calib"], *further["calib"], *twins["calib"]]
    judging |= work.calibration(untrained, calib_slice, held, trained)
    for name, items in judging.items():
        # Calibration items were cleaned before distractors of the common pool were put beside them.
        judging[name] = items if name.startswith(("slice_", "calib_")) else work.clean(name, items, trained)
        judged.add(judging[name], only_support=name.startswith(("slice_", "calib_", "val_contrast")))
    for name, items in (
        ("stage2_contrast", twins["train"]),
        ("stage2_questions", questions["train"]),
        ("stage2_mix", [*kept[0], *further["train"]]),
    ):
        work.write(name, work.clean(name, items, judged))
    for name, items in judging.items():
        work.write(name, items)
    write_atomically(out / "report.json", report.to_json())
    return report


def _read(path: Path) -> list[SliceItem]:
    return [SliceItem.model_validate_json(line) for line in read_text(path).split("\n") if line]


def _licensed(items: Iterable[SliceItem]) -> list[SliceItem]:
    """Items whose source states a licence; a few of the slice's do not."""
    return [item for item in items if not item.provenance.license.startswith(("not stated", "none stated"))]


def _size(item: SliceItem | Candidate) -> int:
    return sum(tokens(chunk.text) for chunk in item.chunks)


def _for_calibration(item: SliceItem) -> bool:
    file = item.provenance.file
    return item.source in _KEPT_FOR_CALIBRATION or (
        item.source == "summedits" and any(domain in file for domain in _CALIBRATION_DOMAINS)
    )


def _held_pages(slice_dir: Path) -> frozenset[str]:
    held = json.loads(read_text(slice_dir / "held_out.json"))
    return frozenset(fold(page) for split in ("val", "test") for page in held[split]["pages"])


def _halves(items: Iterable[SliceItem]) -> tuple[list[SliceItem], list[SliceItem]]:
    first, second = list[SliceItem](), list[SliceItem]()
    for item in items:
        (first if part_of(f"calib:{item.group}", 0.5, 0.5) == "val" else second).append(item)
    return first, second


def _agreed(candidates: Iterable[Candidate]) -> list[Candidate]:
    """One of each that ask the same about the same evidence; none where their labels differ."""
    seen: dict[tuple[object, ...], Candidate] = {}
    labels: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for one in candidates:
        key = (one.source, one.claim, one.question, one.answer, tuple(sorted(chunk.text for chunk in one.chunks)))
        seen.setdefault(key, one)
        labels[key].add(one.label)
    return [one for key, one in seen.items() if len(labels[key]) == 1]


@dataclass(slots=True)
class _Work:
    """One build: where it reads and writes, and its random numbers by purpose."""

    raw: Path
    out: Path
    seed: int
    report: CurriculumReport

    def rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}:{purpose}")

    def candidates(self) -> dict[str, list[Candidate]]:
        found: dict[str, list[Candidate]] = {}
        for name, one in SETS.items():
            if not (self.raw / one.folder).is_dir():
                self.report.missing.append(name)
                continue
            log = RowLog()
            found[name] = _agreed(one.read(ReaderInputs(self.raw, log, self.rng(name))))
            for row in log.bad:
                self.report.bad_rows[row.file] = self.report.bad_rows.get(row.file, 0) + 1
        if not found:
            raise MixError(
                f"no set was found in {self.raw}; expected some of {sorted(s.folder for s in SETS.values())}"
            )
        return found

    def items(self, name: str, candidates: Iterable[Candidate]) -> list[SliceItem]:
        return items_of((one for one in candidates if one.source == name), "val", {name: SETS[name].license})

    def parts(self, sets: Mapping[str, Sequence[Candidate]]) -> dict[str, list[SliceItem]]:
        """Balanced items of several sets, by part: train, val, calib."""
        parts: dict[str, list[SliceItem]] = {"train": [], "val": [], "calib": []}
        for name, candidates in sets.items():
            for part, mine in _by_part(candidates).items():
                parts[part] += items_of(
                    self._chosen(name, mine, part), "train" if part == "train" else "val", {name: SETS[name].license}
                )
        return parts

    def _chosen(self, name: str, mine: Sequence[Candidate], part: str) -> list[Candidate]:
        one, share = SETS[name], 1.0 if part == "train" else 0.08
        plain = [x for x in mine if not x.source.startswith(REFUTED) and _size(x) <= LONGEST]
        chosen: list[Candidate] = []
        for task, cap in one.caps.items():
            rng = self.rng(f"{name}:{task}:{part}")
            asked = [x for x in plain if x.task == task]
            chosen += balanced(asked, int(cap * share), rng, by_evidence=one.by_evidence)
        shown = {(x.claim, tuple(chunk.text for chunk in x.chunks)) for x in chosen}
        refuted = [
            x
            for x in mine
            if x.source.startswith(REFUTED) and (x.claim, tuple(chunk.text for chunk in x.chunks)) in shown
        ]
        rng = self.rng(f"{name}:refuted:{part}")
        return chosen + balanced(refuted, int(one.refuted * share), rng, by_evidence=one.by_evidence)

    def twins(self, held: frozenset[str]) -> dict[str, list[SliceItem]]:
        """Twins of every kind, by part; the kinds about negation balance each other."""

        def is_held(passage: Passage) -> bool:
            return fold(passage.title or "") in held or fold(passage.key.removeprefix("page:")) in held

        found = _agreed(read_twins(ReaderInputs(self.raw, RowLog(), self.rng("twins")), is_held))
        parts: dict[str, list[SliceItem]] = {"train": [], "val": [], "calib": []}
        for part, mine in _by_part(found).items():
            kinds = {x.source.removeprefix(REFUTED) for x in mine}
            most = {"train": 100_000, "val": 160, "calib": 60}[part]
            for group in (_POOLED & kinds, *({kind} for kind in sorted(kinds - _POOLED))):
                rng = self.rng(f"{sorted(group)}:{part}")
                cap = most * max(1, len(group))
                chosen = balanced([x for x in mine if x.source in group], cap, rng, pooled=True)
                shown = {(x.claim, x.unit) for x in chosen}
                asked = [x for x in mine if x.source.removeprefix(REFUTED) in group and x.source.startswith(REFUTED)]
                asked = [x for x in asked if (x.claim, x.unit) in shown]
                chosen += balanced(asked, int(len(chosen) * _REFUTED_SHARE), rng, pooled=True)
                for x in chosen:
                    licence = {x.source.removeprefix(REFUTED): _TWINS[x.file[:7]]}
                    parts[part] += items_of([x], "train" if part == "train" else "val", licence)
        return parts

    def unseen(self, sets: Mapping[str, Sequence[Candidate]], mixed: Sequence[SliceItem]) -> dict[str, list[SliceItem]]:
        """Whole sources that nothing is trained or calibrated on, half of each supported."""
        found = {
            name: self.items(name, (x for x in candidates if x.task in SETS[name].caps))
            for name, candidates in sets.items()
            if SETS[name].use == "unseen"
        }
        for item in mixed:
            found.setdefault(item.source, []).append(item)
        return {
            name: _half_supported([x for x in items if _size(x) <= LONGEST + 20], UNSEEN_ITEMS, self.rng(name))
            for name, items in found.items()
        }

    def calibration(
        self,
        untrained: Sequence[SliceItem],
        slice_items: Sequence[SliceItem],
        held: Sequence[SliceItem],
        trained: HeldOut,
    ) -> dict[str, list[SliceItem]]:
        """Calibration items by task, padded with distractors to all numbers of chunks."""
        found: dict[str, list[SliceItem]] = {}
        plain = [item for item in held if not item.source.startswith(REFUTED)]
        for task, plan in _CALIBRATION.items():
            chosen: list[SliceItem] = []
            for name, wanted in plan.items():
                pool = {"slice": slice_items, "held": plain}.get(name) or [x for x in untrained if x.source == name]
                fitting = [
                    x
                    for x in pool
                    if x.task == task and (_size(x) <= LONGEST + 20 or name == "nomiracl") and not trained.holds(x)
                ]
                chosen += _half_supported(fitting, wanted, self.rng(f"calib:{task}:{name}"))
            found[f"calib_{task}"] = chosen
        distractors = Distractors([x for items in found.values() for x in items] + list(slice_items))
        rng = self.rng("padding")
        return {name: [distractors.pad(x, rng) for x in items] for name, items in found.items()}

    def clean(self, name: str, items: Sequence[SliceItem], against: HeldOut) -> list[SliceItem]:
        """Items that share no text with what is held out."""
        kept = [item for item in items if not against.holds(item)]
        self.report.cleaned[name] = len(items) - len(kept)
        return kept

    def write(self, name: str, items: Sequence[SliceItem]) -> None:
        """One file, groups in random order."""
        counts: dict[str, Counter[int]] = defaultdict(Counter)
        for item in items:
            counts[f"{item.source}/{item.task}"][item.label] += 1
            if name.startswith("stage"):
                named = self.report.licenses.get(item.provenance.dataset, "")
                if item.provenance.license not in named.split(" | "):
                    self.report.licenses[item.provenance.dataset] = f"{named} | {item.provenance.license}".strip(" |")
        self.report.counts[name] = {key: dict(found) for key, found in counts.items()}
        ordered = by_group(items, self.rng(f"order:{name}"))
        text = "".join(f"{item.model_dump_json(exclude_none=True)}\n" for item in ordered)
        write_atomically(self.out / f"{name}.jsonl", text)


def _by_part(candidates: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    parts: dict[str, list[Candidate]] = defaultdict(list)
    for one in candidates:
        parts[part_of(one.keys[0], _SHARES["val"], _SHARES["calib"])].append(one)
    return parts


def _half_supported(items: Sequence[SliceItem], wanted: int, rng: random.Random) -> list[SliceItem]:
    sides = [[item for item in items if item.label == label] for label in (0, 1)]
    for side in sides:
        rng.shuffle(side)
    each = min(wanted // 2, *(len(side) for side in sides))
    return [*sides[0][:each], *sides[1][:each]]
