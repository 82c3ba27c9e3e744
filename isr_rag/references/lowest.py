"""Several references at once."""

from __future__ import annotations

from isr_rag.errors import ConfigurationError, ReferenceFailedError
from isr_rag.references.protocol import Case, Estimate, Reference, consult


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
