"""The curriculum keeps what is judged apart from what is trained, balances labels, and can be built again."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from isr_lab.mix import curriculum
from isr_lab.mix.curriculum import build_curriculum
from isr_lab.mix.distractors import BINS
from isr_lab.mix.inputs import Origin, ReaderInputs
from isr_lab.mix.pairs import three_way
from isr_lab.mix.public_sets import PublicSet
from isr_lab.mix.records import Candidate, MixError
from isr_lab.mix.staging import HeldOut, balanced, long_sentences
from isr_lab.slice.schema import Provenance, SliceChunk, SliceItem, Split, Task
from isr_lab.slice.text import fold

ROWS = 160


def sentence(source: str, i: int) -> str:
    return f"In the {i}th year of {source} the old mayor of town {i} wrote a long letter to the council"


def read_fake(name: str) -> Callable[[ReaderInputs], list[Candidate]]:
    """Claims, drafts and questions over one sentence each, every tenth row asking what the slice's test asks."""

    def read(inputs: ReaderInputs) -> list[Candidate]:
        found: list[Candidate] = []
        for i in range(ROWS):
            chunks = [SliceChunk(text=sentence(name, i), is_support=True)]
            origin = Origin(name, f"{name}.jsonl", str(i), (f"{name}:{i}",), f"{name}:{i}")
            held = i % 10 == 0
            for label in ("entailment", "contradiction"):
                claim = f"slice test claim {i}" if held else f"Mayor {i} of {name} wrote {label[:3]} a letter"
                found += three_way(origin, claim, label, chunks, label)
            for answer, kind in (("Yes", "supported"), ("No", "refuted")):
                found.append(origin.draft(f"Did mayor {i} of {name} write?", answer, kind, chunks))  # type: ignore[arg-type]
            found.append(origin.sufficiency(f"Who wrote {i} in {name}?", "supported", chunks))
            blank = [SliceChunk(text=f"Nothing {i} is said in {name}.")]
            found.append(origin.sufficiency(f"Who wrote {i} in {name}?", "insufficient", blank))
        return found

    return read


def item(source: str, i: int, split: Split, label: int, task: Task = "claim", file: str = "x.jsonl") -> SliceItem:
    asked = {
        "claim": {"claim": f"{source} {split} claim {i}"},
        "draft": {"question": f"{source} {split} question {i}", "answer": "Yes"},
        "sufficiency": {"question": f"{source} {split} asks {i}"},
    }[task]
    return SliceItem(
        id=f"{source}:{split}:{task}:{i}", source=source, split=split, group=f"{source}:{split}:{i}",
        label=1 if label else 0, kind="supported" if label else "insufficient",
        chunks=(SliceChunk(text=f"{sentence(source + split, i)} and nobody ever answered it", is_support=bool(label)),),
        provenance=Provenance(dataset=source, file=file, record=str(i), license="made up"), **asked,
    )  # fmt: skip


def put(path: Path, items: list[SliceItem]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(one.model_dump_json(exclude_none=True) + "\n" for one in items))


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    caps: dict[Task, int] = {"claim": 400, "draft": 400, "sufficiency": 400}
    uses = {"pairs": "short", "asked": "questions", "facts": "mix", "conjnli_dev": "calibration", "scifact": "unseen"}
    fakes = {
        name: PublicSet(name, read_fake(name), f"licence of {name}", use, caps, refuted=40)  # type: ignore[arg-type]
        for name, use in uses.items()
    }
    raw = tmp_path / "raw"
    for name in [*uses, "corpus"]:
        (raw / name).mkdir(parents=True)
    (raw / "corpus/wiki_sentences.jsonl.gz").write_bytes(gzip.compress(b""))
    fakes["absent"] = PublicSet("absent", read_fake("absent"), "none", "short", caps)
    monkeypatch.setattr(curriculum, "SETS", fakes)
    monkeypatch.setattr(curriculum, "read_twins", lambda inputs, held: [])
    tasks: tuple[Task, ...] = ("claim", "draft", "sufficiency")
    for split in ("train", "val", "test"):
        put(
            tmp_path / "slice" / f"{split}.jsonl",
            [item("slice", i, split, i % 2, task) for i in range(60) for task in tasks],  # type: ignore[arg-type]
        )
    held = {split: {"pages": [], "texts": []} for split in ("val", "test")}
    (tmp_path / "slice/held_out.json").write_text(json.dumps(held))
    test = [
        one.model_copy(update={"claim": f"slice test claim {i}"})
        for i in range(ROWS)
        for one in [item("slice", i, "test", i % 2)]
    ]
    put(tmp_path / "slice/test.jsonl", test)
    put(tmp_path / "mix/train.jsonl", [item("boolq", i, "train", i % 2, "draft") for i in range(60)])
    put(tmp_path / "mix/val.jsonl", [item("halueval", i, "val", i % 2, "draft") for i in range(20)])
    put(tmp_path / "mix/unseen.jsonl", [item("factcheck_gpt", i, "test", i % 2) for i in range(20)])
    return raw, tmp_path / "slice", tmp_path / "mix"


