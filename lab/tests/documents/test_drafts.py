"""Drafts of a small model come back as they were, beside the evidence that the model saw."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from isr_lab.documents.drafting import asked, kept, write
from isr_lab.documents.drafts import FILE, drafted, joined, parted
from isr_lab.documents.records import read_lines
from isr_lab.slice.schema import SliceItem
from isr_rag.scorers.embedded import model_directory

TEXTS = [
    "The ferry to Ostra leaves at six from the old pier, and in winter at eight.",
    "Tickets are sold on board. Dogs travel free of charge on the lower deck only.",
]
QUESTION = {
    "id": "ferry-1/9",
    "source": "documents",
    "split": "train",
    "layout": "passages",
    "group": "ferry-1",
    "label": 1,
    "kind": "supported",
    "question": "When does the ferry leave in winter?",
    "chunks": [{"text": text} for text in (*TEXTS, "The island has one shop.")],
    "provenance": {"dataset": "documents", "file": "f", "record": "r", "license": "l", "construction": "question"},
}


@given(st.lists(st.one_of(st.text(), st.sampled_from([text[i:j] for text in TEXTS for i in (0, 9) for j in (60, 99)]))))
def test_a_draft_comes_back_from_its_pieces(parts: list[str]) -> None:
    draft = "".join(parts)
    assert joined(parted(draft, TEXTS), TEXTS) == draft


def test_what_a_draft_copies_is_not_kept() -> None:
    pieces = parted(f"It says: {TEXTS[1][:60]}, I think.", TEXTS)
    assert pieces == ["It says: ", [1, 0, 60], ", I think."]


def test_a_draft_is_an_item_beside_what_was_shown() -> None:
    lines = [{"item": "ferry-1/9", "shown": [1, 0], "draft": ["It leaves in winter."], "label": 0, "kind": "echo"}]
    other = QUESTION | {"id": "ferry-1/10"}
    (item,) = (SliceItem.model_validate(one) for one in drafted([other, QUESTION], lines))
    assert item.answer == "It leaves in winter." and item.label == 0
    assert [chunk.text for chunk in item.chunks] == TEXTS[::-1]
    assert [chunk.is_support for chunk in item.chunks] == [False, True]


def test_what_a_writer_wrote_stands_beside_a_draft_with_the_other_label() -> None:
    right = QUESTION | {"id": "ferry-1/6", "answer": "At eight."}
    wrong = QUESTION | {"id": "ferry-1/7", "answer": "At six.", "label": 0}
    for label, written in ((0, "At eight."), (1, "At six.")):
        lines = [{"item": "ferry-1/9", "shown": [0], "draft": ["At nine."], "label": label, "kind": "detail"}]
        own, twin = drafted([right, wrong, QUESTION], lines)
        assert (own["label"], twin["answer"], twin["label"]) == (label, written, 1 - label)
        assert own["group"] == twin["group"] and own["chunks"] == twin["chunks"] and own["id"] != twin["id"]


def test_a_searched_draft_keeps_its_evidence() -> None:
    asked = {"id": "q", "question": "When?", "label": 1, "evidence": [{"text": text} for text in TEXTS], "kind": "k"}
    lines = [{"item": "q", "shown": [0, 1], "draft": ["At ", [0, 29, 32]], "label": 1, "kind": ""}]
    (item,) = drafted([asked], lines)
    assert (item["answer"], item["kind"], item["evidence"]) == ("At six", "drafted/right", asked["evidence"])
    assert asked["kind"] == "k"


def test_each_question_has_one_draft_with_a_label_and_its_error() -> None:
    lines = list(read_lines(FILE))
    assert len({line["item"] for line in lines}) == len(lines) >= 2500
    shares = Counter(line["label"] for line in lines)
    assert set(shares) == {0, 1} and min(shares.values()) > 0.2 * len(lines)
    assert all(line["kind"] in _ERRORS if not line["label"] else not line["kind"] for line in lines)


def test_each_group_is_asked_one_question_that_has_no_draft_yet() -> None:
    changed = QUESTION | {"id": "c", "group": "c", "provenance": {"construction": "detail changed (six), 1"}}
    judged = QUESTION | {"id": "j", "group": "j", "claim": "The ferry leaves."}
    items = [QUESTION, QUESTION | {"id": "ferry-1/13"}, changed, judged, QUESTION | {"id": "d", "group": "d"}]
    (line,) = asked(items, ["d"], 9)
    assert line["item"].startswith("ferry-1/") and 0 in line["shown"] and set(line["shown"]) <= {0, 1, 2}
    assert asked(items, ["d"], 9) == [line] and not asked(items, ["d", "ferry-1/9", "ferry-1/13"], 9)


def test_only_drafts_with_a_label_are_kept() -> None:
    drafts = [{"item": "ferry-1/9", "shown": [1], "draft": TEXTS[1][:60], "prompt": 0, "sampled": 1}]
    for label, kind, expected in ((1, "detail", ""), (0, "detail", "detail")):
        (line,) = kept([QUESTION], drafts, [{"item": "ferry-1/9", "label": label, "kind": kind}])
        assert (line["draft"], line["label"], line["kind"]) == ([[0, 0, 60]], label, expected)
    for unclear in ([{"item": "ferry-1/9", "label": "u"}], []):
        assert not list(kept([QUESTION], drafts, unclear))


@pytest.mark.model
def test_a_real_model_drafts_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    model, out = str(model_directory()), tmp_path / "drafts.jsonl"
    assert list(write(model, [QUESTION], 9, out)) == [1]
    (line,) = read_lines(out)
    assert line["draft"] and line["item"] == "ferry-1/9"
    assert not list(write(model, [QUESTION], 9, out)) and list(read_lines(out)) == [line]


_ERRORS = {"detail", "elsewhere", "echo", "unanswered", "added", "other"}
