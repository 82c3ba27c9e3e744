"""Splits: stable, near 80/10/10, with nothing shared between them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from isr_lab.slice.records import Record, SourceReport
from isr_lab.slice.splits import assign, drop_repeated, near_pairs, split_of


def record(text: str, pages: tuple[str, ...] = (), answers: tuple[str, ...] = ()) -> Record:
    return Record("fever", text, "FEVER", "f", "1", "l", "claim", text, answers=answers, pages=pages)


def test_near_duplicates_are_found_and_others_are_not() -> None:
    texts = [
        "Damon Albarn released his first solo album in the year 2011",
        "The river Thames flows through London and Oxford",
        "Damon Albarn released his first solo album in the year 2014",
        "the river thames flows through london and oxford.",
    ]
    assert sorted(near_pairs(texts, 0.8)) == [(0, 2), (1, 3)]


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=80))
def test_no_page_and_no_wording_is_shared_between_splits(rows: list[tuple[int, int, int]]) -> None:
    records = [record(f"claim number {n} says something odd", (f"p{a}", f"q{b}")) for n, a, b in rows]
    splits, report = assign(records, 0.9, 7)
    owner: dict[str, str] = {}
    for place, one in enumerate(records):
        for key in (*one.pages, one.text):
            assert owner.setdefault(key, splits[place][0]) == splits[place][0]
    assert sum(report.sizes.values()) == len(records)


def test_shares_are_near_80_10_10_also_for_groups_named_by_their_smallest_hash() -> None:
    records = [record(f"{i * 7919} apples {i} were {i * 31} sold", (f"page {i // 5}",)) for i in range(5000)]
    splits, _ = assign(records, 0.95, 42)
    counts = Counter(split for split, _ in splits.values())
    assert abs(counts["train"] / 5000 - 0.8) < 0.04
    assert abs(counts["test"] / 5000 - 0.1) < 0.03


def test_a_record_more_leaves_all_other_groups_where_they_are() -> None:
    records = [record(f"{i * 7919} apples {i} were {i * 31} sold", (f"page {i}",)) for i in range(300)]
    before, _ = assign(records, 0.95, 42)
    after, _ = assign([*records, record("entirely new words here", ("new",))], 0.95, 42)
    assert all(after[place] == split for place, split in before.items())


def test_repeated_questions_with_the_same_answer_are_dropped_and_counted() -> None:
    reports = {"fever": SourceReport("fever")}
    kept, dropped = drop_repeated(
        [record("Who?", answers=("Ada",)), record("who", answers=("ada",)), record("Who?", answers=("Bob",))], reports
    )
    assert (len(kept), dropped) == (2, 1)
    assert sum(reports["fever"].skipped.values()) == 1


def test_the_split_of_a_group_never_changes() -> None:
    assert [split_of(name) for name in ("00", "abc", "0146aa23df3b")] == ["train", "train", "train"]