def read(path: Path) -> list[SliceItem]:
    return [SliceItem.model_validate_json(line) for line in path.read_text().split("\n") if line]


def built(folders: tuple[Path, Path, Path], out: Path) -> dict[str, list[SliceItem]]:
    build_curriculum(*folders, out)
    return {path.stem: read(path) for path in out.glob("*.jsonl")}


def test_nothing_that_is_judged_is_trained_on(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    files = built(folders, tmp_path / "out")
    train = HeldOut()
    for name, items in files.items():
        if name.startswith(("stage", "slice_train")):
            train.add(items)
    judged = {name: items for name, items in files.items() if not name.startswith(("stage", "slice_train"))}
    assert {"val_stage1", "calib_claim", "unseen_scifact", "unseen_factcheck_gpt", "slice_test"} <= set(judged)
    for name, items in judged.items():
        assert items or name == "val_contrast"
        for one in items:
            assert fold(one.claim or one.question or "") not in train.texts, name
            assert not any(long_sentences(c.text) & train.sentences for c in one.chunks if c.is_support), name
    groups = {one.group for name, items in files.items() if name.startswith("stage") for one in items}
    assert not groups & {one.group for items in judged.values() for one in items}


def test_labels_balance_and_the_third_question_is_marked(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    short = built(folders, tmp_path / "out")["stage1_short"]
    by_kind = Counter((one.source, one.task, one.label) for one in short)
    for source, task, _ in list(by_kind):
        assert by_kind[source, task, 0] == by_kind[source, task, 1]
    assert {one.source for one in short} == {"pairs", "refuted:pairs"}
    assert {one.provenance.dataset for one in short} == {"pairs"}


def test_calibration_is_spread_over_the_numbers_of_chunks(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    items = built(folders, tmp_path / "out")["calib_claim"]
    bins = Counter(next(b for b in BINS if b[0] <= len(one.chunks) <= b[1]) for one in items)
    assert len(bins) == len(BINS)
    assert {one.source for one in items} >= {"conjnli_dev"}
    assert all(sum(chunk.is_support for chunk in one.chunks) <= 1 for one in items)


def test_the_same_seed_gives_the_same_files(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    assert built(folders, tmp_path / "one") == built(folders, tmp_path / "two")
    report = json.loads((tmp_path / "one/report.json").read_text())
    assert report["missing"] == ["absent"] and report["licenses"]["pairs"] == "licence of pairs"


def test_a_source_without_a_stated_licence_is_left_out(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    path = folders[1] / "train.jsonl"
    first, *rest = read(path)
    unstated = first.provenance.model_copy(update={"license": "not stated (some set)"})
    put(path, [first.model_copy(update={"provenance": unstated}), *rest])
    assert first.id not in {one.id for one in built(folders, tmp_path / "out")["slice_train"]}


def test_no_set_at_all_is_an_error(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(MixError, match="no set was found"):
        build_curriculum(tmp_path / "empty", *folders[1:], tmp_path / "out")


def test_an_item_of_a_judged_page_is_held_out_whatever_it_asks() -> None:
    held = HeldOut()
    held.add([item("slice", 1, "test", 1)])
    other = item("slice", 1, "test", 0, "draft").model_copy(update={"chunks": (SliceChunk(text="Something else."),)})
    assert held.holds(other)
    assert not held.holds(other.model_copy(update={"group": "elsewhere"}))


def test_kinds_that_balance_each_other_are_pooled() -> None:
    chunk = [SliceChunk(text="It rained.", is_support=True)]

    def made(source: str, claim: str, label: int) -> Candidate:
        origin = Origin(source, "f", claim, (claim,), claim)
        return origin.claim(claim, "supported" if label else "refuted", chunk)

    added = [made("added", f"It did not rain {i}", 0) for i in range(6)]
    dropped = [made("dropped", f"It did not snow {i}", 1) for i in range(6)]
    assert balanced([*added, *dropped], 100, random.Random(1)) == []
    assert len(balanced([*added, *dropped], 100, random.Random(1), pooled=True)) == 12
