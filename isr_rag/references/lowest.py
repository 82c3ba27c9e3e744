"""Several references at once."""

from __future__ import annotations

from isr_rag.errors import ConfigurationError, ReferenceFailedError
from isr_rag.references.protocol import CalibratedReference, Case, CloseReference, Estimate, Reference, consult


class Lowest:
    """Several references at once: the lowest p_ref counts.

    Args:
        references: two or more.
    """

    def __init__(self, *references: Reference) -> None:
        if len(references) < 2:
            raise ConfigurationError("Lowest combines two or more references")
        given: tuple[object, ...] = references  # callers do not all check types
        for one in given:
            if not isinstance(one, Reference):
                raise ConfigurationError(f"{one!r:.80} is not a reference: wrap it in Oracle(...) or Verifier(...)")
        self._references = references

    def __repr__(self) -> str:
        return f"Lowest({', '.join(map(repr, self._references))})"

    @property
    def needs_scores(self) -> bool:
        """Whether one of them is made from the gate's own probabilities."""
        return any(reference.needs_scores for reference in self._references)

    def reads_alone(self, predicate: str) -> bool:
        """Whether one of them wants each chunk read by itself."""
        return any(isinstance(r, CloseReference) and r.reads_alone(predicate) for r in self._references)

    def ceiling(self, predicate: str | None, *, looks: int = 1) -> float | None:
        """The lowest of the highest values; None where a loop was not calibrated for one of them."""
        if looks > 1 and not all(isinstance(reference, CalibratedReference) for reference in self._references):
            return None
        own = [r.ceiling(predicate, looks=looks) for r in self._references if isinstance(r, CalibratedReference)]
        known = [value for value in own if value is not None]
        return min(known, default=1.0) if len(known) == len(own) else None

    def estimate(self, case: Case) -> Estimate:
        """The lowest estimate.

        It carries no guarantee: the cases that several references let through are a part of those that each one was
        calibrated on. A cut that one of them does not reach is not reached.

        Raises:
            ReferenceFailedError: if one fails, or two name different options.
        """
        estimates = [consult(reference, case) for reference in self._references]
        targets = {estimate.target for estimate in estimates if estimate.target is not None}
        if len(targets) > 1:
            raise ReferenceFailedError(f"the references name different options: {sorted(targets)}")
        lowest = min(estimates, key=lambda estimate: estimate.p_ref)
        return Estimate(
            lowest.p_ref,
            f"lowest of {len(estimates)}: {lowest.source}",
            target=next(iter(targets), None),
            guaranteed=False if any(estimate.guaranteed is False for estimate in estimates) else None,
            outside="; ".join(estimate.outside for estimate in estimates if estimate.outside),
            remark="; ".join(estimate.remark for estimate in estimates if estimate.remark),
            second=next((estimate.second for estimate in estimates if estimate.second is not None), None),
        )
