"""Whether live scores still look like those that a calibration was made on: a conformal test martingale.

Each new score gets a conformal p-value: its rank among all scores before it, ties broken at random. While scores are
exchangeable (drawn alike, in any order) these p-values are independent and uniform, and a martingale that bets against
them ever reaches c with probability at most 1 / c (Ville's inequality), however long it runs. When the scores change,
it grows. The martingale is the simple jumper of online-cp (Vovk, Gammerman and Shafer, "Algorithmic Learning
in a Random World", 2nd edition, 2022, Algorithm 8.1). No label is needed, so that what is found is a change of the
scores: it is a reason to label anew, not yet a proof that more answers are wrong, and the absence of one proves nothing
about errors that leave the scores as they are.
"""

from __future__ import annotations

import math
import threading
import warnings
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from isr_rag.core.decision import Action, Decision, Reason
from isr_rag.errors import ConfigurationError, InvalidInputError

__all__ = ["ShiftWarning", "ShiftWatch"]

LEAST = 20
_JUMPS = 0.001
"""Rate at which the jumper changes its bet; of .01, .001 and a composite of five the fastest on simulated shifts."""


class ShiftWarning(UserWarning):
    """Live scores no longer look like those before."""


class RankMartingale:
    """Bets against the scores coming in no particular order.

    Args:
        scores: those that came before, in [0, 1]; no bet is made on them.
        seed: of the random order of ties.

    Raises:
        InvalidInputError: for a score outside [0, 1].
    """

    def __init__(self, scores: Iterable[float] = (), *, seed: int = 0) -> None:
        from online_cp.martingale import SimpleJumper

        self._known = sorted(_checked(score) for score in scores)
        self._jumper = cast(Any, SimpleJumper)(J=_JUMPS, store_p_values=False)  # untyped
        self._chance = np.random.default_rng(seed)

    @property
    def known(self) -> int:
        """How many scores came so far."""
        return len(self._known)

    def bet(self, score: float) -> float:
        """Bet on the rank of one more score among all before it.

        Returns:
            The martingale's value after the bet, as a natural logarithm.

        Raises:
            InvalidInputError: if it is not in [0, 1].
        """
        score = _checked(score)
        low, high = bisect_left(self._known, score), bisect_right(self._known, score)
        p_value = (low + self._chance.random() * (high - low + 1)) / (len(self._known) + 1)
        insort(self._known, score)
        self._jumper.update(float(p_value))
        self._jumper.log_martingale_values.clear()  # a history without end, which nobody reads
        return float(self._jumper.logM)


class ShiftWatch:
    """Watches the scores of live decisions; feed it every decision of one predicate, in their order.

    Safe between threads. It keeps every score that it was fed, about 10 bytes each. What it knows is lost with the
    process: give a new one the scores of a `isr_rag_server.labels.ShadowLog`, or feed it again what came since.

    Args:
        scores: those of earlier decisions, in [0, 1], 20 at least, computed as `feed` does it: the mean probability, or
            that of the best chunk read alone where that is lower. A `ShadowLog` has them.
        level: probability of ever raising a false alarm, in (0, 1); the alarm comes at evidence 1 / level.
        abstain: after an alarm `feed` turns answers into abstentions.
        seed: of the random order of ties.

    Raises:
        InvalidInputError: for fewer scores, or one outside [0, 1].
        ConfigurationError: if level lies outside (0, 1).
    """

    def __init__(self, scores: Iterable[float], *, level: float = 0.01, abstain: bool = False, seed: int = 0) -> None:
        if not 0.0 < level < 1.0:
            raise ConfigurationError(f"level must lie in (0, 1), got {level!r}")
        self._martingale = RankMartingale(scores, seed=seed)
        if self._martingale.known < LEAST:
            raise InvalidInputError(f"{self._martingale.known} scores to compare with: at least {LEAST} are needed")
        self.level, self.abstain = level, abstain
        self._lock = threading.Lock()
        self._fed, self._highest = 0, 0.0
        self._alarm_after: int | None = None

    @property
    def evidence(self) -> float:
        """The highest value that the martingale reached; 1 before the first score."""
        return math.exp(min(self._highest, 700.0))

    @property
    def fed(self) -> int:
        """How many scores it was fed."""
        return self._fed

    @property
    def alarm_after(self) -> int | None:
        """After how many scores the evidence reached 1 / level; None: not yet."""
        return self._alarm_after

    @property
    def shifted(self) -> bool:
        """Whether the evidence reached 1 / level."""
        return self._alarm_after is not None

    def feed(self, decision: Decision) -> Decision:
        """Count a decision.

        Args:
            decision: of the gate; one for which nothing was scored does not count.

        Returns:
            The same decision; with `abstain`, after an alarm, an abstention with the reason `shifted` in place of an
            answer.

        Warns:
            ShiftWarning: once, when the evidence reaches 1 / level.
        """
        if decision.q_bar is not None:
            self.feed_score(min(decision.q_bar, max(decision.q_alone, default=1.0)))
        if not (self.abstain and self.shifted and decision.answered):
            return decision
        return replace(decision, action=Action.ABSTAIN, reason=Reason.SHIFTED, detail=self._finding())

    def feed_score(self, score: float) -> float:
        """Count a score, where there is no decision at hand.

        Returns:
            The evidence so far.

        Raises:
            InvalidInputError: if it is not in [0, 1].

        Warns:
            ShiftWarning: as `feed`.
        """
        alarm = False
        with self._lock:
            self._highest = max(self._highest, self._martingale.bet(score))
            self._fed += 1
            if self._alarm_after is None and self._highest >= -math.log(self.level):
                self._alarm_after, alarm = self._fed, True
        if alarm:
            warnings.warn(self._finding(), ShiftWarning, stacklevel=3)
        return self.evidence

    def _finding(self) -> str:
        return (
            f"after {self._alarm_after} decisions the scores no longer look like those that the calibration was made "
            f"on (evidence {1.0 / self.level:.3g}): label some of the new cases and calibrate again"
        )


def _checked(score: float) -> float:
    number = float(score)
    if not 0.0 <= number <= 1.0:  # also False for NaN
        raise InvalidInputError(f"a score is a probability in [0, 1], not {score!r}")
    return number
