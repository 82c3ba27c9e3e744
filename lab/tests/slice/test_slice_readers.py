"""Readers: original schemas and excerpts, every bad line accounted for, a wrong schema refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from isr_lab.slice.files import MissingSourceError, SourceSchemaError, read_jsonl
from isr_lab.slice.readers.controls import read_controls
from isr_lab.slice.readers.corpus import read_corpus
from isr_lab.slice.readers.fever import read_fever
from isr_lab.slice.readers.hotpot import read_hotpot
from isr_lab.slice.readers.nq import read_nq
from isr_lab.slice.readers.popqa import read_popqa
from isr_lab.slice.records import SourceReport


def test_fever_excerpts_give_claims_with_titled_restored_evidence(excerpts: Path) -> None:
    data, report = read_fever(excerpts)
    assert len(data.claims) == 40
    assert len(data.unverifiable) == 20
    first = data.claims[1]
    assert first.verdict == "SUPPORTS"
    assert first.gold[0].title == "Boris Abbot"
    assert "(born 1901)" in first.gold[0].text
    assert not report.bad


def test_a_claim_with_two_labels_is_dropped_and_counted(excerpts: Path) -> None:
    path = excerpts / "fever/athnlp_validation.jsonl"
    row = json.loads(path.read_text().split("\n")[0])
    with path.open("a") as stream:
        stream.write(json.dumps(row | {"label": "SUPPORTS"}) + "\n")
    data, report = read_fever(excerpts)
    assert row["claim"] not in {claim.text for claim in data.claims}
    assert report.skipped["claim with several labels"] == 1


def test_the_original_fever_release_is_read_with_its_wikipedia_dump(originals: Path) -> None:
    data, report = read_fever(originals)
    assert len(data.claims) == 20
    assert data.claims[0].gold[0].sentence_id == 1
    assert data.claims[0].gold[0].text.startswith("Ada Abbot (born 1900) is an American actor")
    assert [claim.text for claim in data.unverifiable] == ["David Abbot owns a boat."]
    assert "American\tUnited" not in data.claims[0].gold[0].text
    assert not report.bad


def test_hotpot_json_array_and_json_lines_give_the_same_records(excerpts: Path, originals: Path) -> None:
    lines, _ = read_hotpot(excerpts)
    array, _ = read_hotpot(originals)
    assert [r.gold for r in array] == [r.gold for r in lines][:20]
    assert {r.form for r in lines} == {"multihop", "incomplete"}
    missing = next(r for r in lines if r.form == "incomplete")
    assert missing.missing == ("film 30",)


def test_a_supporting_fact_out_of_range_is_refused_with_file_and_line(excerpts: Path) -> None:
    path = excerpts / "hotpotqa/merged_hotpot.jsonl"
    rows = [json.loads(line) for line in path.read_text().split("\n") if line]
    rows[4]["supporting_facts"][0][1] = 99
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    records, report = read_hotpot(excerpts)
    assert "h4" not in {record.key for record in records}
    assert [(bad.file, bad.record) for bad in report.bad] == [("merged_hotpot.jsonl", "5")]
    assert "supporting fact 99" in report.bad[0].reason


def test_nq_gold_sentences_are_those_that_hold_the_answer(excerpts: Path) -> None:
    records, _ = read_nq(excerpts)
    assert all("opened" in record.gold[0].text for record in records)
    assert all("metres" in record.own[0].text for record in records)


def test_questions_without_passages_are_read_in_both_original_schemas(originals: Path) -> None:
    plain, _ = read_nq(originals)
    (originals / "nq_open/NQ-open.dev.jsonl").unlink()
    kilt = [{"id": "1", "input": "who wrote it", "output": [{"answer": "Ada"}, {"provenance": []}]}]
    (originals / "nq_open/nq-dev-kilt.jsonl").write_text(json.dumps(kilt[0]) + "\n")
    fetched, _ = read_nq(originals)
    assert plain[0].answers == ("Film 0",)
    assert not plain[0].gold
    assert fetched[0].answers == ("Ada",)


def test_popqa_uses_the_subjects_page_only_and_counts_both_filters(excerpts: Path) -> None:
    records, report = read_popqa(excerpts, 100)
    assert len(records) == 7
    assert {s.title for r in records for s in (*r.gold, *r.own)} == {f"Keeper {i}" for i in range(7)}
    assert "2 usable questions with popularity < 50" in report.notes[0]
    assert "7 with popularity < 100" in report.notes[0]


def test_the_original_popqa_table_is_read_with_quoted_cells(originals: Path) -> None:
    records, report = read_popqa(originals, 500)
    assert len(records) == 20
    assert records[0].answers == ("Arden",)
    assert not report.bad


def test_a_table_without_its_columns_stops_with_their_names(originals: Path) -> None:
    path = originals / "popqa/popqa.tsv"
    path.write_text(path.read_text().replace("s_pop", "popularity", 1))
    with pytest.raises(SourceSchemaError, match=r"lacks the columns \['s_pop'\]"):
        read_popqa(originals, 500)


def test_timed_questions_carry_the_answers_of_other_times(excerpts: Path) -> None:
    records, _ = read_controls(excerpts, [])
    first, second, unanswerable = records[:3]
    assert first.gold[0].text.startswith("The office was held by Ada Abbot from 1950 to 1960.")
    assert [rival.answer for rival in first.rivals] == ["Clara Barlow"]
    assert [rival.answer for rival in second.rivals] == ["Ada Abbot"]
    assert not unanswerable.answers
    assert not unanswerable.gold


def test_stale_questions_join_dated_evidence_whose_answer_changed(excerpts: Path) -> None:
    nq, _ = read_nq(excerpts)
    question = nq[0].text
    rows = [
        {"question": question, "edited_question": f"{question} as of {year}", "date": year, "answer": answer,
         "any_answer": ["1800", "2020"]}
        for year, answer in (("2021", ["2020"]), ("2016", ["1800"]))
    ]  # fmt: skip
    (excerpts / "controls_recency/situatedqa_temp.dev.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    stale = [record for record in read_controls(excerpts, nq)[0] if record.form == "stale"]
    assert [record.text for record in stale] == [f"{question} as of 2021"]
    assert stale[0].rivals[0].answer == "1800"


def test_lines_end_at_line_feeds_only_and_bad_ones_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"t": "one\u2028line"}\nnot json\n[1]\n{"u": 1}\n{"t": "two\\u0085"}\n{"t": "cut', encoding="utf-8"
    )
    report = SourceReport("x")
    rows = list(read_jsonl(path, report, ("t",)))
    assert [number for number, _ in rows] == [1, 5]
    assert [bad.record for bad in report.bad] == ["2", "3", "4", "6"]
    assert report.read == 6


def test_a_truncated_gzip_gives_what_it_holds_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = "".join(json.dumps({"t": f"text {i} {i * 7919 % 1009}"}) + "\n" for i in range(2000))
    path.write_bytes(gzip.compress(lines.encode())[:-400])
    report = SourceReport("x")
    rows = list(read_jsonl(path, report, ("t",)))
    assert 100 < len(rows) < 2000
    assert any("truncated" in bad.reason for bad in report.bad)


def test_a_file_of_another_schema_stops_the_build(excerpts: Path) -> None:
    (excerpts / "nq_open/nq-open-oracle.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    with pytest.raises(SourceSchemaError, match="not one usable record; the first problem: record 1 lacks the fields"):
        read_nq(excerpts)


def test_an_empty_folder_names_what_was_expected(tmp_path: Path) -> None:
    for read in (read_fever, read_hotpot, read_nq):
        with pytest.raises(MissingSourceError, match="expected"):
            read(tmp_path)
    with pytest.raises(MissingSourceError, match=r"popqa\.tsv"):
        read_popqa(tmp_path, 50)
    assert read_controls(tmp_path, [])[0] == []
    assert read_corpus(tmp_path, {})[0] == []
