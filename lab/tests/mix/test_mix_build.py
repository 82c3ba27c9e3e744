"""Assembly keeps its promises: split by shared documents, balanced, capped, reproducible, licences respected."""

from __future__ import annotations

import json
import os
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from isr_lab.mix import build
from isr_lab.mix.annotate import INSTALL, PIPELINE
from isr_lab.mix.build import MixConfig, MixReport, build_mix
from isr_lab.mix.inputs import Origin, ReaderInputs
from isr_lab.mix.records import Candidate, MixError
from isr_lab.mix.sources import SOURCES, UNSEEN, Source, Terms
from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_rag.errors import ConfigurationError


def made(source: str, number: int, true_share: float = 0.5) -> list[Candidate]:
    """Twins about `number` documents: claims, drafts and sufficiency items; every third pair shares a page."""
    found: list[Candidate] = []
    for i in range(number):
        page = f"page:{source} {i - i % 3 if i % 3 < 2 else i}"
        origin = Origin(source, f"{source}.jsonl", str(i), (page, f"q:{source}{i}"), f"{source}:{i}")
        chunks = (SliceChunk(text=f"Fact {i} of {source}.", title=page, is_support=True),)
        truth = "Yes" if i < true_share * number else "No"
        for answer in ("Yes", "No"):
            found.append(origin.draft(f"Is {i} so?", answer, "supported" if answer == truth else "refuted", chunks))
        found.append(origin.claim(f"{source} {i} is so.", "supported", chunks))
        found.append(origin.claim(f"{source} {i} is not so.", "refuted", chunks))
        found.append(origin.sufficiency(f"What is {i}?", "supported", chunks, unit=f"{source}:{i}:s"))
        found.append(
            origin.sufficiency(
                f"What is {i}?", "insufficient", (SliceChunk(text=f"Nothing {i}."),), unit=f"{source}:{i}:s"
            )
        )
    return found


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four sources: two ordinary ones, one for research only, and a held-out one; a fifth has no folder."""

    def source(name: str, number: int, terms: Terms = "open", true_share: float = 0.5) -> Source:
        (tmp_path / "raw" / name).mkdir(parents=True, exist_ok=True)

        def read(inputs: ReaderInputs) -> list[Candidate]:
            return made(name, number, true_share)

        return Source(name, read, f"licence of {name}", terms, (90, 90, 90))

    fakes = {
        "alpha": source("alpha", 150),
        "beta": source("beta", 60, true_share=0.8),
        "closed": source("closed", 60, "non_commercial"),
        UNSEEN[0]: source(UNSEEN[0], 40),
        "absent": Source("nowhere", lambda inputs: [], "-", "open", (9, 9, 9)),
    }
    monkeypatch.setattr(build, "SOURCES", fakes)
    monkeypatch.setattr(build, "CAPS_FOR", 300)
    return tmp_path / "raw"


CONFIG = MixConfig(train_items=300, unseen_items=40)


def run(raw: Path, out: Path, config: MixConfig = CONFIG) -> tuple[MixReport, dict[str, list[SliceItem]]]:
    report = build_mix(raw, out, config)
    items = {
        name: [SliceItem.model_validate_json(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "val", "unseen")
    }
    return report, items


def test_no_document_is_shared_between_train_and_validation(raw: Path, tmp_path: Path) -> None:
    _, items = run(raw, tmp_path / "out")
    assert items["train"] and items["val"]
    pages = [{chunk.title for item in items[name] for chunk in item.chunks if chunk.title} for name in ("train", "val")]
    assert pages[0].isdisjoint(pages[1])
    assert {item.group for item in items["train"]}.isdisjoint(item.group for item in items["val"])


def test_labels_are_balanced_in_every_source_and_task(raw: Path, tmp_path: Path) -> None:
    report, items = run(raw, tmp_path / "out")
    for split in ("train", "val"):
        assert all(table["0"] == table["1"] for table in report.counts[split].values())
    assert Counter(item.label for item in items["unseen"]) == {0: 20, 1: 20}
    for answer in ("Yes", "No"):
        told = Counter(item.label for item in items["train"] if item.answer == answer and item.source == "beta")
        assert told[0] == told[1] > 0


def test_caps_and_shares_hold(raw: Path, tmp_path: Path) -> None:
    report, items = run(raw, tmp_path / "out")
    assert all(sum(table.values()) <= 90 for table in report.counts["train"].values())
    tasks = Counter(item.task for item in items["train"])
    assert tasks["claim"] == pytest.approx(0.45 * 300, abs=4)
    assert tasks["draft"] == pytest.approx(0.35 * 300, abs=6)
    assert tasks["sufficiency"] == pytest.approx(0.20 * 300, abs=4)


def test_held_out_sources_never_train(raw: Path, tmp_path: Path) -> None:
    _, items = run(raw, tmp_path / "out")
    assert {item.source for item in items["unseen"]} == {UNSEEN[0]}
    assert UNSEEN[0] not in {item.source for item in items["train"] + items["val"]}
    assert len(items["unseen"]) <= 40 and {item.split for item in items["unseen"]} == {"test"}


def test_sets_without_commercial_use_stay_out_and_are_named(raw: Path, tmp_path: Path) -> None:
    report, items = run(raw, tmp_path / "out")
    assert report.excluded == {"closed": "licence of closed"}
    assert "closed" not in {item.source for item in items["train"]}
    assert report.licenses == {"alpha": "licence of alpha", "beta": "licence of beta"}
    research = MixConfig(train_items=300, unseen_items=40, terms=frozenset({"open", "non_commercial"}))
    assert "closed" in run(raw, tmp_path / "research", research)[0].licenses


def test_a_source_without_folder_is_reported_missing(raw: Path, tmp_path: Path) -> None:
    assert run(raw, tmp_path / "out")[0].missing == ["absent"]
    with pytest.raises(MixError, match="no source folder was found"):
        build_mix(tmp_path / "empty", tmp_path / "out", CONFIG)


def test_the_same_inputs_give_the_same_bytes(raw: Path, tmp_path: Path) -> None:
    run(raw, tmp_path / "one")
    run(raw, tmp_path / "two")
    for name in ("train.jsonl", "val.jsonl", "unseen.jsonl", "report.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    run(raw, tmp_path / "three", MixConfig(train_items=300, unseen_items=40, seed=7))
    assert (tmp_path / "one/train.jsonl").read_bytes() != (tmp_path / "three/train.jsonl").read_bytes()


def test_twins_come_together(raw: Path, tmp_path: Path) -> None:
    _, items = run(raw, tmp_path / "out")
    claims = Counter(item.provenance.record + item.source for item in items["train"] if item.task == "claim")
    assert set(claims.values()) == {2}


def test_any_prefix_is_a_fair_mix(raw: Path, tmp_path: Path) -> None:
    _, items = run(raw, tmp_path / "out")
    half = items["train"][: len(items["train"]) // 2]
    assert 0.35 < sum(item.label for item in half) / len(half) < 0.65
    assert {item.task for item in half} == {"claim", "draft", "sufficiency"}


def test_texts_and_pages_of_the_slice_are_kept_out(raw: Path, tmp_path: Path) -> None:
    held = {"val": {"texts": ["alpha 5 is so"], "pages": []}, "test": {"texts": [], "pages": ["page beta 0", "beta 3"]}}
    path = tmp_path / "held_out.json"
    path.write_text(json.dumps(held))
    config = MixConfig(train_items=300, unseen_items=40, held_out=path)
    report, items = run(raw, tmp_path / "out", config)
    assert report.held_out["alpha"] == 1
    assert report.held_out["beta"] == 12
    assert not any(item.claim == "alpha 5 is so." for item in items["train"])
    assert not any(chunk.title == "page:beta 3" for item in items["train"] for chunk in item.chunks)
    path.write_text("[]")
    with pytest.raises(MixError, match=r"not a held_out\.json"):
        build_mix(raw, tmp_path / "out", config)


@pytest.mark.parametrize(
    "settings",
    [{"train_items": 0}, {"val_part": 1.0}, {"shares": (0.5, 0.5, 0.5)}, {"unseen_items": -1}],
    ids=lambda value: next(iter(value)),
)
def test_settings_out_of_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        MixConfig(**settings)  # type: ignore[arg-type]


def test_every_source_states_its_licence_and_its_terms() -> None:
    assert all(source.license and source.terms for source in SOURCES.values())
    assert set(UNSEEN) < set(SOURCES)
    assert all(SOURCES[name].caps == (0, 0, 0) for name in UNSEEN)


@pytest.mark.skipif("ISR_RAG_RAW" not in os.environ, reason="ISR_RAG_RAW does not name the folder of raw data")
@pytest.mark.skipif(find_spec(PIPELINE) is None, reason=INSTALL)
def test_real_sets_are_read_without_surprises(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    more = Path(os.environ["ISR_RAG_RAW"]) / "more"
    for folder in ("rte", "strategyqa", "expertqa", "covidfact", "sufficient_facts", "factcheck_gpt"):
        if not (more / folder).is_dir():
            pytest.skip(f"{more / folder} is missing")
        (raw / folder).symlink_to(more / folder)
    report, items = run(raw, tmp_path / "out", MixConfig(train_items=2_000, unseen_items=200))
    assert len(items["train"]) > 500 and len(items["unseen"]) == 200
    assert len(report.bad_rows) <= 0.03 * sum(report.rows_read.values())
