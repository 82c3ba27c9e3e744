"""The reference protocol and the references that need no model of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from isr_rag.calibration.artefact import CalibrationArtefact
from isr_rag.errors import ConfigurationError, ISRError, ReferenceFailedError
from isr_rag.evidence import Chunk
from isr_rag.predicates import Choice, Predicate
from isr_rag.wording import compare


@dataclass(frozen=True, slots=True)
class Case:
    """What a reference may look at.

    Attributes:
        predicate: what is asked.
        chunks: the evidence as the caller gave it (never the focused cut).
        q: probability of g = 1 for each ordering scored; empty when the reference does not need scores.
        scorer: identity of the scorer, to which calibrations are tied.
        family: family of the orderings.
        m: number of orderings the gate stands for.
        focus: words of evidence the gate reads; None for all.
        h_star: the gate's target hallucination rate.
    """

    predicate: Predicate
    chunks: tuple[Chunk, ...]
    q: tuple[float, ...]
    scorer: str
    family: str
    m: int
    focus: int | None
    h_star: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A reference's word about one case.

    Attributes:
        p_ref: probability of g = 1 in [0, 1]; a lower confidence bound where it is calibrated.
        source: where it comes from, in words.
        target: index of the label that means g = 1, for predicates that leave it open (``Choice``).
        guaranteed: whether a calibrated cut with a finite-sample guarantee is reached; None when none was asked for.
    """

    p_ref: float
    source: str
    target: int | None = None
    guaranteed: bool | None = None


@runtime_checkable
class Reference(Protocol):
    """Something that can be trusted about a predicate.

    ``needs_scores`` promises, where True, that the estimate depends on ``case.q`` and never falls when a q rises.
    """

    @property
    def needs_scores(self) -> bool:
        """Whether the estimate is made from the gate's own probabilities."""
        ...

    def estimate(self, case: Case) -> Estimate:
        """P_ref(g = 1) for this case."""
        ...


@runtime_checkable
class Calibration(Protocol):
    """Turns the score of something fallible into a lower bound on the probability that g = 1."""

    def lower(self, score: float) -> float:
        """Lower probability for a score in [0, 1]."""
        ...


def consult(reference: Reference, case: Case) -> Estimate:
    """A reference's estimate, checked.

    Raises:
        ReferenceFailedError: if the reference raises, or returns no probability or a label that is not there.
        ISRError: the package's own errors pass as they are.
    """
    try:
        estimate = reference.estimate(case)
    except ISRError:
        raise
    except Exception as error:
        raise ReferenceFailedError(
            f"the reference {type(reference).__name__} raised {type(error).__name__}: {error}"
        ) from error
    name, given = type(reference).__name__, cast(object, estimate)
    if not isinstance(given, Estimate):
        raise ReferenceFailedError(f"the reference {name} returned {given!r}, which is no Estimate")
    probability(given.p_ref, name)
    target, labels = cast(object, given.target), len(case.predicate.label_names)
    if target is not None and not (type(target) is int and 0 <= target < labels):
        raise ReferenceFailedError(f"the reference {name} names the label {target!r}, of {labels}")
    return given


def target_of(predicate: Predicate, estimate: Estimate) -> int:
    """Index of the label that means g = 1: the one that the reference names, else the predicate's own.

    Raises:
        ConfigurationError: if neither names one.
    """
    target = predicate.target if estimate.target is None else estimate.target
    if target is None:
        raise ConfigurationError(
            f"{type(predicate).__name__} needs a reference that names the right option: ToolChoice(...)"
        )
    return target


def probability(value: object, source: str) -> float:
    """A value as a float in [0, 1].

    Raises:
        ReferenceFailedError: if it is anything else, NaN included.
    """
    try:
        number = float(value)  # type: ignore[arg-type]  # numbers of any library; the except below names the rest
    except (TypeError, ValueError) as error:
        raise ReferenceFailedError(f"{source} returned {value!r}, which is no number") from error
    if not 0.0 <= number <= 1.0:  # also False for NaN
        raise ReferenceFailedError(f"{source} returned {number!r}, which is no probability in [0, 1]")
    return number


