"""The real excerpts, where a raw folder is given: what the readers promise about them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isr_lab.slice.readers.fever import read_fever
from isr_lab.slice.readers.hotpot import read_hotpot
from isr_lab.slice.readers.nq import read_nq
from isr_lab.slice.readers.popqa import read_popqa

RAW = os.environ.get("ISR_RAG_RAW")
pytestmark = pytest.mark.skipif(
    not RAW or not Path(RAW).is_dir(),
    reason="ISR_RAG_RAW does not name a folder with the raw data (fever/, hotpotqa/, nq_open/, popqa/)",
)


@pytest.fixture(scope="module")
def raw() -> Path:
    return Path(RAW or "")


def test_fever_claims_have_titled_evidence_and_one_label(raw: Path) -> None:
    data, report = read_fever(raw)
    assert len(data.claims) > 12_000
    assert len(data.unverifiable) > 6_000
    assert report.skipped["claim with several labels"] == 54
    assert all(sentence.title and "-LRB-" not in sentence.text for claim in data.claims for sentence in claim.gold)


def test_hotpot_facts_all_resolve(raw: Path) -> None:
    records, report = read_hotpot(raw)
    assert len(records) == 2_923
    assert not report.bad


def test_the_truncated_line_of_nq_is_reported_and_the_rest_read(raw: Path) -> None:
    records, report = read_nq(raw)
    assert len(records) > 2_600
    assert [bad.record for bad in report.bad] == ["442"]


def test_popqa_says_how_few_pass_the_papers_filter(raw: Path) -> None:
    records, report = read_popqa(raw, 500)
    assert len(records) > 500
    assert "with popularity < 50" in report.notes[0]
