"""Orderings of the evidence: seeded, distinct, the identity first. Position -> index of the chunk that is there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Literal, get_args

import numpy as np

from isr_rag.core.prompt import Ordering
from isr_rag.errors import ConfigurationError

Family = Literal["auto", "uniform", "banded", "exhaustive"]
FAMILIES: tuple[str, ...] = get_args(Family)

# A family with at most this many members (5! and less) is listed and shuffled; a larger one is drawn from, with
# duplicates thrown away. The choice must not depend on m: fewer orderings are always the first of more.
_LIST_UP_TO = 120


def draw_orderings(
    n: int, m: int, *, family: Family = "auto", seed: int = 0, bands: int = 6, identity_first: bool = True
) -> tuple[Ordering, ...]:
    """Draw up to m distinct orderings of n chunks; fewer where fewer exist.

    Args:
        n: number of chunks, >= 1.
        m: number of orderings wanted, >= 1.
        family: `uniform`: any permutation. `banded`: the ranking is cut into `bands` contiguous bands and
            shuffled inside each (the paper's). `exhaustive`: all n! of them, refused when that exceeds m.
            `auto`: all of them when n! <= m, else `uniform`.
        seed: seed of the draw, >= 0; the same on every machine, and a smaller m gives the first of them.
        bands: number of bands of `banded`, >= 1.
        identity_first: put the retriever's own order first.

    Raises:
        ConfigurationError: for a bad n, m, bands, seed or family, or an exhaustive family larger than m.
    """
    least = {"n": (n, 1), "m": (m, 1), "bands": (bands, 1), "seed": (seed, 0)}
    if wrong := [f"{name}={v!r}" for name, (v, low) in least.items() if not isinstance(v, Integral) or v < low]:
        raise ConfigurationError(f"need whole n, m and bands from 1 on, and a seed from 0 on, got {', '.join(wrong)}")
    if family not in FAMILIES:
        raise ConfigurationError(f"unknown family of orderings {family!r}; choose one of {', '.join(FAMILIES)}")
    total = count_orderings(n, family=family, bands=bands)
    if family == "exhaustive" and total > m:
        raise ConfigurationError(f"{n} chunks have {total} orderings, more than m={m}: raise m, or draw some (uniform)")
    rng = np.random.default_rng([seed, n])
    spans = _bands(n, bands if family == "banded" else 1)
    endless = (tuple(i for span in spans for i in rng.permutation(span).tolist()) for _ in itertools.count())
    drawn = _listed(spans, rng) if total <= _LIST_UP_TO else endless
    return first_distinct(drawn, n, min(m, total), identity_first=identity_first)


def first_distinct(drawn: Iterable[Ordering], n: int, wanted: int, *, identity_first: bool) -> tuple[Ordering, ...]:
    """The first distinct orderings of n chunks among those drawn, behind the retriever's own where that is wanted."""
    chosen: dict[Ordering, None] = {tuple(range(n)): None} if identity_first else {}
    for ordering in drawn:
        if len(chosen) == wanted:
            break
        chosen[ordering] = None
    return tuple(chosen)


def count_orderings(n: int, *, family: Family = "auto", bands: int = 6) -> int:
    """How many distinct orderings of n chunks a family has: n!, or the product of the bands' factorials."""
    if family == "banded":
        return math.prod(math.factorial(len(span)) for span in _bands(n, bands))
    return math.factorial(n)


def _bands(n: int, bands: int) -> list[list[int]]:
    return [part.tolist() for part in np.array_split(np.arange(n), min(bands, n))]


def _listed(spans: list[list[int]], rng: np.random.Generator) -> Iterator[Ordering]:
    members = [tuple(itertools.chain(*part)) for part in itertools.product(*map(itertools.permutations, spans))]
    yield from (members[index] for index in rng.permutation(len(members)))
