"""Items of traffic: the passage is in the evidence where the label says so, and gone where it was taken away."""

from __future__ import annotations

from typing import Any

from isr_lab.documents.traffic import Embeddings, labels_read_again, loop_rounds, source_items

PASSAGE = {"text": "Pumps of the series K must be drained before the first frost.", "title": "Pumps", "id": "k-001"}
COPY = {"text": "Pumps of the series K must be drained before the first frost of a year.", "title": "Pumps"}
OTHERS = [
    {"text": f"Pump number {n} of the series L was drained in winter, before frost came.", "title": ""}
    for n in range(30)
]


def record(number: int) -> dict[str, Any]:
    question = {
        "question": "When must pumps of the series K be drained?",
        "right": "before the first frost",
        "wrong": "after the first frost",
        "false_premise": "When must pumps of the series K be oiled?",
    }
    claims = [[f"Frost number {number} finds K pumps empty, case {i}.", "paraphrase", int(i < 3)] for i in range(6)]
    unanswered = {"question": "Who drains the pumps of the series K?", "draft": "the caretaker"}
    return {
        "passage": f"k-{number:03}",
        "claims": claims,
        "questions": [question, question],
        "unanswered": unanswered,
    }


PAIRS = [(record(number), {**PASSAGE, "id": f"k-{number:03}"}) for number in range(40)]


def items() -> list[dict[str, Any]]:
    return list(source_items("pumps", [*OTHERS, PASSAGE, COPY], PAIRS))


def test_what_is_supported_shows_its_passage_and_what_is_absent_no_copy_of_it() -> None:
    for item in items():
        shown = [chunk["text"] for chunk in item["evidence"]]
        if item["label"]:
            assert PASSAGE["text"] in shown
        if item["kind"].endswith("/absent"):
            assert item["label"] == 0 and not {PASSAGE["text"], COPY["text"]} & set(shown)


def test_a_draft_that_answers_something_else_is_a_true_statement_beside_its_passage() -> None:
    found = [item for item in items() if item["kind"] == "draft/elsewhere"]
    assert found and all(item["label"] == 0 for item in found)
    for item in found:
        assert item["answer"].startswith("Frost number") and PASSAGE["text"] in [c["text"] for c in item["evidence"]]


def test_a_round_of_a_loop_is_carried_once_its_passage_is_found() -> None:
    found = list(loop_rounds("pumps", [*OTHERS, PASSAGE, COPY], PAIRS))
    first, second = found[::2], found[1::2]
    assert [one["id"][:-1] for one in first] == [one["id"][:-1] for one in second]
    assert len(first) > 20 and len({one["id"] for one in found}) == len(found)
    for one, other in zip(first, second, strict=True):
        assert len(other["evidence"]) == 2 * len(one["evidence"]) and one["label"] <= other["label"]
        assert other["evidence"][: len(one["evidence"])] == one["evidence"]
        for searched in (one, other):
            true = one["kind"] in ("claim/true", "draft/right", "question/answerable")
            shown = PASSAGE["text"] in [chunk["text"] for chunk in searched["evidence"]]
            assert searched["label"] == int(true and shown)


def test_each_task_has_the_stated_share_of_supported_items() -> None:
    found = items()
    for task in ("claim", "draft", "question"):
        labels = [item["label"] for item in found if item["kind"].startswith(f"{task}/")]
        assert 0.45 < sum(labels) / len(labels) < 0.6


def test_items_are_the_same_on_every_call_and_known_by_their_ids() -> None:
    assert items() == items()
    ids = [item["id"] for item in items()]
    assert len(set(ids)) == len(ids)


def test_the_stated_share_of_records_is_searched_by_embeddings_and_known_by_its_ids() -> None:
    found = list(source_items("pumps", [*OTHERS, PASSAGE, COPY], PAIRS, embedded=0.5))
    near = [item for item in found if item["id"].endswith("+embedded")]
    others = [item for item in found if item not in near]
    assert {item["group"] for item in near}.isdisjoint(item["group"] for item in others)
    assert 0.3 < len(near) / len(found) < 0.7 and {item["kind"] for item in near} == {item["kind"] for item in others}
    assert others == [item for item in items() if item["group"] in {other["group"] for other in others}]
    for item in near:
        shown = [chunk["text"] for chunk in item["evidence"]]
        assert (PASSAGE["text"] in shown) == (not item["kind"].endswith("/absent"))


def test_embeddings_find_what_says_it_in_other_words() -> None:
    texts = ["The invoice is due after thirty days.", "Dogs must be kept on a leash in the park.", "Rain fell all day."]
    assert Embeddings(texts).best("Pets have to be tied up outside", 2)[0] == 1


def test_only_items_without_their_passage_change_their_label_by_reading_and_others_are_left_out() -> None:
    read = labels_read_again()
    assert set(read.values()) <= {0, 1, None}
    assert all("/absent/" in key or "@" in key for key, label in read.items() if label is not None)
