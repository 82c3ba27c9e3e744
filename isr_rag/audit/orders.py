"""How the order of the evidence moves a model that sees it: first-order effects of each chunk's rank on q."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isr_rag.audit.statement import OrderEffects, RankEffect
from isr_rag.orderings import draw_orderings
from isr_rag.prompt import Ordering

_EPS = 1e-6
_Z = 1.96


def design(n: int, seed: int) -> tuple[Ordering, ...]:
    """Orders to score for n chunks: distinct ones, twice as many as there are effects, and some more."""
    return tuple(draw_orderings(n, 2 * n + 6, family="auto", seed=seed))


@dataclass(frozen=True, slots=True)
class OrderFit:
    """A linear fit of the log-odds of q on the ranks of the chunks, centred; ridge-free least squares.

    Attributes:
        orderings: the orders that were scored.
        q: the probability of each.
        slopes: log-odds per rank of each chunk, shape (n,); they sum to 0, since the ranks of an order always do.
        errors: standard errors of the slopes; 0 where there are no degrees of freedom left to tell.
        suggested: the chunks in the order of their slopes: those that lose by coming late come first.
    """

    orderings: tuple[Ordering, ...]
    q: NDArray[np.float64]
    slopes: NDArray[np.float64]
    errors: NDArray[np.float64]
    suggested: Ordering

    def effects(self, places: Sequence[int], rescored: NDArray[np.float64]) -> OrderEffects:
        """In the caller's terms.

        Args:
            places: the caller's chunk for each piece that was read.
            rescored: label log-probabilities of the suggested order, shape (1, labels).
        """
        low, high = int(np.argmin(self.q)), int(np.argmax(self.q))
        return OrderEffects(
            ranks=tuple(
                RankEffect(places[c], float(b), float(b - _Z * e), float(b + _Z * e))
                for c, (b, e) in enumerate(zip(self.slopes, self.errors, strict=True))
            ),
            lowest=tuple(places[c] for c in self.orderings[low]),
            q_lowest=float(self.q[low]),
            highest=tuple(places[c] for c in self.orderings[high]),
            q_highest=float(self.q[high]),
            suggested=tuple(places[c] for c in self.suggested),
            q_suggested=float(_first(rescored)[0]),
        )


def fit(orderings: Sequence[Ordering], logprobs: NDArray[np.float64]) -> OrderFit:
    """Fit the effects.

    Args:
        orderings: the orders that were scored, shape (m, n).
        logprobs: label log-probabilities, shape (m, labels); the first label means that it is supported.
    """
    n = len(orderings[0])
    ranks = np.array([[ordering.index(c) for c in range(n)] for ordering in orderings], dtype=np.float64)
    x = ranks - (n - 1) / 2
    q = _first(logprobs)
    y = np.log(q) - np.log1p(-q)
    y = y - y.mean()
    inverse = np.linalg.pinv(x.T @ x)
    slopes = inverse @ x.T @ y
    slopes = slopes - slopes.mean()
    left = len(orderings) - n  # n - 1 effects and a mean
    spread = float(np.sum((y - x @ slopes) ** 2) / left) if left > 0 else 0.0
    errors = np.sqrt(np.maximum(np.diag(inverse) * spread, 0.0)) if left > 0 else np.full(n, math.inf)
    suggested = tuple(int(c) for c in np.argsort(slopes, kind="stable"))
    return OrderFit(tuple(orderings), q, slopes, np.nan_to_num(errors, posinf=0.0), suggested)


def _first(logprobs: NDArray[np.float64]) -> NDArray[np.float64]:
    probabilities = np.exp(np.asarray(logprobs, dtype=np.float64))
    q: NDArray[np.float64] = probabilities[:, 0] / probabilities.sum(axis=1)
    return np.clip(q, _EPS, 1.0 - _EPS)
