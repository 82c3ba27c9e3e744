"""A tool that names the right option as the reference (Section 2.5.1, instantiation ii)."""

from __future__ import annotations

from collections.abc import Callable

from isr_rag.errors import ConfigurationError, ReferenceFailedError
from isr_rag.predicates import Choice
from isr_rag.references.protocol import Case, Estimate


class ToolChoice:
    """A tool or knowledge base that returns the right option of a `Choice` (instantiation ii).

    g is "the model picks the tool's option"; p_ref = 1, and q is that option's renormalised probability.

    Args:
        tool: gives the right option, as its text or its index, for a `Case`; or that option itself.
    """

    needs_scores = False

    def __init__(self, tool: str | int | Callable[[Case], str | int]) -> None:
        self._tool = tool

    def __repr__(self) -> str:
        return f"ToolChoice({self._tool!r})"

    def estimate(self, case: Case) -> Estimate:
        """p_ref = 1 for the tool's option.

        Raises:
            ConfigurationError: if the predicate is not a Choice.
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
            raise ReferenceFailedError(f"the tool returned {option!r}, which is not one of the options {options}")
        return Estimate(1.0, f"tool: {options[index]}", index)
