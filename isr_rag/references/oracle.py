"""A deterministic oracle as the reference (Section 2.5.1, instantiation i)."""

from __future__ import annotations

from collections.abc import Callable

from isr_rag.errors import ConfigurationError, ReferenceFailedError
from isr_rag.references.protocol import Case, Estimate, probability


class Oracle:
    """A deterministic oracle: rules engine, database, gold label (instantiation i): p_ref = its value.

    Args:
        value: a truth value or probability, or a callable that gives one for a `Case`.
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
        raise ConfigurationError(f"{value!r} is not a probability in [0, 1] and not a callable") from error
