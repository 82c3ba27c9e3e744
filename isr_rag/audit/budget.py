"""How the error budget of a whole answer is kept: a cut calibrated on whole answers, or the sum of the risks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isr_rag.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Budget:
    """What `AnswerAudit.releasable` decides with.

    The cut is that of conformal factuality (Mohri and Hashimoto, 2024): of each labelled answer the highest
    P(supported) among its unsupported statements is kept (0 where it has none). For a new answer that is exchangeable
    with them, no unsupported statement exceeds the k-th smallest of these n numbers, k = ceil((n + 1)(1 - h*)), with
    probability at least 1 - h*.

    Attributes:
        scores: these numbers, ascending; empty where there is no calibration of whole answers.
        sources: the data sets that the labelled answers come from, with how many of each.
        calibrated: whether the probabilities of the three verdicts are calibrated, rather than read off the model.
    """

    scores: tuple[float, ...] = ()
    sources: str = ""
    calibrated: bool = False

    def threshold(self, h_star: float) -> float | None:
        """The number that P(supported) has to exceed; None where there are too few answers for this h*."""
        n = len(self.scores)
        k = math.ceil((n + 1) * (1.0 - h_star) - 1e-9)
        return self.scores[k - 1] if n and k <= n else None

    def note(self, h_star: float) -> str:
        """In words what keeps to h*, and what it rests on."""
        n = len(self.scores)
        if self.threshold(h_star) is not None:
            return (
                f"a cut calibrated on {n} labelled answers ({self.sources}): over answers like those, nothing kept is "
                f"unsupported with probability {1.0 - h_star:g}"
            )
        bound = (
            f"the risks (1 - p_ref) of the kept statements sum to at most {h_star:g}, which holds as each p_ref does"
        )
        if not n:
            return f"no calibration on whole answers: {bound}"
        needed = math.ceil(1.0 / h_star - 1.0 - 1e-9)
        return f"{n} labelled answers are too few for h* = {h_star:g} ({needed} are needed): {bound}"

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {**dataclasses.asdict(self), "scores": list(self.scores)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Budget:
        """The inverse of `to_dict`.

        Raises:
            InvalidInputError: if the numbers are not probabilities in ascending order.
        """
        scores = tuple(float(score) for score in data["scores"])
        if list(scores) != sorted(scores) or not all(0.0 <= score <= 1.0 for score in scores):
            raise InvalidInputError("the scores of a budget are probabilities in ascending order")
        return cls(scores, str(data["sources"]), bool(data["calibrated"]))
