"""What a gate is given besides evidence and question: its settings, and a reference that says what can be trusted.

`Settings` is one frozen record that cases, calibrations and decisions carry whole. A `Reference` looks at a `Case` and
gives an `Estimate`; `consult` asks it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, Protocol, cast, get_args, runtime_checkable

from isr_rag.core.evidence import Chunk
from isr_rag.core.orderings import FAMILIES, Family
from isr_rag.core.predicates import Predicate
from isr_rag.core.scorer import ORDERED, Layout
from isr_rag.errors import ConfigurationError, ISRError, ReferenceFailedError

Convention = Literal["safe", "paper"]
OnError = Literal["raise", "abstain"]
MaxWords = int | Literal["auto"] | None
_TEXTS = ("source", "guarantee", "outside", "remark")  # of an estimate


@dataclass(frozen=True, slots=True)
class Orderings:
    """Which orderings of the evidence a gate scores (Algorithm 1, line 1); ConfigurationError for a value out of range.

    Attributes:
        m: number of orderings, >= 1; calibrations are tied to it.
        family: see `isr_rag.core.orderings.draw_orderings`.
        bands: number of bands of the `banded` family, >= 1.
        seed: seed of the draw, >= 0.
        cascade: score 3 orderings first and go on to 6 and m only near the boundary (Appendix E); stop at once when no
            remaining ordering could bring ISR to 1.
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
    """How the numbers become a decision (Algorithm 1, lines 4 to 14); ConfigurationError for a value out of range.

    Attributes:
        clip: B, upper limit of each term of the budget in nats, > 0.
        convention: `safe`: answer iff ISR >= 1 and p_ref >= p*, with a one-sided B2T. `paper`: the paper's literal
            rule, which answers whenever ISR >= 1, in either direction.
        exact: a claim or draft whose quotations and numbers are not in the evidence is not answered, whatever the
            model says (`isr_rag.core.exact`); not by the paper's literal rule.
    """

    clip: float = 6.0
    convention: Convention = "safe"
    exact: bool = True

    def __post_init__(self) -> None:
        require(_is_number(self.clip) and self.clip > 0.0, f"clip must be above 0 nats, got {self.clip!r}")
        known = self.convention in get_args(Convention)
        require(known, f"convention must be 'safe' or 'paper', got {self.convention!r}")
        require(isinstance(self.exact, bool), f"exact is True or False, got {self.exact!r}")
        object.__setattr__(self, "clip", float(self.clip))


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything but evidence and question that a decision depends on; ConfigurationError for a value out of range.

    Attributes:
        scorer: identity of the scorer.
        layout: how its model sees the evidence.
        h_star: target hallucination rate h* in (0, 1).
        orderings: the orderings scored.
        rule: how the numbers become a decision.
        max_words: words of evidence read at most; None for all that fits the model's window.
        rounds: most rounds of the acquisition loop that a decision is part of; 1 outside a loop.
    """

    scorer: str = ""
    layout: Layout = "full"
    h_star: float = 0.05
    orderings: Orderings = field(default_factory=Orderings)
    rule: Rule = field(default_factory=Rule)
    max_words: int | None = None
    rounds: int = 1

    def __post_init__(self) -> None:
        require(self.layout in get_args(Layout), f"layout is one of {get_args(Layout)}, not {self.layout!r:.80}")
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
        return self.layout not in ORDERED


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
    return isinstance(value, Real) and not isinstance(value, bool) and bool(value < math.inf)


@dataclass(frozen=True, slots=True)
class Case:
    """What a reference may look at.

    Attributes:
        predicate: what is asked.
        chunks: the evidence as the caller gave it (never cut).
        settings: of the gate; calibrations belong to them.
        q: probability of g = 1 for each ordering scored; empty when the reference does not need scores.
        alone: probability of g = 1 for each chunk read alone, in the order read; empty for a single chunk, and where
            the reference does not ask for it (`CloseReference`).
        shown: the chunks as the scorer read them, cut to the gate's number of words; empty: `chunks` as they are.
    """

    predicate: Predicate
    chunks: tuple[Chunk, ...]
    settings: Settings
    q: tuple[float, ...] = ()
    alone: tuple[float, ...] = ()
    shown: tuple[Chunk, ...] = ()

    @property
    def read(self) -> int:
        """Number of chunks that the scorer read."""
        return len(self.shown or self.chunks)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A reference's word about one case.

    Attributes: p_ref: probability of g = 1 in [0, 1]; where `selective`, the share that holds among cases at least as
    sure. source: where it comes from, in words. target: index of the label that means g = 1, for predicates that leave
    it open (`Choice`). guaranteed: whether a threshold with a finite-sample guarantee is reached; None when none was
    asked for. guarantee: what a calibrated p_ref promises, `selective` or `pointwise`; empty where nothing was
    calibrated. outside: what about the case was not calibrated: p_ref then means nothing and the gate abstains. Empty
    otherwise. remark: what a user should know beyond the numbers. pointwise: a cautious estimate for cases about as
    sure as this one, true on average over cases. lowest_h_star: where no evidence can reach the case's h*: the lowest
    target that some can; None elsewhere.
    """

    p_ref: float
    source: str
    target: int | None = None
    guaranteed: bool | None = None
    guarantee: str = ""
    outside: str = ""
    remark: str = ""
    pointwise: float | None = None
    lowest_h_star: float | None = None

    @property
    def of_this_case(self) -> float:
        """A lower bound on the probability that this very case holds; 0 where only a rate over cases is known."""
        if self.pointwise is not None:
            return self.pointwise
        return 0.0 if self.guarantee == "selective" else self.p_ref


