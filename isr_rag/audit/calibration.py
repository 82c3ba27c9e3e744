"""Calibrated verdicts, and the error budget of a whole answer, for one scorer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from isr_rag._util.sealed import SealedFormat
from isr_rag.audit.statement import Probabilities
from isr_rag.calibration.artefact import logit
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.scorers.adjudicators import STANDARD

FILE = "audit.json"
_FORMAT = SealedFormat("isr-rag audit calibration", 2, InvalidInputError, "Fit it anew.")
_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Budget:
    """How the error budget of a whole answer is kept.

    The threshold is that of conformal factuality (Mohri and Hashimoto, 2024): of each labelled answer the highest
    P(supported) among its unsupported statements is kept (0 where it has none). For a new answer that is exchangeable
    with them, no unsupported statement exceeds the k-th smallest of these n numbers, k = ceil((n + 1)(1 - h*)), with
    probability at least 1 - h*.

    Attributes:
        scores: these numbers, ascending (else InvalidInputError); empty without a calibration of whole answers.
        sources: the data sets that the labelled answers come from, with how many of each.
        calibrated: whether the probabilities of the three verdicts are calibrated, rather than read off the model.
    """

    scores: tuple[float, ...] = ()
    sources: str = ""
    calibrated: bool = False

    def __post_init__(self) -> None:
        if list(self.scores) != sorted(self.scores) or not all(0.0 <= score <= 1.0 for score in self.scores):
            raise InvalidInputError("the scores of a budget are probabilities in ascending order")

    def threshold(self, h_star: float) -> float | None:
        """What P(supported) has to exceed; None where there are too few labelled answers for this h*."""
        n = len(self.scores)
        k = math.ceil((n + 1) * (1.0 - h_star) - 1e-9)
        return self.scores[k - 1] if n and k <= n else None

    def note(self, h_star: float) -> str:
        """How h* is kept, in words, and on which data that rests."""
        n = len(self.scores)
        if self.threshold(h_star) is not None:
            return (
                f"a threshold calibrated on {n} labelled answers ({self.sources}): for answers like those, with "
                f"probability {1.0 - h_star:g} nothing that is kept is unsupported"
            )
        bound = (
            f"the risks of the kept statements, each that of cases like it, sum to at most {h_star:g}, which holds as "
            "far as each of them does"
        )
        if not n:
            return f"no calibration on whole answers: {bound}"
        needed = math.ceil(1.0 / h_star - 1.0 - 1e-9)
        return f"{n} labelled answers are too few for h* = {h_star:g} ({needed} are needed): {bound}"


@dataclass(frozen=True, slots=True)
class AuditCalibration:
    """How a scorer's answers to two questions become three probabilities, and how the budget of an answer is kept.

    A multinomial logistic regression on the log-odds of q (is it supported?) and of r (is it contradicted?). Against
    "not enough", whose weights are 0, the log-odds of "supported" are a + b logit q, and those of "refuted"
    c + d logit q + e logit r, with b above 0, d at most b, and e at least 0: P(supported) never rises when q falls or r
    rises. r does not count against "supported" directly: models answer yes to it wherever support is missing.

    Attributes:
        scorer: identity of the scorer that it was fitted for; an audit with any other does not use it.
        focus: words of evidence that were read at most, as the gate's `max_words`.
        supported: a and b.
        refuted: c, d and e.
        budget: the calibration of whole answers.
        close: whether q is the lower of two: of everything that was read, and of the best chunk read alone.
        statements: labelled statements behind the weights, by verdict.
        sources: the data sets that they come from.
        metrics: figures on held-out folds, by name.
    """

    scorer: str
    focus: int | None
    supported: tuple[float, float]
    refuted: tuple[float, float, float]
    budget: Budget
    close: bool = False
    statements: Mapping[str, int] = field(default_factory=dict[str, int])
    sources: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (*self.supported, *self.refuted))):
            raise InvalidInputError("the weights of an audit calibration must be finite numbers")
        if self.supported[1] <= max(0.0, self.refuted[1] - _EPS) or self.refuted[2] < 0.0:
            raise InvalidInputError("P(supported) must rise with q and not with r, and P(refuted) not fall with r")

    def probabilities(self, q: float, r: float) -> Probabilities:
        """The three probabilities for the model's probabilities that it is supported and that it is contradicted."""
        x, y = logit(q), logit(r)
        a, b = self.supported
        c, d, e = self.refuted
        odds = (a + b * x, c + d * x + e * y, 0.0)
        highest = max(odds)
        weights = [math.exp(one - highest) for one in odds]
        supported, refuted, not_enough = (weight / math.fsum(weights) for weight in weights)
        return Probabilities(supported, refuted, not_enough)

    def check_belongs(self, scorer: str, focus: int | None) -> None:
        """Raise ConfigurationError, naming what differs, unless this was fitted for a scorer and focus."""
        if (self.scorer, self.focus) != (scorer, focus):
            raise ConfigurationError(
                f"this audit calibration was fitted for {self.scorer!r} with focus {self.focus}, not for {scorer!r} "
                f"with focus {focus}: fit one for this gate"
            )

    def save(self, path: Path) -> None:
        """Write as JSON."""
        _FORMAT.save(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> AuditCalibration:
        """Read and verify; InvalidInputError if it is not such a file, or was altered."""
        return _FORMAT.load(path, cls)


_load = lru_cache(maxsize=1)(AuditCalibration.load)


def calibration_of(scorer: str, focus: int | None) -> AuditCalibration | None:
    """The calibration that comes with this package for a scorer and focus; None where there is none."""
    found = _load(STANDARD.directory / FILE)
    return found if (found.scorer, found.focus) == (scorer, focus) else None