class Oracle:
    """A deterministic oracle: rules engine, database, gold label (instantiation i): p_ref = its value.

    Args:
        value: a truth value or probability, or a callable that gives one for a :class:`Case`.
    """

    needs_scores = False

    def __init__(self, value: float | Callable[[Case], float]) -> None:
        if not callable(value):
            _check_setting(value)
        self._value = value

    def __repr__(self) -> str:
        return f"Oracle({self._value!r})"

    def estimate(self, case: Case) -> Estimate:
        """The oracle's value for this case."""
        value = self._value(case) if callable(self._value) else self._value
        return Estimate(probability(value, "the oracle"), "oracle")


def _check_setting(value: object) -> None:
    try:
        probability(value, "the value")
    except ReferenceFailedError as error:
        raise ConfigurationError(f"{value!r} is no probability in [0, 1] and no callable") from error


class ToolChoice:
    """A tool or knowledge base that returns the right option of a :class:`Choice` (instantiation ii).

    g is "the model picks the tool's option"; p_ref = 1, and q is that option's renormalised probability.

    Args:
        tool: gives the right option, as its text or its index, for a :class:`Case`; or that option itself.
    """

    needs_scores = False

    def __init__(self, tool: str | int | Callable[[Case], str | int]) -> None:
        self._tool = tool

    def __repr__(self) -> str:
        return f"ToolChoice({self._tool!r})"

    def estimate(self, case: Case) -> Estimate:
        """p_ref = 1 for the tool's option.

        Raises:
            ConfigurationError: if the predicate is no Choice.
            ReferenceFailedError: if the tool names no option.
        """
        if not isinstance(case.predicate, Choice):
            raise ConfigurationError("ToolChoice decides about a Choice; use an Oracle or a Verifier for others")
        option, options = self._tool(case) if callable(self._tool) else self._tool, case.predicate.options
        if isinstance(option, str) and option in options:
            index = options.index(option)
        elif isinstance(option, int) and not isinstance(option, bool) and 0 <= option < len(options):
            index = option
        else:
            raise ReferenceFailedError(f"the tool returned {option!r}, which is none of the options {options}")
        return Estimate(1.0, f"tool: {options[index]}", index)


class Verifier:
    """A verifier V of the drafted answer or claim (instantiation iii).

    Args:
        verify: takes a :class:`Case`; returns a verdict (0 or 1, bool) or a score in [0, 1].
        calibration: what the score is worth. None: ``verify`` is a deterministic check (unit tests, a constraint, a
            database) whose 0 or 1 counts as it stands, and any other score is refused. A
            :class:`~isr_rag.calibration.NoisyChannel` or :class:`~isr_rag.calibration.VennAbers`: the lower
            probability it gives for the score. A learned verifier counts only with its calibration.
    """

    needs_scores = False

    def __init__(self, verify: Callable[[Case], float], *, calibration: Calibration | None = None) -> None:
        if not callable(verify):
            raise ConfigurationError("verify must be a callable that takes a Case")
        self._verify, self._calibration = verify, calibration

    def __repr__(self) -> str:
        return f"Verifier({self._verify!r}, calibration={self._calibration!r})"

    def estimate(self, case: Case) -> Estimate:
        """The verdict, or the lower probability that its calibration gives."""
        score = probability(self._verify(case), "the verifier")
        if self._calibration is not None:
            lower = probability(self._calibration.lower(score), "the calibration")
            return Estimate(lower, f"verifier {score:.3g}, calibrated lower bound")
        if score not in (0.0, 1.0):
            raise ReferenceFailedError(
                f"the verifier returned {score:.3g}: a score between 0 and 1 counts only with a calibration "
                "(calibration=NoisyChannel(...) or VennAbers(...))"
            )
        return Estimate(score, "verifier")


