"""Calibrated verdicts and the cut of `releasable`, fitted on labelled statements and answers of one scorer."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isr_rag.adjudicators import ADJUDICATORS
from isr_rag.audit.budget import Budget
from isr_rag.audit.statement import Probabilities
from isr_rag.errors import ConfigurationError, InvalidInputError, MissingDependencyError
from isr_rag.files import write_json

KIND = "isr-rag audit calibration"
SCHEMA_VERSION = 2
FILE = "audit.json"
VERDICTS = ("supported", "refuted", "not_enough")
_EPS = 1e-6
_RIDGE = 1.0
_LEAST = 0.05
"""Least weight of the log-odds of q."""


@dataclass(frozen=True, slots=True)
class AuditCalibration:
    """What an audit needs to know of a scorer: how its two answers become three probabilities, and the cut.

    A multinomial logistic regression on the log-odds of q (is it supported?) and of r (is it contradicted?). Against
    "not enough", whose weights are 0, the log-odds of "supported" are a + b logit q, and those of "refuted"
    c + d logit q + e logit r, with b above 0, d at most b, and e at least 0: P(supported) never rises when q falls or r
    rises. The sign of d is left to the labels: evidence that speaks of the same things raises both verdicts. r does not
    count against "supported" directly: models answer yes to it wherever support is missing, most of all on sources
    that they do not know.

    Attributes:
        scorer: identity of the scorer that it was fitted for; an audit with any other does not use it.
        focus: words of evidence that were read, as the gate's `focus`.
        supported: a and b.
        refuted: c, d and e.
        budget: the calibration of whole answers.
        close: q is the lower of that of all that was read and that of the best chunk read alone: a model that sees
            chunks apart from each other can take a detail of one for a detail of another.
        statements: labelled statements behind the weights, by verdict.
        sources: the data sets that they come from.
        metrics: figures on held-out folds, by name.

    Raises:
        InvalidInputError: if a number is not finite, or of the wrong sign.
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
        x, y = _logit(q), _logit(r)
        a, b = self.supported
        c, d, e = self.refuted
        odds = (a + b * x, c + d * x + e * y, 0.0)
        highest = max(odds)
        weights = [math.exp(one - highest) for one in odds]
        supported, refuted, not_enough = (weight / math.fsum(weights) for weight in weights)
        return Probabilities(supported, refuted, not_enough)

    def check_belongs(self, scorer: str, focus: int | None) -> None:
        """Refuse any other scorer or focus than those that this was fitted for.

        Raises:
            ConfigurationError: naming what differs.
        """
        if (self.scorer, self.focus) != (scorer, focus):
            raise ConfigurationError(
                f"this audit calibration was fitted for {self.scorer!r} with focus {self.focus}, not for {scorer!r} "
                f"with focus {focus}: fit one for this gate"
            )

    def save(self, path: Path) -> None:
        """Write as JSON."""
        content = self._content()
        write_json(path, {**content, "sha256": _digest(content)})

    @classmethod
    def load(cls, path: Path) -> AuditCalibration:
        """Read and verify.

        Raises:
            FileNotFoundError: if there is no such file.
            InvalidInputError: if it is not one, or was altered.
        """
        try:
            parsed: object = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise InvalidInputError(f"{path} is not a JSON file: {error}") from error
        data = cast(dict[str, Any], parsed) if isinstance(parsed, dict) else {}
        stated = data.pop("sha256", None)
        if data.get("kind") != KIND or data.get("schema_version") != SCHEMA_VERSION or stated != _digest(data):
            raise InvalidInputError(f"{path} is not an {KIND} of version {SCHEMA_VERSION}, or was altered: fit it anew")
        try:
            return cls(
                scorer=str(data["scorer"]),
                focus=None if data["focus"] is None else int(data["focus"]),
                supported=cast(tuple[float, float], tuple(map(float, data["supported"]))),
                refuted=cast(tuple[float, float, float], tuple(map(float, data["refuted"]))),
                budget=Budget.from_dict(data["budget"]),
                close=bool(data["close"]),
                statements=data["statements"],
                sources=str(data["sources"]),
                metrics=data["metrics"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"{path} is damaged: {error!r}") from error

    def _content(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "scorer": self.scorer,
            "focus": self.focus,
            "supported": list(self.supported),
            "refuted": list(self.refuted),
            "budget": self.budget.to_dict(),
            "close": self.close,
            "statements": dict(self.statements),
            "sources": self.sources,
            "metrics": dict(self.metrics),
        }


def calibration_of(scorer: str, focus: int | None) -> AuditCalibration | None:
    """The calibration that comes with this package for a scorer and focus; None where there is none."""
    for one in ADJUDICATORS.values():
        found = _shipped(one.directory / FILE)
        if found is not None and found.scorer == scorer and found.focus == focus:
            return found
    return None


@lru_cache(maxsize=8)
def _shipped(path: Path) -> AuditCalibration | None:
    return AuditCalibration.load(path) if path.is_file() else None


def fit_verdicts(
    q: Sequence[float], r: Sequence[float], verdicts: Sequence[str]
) -> tuple[tuple[float, float], tuple[float, float, float]]:
    """`supported` and `refuted` of an `AuditCalibration`, by maximum likelihood with a light ridge and bounded signs.

    Args:
        q: the model's probabilities that each statement is supported, shape (n,).
        r: that it is contradicted, shape (n,).
        verdicts: the labels, each of `VERDICTS`, shape (n,).

    Raises:
        ConfigurationError: if a verdict has no statement.
        MissingDependencyError: if scipy is not installed.
    """
    missing = set(VERDICTS) - set(verdicts)
    if missing:
        raise ConfigurationError(f"no labelled statement is {' or '.join(sorted(missing))}: three verdicts need all")
    try:
        from scipy.optimize import minimize
        from scipy.special import log_softmax
    except ImportError as error:
        raise MissingDependencyError("fitting an audit calibration", error.name or "scipy", "calibrate") from error
    x, y = np.array([_logit(one) for one in q]), np.array([_logit(one) for one in r])
    said = np.array([VERDICTS.index(one) for one in verdicts])
    none = np.zeros_like(x)

    def loss(weights: NDArray[np.float64]) -> float:
        a, b, c, less, e = weights
        odds = np.column_stack([a + b * x, c + (b - less) * x + e * y, none])
        slopes = np.array([b, b - less, e])
        return float(0.5 * _RIDGE * slopes @ slopes - log_softmax(odds, axis=1)[np.arange(len(said)), said].sum())

    free, at_least_0 = (None, None), (0.0, None)
    bounds = [free, (_LEAST, None), free, at_least_0, at_least_0]
    found = minimize(loss, np.array([0.0, 0.5, 0.0, 0.5, 0.5]), method="L-BFGS-B", bounds=bounds)
    a, b, c, less, e = map(float, found.x)
    return (a, b), (c, b - less, e)


def highest_unsupported(supported: Sequence[float], labels: Sequence[bool]) -> float:
    """Of one labelled answer the highest P(supported) among its unsupported statements; 0 where none could go out.

    What is not more likely supported than not never goes out, so it does not count.

    Args:
        supported: P(supported) of each statement, shape (n,).
        labels: whether it is supported, shape (n,).
    """
    wrong = (p for p, right in zip(supported, labels, strict=True) if not right)
    return max((p for p in wrong if p > 0.5), default=0.0)


def _logit(p: float) -> float:
    inside = min(max(p, _EPS), 1.0 - _EPS)
    return math.log(inside) - math.log1p(-inside)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
