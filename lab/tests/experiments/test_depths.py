from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from isr_lab.experiments.dispersion import depths
from isr_lab.slice.schema import Provenance, SliceChunk, SliceItem
from isr_rag.errors import InvalidInputError

SUPPORT = st.lists(st.booleans(), min_size=1, max_size=30)


def an_item(name: str, support: list[bool], label: int = 1) -> SliceItem:
    chunks = tuple(SliceChunk(text=f"{name} says {i}.", is_support=s) for i, s in enumerate(support))
    fields: dict[str, Any] = {"kind": "supported" if label else "refuted", "label": label, "chunks": chunks}
    origin = Provenance(dataset="made", file="none", record=name, license="CC0")
    return SliceItem(id=name, source="made", split="test", group=name, claim=f"{name}?", provenance=origin, **fields)


def slice_of(sizes: list[int]) -> list[SliceItem]:
    return [an_item(f"i{k}", [j == n // 2 for j in range(n)], k % 2) for k, n in enumerate(sizes)]


@given(support=SUPPORT, n=st.integers(1, 30))
def test_a_cut_keeps_all_support_the_best_ranked_others_and_their_order(support: list[bool], n: int) -> None:
    item = an_item("x", support)
    if not sum(support) <= n <= len(support):
        with pytest.raises(InvalidInputError, match="cannot have"):
            depths.cut(item, n)
        return
    kept = [item.chunks.index(chunk) for chunk in depths.cut(item, n).chunks]
    others = [index for index, is_support in enumerate(support) if not is_support]
    assert kept == sorted(kept) and len(kept) == n
    assert [index for index in kept if support[index]] == [i for i, s in enumerate(support) if s]
    assert [index for index in kept if not support[index]] == others[: n - sum(support)]


@given(
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=60),
    per_size=st.none() | st.integers(1, 4),
    limit=st.none() | st.integers(1, 30),
    seed=st.integers(0, 3),
)
def test_no_item_is_asked_twice_and_quotas_hold(
    sizes: list[int], per_size: int | None, limit: int | None, seed: int
) -> None:
    wanted = [3, 5, 6, 9, 12, 20]
    items = slice_of(sizes)
    if max(sizes) < 3:
        with pytest.raises(InvalidInputError, match="3 to 20 chunks"):
            depths.choose(items, wanted, per_size=per_size, limit=limit, seed=seed)
        return
    placed = depths.choose(items, wanted, per_size=per_size, limit=limit, seed=seed)
    assert len({item.id for item, _ in placed}) == len(placed)
    assert all(n in wanted and len(item.chunks) >= n for item, n in placed)
    assert [n for _, n in placed] == sorted(n for _, n in placed)
    if per_size is None and limit is None:
        assert len(placed) == sum(size >= 3 for size in sizes)
    if limit is not None:
        assert len(placed) <= limit
    if per_size is not None:
        assert max(Counter(n for _, n in placed).values(), default=0) <= per_size
    # the draw depends on nothing but the seed and the identifiers
    again = depths.choose(items[::-1], wanted, per_size=per_size, limit=limit, seed=seed)
    assert [(item.id, n) for item, n in again] == [(item.id, n) for item, n in placed]


def test_longer_items_fill_the_numbers_of_chunks_that_lack_their_own() -> None:
    placed = depths.choose(slice_of([12] * 10), [3, 6, 12], per_size=3, limit=None, seed=0)
    assert Counter(n for _, n in placed) == {3: 3, 6: 3, 12: 3}
    own_first = depths.choose(slice_of([12] * 10 + [6] * 3), [6, 12], per_size=3, limit=None, seed=0)
    assert sorted(len(item.chunks) for item, n in own_first if n == 6) == [6, 6, 6]


def test_a_limit_is_spread_evenly_over_what_the_slice_reaches() -> None:
    items = slice_of([n for n in range(3, 21) for _ in range(4)])
    placed = depths.choose(items, list(range(3, 61)), per_size=None, limit=36, seed=1)
    assert Counter(n for _, n in placed) == dict.fromkeys(range(3, 21), 2)
    thin = depths.choose(items, list(range(3, 61)), per_size=None, limit=6, seed=1)
    gaps = [b - a for a, b in zip([n for _, n in thin], [n for _, n in thin][1:], strict=False)]
    assert len(thin) == 6 and set(gaps) == {3}


def test_labels_alternate_where_not_all_items_are_taken() -> None:
    items = [an_item(f"i{k}", [True, False, False], int(k < 3)) for k in range(20)]
    placed = depths.choose(items, [3], per_size=6, limit=None, seed=0)
    assert Counter(item.label for item, _ in placed) == {0: 3, 1: 3}


def test_facts_hold_the_rank_of_every_support_chunk_under_every_ordering() -> None:
    item = an_item("x", [False, True, False, False, True, False, False, False])
    made = depths.trials([(item, 7)], ("banded", "uniform"), m=5, bands=2, seed=0, layout="full")
    assert [trial.name for trial in made] == ["banded/7/x", "uniform/7/x"]
    for trial in made:
        support, ranks = json.loads(str(trial.facts["support"])), json.loads(str(trial.facts["ranks"]))
        assert support == [1, 4] and trial.facts["n"] == 7 and len(trial.request.orderings) == 5
        for ordering, of_support in zip(trial.request.orderings, ranks, strict=True):
            assert [ordering[rank - 1] for rank in of_support] == support
            shown = [trial.request.prompt.chunks[i] for i in ordering]
            assert all(f"says {i}." in shown[rank - 1] for i, rank in zip((1, 4), of_support, strict=True))


def test_the_question_stands_before_the_evidence_unless_the_scorer_indexes_it() -> None:
    item = an_item("claimed", [True, False, False])
    full, late = (
        depths.trials([(item, 3)], ("uniform",), m=2, bands=6, seed=0, layout=layout)[0].request.prompt
        for layout in ("full", "late")
    )
    assert "claimed?" in full.prefix and "claimed?" not in late.prefix and "claimed?" in late.suffix
