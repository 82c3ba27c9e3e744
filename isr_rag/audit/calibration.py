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
_LEAST = 0.05
"""Least weight of the log-odds of q."""


@dataclass(frozen=True, slots=True)
class AuditCalibration:
    """What an audit needs to know of a scorer: how its two answers become three probabilities, and the cut.

    Two logistic regressions on the log-odds of q (is it supported?) and of r (is it contradicted?):
    P(supported) = sigmoid(a + b logit q - c logit r), and of the others P(refuted) = sigmoid(d + e logit r), with b
    above 0 and c and e at least 0. P(supported) thus never rises when q falls or r rises.

    Attributes:
        scorer: identity of the scorer that it was fitted for; an audit with any other does not use it.
        focus: words of evidence that were read, as the gate's `focus`.
        supported: a, b and c.
        refuted: d and e.
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
    supported: tuple[float, float, float]
    refuted: tuple[float, float]
    budget: Budget
    close: bool = False
    statements: Mapping[str, int] = field(default_factory=dict[str, int])
    sources: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (*self.supported, *self.refuted))):
            raise InvalidInputError("the weights of an audit calibration must be finite numbers")
        if self.supported[1] <= 0.0 or self.supported[2] < 0.0 or self.refuted[1] < 0.0:
            raise InvalidInputError("P(supported) must rise with q and not with r, and P(refuted) not fall with r")

    def probabilities(self, q: float, r: float) -> Probabilities:
        """The three probabilities for the model's probabilities that it is supported and that it is contradicted."""
        x, y = _logit(q), _logit(r)
        supported = _sigmoid(self.supported[0] + self.supported[1] * x - self.supported[2] * y)
        refuted = _sigmoid(self.refuted[0] + self.refuted[1] * y)
        return Probabilities(supported, (1.0 - supported) * refuted, (1.0 - supported) * (1.0 - refuted))

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
                supported=cast(tuple[float, float, float], tuple(map(float, data["supported"]))),
                refuted=cast(tuple[float, float], tuple(map(float, data["refuted"]))),
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
) -> tuple[tuple[float, float, float], tuple[float, float]]:
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
    x, y = np.array([_logit(one) for one in q]), np.array([_logit(one) for one in r])
    said = np.array([VERDICTS.index(one) for one in verdicts])
    others = said > 0
    supported = _fit(np.column_stack([x, -y]), said == 0, least=(_LEAST, 0.0))
    refuted = _fit(y[others, None], said[others] == 1, least=(0.0,))
    return (supported[0], supported[1], supported[2]), (refuted[0], refuted[1])


def _fit(x: NDArray[np.float64], y: NDArray[np.bool_], *, least: Sequence[float]) -> tuple[float, ...]:
    """Intercept and weights of a logistic regression, each weight at least a given number."""
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise MissingDependencyError("fitting an audit calibration", error.name or "scipy", "calibrate") from error
    sign = np.where(y, 1.0, -1.0)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margin = sign * (weights[0] + x @ weights[1:])
        pull = -sign / (1.0 + np.exp(np.clip(margin, -500.0, 500.0)))
        gradient = np.concatenate([[pull.sum()], x.T @ pull + _RIDGE * weights[1:]])
        return float(np.logaddexp(0.0, -margin).sum() + 0.5 * _RIDGE * weights[1:] @ weights[1:]), gradient

    start = np.array([0.0, *(max(0.5, lowest) for lowest in least)])
    bounds = [(None, None), *((lowest, None) for lowest in least)]
    return tuple(map(float, minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x))


def highest_unsupported(supported: Sequence[float], labels: Sequence[bool]) -> float:
    """Of one labelled answer the highest P(supported) among its unsupported statements; 0 where none could go out.

    What is not more likely supported than not never goes out, so it does not count.

    Args:
        supported: P(supported) of each statement, shape (n,).
        labels: whether it is supported, shape (n,).
    """
    wrong = (p for p, right in zip(supported, labels, strict=True) if not right)
    return max((p for p in wrong if p > 0.5), default=0.0)


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0.0 else math.exp(x) / (1.0 + math.exp(x))


def _logit(p: float) -> float:
    inside = min(max(p, _EPS), 1.0 - _EPS)
    return math.log(inside) - math.log1p(-inside)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
