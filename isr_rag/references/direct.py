"""References that need no calibration of the gate's own scores (Section 2.5.1), and the lowest of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from isr_rag.core.predicates import Choice
from isr_rag.core.settings import (
    CalibratedReference,
    Calibration,
    Case,
    CloseReference,
    Estimate,
    FittedReference,
    Reference,
    Settings,
    checked_calibration,
    consult,
    probability,
)
from isr_rag.errors import ConfigurationError, ReferenceFailedError


class Oracle:
    """A deterministic oracle: rules engine, database, gold label (instantiation i): p_ref = its value.

    Args:
        value: a truth value or probability, or a callable that gives one for a `Case`.

    Examples:
        >>> from isr_rag import ISRGate
        >>> from isr_rag.references import Oracle
        >>> from isr_rag.testing import FixedScorer
        >>> gate = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(lambda case: len(case.chunks) > 1))
        >>> gate.decide(["It rains."], claim="It rains.").p_ref
        0.0
    """

    needs_scores = False

    def __init__(self, value: float | Callable[[Case], float]) -> None:
        if not callable(value):
            try:
                probability(value, "the value")
            except ReferenceFailedError as error:
                raise ConfigurationError(f"{value!r} is not a probability in [0, 1] and not a callable") from error
        self._value = value

    def __repr__(self) -> str:
        return f"Oracle({self._value!r})"

    def estimate(self, case: Case) -> Estimate:
        """The oracle's value for this case."""
        value = self._value(case) if callable(self._value) else self._value
        return Estimate(probability(value, "the oracle"), "oracle")


class ToolReference:
    """A tool or knowledge base that returns the right option of a `Choice` (instantiation ii).

    g is "the model picks the tool's option"; p_ref = 1, and q is that option's renormalised probability.

    Args:
        tool: gives the right option, as its text or its index, for a `Case`; or that option itself.
    """

    needs_scores = False

    def __init__(self, tool: str | int | Callable[[Case], str | int]) -> None:
        self._tool = tool

    def __repr__(self) -> str:
        return f"ToolReference({self._tool!r})"

    def estimate(self, case: Case) -> Estimate:
        """p_ref = 1 for the tool's option.

        Raises:
            ConfigurationError: if the predicate is not a Choice.
            ReferenceFailedError: if the tool names no option.
        """
        if not isinstance(case.predicate, Choice):
            raise ConfigurationError("ToolReference decides about a Choice; use an Oracle or a Verifier for others")
        option, options = self._tool(case) if callable(self._tool) else self._tool, case.predicate.options
        if isinstance(option, str) and option in options:
            index = options.index(option)
        elif isinstance(option, int) and not isinstance(option, bool) and 0 <= option < len(options):
            index = option
        else:
            raise ReferenceFailedError(f"the tool returned {option!r}, which is not one of the options {options}")
        return Estimate(1.0, f"tool: {options[index]}", index)


class Verifier:
    """A verifier V of the drafted answer or claim (instantiation iii).

    Args:
        verify: takes a `Case`; returns a verdict (0 or 1, bool) or a score in [0, 1].
        calibration: what the score is worth (`NoisyChannel`, `VennAbers`); a learned verifier needs one. None: `verify`
            is a deterministic check whose 0 or 1 counts as it stands, and any other score is refused.
    """

    needs_scores = False

    def __init__(self, verify: Callable[[Case], float], *, calibration: Calibration | None = None) -> None:
        if not callable(verify):
            raise ConfigurationError("verify must be a callable that takes a Case")
        if calibration is not None:
            checked_calibration(calibration)
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
                "(calibration=NoisyChannel.fit(...) or VennAbers.fit(...))"
            )
        return Estimate(score, "verifier")


class MinReference:
    """Several references at once, two or more: the lowest p_ref counts."""

    def __init__(self, *references: Reference) -> None:
        if len(references) < 2:
            raise ConfigurationError("MinReference combines two or more references")
        for one in references:
            if not isinstance(cast(object, one), Reference):
                raise ConfigurationError(f"{one!r:.80} is not a reference: wrap it in Oracle(...) or Verifier(...)")
        self._references = references

    def __repr__(self) -> str:
        return f"MinReference({', '.join(map(repr, self._references))})"

    @property
    def needs_scores(self) -> bool:
        """Whether one of them is made from the gate's own probabilities."""
        return any(reference.needs_scores for reference in self._references)

    def reads_alone(self, predicate: str) -> bool:
        """Whether one of them wants each chunk read by itself."""
        return any(isinstance(r, CloseReference) and r.reads_alone(predicate) for r in self._references)

    def check_belongs(self, settings: Settings) -> None:
        """Raise CalibrationMismatchError if one of them was fitted for the settings of another gate."""
        for reference in self._references:
            if isinstance(reference, FittedReference):
                reference.check_belongs(settings)

    def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
        """Upper bound on this reference's p_ref; None if one of them has no calibration of such a loop."""
        calibrated = [r for r in self._references if isinstance(r, CalibratedReference)]
        known = [value for r in calibrated if (value := r.ceiling(predicate, rounds=rounds)) is not None]
        complete = len(known) == (len(calibrated) if rounds == 1 else len(self._references))
        return min(known, default=1.0) if complete else None

    def estimate(self, case: Case) -> Estimate:
        """The lowest estimate; ReferenceFailedError if one fails, or two name different options.

        It carries no guarantee: the cases that several references let through are a part of those that each one was
        calibrated on. A threshold that one of them does not reach is not reached.
        """
        estimates = [consult(reference, case) for reference in self._references]
        targets = {one.target for one in estimates if one.target is not None}
        if len(targets) > 1:
            raise ReferenceFailedError(f"the references name different options: {sorted(targets)}")
        lowest = min(estimates, key=lambda one: one.p_ref)
        return Estimate(
            lowest.p_ref,
            f"lowest of {len(estimates)}: {lowest.source}",
            target=next(iter(targets), None),
            guaranteed=False if any(one.guaranteed is False for one in estimates) else None,
            outside="; ".join(one.outside for one in estimates if one.outside),
            remark="; ".join(one.remark for one in estimates if one.remark),
            pointwise=min(one.of_this_case for one in estimates),
            lowest_h_star=max((one.lowest_h_star for one in estimates if one.lowest_h_star is not None), default=None),
        )
