"""Records, documents of our own and the checklist hold what they say."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources

from isr_lab.documents.records import (
    about_something_else,
    checklist_items,
    division,
    items_of,
    read_own,
    read_records,
    read_short,
    short_items,
)
from isr_lab.slice.reading import read_items
from isr_lab.slice.schema import SliceItem


def test_each_record_has_sixteen_labels_and_each_passage_one_record() -> None:
    records = read_records()
    assert len(records) >= 4000 and len({record["passage"] for record in records}) == len(records)
    for record in records:
        labels = [item["label"] for item in items_of(record, [{"text": "t"}, {"text": "u"}], source="s")]
        assert len(labels) == 16 and sum(labels) == 7


def test_no_source_has_two_parts_and_each_reserved_one_has_records() -> None:
    parts = division()
    sources = [source for part in parts.values() for source in part]
    assert len(sources) == len(set(sources)) == 29 and len(parts["calibration"]) >= 8
    known = Counter(record["passage"].rpartition("-")[0] for record in read_records())
    assert all(known[source] * 16 >= 120 for source in sources)


def test_records_of_our_own_documents_name_their_chunks() -> None:
    chunks, records = read_own()
    ids = {chunk["id"] for chunk in chunks}
    assert len({chunk["document"] for chunk in chunks}) == 12
    assert {record["passage"] for record in records} <= ids and len(records) * 16 >= 1500


def test_the_items_are_read_as_any_others(tmp_path) -> None:  # type: ignore[no-untyped-def]
    chunks, records = read_own()
    texts = {chunk["id"]: chunk for chunk in chunks}
    items = list(items_of(records[0], [texts[records[0]["passage"]], chunks[-1]], source="own"))
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in items), "utf-8")
    assert [item.label for item in read_items(path)] == [item["label"] for item in items]


def test_short_texts_make_items_of_both_labels_in_every_record() -> None:
    records = read_short()
    assert len({record["id"] for record in records}) == len(records) >= 400
    items = [SliceItem.model_validate(item) for item in short_items()]
    assert len({item.id for item in items}) == len(items)
    claims = [item for item in items if item.task == "claim"]
    assert 0.45 < sum(item.label for item in claims) / len(claims) < 0.55
    labels: dict[str, set[int]] = {}
    for item in items:
        labels.setdefault(item.group, set()).add(item.label)
    assert len(labels) == len(records) and all(found == {0, 1} for found in labels.values())
    for record in records:
        drafts = [label for one in record["questions"] if not one["answerable"] for _, _, label in one["drafts"]]
        assert not any(drafts)  # what is not answered has no right draft


def test_nothing_short_is_on_the_checklist() -> None:
    judged = {str(item.get("claim") or (item["question"], item.get("answer"))).casefold() for item in checklist_items()}
    assert not judged & {str(i.get("claim") or (i["question"], i.get("answer"))).casefold() for i in short_items()}


def test_a_statement_with_half_the_words_of_the_right_draft_may_answer_the_question() -> None:
    right = "before the first frost of the year"
    assert about_something_else(right, ["Drain it before the first frost.", "The caretaker drains it."]) == [
        "The caretaker drains it."
    ]


def test_the_checklist_has_pairs_of_the_same_form() -> None:
    text = resources.files("isr_lab.checklist").joinpath("pairs.jsonl").read_text("utf-8")
    pairs = [json.loads(line) for line in text.split("\n") if line]
    assert len(pairs) == 600 == len({pair["id"] for pair in pairs})
    for pair in pairs:
        assert set(pair["true"]) == set(pair["false"]) and pair["true"] != pair["false"] and pair["evidence"]


def test_the_checklist_becomes_labelled_items_of_both_labels() -> None:
    items = list(checklist_items())
    assert len({item["id"] for item in items}) == len(items) == 1200
    assert Counter(item["label"] for item in items) == {1: 600, 0: 600}
    assert all(item["evidence"] and ("claim" in item or "question" in item) for item in items)