@runtime_checkable
class Reference(Protocol):
    """Something that can be trusted about a predicate.

    `needs_scores` promises, where True, that the estimate depends on `case.q` and never falls when a q rises.
    """

    @property
    def needs_scores(self) -> bool:
        """Whether the estimate is made from the gate's own probabilities."""
        ...

    def estimate(self, case: Case) -> Estimate:
        """P_ref(g = 1) for this case."""
        ...


@runtime_checkable
class CloseReference(Reference, Protocol):
    """A reference that also wants to know what the model says of each chunk alone (`Case.alone`)."""

    def reads_alone(self, predicate: str) -> bool:
        """Whether it does for this predicate's template; each chunk then costs a pass of its own."""
        ...


@runtime_checkable
class CalibratedReference(Reference, Protocol):
    """A reference that knows the highest p_ref it can give, so that targets out of reach are refused at once."""

    def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
        """The highest p_ref that any evidence can bring; None where that is not known, or the loop was not calibrated.

        `predicate` is its template (None: the best of all), `rounds` the most of the loop (1: a single decision).
        """
        ...


@runtime_checkable
class FittedReference(Reference, Protocol):
    """A reference that belongs to one scorer and its settings, so that any other gate is refused at once."""

    def check_belongs(self, settings: Settings) -> None:
        """Raise CalibrationMismatchError for the settings of a gate that it was not fitted for."""
        ...


@runtime_checkable
class Calibration(Protocol):
    """Turns the score of something fallible into a lower bound on the probability that g = 1."""

    def lower(self, score: float) -> float:
        """Lower probability for a score in [0, 1]."""
        ...


def checked_calibration(calibration: object) -> None:
    """Raise ConfigurationError for what has no `lower(score)`."""
    if isinstance(calibration, str) or not isinstance(calibration, Calibration):  # a str also has `lower`
        wanted = "give what was fitted (VennAbers, NoisyChannel), or for a file CalibrationArtefact.load(path)"
        raise ConfigurationError(f"{calibration!r:.80} is not a calibration: {wanted}")


def consult(reference: Reference, case: Case) -> Estimate:
    """A reference's estimate in plain values: whatever else it raises or returns becomes a ReferenceFailedError."""
    name = type(reference).__name__
    try:
        given = cast(object, reference.estimate(case))
        if not isinstance(given, Estimate):
            raise ReferenceFailedError(f"the reference {name} returned {given!r}, which is not an Estimate")
        p_ref = probability(given.p_ref, name)
        if (target := cast(object, given.target)) is not None:
            labels = len(case.predicate.render(case.chunks[:1]).labels)
            if not (type(target) is int and 0 <= target < labels):
                raise ReferenceFailedError(f"the reference {name} names the label {target!r}, of {labels}")
        guaranteed = None if given.guaranteed is None else bool(given.guaranteed)  # numpy's False is not False
        pointwise = None if given.pointwise is None else probability(given.pointwise, f"{name} (pointwise)")
        lowest = None if given.lowest_h_star is None else probability(given.lowest_h_star, f"{name} (lowest_h_star)")
        texts: dict[str, Any] = {one: str(getattr(given, one) or "") for one in _TEXTS}
        return replace(given, p_ref=p_ref, guaranteed=guaranteed, pointwise=pointwise, lowest_h_star=lowest, **texts)
    except ISRError:
        raise
    except Exception as error:
        raise ReferenceFailedError(f"the reference {name} failed with {type(error).__name__}: {error}") from error


def target_of(predicate: Predicate, estimate: Estimate) -> int:
    """Index of the label that means g = 1; ConfigurationError if neither reference nor predicate names one."""
    target = predicate.target if estimate.target is None else estimate.target
    if target is None:
        name = type(predicate).__name__
        raise ConfigurationError(f"{name} needs a reference that names the right option: ToolReference(...)")
    return target


def probability(value: object, source: str) -> float:
    """A value as a float in [0, 1]; ReferenceFailedError for anything else, NaN included."""
    try:
        number = float(value)  # type: ignore[arg-type]  # numbers of any library; the except below names the rest
    except (TypeError, ValueError, OverflowError) as error:
        raise ReferenceFailedError(f"{source} returned {value!r:.80}, which is not a number") from error
    if not 0.0 <= number <= 1.0:  # also False for NaN
        raise ReferenceFailedError(f"{source} returned {number!r}, which is not a probability in [0, 1]")
    return number


def out_of_reach(predicate: str, highest: float, h_star: float) -> str:
    """That a target is out of reach."""
    target = f"1 - h* = {1.0 - h_star:.4g} for {predicate}"
    return f"no evidence can reach {target}: the highest p_ref of its calibration is {highest:.4f}"


def lowest_target(highest: float) -> float:
    """The lowest h* that the highest p_ref reaches, rounded up to three places, so that it is reached as written."""
    return math.ceil(1e3 * (1.0 - highest) - 1e-6) / 1e3


def below_target(predicate: str, highest: float, h_star: float) -> str:
    """That a target is out of reach, and what to do."""
    fact = out_of_reach(predicate, highest, h_star)
    return f"{fact}. Choose h_star >= {lowest_target(highest):g}, or calibrate on more labelled items"
