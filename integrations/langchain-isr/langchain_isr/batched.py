"""A runnable that does many inputs at once, and one as a batch of one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig, RunnableSerializable

from isr_rag import AnswerAudit, Decision, ISRError
from isr_rag.errors import InvalidTypeError
from langchain_isr.common import State, text_of
from langchain_isr.quiet import judging

StateOrError = State | Exception
T = TypeVar("T")
Judged = TypeVar("Judged", Decision, AnswerAudit)


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


class Judging(Batched, Generic[Judged]):
    """What a gate makes of many inputs, scored together: an event and a result, or an error, for each of them.

    Attributes:
        event: name of the custom event that carries what the gate made of an input.
        answer_key: where an input holds the draft.
    """

    event: ClassVar[str]
    answer_key: str

    @abstractmethod
    def _judge(self, inputs: Sequence[Mapping[str, Any]]) -> Sequence[Judged]:
        """What the gate makes of the inputs; raises for the first that it cannot judge."""

    @abstractmethod
    async def _ajudge(self, inputs: Sequence[Mapping[str, Any]]) -> Sequence[Judged]:
        """As `_judge`, without blocking the event loop."""

    @abstractmethod
    def _outcome(self, state: State, judged: Judged) -> StateOrError:
        """What becomes of an input."""

    def _told(self, judged: Judged) -> dict[str, Any]:
        """What the event says."""
        return judged.to_dict()

    def judged(self, inputs: Sequence[Mapping[str, Any]]) -> list[Judged | ISRError]:
        """What the gate makes of the inputs, without run or event; one that fails has its error instead."""
        try:
            with judging(*self._drafts(inputs)):
                return list(self._judge(inputs))
        except ISRError as error:
            # One bad input must not take the others with it: each gets its own result or its own error.
            return [error] if len(inputs) == 1 else [self.judged([state])[0] for state in inputs]

    async def ajudged(self, inputs: Sequence[Mapping[str, Any]]) -> list[Judged | ISRError]:
        """As `judged`, without blocking the event loop."""
        try:
            with judging(*self._drafts(inputs)):
                return list(await self._ajudge(inputs))
        except ISRError as error:
            return [error] if len(inputs) == 1 else [(await self.ajudged([state]))[0] for state in inputs]

    def _drafts(self, inputs: Sequence[Mapping[str, Any]]) -> list[str]:
        given = [state.get(self.answer_key) for state in inputs if isinstance(state, Mapping)]
        return [text_of(draft) for draft in given if isinstance(draft, (str, BaseMessage))]

    def _many(self, inputs: list[State], config: list[RunnableConfig]) -> list[StateOrError]:
        results = self.judged(inputs)
        for judged, own in zip(results, config, strict=True):
            if not isinstance(judged, ISRError):
                dispatch_custom_event(self.event, self._told(judged), config=own)
        return self._outcomes(inputs, results)

    async def _amany(self, inputs: list[State], config: list[RunnableConfig]) -> list[StateOrError]:
        results = await self.ajudged(inputs)
        for judged, own in zip(results, config, strict=True):
            if not isinstance(judged, ISRError):
                await adispatch_custom_event(self.event, self._told(judged), config=own)
        return self._outcomes(inputs, results)

    def _outcomes(self, inputs: list[State], results: list[Judged | ISRError]) -> list[StateOrError]:
        pairs = zip(inputs, results, strict=True)
        return [one if isinstance(one, ISRError) else self._outcome(state, one) for state, one in pairs]


def as_run(function: Callable[..., Any]) -> Any:
    """A function of inputs and configurations: langchain-core calls it rightly, but its types know no such form."""
    return function


def checked_state(state: object) -> Mapping[str, Any]:
    """An input, if it is a mapping.

    Raises:
        InvalidTypeError: if it is none.
    """
    if not isinstance(state, Mapping):
        raise InvalidTypeError(
            f"the gate takes a dict with question and documents, not {type(state).__name__}: after a retriever, write "
            '{"question": RunnablePassthrough(), "documents": retriever} | ISRGate(), or use ISRRetriever'
        )
    return state  # pyright: ignore[reportUnknownVariableType]  # keys of any kind; only known ones are read


def raised(outcome: T | Exception) -> T:
    """A result, unless it is an error."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
