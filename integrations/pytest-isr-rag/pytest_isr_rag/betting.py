"""A bet against "this is no worse than the baseline", on the questions whose outcome changed.

Each question is compared with itself. If nothing got worse on the whole, a question that changed is as likely to have
become better as worse, or likelier. The bet spreads its money evenly over all probabilities of "worse" from 1/2 to 1.
Its wealth then exceeds 1 / alpha with probability at most alpha, at whatever question one looks (Ville's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def wealth(worse: int, better: int) -> float:
    """What a stake of 1 has become after so many questions that became worse and better."""
    n = worse + better
    tail = sum(math.comb(n + 1, k) for k in range(worse + 1))
    return _share(tail, (n + 1) * math.comb(n, worse))


def highest_wealth(changes: Iterable[int]) -> float:
    """The highest wealth on the way through the questions, in their order: 1 worse, -1 better, 0 as before."""
    highest, tail, ways, count = 1.0, 1, 1, {1: 0, -1: 0}
    for n, change in enumerate(filter(None, changes), start=1):  # the sums of `wealth`, from those of the step before
        count[change] += 1
        ways = ways * n // count[change]
        tail = 2 * tail + change * ways
        highest = max(highest, _share(tail, (n + 1) * ways))
    return highest


def _share(part: int, whole: int) -> float:
    """Their quotient, which is too large for a float after about 1,000 questions that became worse."""
    return part / whole if part.bit_length() - whole.bit_length() < 1000 else math.inf


def needed(share: float, alpha: float) -> int:
    """Number of questions with which it is noticed, with probability 80%, that a share of them became worse.

    For a change in which no question becomes better; where some do, more are needed.
    """
    least = next(w for w in range(1, 10_000) if wealth(w, 0) >= 1.0 / alpha)
    n = least
    while 1.0 - sum(math.comb(n, k) * share**k * (1.0 - share) ** (n - k) for k in range(least)) < 0.8:
        n += max(1, n // 200)
    return n
