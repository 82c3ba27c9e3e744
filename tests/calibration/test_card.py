"""The card of a calibration, against counts made by hand."""

from __future__ import annotations

import pytest

from isr_rag.calibration import CalibrationRecord
from isr_rag.calibration.card import calibration_card, card_text


def items(*parts: tuple[str, float, int, int]) -> list[CalibrationRecord]:
    """So many items of a source with this score and label, in groups of two."""
    made: list[CalibrationRecord] = []
    for source, score, label, count in parts:
        for _ in range(count):
            n = len(made)
            made.append(CalibrationRecord(str(n), "claim", score, label, group=str(n // 2), source=source, chunks=1))
    return made


def test_the_card_counts_what_stands_behind_each_threshold() -> None:
    """Of 110 items at 0.9, 10 are wrong: with the one to come 11 of 111, the threshold of h* = 0.1 and 0.2."""
    records = items(("a", 0.9, 1, 50), ("a", 0.9, 0, 10), ("b", 0.9, 1, 50), ("b", 0.1, 0, 90), ("a", 0.1, 0, 2))
    card = calibration_card(records, [r.q_bar for r in records], kinds={"108": "twin", "109": "twin"}, resamples=50)
    assert (card["items"], card["groups"], card["effective_groups"]) == (202, 101, pytest.approx(101.0))
    # 108 and 109 are true ones of b, answered with the thresholds of a: at 0.2 only
    assert card["kinds"] == {"twin": {"items": 2, "true": 1.0, "answered": {"0.05": 0.0, "0.1": 0.0, "0.2": 1.0}}}
    assert card["targets"]["0.05"]["answered"] == 0 and "threshold" not in card["targets"]["0.05"]
    ten = card["targets"]["0.1"]
    assert (ten["threshold"], ten["answered"], ten["errors"]) == (0.9, 110, 10)
    assert ten["true_just_above"] == pytest.approx(100 / 110)  # all share one score, so all are just above
    # every resample that answers does so at 0.9, where 10 of 110 are wrong, less than 0.1
    assert ten["exceeds"] == 0.0 and ten["rate_90"] == pytest.approx(10 / 110)
    # with b alone, 0.9 serves every h*; with a alone 11 of 61 there allow 0.2 only
    assert card["sources"]["a"] == {h: pytest.approx([60 / 62, 10 / 60]) for h in ("0.05", "0.1", "0.2")}
    assert card["sources"]["b"]["0.1"] == [0.0, 0.0]
    assert card["sources"]["b"]["0.2"] == pytest.approx([50 / 140, 0.0])
    assert card["each left out"]["0.2"] == pytest.approx([110 / 202, 10 / 110])
    assert "| 0.1 | 110 | 10 | 0.91 |" in card_text(card) and "| b | 0.00 (0.000) | 0.00 (0.000) |" in card_text(card)


def test_a_false_item_is_compared_with_the_true_ones_of_its_group() -> None:
    """Against a true one at 0.9: one at 0.7 is ranked right, one at 0.9 counts half, one of another group not."""
    rows = [("t", 0.9, 1, "g"), ("a", 0.7, 0, "g"), ("b", 0.9, 0, "g"), ("c", 0.95, 0, "h"), ("d", 0.3, 1, "i")]
    records = [CalibrationRecord(name, "claim", score, label, group=group) for name, score, label, group in rows]
    card = calibration_card(records, [r.q_bar for r in records], kinds=dict.fromkeys("abc", "twin"), resamples=5)
    assert card["kinds"]["twin"]["pairs"] == pytest.approx(0.75)


def test_groups_of_unequal_size_count_for_less_and_unknown_sources_are_left_out() -> None:
    sizes, scores = (3, 1), (0.9, 0.8, 0.1, 0.7)
    groups = [str(i) for i, size in enumerate(sizes) for _ in range(size)]
    records = [
        CalibrationRecord(str(i), "claim", score, int(score > 0.5), group=group)
        for i, (score, group) in enumerate(zip(scores, groups, strict=True))
    ]
    card = calibration_card(records, scores, kinds={}, resamples=5)
    assert card["effective_groups"] == pytest.approx(16 / 10)
    assert not card["sources"] and not card["kinds"] and "source" not in card_text(card)
