"""The items that come with the package are what the records of our own documents make, in the stated shares."""

from __future__ import annotations

from collections import Counter

from isr_lab.documents.own_items import MOST, own_items
from isr_lab.documents.records import read_own
from isr_rag.gate.labelled import item_key
from isr_rag.io.items import bundled_items


def test_the_package_holds_what_the_records_make() -> None:
    shipped, made = bundled_items(), list(own_items())
    texts = {chunk["id"]: chunk["text"] for chunk in read_own()[0]}
    assert [item["id"] for item in shipped] == [item["id"] for item in made]
    for old, new in zip(shipped, made, strict=True):
        assert old["label"] == new["label"]
        assert [chunk["text"] for chunk in old["evidence"]] == [texts[name] for name in new["evidence"]]


def test_they_are_enough_of_every_task_and_document_and_no_two_are_the_same() -> None:
    items = bundled_items()
    assert len(items) >= 1500 and len({item["source"] for item in items}) == 12
    assert min(Counter(item["source"] for item in items).values()) >= 100
    assert all(1 <= len(item["evidence"]) <= MOST for item in items)
    for task in ("claim", "draft", "question"):
        own = [item for item in items if item["kind"].startswith(f"{task}/")]
        assert len(own) >= 400 and 0.45 < sum(item["label"] for item in own) / len(own) < 0.6
    asked = [
        item_key(
            " ".join(item[field] for field in ("claim", "question", "answer") if field in item),
            [chunk["text"] for chunk in item["evidence"]],
        )
        for item in items
    ]
    assert len(set(asked)) == len(items)


def test_what_is_supported_shows_its_passage() -> None:
    texts = {chunk["id"]: chunk["text"] for chunk in read_own()[0]}
    for item in bundled_items():
        if item["label"] and not item["kind"].endswith("/absent"):
            assert texts[item["group"]] in [chunk["text"] for chunk in item["evidence"]]
