"""Which items Experiment 1 scores at which number of chunks n, and what it records about them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence

from isr_lab.experiments.trials import Fact, Trial
from isr_lab.slice.asking import predicate, with_support
from isr_lab.slice.schema import SliceItem
from isr_rag.core.evidence import Chunk
from isr_rag.core.orderings import Family, draw_orderings
from isr_rag.core.prompt import Ordering
from isr_rag.core.scorer import TOPIC_LAST, Layout, ScoreRequest
from isr_rag.errors import InvalidInputError

Placed = tuple[SliceItem, int]
"""An item and the number of chunks that it is asked with."""


def choose(
    items: Sequence[SliceItem], sizes: Sequence[int], *, per_size: int | None, limit: int | None, seed: int
) -> list[Placed]:
    """Give each wanted n its items; no item is used twice.

    An item belongs to the largest wanted n that it reaches. Without a quota every item goes where it belongs. With
    one, each n takes its own items first and then spare ones of a larger n, alternating between the labels and tasks,
    in an order drawn by the seed; an n for which there are too few gets those that there are.

    Args:
        items: the slice.
        sizes: the wanted n, ascending.
        per_size: items wanted for each n; None for all.
        limit: items wanted in all, spread evenly over the n that the slice reaches; None for all.
        seed: of the draw.

    Raises:
        InvalidInputError: if no item reaches any wanted n.
    """
    homes = [(item, _home(item, sizes)) for item in _drawn(items, seed)]
    placed = [(item, n) for item, n in homes if n]
    if not placed:
        longest = max((len(item.chunks) for item in items), default=0)
        raise InvalidInputError(
            f"no item of the slice can be asked with {min(sizes)} to {max(sizes)} chunks (the longest of its "
            f"{len(items)} items has {longest}): lower the sizes, or build the slice with more chunks an item"
        )
    if per_size is None and limit is None:
        return sorted(placed, key=lambda pair: pair[1])
    reached = [n for n in sizes if n <= max(n for _, n in placed)]
    return sorted(_filled(placed, _quotas(reached, per_size, limit)), key=lambda pair: pair[1])


def _drawn(items: Sequence[SliceItem], seed: int) -> list[SliceItem]:
    return sorted(items, key=lambda item: hashlib.sha256(f"{seed}:{item.id}".encode()).digest())


def _supports(item: SliceItem) -> int:
    return sum(chunk.is_support for chunk in item.chunks)


def _home(item: SliceItem, sizes: Sequence[int]) -> int:
    """The largest wanted n that the item reaches, 0 if it has too few chunks or more support than fits."""
    return max((n for n in sizes if _supports(item) <= n <= len(item.chunks)), default=0)


def _quotas(sizes: Sequence[int], per_size: int | None, limit: int | None) -> dict[int, int]:
    count, most = len(sizes), per_size
    if limit is None:
        assert most is not None
        return dict.fromkeys(sizes, most)
    shares = {n: (j + 1) * limit // count - j * limit // count for j, n in enumerate(sizes)}
    return shares if most is None else {n: min(most, share) for n, share in shares.items()}


def _filled(placed: list[Placed], quotas: dict[int, int]) -> list[Placed]:
    """Fill the quotas from the largest n down, so what is left over there can be cut for a smaller one."""
    chosen: list[Placed] = []
    spare: list[SliceItem] = []
    for n in sorted(quotas, reverse=True):
        own = _alternating([item for item, home in placed if home == n])
        cut = _alternating([item for item in spare if _supports(item) <= n])
        taken = [*own, *cut][: quotas[n]]
        used = {id(item) for item in taken}
        chosen += [(item, n) for item in taken]
        spare = [item for item in [*spare, *own] if id(item) not in used]
    return chosen


def _alternating(items: list[SliceItem]) -> list[SliceItem]:
    """The same items, the first of every label and task before the second of any."""
    seen: Counter[tuple[int, str]] = Counter()
    turns: list[int] = []
    for item in items:
        stratum = (item.label, item.task)
        turns.append(seen[stratum])
        seen[stratum] += 1
    return [items[i] for i in sorted(range(len(items)), key=lambda i: turns[i])]


def cut(item: SliceItem, n: int) -> SliceItem:
    """The item with n chunks: all support and the best-ranked others, in the order in which they stood.

    Raises:
        InvalidInputError: if it has fewer chunks than n, or more support.
    """
    if not _supports(item) <= n <= len(item.chunks):
        raise InvalidInputError(
            f"item {item.id!r} has {len(item.chunks)} chunks, {_supports(item)} of them support: it cannot have {n}"
        )
    return item.model_copy(update={"chunks": tuple(with_support(item.chunks, n)), "support_spans": ()})


def trials(
    placed: Iterable[Placed], families: Sequence[Family], *, m: int, bands: int, seed: int, layout: Layout
) -> list[Trial]:
    """One trial per item and family: up to m distinct orderings, the identity first, the same for all items of an n."""
    made: list[Trial] = []
    for item, n in placed:
        shown = cut(item, n)
        chunks = [Chunk(chunk.text, chunk.title) for chunk in shown.chunks]
        prompt = predicate(shown).render(chunks, topic_first=layout not in TOPIC_LAST)
        for family in families:
            orderings = draw_orderings(n, m, family=family, seed=seed, bands=bands)
            facts = _facts(shown, family, orderings)
            made.append(Trial(f"{family}/{n}/{item.id}", ScoreRequest(prompt, orderings), facts))
    return made


def _facts(item: SliceItem, family: str, orderings: Sequence[Ordering]) -> dict[str, Fact]:
    support = [index for index, chunk in enumerate(item.chunks) if chunk.is_support]
    ranks = [[ordering.index(index) + 1 for index in support] for ordering in orderings]
    return {
        "item": item.id,
        "group": item.group,
        "family": family,
        "n": len(item.chunks),
        "label": item.label,
        "task": item.task,
        "source": item.source,
        "support": json.dumps(support),
        "ranks": json.dumps(ranks, separators=(",", ":")),
    }
