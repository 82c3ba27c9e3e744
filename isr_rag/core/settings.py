"""What a gate's decisions depend on, in one frozen record that cases, calibrations and decisions carry whole."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from isr_rag.core.orderings import FAMILIES, Family
from isr_rag.core.scorer import Layout
from isr_rag.errors import ConfigurationError

Convention = Literal["safe", "paper"]
OnError = Literal["raise", "abstain"]
MaxWords = int | Literal["auto"] | None


@dataclass(frozen=True, slots=True)
class Orderings:
    """Which orderings of the evidence a gate scores (Algorithm 1, line 1).

    Attributes:
        m: number of orderings, >= 1. The lowest q over more orderings is lower, so calibrations are tied to it.
        family: see `isr_rag.core.orderings.draw_orderings`.
        bands: number of bands of the `banded` family, >= 1.
        seed: seed of the draw, >= 0.
        cascade: score 3 orderings first and go on to 6 and m only near the boundary (Appendix E); stop at once when no
            remaining ordering could bring ISR to 1.

    Raises:
        ConfigurationError: for a value out of range.

    Examples:
        >>> from isr_rag import ISRGate
        >>> from isr_rag.core.settings import Orderings
        >>> from isr_rag.references import Oracle
        >>> from isr_rag.testing import FixedScorer
        >>> gate = ISRGate(FixedScorer([0.9]), Oracle(1.0), orderings=Orderings(m=12, family="banded"))
    """

    m: int = 6
    family: Family = "auto"
    bands: int = 6
    seed: int = 0
    cascade: bool = False

    def __post_init__(self) -> None:
        for name, value, least in (("m", self.m, 1), ("bands", self.bands, 1), ("seed", self.seed, 0)):
            check_count(name, value, least)
        require(self.family in FAMILIES, f"family must be one of {', '.join(FAMILIES)}, got {self.family!r}")
        require(isinstance(self.cascade, bool), f"cascade is True or False, got {self.cascade!r}")


@dataclass(frozen=True, slots=True)
class Rule:
    """How the numbers become a decision (Algorithm 1, lines 4 to 14).

    Attributes:
        clip: B, upper limit of each term of the budget in nats, > 0.
        convention: `safe`: answer iff ISR >= 1 and p_ref >= p*, with a one-sided B2T. `paper`: the paper's literal
            rule, which answers whenever ISR >= 1, in either direction.

    Raises:
        ConfigurationError: for a clip that is not above 0, or an unknown convention.
    """

    clip: float = 6.0
    convention: Convention = "safe"

    def __post_init__(self) -> None:
        require(_is_number(self.clip) and self.clip > 0.0, f"clip must be above 0 nats, got {self.clip!r}")
        known = self.convention in get_args(Convention)
        require(known, f"convention must be 'safe' or 'paper', got {self.convention!r}")
        object.__setattr__(self, "clip", float(self.clip))


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything but the evidence and the question that a decision depends on.

    Attributes:
        scorer: identity of the scorer.
        layout: how its model sees the evidence.
        h_star: target hallucination rate h* in (0, 1).
        orderings: the orderings scored.
        rule: how the numbers become a decision.
        max_words: words of evidence read at most; None for all that fits the model's window.
        rounds: most rounds of the acquisition loop that a decision is part of; 1 outside a loop.

    Raises:
        ConfigurationError: for a value out of range.
    """

    scorer: str = ""
    layout: Layout = "full"
    h_star: float = 0.05
    orderings: Orderings = field(default_factory=Orderings)
    rule: Rule = field(default_factory=Rule)
    max_words: int | None = None
    rounds: int = 1

    def __post_init__(self) -> None:
        inside = _is_number(self.h_star) and 0.0 < self.h_star < 1.0
        require(inside, f"h_star must lie in (0, 1), got {self.h_star!r}")
        if self.max_words is not None:
            check_count("max_words", self.max_words, 1)
        check_count("rounds", self.rounds, 1)
        object.__setattr__(self, "h_star", float(self.h_star))

    @property
    def p_star(self) -> float:
        """Target reliability 1 - h*."""
        return 1.0 - self.h_star

    @property
    def invariant(self) -> bool:
        """Whether the model cannot see the order of the evidence."""
        return self.layout != "full"


def check_on_error(on_error: object) -> None:
    """Raise ConfigurationError for an unknown policy."""
    require(on_error in get_args(OnError), f"on_error must be 'raise' or 'abstain', got {on_error!r}")


def check_count(name: str, value: object, least: int) -> None:
    """Raise ConfigurationError unless a setting is an integer of at least `least`."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(whole, f"{name} must be an integer of at least {least}, got {value!r}")


def require(condition: bool, message: str) -> None:
    """Raise ConfigurationError with a message unless a condition holds."""
    if not condition:
        raise ConfigurationError(message)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
