"""What a reference is: the case it looks at, the estimate it gives, and how one is consulted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, cast, runtime_checkable

from isr_rag.core.evidence import Chunk
from isr_rag.core.predicates import Predicate
from isr_rag.core.settings import Settings
from isr_rag.errors import ConfigurationError, ISRError, ReferenceFailedError


@dataclass(frozen=True, slots=True)
class Case:
    """What a reference may look at.

    Attributes:
        predicate: what is asked.
        chunks: the evidence as the caller gave it (never cut).
        settings: of the gate; calibrations belong to them.
        q: probability of g = 1 for each ordering scored; empty when the reference does not need scores.
        alone: probability of g = 1 for each chunk read alone, in the order of those that were read; empty where
            the reference does not ask for it (`CloseReference`) and where there is one chunk, which is read alone
            anyway.
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

    Attributes:
        p_ref: probability of g = 1 in [0, 1]; where it is calibrated, what `guarantee` says.
        source: where it comes from, in words.
        target: index of the label that means g = 1, for predicates that leave it open (`Choice`).
        guaranteed: whether a calibrated cut with a finite-sample guarantee is reached; None when none was asked for.
        guarantee: what a calibrated p_ref promises, `selective` or `pointwise`; empty where nothing was calibrated.
        outside: what about the case lies outside of what was calibrated; then p_ref means nothing and the gate
            abstains. Empty where nothing does.
        remark: what a user should know beyond the numbers, e.g. that no evidence could reach the target.
        pointwise: a lower bound on the probability that this very case holds, where p_ref is not one itself.
        lowest_h_star: where no evidence can reach the case's h*: the lowest target that some can; None elsewhere.
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
        """The highest p_ref that any evidence can bring.

        Args:
            predicate: template of the predicate; None: the best of all that were calibrated.
            rounds: most rounds of the loop of acquisition; 1: a single decision.

        Returns:
            None where the loop was not calibrated, or the reference does not know its ceiling.
        """
        ...


@runtime_checkable
class Calibration(Protocol):
    """Turns the score of something fallible into a lower bound on the probability that g = 1."""

    def lower(self, score: float) -> float:
        """Lower probability for a score in [0, 1]."""
        ...


def checked_calibration(calibration: object) -> None:
    """Refuse what has no `lower(score)`.

    Raises:
        ConfigurationError: if it is not a calibration.
    """
    if isinstance(calibration, str) or not isinstance(calibration, Calibration):  # a str also has `lower`
        raise ConfigurationError(
            f"{calibration!r:.80} is not a calibration: give what was fitted (VennAbers, NoisyChannel), or for a file "
            "CalibrationArtefact.load(path)"
        )


def consult(reference: Reference, case: Case) -> Estimate:
    """A reference's estimate, checked.

    Raises:
        ReferenceFailedError: if the reference raises, or returns no probability or a label that is not there.
        ISRError: the package's own errors pass as they are.
    """
    name = type(reference).__name__
    try:
        given = cast(object, reference.estimate(case))
    except ISRError:
        raise
    except Exception as error:
        raise ReferenceFailedError(f"the reference {name} raised {type(error).__name__}: {error}") from error
    if not isinstance(given, Estimate):
        raise ReferenceFailedError(f"the reference {name} returned {given!r}, which is not an Estimate")
    p_ref = probability(given.p_ref, name)
    target, labels = cast(object, given.target), len(case.predicate.label_names)
    if target is not None and not (type(target) is int and 0 <= target < labels):
        raise ReferenceFailedError(f"the reference {name} names the label {target!r}, of {labels}")
    return given if type(given.p_ref) is float else replace(given, p_ref=p_ref)


def target_of(predicate: Predicate, estimate: Estimate) -> int:
    """Index of the label that means g = 1: the one that the reference names, else the predicate's own.

    Raises:
        ConfigurationError: if neither names one.
    """
    target = predicate.target if estimate.target is None else estimate.target
    if target is None:
        name = type(predicate).__name__
        raise ConfigurationError(f"{name} needs a reference that names the right option: ToolReference(...)")
    return target


def probability(value: object, source: str) -> float:
    """A value as a float in [0, 1].

    Raises:
        ReferenceFailedError: if it is anything else, NaN included.
    """
    try:
        number = float(value)  # type: ignore[arg-type]  # numbers of any library; the except below names the rest
    except (TypeError, ValueError) as error:
        raise ReferenceFailedError(f"{source} returned {value!r}, which is not a number") from error
    if not 0.0 <= number <= 1.0:  # also False for NaN
        raise ReferenceFailedError(f"{source} returned {number!r}, which is not a probability in [0, 1]")
    return number


def out_of_reach(predicate: str, highest: float, h_star: float) -> str:
    """That a target is out of reach."""
    return (
        f"no evidence can reach 1 - h* = {1.0 - h_star:.4g} for {predicate}: the highest p_ref of its calibration is "
        f"{highest:.4f}"
    )


def below_target(predicate: str, highest: float, h_star: float) -> str:
    """That a target is out of reach, and what to do."""
    fact = out_of_reach(predicate, highest, h_star)
    lowest = math.ceil(1e3 * (1.0 - highest) - 1e-6) / 1e3
    return f"{fact}. Choose h_star >= {lowest:g}, or calibrate on more labelled items"
