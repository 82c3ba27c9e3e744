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
from isr_rag.audit.result import Probabilities
from isr_rag.errors import ConfigurationError, InvalidInputError, MissingDependencyError
from isr_rag.files import write_json

KIND = "isr-rag audit calibration"
SCHEMA_VERSION = 1
FILE = "audit.json"
VERDICTS = ("supported", "refuted", "not_enough")
_EPS = 1e-6
_RIDGE = 1.0

Row = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class AuditCalibration:
    """What an audit needs to know of a scorer: how its two answers become three probabilities, and the cut.

    The probabilities are a multinomial logistic regression on the log-odds of q (is it supported?) and of r (is it
    contradicted?).

    Attributes:
        scorer: identity of the scorer that it was fitted for; an audit with any other does not use it.
        focus: words of evidence that were read, as the gate's `focus`.
        weights: for each of supported, refuted, not_enough: intercept, weight of logit q, weight of logit r.
        budget: the calibration of whole answers.
        close: q is the lower of that of all that was read and that of the best chunk read alone: a model that sees
            chunks apart from each other can take a detail of one for a detail of another.
        statements: labelled statements behind the weights, by verdict.
        sources: the data sets that they come from.
        metrics: figures on held-out folds, by name.

    Raises:
        InvalidInputError: if P(supported) would fall as q rises, or a number is not finite.
    """

    scorer: str
    focus: int | None
    weights: tuple[Row, Row, Row]
    budget: Budget
    close: bool = False
    statements: Mapping[str, int] = field(default_factory=dict[str, int])
    sources: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) for row in self.weights for number in row):
            raise InvalidInputError("the weights of an audit calibration must be finite numbers")
        slopes = [row[1] for row in self.weights]
        if slopes[0] <= max(slopes[1:]):
            raise InvalidInputError("P(supported) would fall as the model's probability q rises: fit it on other items")

    def probabilities(self, q: float, r: float) -> Probabilities:
        """The three probabilities for the model's probabilities that it is supported and that it is contradicted."""
        x, y = _logit(q), _logit(r)
        scores = [a + b * x + c * y for a, b, c in self.weights]
        top = max(scores)
        odds = [math.exp(score - top) for score in scores]
        total = math.fsum(odds)
        return Probabilities(*(one / total for one in odds))

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
                weights=cast(tuple[Row, Row, Row], tuple(tuple(map(float, data["weights"][v])) for v in VERDICTS)),
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
            "weights": dict(zip(VERDICTS, map(list, self.weights), strict=True)),
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
    q: Sequence[float], r: Sequence[float], verdicts: Sequence[str], *, ridge: float = _RIDGE
) -> tuple[Row, Row, Row]:
    """Weights of the three probabilities, by multinomial logistic regression with a ridge.

    Args:
        q: the model's probabilities that each statement is supported, shape (n,).
        r: that it is contradicted, shape (n,).
        verdicts: the labels, each of `VERDICTS`, shape (n,).
        ridge: strength of the ridge.

    Raises:
        ConfigurationError: if a verdict has no statement.
        MissingDependencyError: if scikit-learn is not installed.
    """
    missing = set(VERDICTS) - set(verdicts)
    if missing:
        raise ConfigurationError(f"no labelled statement is {' or '.join(sorted(missing))}: three verdicts need all")
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise MissingDependencyError("fitting an audit calibration", error.name or "sklearn", "calibrate") from error
    x = np.array([[_logit(a), _logit(b)] for a, b in zip(q, r, strict=True)])
    y = np.array([VERDICTS.index(one) for one in verdicts])
    fitted: Any = LogisticRegression(C=1.0 / ridge, max_iter=5000).fit(x, y)
    weights: NDArray[np.float64] = np.column_stack([fitted.intercept_, fitted.coef_])
    return cast(tuple[Row, Row, Row], tuple(tuple(map(float, row)) for row in weights))


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
