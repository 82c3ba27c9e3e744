"""The whole build: complete, the same bytes every time, splits that share nothing, an honest card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from isr_lab.slice.build import build_slice
from isr_lab.slice.card import load_verdicts
from isr_lab.slice.config import SliceConfig, training_config
from isr_lab.slice.reading import read_items
from isr_lab.slice.report import BuildReport
from isr_lab.slice.sample import load_sample
from isr_lab.slice.schema import SliceItem
from isr_lab.slice.text import TokenCap, contains, fold
from isr_rag.errors import InvalidInputError


def items_of(out: Path) -> list[SliceItem]:
    return [item for split in ("train", "val", "test") for item in read_items(out / f"{split}.jsonl")]


def unreadable(report: BuildReport) -> int:
    return sum(len(source.bad) for source in report.sources.values())


@pytest.fixture
def config(tokenizer: str) -> SliceConfig:
    return replace(training_config(tokenizer), n=(2, 5), tail_to=9)


def test_a_build_has_every_source_kind_and_task(excerpts: Path, tmp_path: Path, config: SliceConfig) -> None:
    report = build_slice(excerpts, tmp_path / "out", config)
    items = items_of(tmp_path / "out")
    assert {item.source for item in items} == {"fever", "hotpotqa", "nq_open", "popqa", "controls"}
    assert {item.kind for item in items} == {"supported", "refuted", "insufficient", "outdated"}
    assert {item.task for item in items} == {"claim", "draft", "sufficiency"}
    assert sum(report.counts.values()) == len(items) == len({item.id for item in items})
    assert unreadable(report) == 0


def test_equal_inputs_give_equal_bytes(excerpts: Path, tmp_path: Path, config: SliceConfig) -> None:
    first = build_slice(excerpts, tmp_path / "a", config).outputs
    second = build_slice(excerpts, tmp_path / "b", config).outputs
    assert first == second
    assert len(first) == 5
    other = build_slice(excerpts, tmp_path / "c", replace(config, seed=7)).outputs
    assert other["train.jsonl"] != first["train.jsonl"]


def test_bytes_do_not_depend_on_the_processs_hash_seed(excerpts: Path, tmp_path: Path, tokenizer: str) -> None:
    code = (
        "import sys; from pathlib import Path; from isr_lab.slice.build import build_slice;"
        "from isr_lab.slice.config import training_config;"
        "print(sorted(build_slice(Path(sys.argv[1]), Path(sys.argv[2]), training_config(sys.argv[3])).outputs.items()))"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code, str(excerpts), str(tmp_path / seed), tokenizer],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert "train.jsonl" in printed[0]


def test_no_gold_page_or_question_is_in_two_splits(excerpts: Path, tmp_path: Path, config: SliceConfig) -> None:
    build_slice(excerpts, tmp_path / "out", config)
    splits: dict[str, set[str]] = defaultdict(set)
    for item in items_of(tmp_path / "out"):
        splits[fold(item.claim or item.question or "")].add(item.split)
        for chunk in item.chunks:
            if chunk.is_support:
                splits[f"page {chunk.title}"].add(item.split)
    assert all(len(found) == 1 for found in splits.values())


def test_negatives_hold_no_accepted_answer(excerpts: Path, tmp_path: Path, config: SliceConfig) -> None:
    build_slice(excerpts, tmp_path / "out", config)
    items = items_of(tmp_path / "out")
    removed = [i for i in items if "removed" in i.provenance.construction and i.answer]
    assert len(removed) > 20
    for item in removed:
        assert not any(contains(fold(chunk.text), fold(item.answer or "")) for chunk in item.chunks)
        assert not any(chunk.is_support for chunk in item.chunks)


def test_every_item_keeps_the_caps(excerpts: Path, tmp_path: Path, config: SliceConfig) -> None:
    build_slice(excerpts, tmp_path / "out", replace(config, token_cap=10))
    cap = TokenCap(str(config.tokenizer), 10)
    for item in items_of(tmp_path / "out"):
        assert len(item.chunks) <= 60
        assert all(cap.count(chunk.text) <= 10 for chunk in item.chunks)


def test_one_item_a_record_and_capped_sources(excerpts: Path, tmp_path: Path, config: SliceConfig) -> None:
    caps = dict.fromkeys(config.caps, 5)
    report = build_slice(excerpts, tmp_path / "out", replace(config, items="one", caps=caps))
    items = items_of(tmp_path / "out")
    assert len([item for item in items if item.source == "fever"]) <= 5
    assert len(items) <= 7 * 5
    assert report.splits.groups <= 35


def test_the_passage_layout_gives_whole_passages(excerpts: Path, tmp_path: Path, config: SliceConfig) -> None:
    build_slice(excerpts, tmp_path / "out", replace(config, layout="passages"))
    items = items_of(tmp_path / "out")
    assert {item.layout for item in items} == {"passages"}
    hotpot = next(i for i in items if i.source == "hotpotqa" and i.kind == "supported")
    assert any("director of" not in c.text and ". It is long." in c.text for c in hotpot.chunks if c.is_support)


def test_original_releases_build_with_retrieved_support(originals: Path, tmp_path: Path, config: SliceConfig) -> None:
    report = build_slice(originals, tmp_path / "out", config)
    items = items_of(tmp_path / "out")
    assert {item.source for item in items} >= {"fever", "hotpotqa", "popqa", "controls"}
    assert any(item.source == "nq_open" and item.kind == "supported" for item in items)
    assert unreadable(report) == 0


def test_bad_lines_are_counted_and_named_in_card_and_report(
    excerpts: Path, tmp_path: Path, config: SliceConfig
) -> None:
    with (excerpts / "nq_open/nq-open-oracle.jsonl").open("a") as stream:
        stream.write('{"question": "cut off')
    report = build_slice(excerpts, tmp_path / "out", config)
    assert unreadable(report) == 1
    card = (tmp_path / "out/DATA_CARD.md").read_text(encoding="utf-8")
    assert "nq-open-oracle.jsonl, record 31: no JSON" in card
    account = json.loads((tmp_path / "out/report.json").read_text())
    assert account["sources"]["nq_open"]["bad"][0]["record"] == "31"
    assert len(account["sources"]["nq_open"]["files"]["nq_open/nq-open-oracle.jsonl"]) == 64


def test_the_card_says_where_it_departs_from_the_paper(excerpts: Path, tmp_path: Path, config: SliceConfig) -> None:
    build_slice(excerpts, tmp_path / "out", config)
    card = (tmp_path / "out/DATA_CARD.md").read_text(encoding="utf-8")
    for word in ("instead of 3059", "popularity < 500 instead of < 50", "instead of 200000", "42%", "76%"):
        assert word in card
    assert str(tmp_path) not in card


def test_held_out_keys_list_what_training_must_not_see(excerpts: Path, tmp_path: Path, config: SliceConfig) -> None:
    build_slice(excerpts, tmp_path / "out", config)
    held = json.loads((tmp_path / "out/held_out.json").read_text(encoding="utf-8"))
    for item in items_of(tmp_path / "out"):
        if item.split != "train":
            assert fold(item.claim or item.question or "") in held[item.split]["texts"]


def test_a_damaged_item_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "a"}\n')
    with pytest.raises(InvalidInputError, match="line 1 is not an item"):
        list(read_items(path))


def test_a_bad_line_after_good_ones_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(load_sample()[0].model_dump_json() + "\n{}\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"items\.jsonl, line 2 is not an item"):
        list(read_items(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"there is no file .*none\.jsonl"):
        list(read_items(tmp_path / "none.jsonl"))


def test_the_packaged_sample_has_every_source_kind_and_task() -> None:
    items = load_sample()
    assert 24 <= len(items) <= 100
    assert {item.source for item in items} == {"fever", "hotpotqa", "nq_open", "popqa", "controls"}
    assert {item.kind for item in items} == {"supported", "refuted", "insufficient", "outdated"}
    assert {item.task for item in items} == {"claim", "draft", "sufficiency"}


def test_hand_written_verdicts_are_complete() -> None:
    verdicts = load_verdicts()
    kinds = Counter(verdict["kind"] for verdict in verdicts["constructed"])
    assert all(count == 50 or kind == "evidence older than the question" for kind, count in kinds.items())
    assert len(verdicts["surest_errors"]) == 50
    for verdict in (*verdicts["constructed"], *verdicts["surest_errors"]):
        assert set(verdict) == {"id", "kind", "verdict", "reason"}
        assert verdict["verdict"] in ("right", "label wrong", "construction wrong", "model wrong", "unclear")
        assert verdict["reason"]
