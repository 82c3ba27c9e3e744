"""Testing by betting: how sure labels make, one after the other, that answers are wrong in at most a share h*.

Each label is a bet against "more than h* of these answers are wrong" (Waudby-Smith and Ramdas, "Estimating means of
bounded random variables by betting", 2024; Shafer, "Testing by betting", 2021). A fraction b of an account is put on
"right": a right answer multiplies the account by 1 + b h* / (1 - h*), a wrong one by 1 - b. Where more than h* of the
answers are wrong no such account grows in expectation, so that the wealth is a test supermartingale, an e-process: it
ever reaches 1 / delta with probability at most delta (Ville's inequality). One may therefore look after each label,
stop whenever one likes, and go on later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from isr_rag.errors import CalibrationError

BETS = ((0.2, 1.0), (0.5, 0.75), (0.3, 0.5))
"""Accounts: the share of the first unit of wealth, and the fraction b that the account bets each time. The first is the
fastest without an error and lost with the first one; the others go on after errors."""

_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Wager:
    """Where a sequence of labels has led.

    Attributes:
        right: right answers counted.
        wrong: wrong answers counted.
        log_wealth: natural logarithm of the wealth after the last label; the first unit is 0.
        highest: the highest it ever was.
        released_at: after how many labels the wealth first reached 1 / delta; None: not yet.
    """

    right: int
    wrong: int
    log_wealth: float
    highest: float
    released_at: int | None


def log_wealth(right: int, wrong: int, h_star: float) -> float:
    """Natural logarithm of the wealth after so many right and wrong answers, in any order."""
    gain = h_star / (1.0 - h_star)
    accounts = [
        math.log(share) + right * math.log1p(bet * gain) + (wrong * math.log1p(-bet) if wrong else 0.0)
        for share, bet in BETS
        if bet < 1.0 or not wrong  # an account that bets everything is lost with the first wrong answer
    ]
    top = max(accounts)
    return top + math.log(math.fsum(math.exp(account - top) for account in accounts))


def wager(rights: Iterable[bool], h_star: float, delta: float) -> Wager:
    """Bet on labels one after the other.

    Args:
        rights: whether each answer is right, in an order that was fixed without looking at them.
        h_star: share of wrong answers to stay under, in (0, 1).
        delta: probability to be wrong about that, in (0, 1).

    Raises:
        CalibrationError: if h_star or delta lies outside (0, 1).
    """
    check_target(h_star, delta)
    right = wrong = 0
    now, highest, released_at = 0.0, 0.0, None
    for holds in rights:
        right, wrong = right + bool(holds), wrong + (not holds)
        now = log_wealth(right, wrong, h_star)
        highest = max(highest, now)
        if released_at is None and _enough(now, delta):
            released_at = right + wrong
    return Wager(right, wrong, now, highest, released_at)


def right_answers_needed(h_star: float, delta: float, *, right: int = 0, wrong: int = 0) -> int:
    """Further labels that release a cut if all of them are right answers.

    Args:
        h_star: as in `wager`.
        delta: as in `wager`.
        right: right answers counted so far.
        wrong: wrong answers counted so far.

    Raises:
        CalibrationError: if h_star or delta lies outside (0, 1), or more than a million labels would be needed.
    """
    check_target(h_star, delta)
    low, high = -1, 1  # not enough at low, enough at high
    while not _enough(log_wealth(right + high, wrong, h_star), delta):
        low, high = high, 2 * high
        if high > _MOST:
            raise CalibrationError(f"more than {_MOST:,} labels would be needed at h_star={h_star} and delta={delta}")
    while high - low > 1:
        middle = (low + high) // 2
        if middle >= 0 and _enough(log_wealth(right + middle, wrong, h_star), delta):
            high = middle
        else:
            low = middle
    return high


def check_target(h_star: float, delta: float) -> None:
    """Whether h* and delta lie in (0, 1).

    Raises:
        CalibrationError: if not.
    """
    for name, value in (("h_star", h_star), ("delta", delta)):
        if not 0.0 < value < 1.0:
            raise CalibrationError(f"{name} must lie strictly between 0 and 1, not {value}")


def _enough(wealth: float, delta: float) -> bool:
    return wealth >= -math.log(delta)
