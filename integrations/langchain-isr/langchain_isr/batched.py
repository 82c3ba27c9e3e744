"""A runnable that does many inputs at once, and one as a batch of one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig, RunnableSerializable

from isr_rag.errors import InvalidTypeError
from langchain_isr.common import State

StateOrError = State | Exception
T = TypeVar("T")


class Batched(RunnableSerializable[State, State]):
    """Runs, events and errors of LangChain around two methods that do many inputs at once."""

    @abstractmethod
    def _many(self, inputs: list[State], config: list[RunnableConfig]) -> list[StateOrError]:
        """A result or an error for each input."""

    @abstractmethod
    async def _amany(self, inputs: list[State], config: list[RunnableConfig]) -> list[StateOrError]:
        """As `_many`, without blocking the event loop."""

    def invoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> State:
        """Run for one input."""
        return self._call_with_config(as_run(self._one), input, config, **kwargs)

    async def ainvoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> State:
        """As `invoke`, without blocking the event loop."""
        return await self._acall_with_config(as_run(self._aone), input, config, **kwargs)

    def batch(
        self,
        inputs: list[State],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[State]:
        """Run for many inputs, scored together; each result is the same as alone."""
        return self._batch_with_config(
            as_run(self._many), inputs, config, return_exceptions=return_exceptions, **kwargs
        )

    async def abatch(
        self,
        inputs: list[State],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[State]:
        """As `batch`, without blocking the event loop."""
        return await self._abatch_with_config(
            as_run(self._amany), inputs, config, return_exceptions=return_exceptions, **kwargs
        )

    def _one(self, state: State, config: RunnableConfig) -> State:
        return raised(self._many([state], [config])[0])

    async def _aone(self, state: State, config: RunnableConfig) -> State:
        return raised((await self._amany([state], [config]))[0])


def as_run(function: Callable[..., Any]) -> Any:
    """A function of inputs and configurations: langchain-core calls it rightly, but its types know no such form."""
    return function


def checked_state(state: object) -> Mapping[str, Any]:
    """An input, if it is a mapping.

    Raises:
        InvalidTypeError: if it is none.
    """
    if not isinstance(state, Mapping):
        raise InvalidTypeError(f"the gate takes a dict with question and documents, not {type(state).__name__}")
    return state  # pyright: ignore[reportUnknownVariableType]  # keys of any kind; only known ones are read


def raised(outcome: T | Exception) -> T:
    """A result, unless it is an error."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
