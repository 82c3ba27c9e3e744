"""Training items: the words of a claim do not tell its label, and a passage that was taken away is gone."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from isr_lab.documents.training import (
    answered_elsewhere,
    balanced,
    cut_out,
    detail_changed,
    draft_changed,
    taken_away,
    word_for_word,
)

PASSAGE = "alpha beta gamma delta epsilon zeta eta theta"


def item(number: int, text: str, label: int) -> dict[str, Any]:
    chunks = [PASSAGE, *(f"something else entirely, number {n}" for n in range(3))]
    return {
        "id": str(number),
        "group": "one",
        "label": label,
        "claim": text,
        "chunks": [{"text": text, "is_support": bool(label) and not n} for n, text in enumerate(chunks)],
        "provenance": {"construction": "claim"},
    }


def test_true_and_false_claims_share_equally_many_words_with_the_passage() -> None:
    near = [item(n, "alpha beta gamma delta", n % 5 == 0) for n in range(200)]  # mostly false
    far = [item(n, "other words, alpha", n % 5 > 0) for n in range(200, 400)]  # mostly true
    kept = list(balanced([*near, *far], random.Random(0)))
    assert Counter((one["claim"], bool(one["label"])) for one in kept) == {
        (text, label): 40 for text in ("alpha beta gamma delta", "other words, alpha") for label in (True, False)
    }


def test_a_passage_that_was_taken_away_supports_nothing_any_more() -> None:
    items = [item(n, "alpha beta gamma delta", n % 2) for n in range(200)]
    found = list(taken_away(items, random.Random(0)))
    assert 5 < len(found) < 40
    for one in found:
        assert one["label"] == 0 and one["id"].endswith("/away") and one["group"] != "one"
        assert len(one["chunks"]) == 3 and all(chunk["text"] != PASSAGE for chunk in one["chunks"])
        assert not any(chunk["is_support"] for chunk in one["chunks"])
    carried = [item(n, "something else entirely", 1) for n in range(200)]
    assert not list(taken_away(carried, random.Random(0)))


def test_a_passage_that_lost_the_carrying_sentence_supports_nothing_any_more() -> None:
    text = "The pump runs at night. Valve seven opens before the boiler starts. Nobody signs the log."
    items = [item(n, "Valve seven opens before the boiler starts.", n % 2) for n in range(60)]
    for one in items:
        one["chunks"][0]["text"] = text
    found = list(cut_out(items, random.Random(0)))
    assert 5 < len(found) <= 30
    for one in found:
        assert one["label"] == 0 and one["group"] == "one/cut"
        assert one["chunks"][0]["text"] == "The pump runs at night. Nobody signs the log."
        assert len(one["chunks"]) == 4 and not any(chunk["is_support"] for chunk in one["chunks"])
    for one in items:  # a second chunk says it, too
        one["chunks"][1]["text"] = text
    assert not list(cut_out(items, random.Random(0)))


def test_a_true_statement_about_something_else_is_no_answer() -> None:
    def draft(number: int, question: str, answer: str) -> dict[str, Any]:
        made = item(number, "", 1)
        del made["claim"]
        return made | {"question": question, "answer": answer, "group": f"record {number // 10}"}

    items: list[dict[str, Any]] = []
    for record in range(0, 300, 10):
        items += [draft(record, "Who runs the pump?", "Ada"), draft(record + 1, "When does it stop?", "at nine")]
        items.append(item(record + 2, "Ada stops the pump at nine.", 1) | {"group": f"record {record // 10}"})
    found = list(answered_elsewhere(items, random.Random(0)))
    assert 20 < len(found) < 60
    for one in found:
        assert one["label"] == 0 and one["id"].endswith("/elsewhere")
        assert (one["question"], one["answer"]) in {("Who runs the pump?", "at nine"), ("When does it stop?", "Ada")}
        assert not any(chunk["is_support"] for chunk in one["chunks"])


def test_a_passage_with_another_number_supports_what_does_not_rest_on_it() -> None:
    text = "The pump of Hall 4 runs at night. Valve 17 opens before the boiler starts. Nobody signs the log."
    said = [
        ("Valve 17 is open when the boiler starts.", 1),
        ("It is valve 17 that opens first.", 1),
        ("The log goes unsigned by anybody.", 1),
        ("At night the pump is running.", 1),
        ("Valve 17 closes.", 0),
    ]
    items = [item(n, *one) for n, one in enumerate(said)]
    for one in items:
        one["chunks"][0]["text"] = text
    found = list(detail_changed(items, random.Random(0)))
    assert Counter(one["label"] for one in found) == {0: 2, 1: 2}
    for one in found:
        edited = one["chunks"][0]
        assert edited["is_support"] and one["group"] != "one"
        assert text.startswith(edited["text"].split("Valve")[0]) and "Valve 17" not in edited["text"]
        assert one["label"] == ("17" not in one["claim"])
    for one in items:  # another chunk has the number, too
        one["chunks"][1]["text"] = "Valve 17"
    assert not list(detail_changed(items, random.Random(0)))


def test_a_sentence_is_supported_by_itself_and_not_by_itself_with_another_number() -> None:
    sentence = "Valve 17 opens before the boiler starts."
    items = [item(n, "said", 1) | {"group": str(n)} for n in range(60)]
    for one in items:  # three sentences each, so that other ones are there
        one["chunks"][0]["text"] = f"The pump of Hall 4 runs at night. {sentence} Nobody signs the log."
    found = list(word_for_word(items, random.Random(0)))
    assert Counter(one["label"] for one in found) == {0: 60, 1: 60}
    for one in found:
        assert one["claim"] == sentence
        assert bool(one["label"]) == any(sentence in chunk["text"] for chunk in one["chunks"])
        assert any("opens before the boiler starts." in chunk["text"] for chunk in one["chunks"])
    assert {len(one["chunks"]) for one in found} >= {1, 3, 4}


def test_a_draft_with_another_number_of_the_passage_is_wrong() -> None:
    asked = item(0, "", 1) | {"question": "When does it open?", "answer": "At 17 o'clock"}
    asked["chunks"][0]["text"] = "It opens at 17 o'clock in Hall 4 and closes at 23 o'clock, by 1890 rules."
    del asked["claim"]
    (found,) = draft_changed([asked], random.Random(0))
    assert (found["answer"], found["label"]) == ("At 23 o'clock", 0)
    assert not any(chunk["is_support"] for chunk in found["chunks"])
    assert not list(draft_changed([asked | {"answer": "At 17 or 23"}, asked | {"label": 0}], random.Random(0)))
