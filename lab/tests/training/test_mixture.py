"""Batches of a mixture: what is shown, what is shared, and that labels cannot be told from the numbers."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from typing import ClassVar

from isr_lab.slice.schema import Provenance, SliceChunk, SliceItem
from isr_lab.training.data import Example
from isr_lab.training.mixture import Drawn, Mixture, Showing, pieces, twins
from isr_rag.scorers.local.encoding import PromptEncoder


class Words:
    """A tokenizer with a token for each word."""

    chat_template = None
    added_tokens_decoder: ClassVar[dict[int, str]] = {}
    all_special_tokens: tuple[str, ...] = ()
    all_special_ids: tuple[int, ...] = ()
    unk_token_id = None

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": self.encode(text)}

    def encode(self, text: str, **_: object) -> list[int]:
        return [self.known.setdefault(word, len(self.known) + 1) for word in text.split()]


def item(group: int, label: int, marked: bool, chunks: int = 6) -> SliceItem:
    support = "supported" if label else "refuted"
    return SliceItem(
        id=f"{group}-{label}",
        source="made",
        split="train",
        group=str(group),
        claim=f"Town {group} has {7 + label} gates.",
        label=label,
        kind=support,
        chunks=tuple(
            SliceChunk(text=f"Sentence {i} about town {group}.", is_support=marked and i == 2) for i in range(chunks)
        ),
        provenance=Provenance(dataset="made", file="none", record=str(group), license="CC0-1.0"),
    )


def drawn(**showing: object) -> list[list[Example]]:
    items = [item(group, label, marked=label == 1) for group in range(40) for label in (0, 1)]
    sets = {"made": Drawn(pieces(items, random.Random(0)))}
    mixture = Mixture(
        PromptEncoder(Words()),  # type: ignore[arg-type]  # what the encoder asks of a tokenizer
        sets,
        {"made": 1.0, "absent": 1.0},
        Showing(**showing),  # type: ignore[arg-type]
        600,
        random.Random(1),
    )
    return list(islice(mixture, 12))


def test_twins_see_the_same_chunks_though_only_one_of_them_marks_its_support() -> None:
    for batch in drawn(twice=0.0):
        shown: dict[str, set[tuple[tuple[int, ...], ...]]] = {}
        for example in batch:
            shown.setdefault(example.item.group, set()).add(tuple(sorted(example.segments.chunks)))
        assert all(len(seen) == 1 for seen in shown.values())


def test_every_group_is_whole_and_each_pair_is_true_first() -> None:
    for batch in drawn(twice=0.0):
        assert set(Counter(example.item.group for example in batch).values()) == {2}
        pairs = twins(batch)
        assert len(pairs) == len(batch) // 2
        assert all(batch[a].label == 1 and batch[b].label == 0 for a, b in pairs)
        assert all(batch[a].item.group == batch[b].item.group for a, b in pairs)


def test_a_second_time_borrows_from_other_groups() -> None:
    batches = drawn(twice=1.0, counts=(1,), own=(0,), many=(4,))
    sizes = {len(example.segments.chunks) for batch in batches[:3] for example in batch}
    assert sizes == {1, 4}


def test_alone_means_that_nothing_is_borrowed() -> None:
    batches = drawn(alone=frozenset({"made"}), counts=(20,), own=(0,))
    assert {len(example.segments.chunks) for batch in batches for example in batch} == {1}


def test_a_piece_is_left_out_whole_where_one_item_is_too_long() -> None:
    long = item(1, 1, marked=True).model_copy(update={"chunks": (SliceChunk(text="word " * 900, is_support=True),)})
    mixture = Mixture(
        PromptEncoder(Words()),  # type: ignore[arg-type]
        {"made": Drawn([[item(1, 0, marked=False), long], [item(2, 0, marked=False), item(2, 1, marked=True)]])},
        {"made": 1.0},
        Showing(),
        100,
        random.Random(0),
    )
    assert {example.item.group for batch in islice(mixture, 5) for example in batch} == {"2"}


def test_workers_share_the_pieces() -> None:
    items = [item(group, label, marked=True) for group in range(9) for label in (0, 1)]
    parts = [pieces(items, random.Random(3), worker, 2) for worker in (0, 1)]
    groups = [{one.group for piece in part for one in piece} for part in parts]
    assert not groups[0] & groups[1]
    assert len(groups[0] | groups[1]) == 9
