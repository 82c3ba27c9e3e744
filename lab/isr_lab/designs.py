"""Families of orderings that the experiments compare with those of a gate; no measurement recommends them.

`latin`: rows of a random Latin square: over m = n orderings each chunk is at each rank exactly once (for m < n at most
once; for m > n further squares follow). `antithetic`: uniform orderings, each followed by its reverse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from isr_rag.core.orderings import Family, draw_orderings, first_distinct
from isr_rag.core.prompt import Ordering

Design = Literal["auto", "uniform", "banded", "exhaustive", "latin", "antithetic"]


def draw_design(n: int, m: int, *, family: Design, seed: int = 0, identity_first: bool = True) -> tuple[Ordering, ...]:
    """As `isr_rag.core.orderings.draw_orderings`, which draws all other families, with the two designs."""
    rng = np.random.default_rng([seed, n])
    if family == "latin":
        drawn = _latin(n, rng, identity_first)
    elif family == "antithetic":
        drawn = _antithetic(n, rng, identity_first)
    else:
        return draw_orderings(n, m, family=family, seed=seed, identity_first=identity_first)
    return first_distinct(drawn, n, min(m, math.factorial(n)), identity_first=identity_first)


def orderings_from_seeds(n: int, seeds: Sequence[int], *, family: Family) -> tuple[Ordering, ...]:
    """One ordering per seed, the audit's pre-registered way (Section 4.4); equal draws are kept once.

    Raises:
        ConfigurationError: as `draw_orderings`.
    """
    drawn = (draw_orderings(n, 1, family=family, seed=seed, identity_first=False)[0] for seed in seeds)
    return tuple(dict.fromkeys(drawn))


def _antithetic(n: int, rng: np.random.Generator, identity_first: bool) -> Iterator[Ordering]:
    if identity_first:
        yield tuple(reversed(range(n)))
    while True:
        ordering: Ordering = tuple(rng.permutation(n).tolist())
        yield ordering
        yield ordering[::-1]


def _latin(n: int, rng: np.random.Generator, identity_first: bool) -> Iterator[Ordering]:
    """Rows of random Latin squares, one square after the other.

    Each square is the cyclic one with rows, columns and symbols permuted at random. With the identity first, the
    symbols of the first square are renamed to make its first row read 0, 1, ..., n-1.
    """
    while True:
        shift, column, symbol = rng.permutation(n), rng.permutation(n), rng.permutation(n)
        square = (shift[:, None] + column[None, :]) % n
        if identity_first:
            symbol[square[0]] = np.arange(n)
            identity_first = False
        for row in symbol[square]:
            yield tuple(int(i) for i in row)