class CalibratedMixture:
    """p_ref from the calibrated mean probability of the gate's own orderings, as a lower bound.

    Where the artefact has a :class:`~isr_rag.calibration.Combination`, the mean counts together with the wording:
    how much of what is judged stands in the evidence word by word.

    Args:
        calibration: an artefact fitted on labelled data (see :mod:`isr_rag.calibration`), refused where it does not
            belong to the gate's scorer, predicate, family of orderings, m and focus; or a bare calibration, for which
            you vouch.
        delta: also hold the answer to the artefact's Learn-then-Test cut for (the gate's h*, delta), so that the
            hallucination rate among the answered exceeds h* with probability at most delta over the labelled items.

    Raises:
        ConfigurationError: if delta is given without an artefact, or lies outside (0, 1).
    """

    needs_scores = True

    def __init__(self, calibration: CalibrationArtefact | Calibration, *, delta: float | None = None) -> None:
        if delta is not None and not (0.0 < delta < 1.0 and isinstance(calibration, CalibrationArtefact)):
            raise ConfigurationError(f"delta needs a CalibrationArtefact and a value in (0, 1), got {delta!r}")
        self.calibration = calibration
        self.delta = delta

    def __repr__(self) -> str:
        own = self.calibration
        named = f"sha256={own.sha256}" if isinstance(own, CalibrationArtefact) else repr(own)
        return f"CalibratedMixture({named}, delta={self.delta})"

    def estimate(self, case: Case) -> Estimate:
        """The lower probability at the mean over the orderings, or at what the artefact makes of it and the wording.

        Raises:
            ConfigurationError: for a predicate that leaves the target label open (``Choice``).
            CalibrationMismatchError: if the artefact does not belong to this gate, or has no cut for (h*, delta).
        """
        if not case.q:
            raise ConfigurationError(
                "CalibratedMixture needs a predicate with a fixed target label; use ToolChoice for a Choice"
            )
        mean = math.fsum(case.q) / len(case.q)
        score, source = mean, "calibrated mixture, lower bound"
        template, guaranteed = case.predicate.template, None
        calibration = self.calibration
        if isinstance(calibration, CalibrationArtefact):
            fitted = calibration.check_belongs(
                scorer=case.scorer, predicate=template, orderings=case.family, m=case.m, focus=case.focus
            )
            if fitted.combination is not None:
                wording = compare(case.predicate, case.chunks)
                score = fitted.score(mean, wording)
                source = f"calibrated mixture and wording ({wording}), lower bound"
            if self.delta is not None:
                guaranteed = calibration.cut(template, case.h_star, self.delta).allows(score)
            calibration = fitted.calibrator
        lower = probability(calibration.lower(score), "the calibration")
        return Estimate(lower, source, guaranteed=guaranteed)


class Lowest:
    """Several references at once: the lowest lower bound counts.

    Args:
        references: two or more.
    """

    def __init__(self, *references: Reference) -> None:
        if len(references) < 2:
            raise ConfigurationError("Lowest combines two or more references")
        self._references = references

    def __repr__(self) -> str:
        return f"Lowest({', '.join(map(repr, self._references))})"

    @property
    def needs_scores(self) -> bool:
        """Whether one of them is made from the gate's own probabilities."""
        return any(reference.needs_scores for reference in self._references)

    def estimate(self, case: Case) -> Estimate:
        """The lowest estimate.

        Raises:
            ReferenceFailedError: if one fails, or two name different options.
        """
        estimates = [consult(reference, case) for reference in self._references]
        targets = {estimate.target for estimate in estimates if estimate.target is not None}
        if len(targets) > 1:
            raise ReferenceFailedError(f"the references name different options: {sorted(targets)}")
        lowest = min(estimates, key=lambda estimate: estimate.p_ref)
        guarantees = [estimate.guaranteed for estimate in estimates if estimate.guaranteed is not None]
        return Estimate(
            lowest.p_ref,
            f"lowest of {len(estimates)}: {lowest.source}",
            target=next(iter(targets), None),
            guaranteed=all(guarantees) if guarantees else None,
        )
