"""A drafting chain behind gates: no call of the model after an abstention, and no draft out before its release."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, cast

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.runnables import AddableDict, Runnable, RunnableConfig
from pydantic import BeforeValidator, ConfigDict, WithJsonSchema, model_validator

from isr_rag import Decision, ISRError
from isr_rag.errors import ConfigurationError, InvalidTypeError
from isr_rag.gate.acquisition import SUFFICIENT, SUPPORTED, require_answerable
from isr_rag.gate.adapters import MESSAGE, unread
from langchain_isr.batched import Batched, StateOrError, as_run, checked_state, raised
from langchain_isr.common import EVENT, KEY, ISRAbstained, State, handed, step, text_of
from langchain_isr.gate import ISRGate, no_text
from langchain_isr.quiet import quiet_config, quietly, refuse_telling

_RUNNABLE = WithJsonSchema({"type": "object", "title": "a runnable"})


class ISRChain(Batched):
    """Gate, draft, gate: takes `{"question", "documents"?}` and adds `"isr"` and `"answer"`.

    After an abstention `answer` is `message`, and the documents stay. With a gate before drafting only, tokens are
    streamed as they come. With a gate after it, the draft runs unseen by every stream of the caller (`stream`,
    `astream_events`, `astream_log`, LangGraph's streams) and by every callback handler but tracers, writes to no store
    of LangGraph, and nothing is released before the decision. A batch is scored together.

    Args:
        draft: takes the state and returns a draft, as a string or a message.
        before: decides whether the evidence suffices: an `ISRGate`, `ISRRetriever(...).as_gate()`, or any
            runnable that adds `"isr"` to the state.
        after: decides whether the evidence supports the draft.
        message: takes the place of the answer after an abstention.

    Raises:
        ValidationError: if there is neither a gate before nor one after, or one that could never answer.
        InvalidTypeError: for a function or a gate of `isr_rag` in the place of a runnable.
        ISRAbstained: after an abstention, where the gate that decided has `on_abstain="raise"`.
        ISRError: as the gates.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    draft: Annotated[Runnable[State, Any], BeforeValidator(step), _RUNNABLE]
    before: Annotated[Runnable[State, State] | None, BeforeValidator(step), _RUNNABLE] = None
    after: Annotated[ISRGate | None, BeforeValidator(step)] = None
    message: str = MESSAGE

    @model_validator(mode="after")
    def _can_answer(self) -> ISRChain:
        if self.before is None and self.after is None:
            raise ConfigurationError("a chain without a gate decides nothing: give before=ISRGate() or after=ISRGate()")
        if isinstance(self.before, ISRGate):
            require_answerable(self.before.core("before"), SUFFICIENT)
        if self.after is not None and self.after.answer_key != "answer":
            raise ConfigurationError(
                f"the chain puts its draft under 'answer', and this gate judges {self.after.answer_key!r}: leave out "
                "its answer_key"
            )
        if self.after is not None:
            require_answerable(self.after.core("after"), SUPPORTED)
            refuse_telling(self.draft)
        return self

    @property
    def first(self) -> Runnable[State, State]:
        """The gate before drafting, which leaves it to this chain to stop after an abstention."""
        assert self.before is not None
        if not isinstance(self.before, ISRGate):
            return self.before
        policy = "annotate" if self.before.on_abstain == "withhold" else self.before.on_abstain
        return self.before.model_copy(update={"on_abstain": policy, "other_texts": "pass"})  # the draft comes later

    def stream(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[State]:
        """The state in pieces that add up: the gated part first, then the answer."""
        return self.transform(iter([input]), config, **kwargs)

    def transform(self, input: Iterator[State], config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[State]:
        """As `stream`, for an input that comes in pieces."""
        yield from self._transform_stream_with_config(input, as_run(self._pieces), config, **kwargs)

    async def astream(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[State]:
        """As `stream`, without blocking the event loop."""

        async def whole() -> AsyncIterator[State]:
            yield input

        async for piece in self.atransform(whole(), config, **kwargs):
            yield piece

    async def atransform(
        self, input: AsyncIterator[State], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[State]:
        """As `transform`, without blocking the event loop."""
        async for piece in self._atransform_stream_with_config(input, as_run(self._apieces), config, **kwargs):
            yield piece

    def _many(self, inputs: list[State], config: list[RunnableConfig]) -> list[StateOrError]:
        work = _Work(self, inputs, config)
        if self.before is not None and work.open:
            work.gated(self.first.batch(work.states(), work.configs(), return_exceptions=True))
        if work.open:
            with self._drafting():
                work.drafted(self.draft.batch(work.handed(), work.configs(quiet=True), return_exceptions=True))
        if self.after is not None and work.open:
            silent = [self._silent(state) for state in work.states()]
            judged = self.after.judged(work.worded(silent))
            for decision, own in work.decided(silent, judged):
                dispatch_custom_event(EVENT, decision.to_dict(), config=own)
        return work.outcomes

    async def _amany(self, inputs: list[State], config: list[RunnableConfig]) -> list[StateOrError]:
        work = _Work(self, inputs, config)
        if self.before is not None and work.open:
            work.gated(await self.first.abatch(work.states(), work.configs(), return_exceptions=True))
        if work.open:
            with self._drafting():
                work.drafted(await self.draft.abatch(work.handed(), work.configs(quiet=True), return_exceptions=True))
        if self.after is not None and work.open:
            silent = [self._silent(state) for state in work.states()]
            judged = await self.after.ajudged(work.worded(silent))
            for decision, own in work.decided(silent, judged):
                await adispatch_custom_event(EVENT, decision.to_dict(), config=own)
        return work.outcomes

    def _silent(self, state: State) -> Decision | None:
        """The abstention about a draft without text; None where there is something to ask the gate, or to refuse."""
        assert self.after is not None
        try:
            item = self.after.item(state)
            return no_text(self.after.core("after"), item["question"], item["answer"])
        except ISRError:
            return None

    def _drafting(self) -> AbstractContextManager[None]:
        """Where a draft is made that is decided about later: the steps of a chain read the context too."""
        return nullcontext() if self.after is None else quietly()

    def _pieces(self, input: Iterator[State], config: RunnableConfig) -> Iterator[State]:
        state = _whole(list(input))
        if self.after is not None or self.before is None:
            yield AddableDict(self._one(state, config))
            return
        state = self.first.invoke(state, config)
        yield AddableDict({name: value for name, value in state.items() if name != "answer"})
        if not _answers(state):
            yield AddableDict(answer=self.message)
            return
        for piece in self.draft.stream(handed(state), config):
            if text := text_of(piece):
                yield AddableDict(answer=text)

    async def _apieces(self, input: AsyncIterator[State], config: RunnableConfig) -> AsyncIterator[State]:
        state = _whole([piece async for piece in input])
        if self.after is not None or self.before is None:
            yield AddableDict(await self._aone(state, config))
            return
        state = await self.first.ainvoke(state, config)
        yield AddableDict({name: value for name, value in state.items() if name != "answer"})
        if not _answers(state):
            yield AddableDict(answer=self.message)
            return
        async for piece in self.draft.astream(handed(state), config):
            if text := text_of(piece):
                yield AddableDict(answer=text)


class _Work:
    """The items of one call: each open until an abstention, an error, or its answer."""

    def __init__(self, chain: ISRChain, inputs: list[State], config: list[RunnableConfig]) -> None:
        self._chain, self._config = chain, config
        self.outcomes = [_undecided(state) for state in inputs]
        self.open = [i for i, outcome in enumerate(self.outcomes) if not isinstance(outcome, Exception)]

    def states(self) -> list[State]:
        """The open items."""
        return [cast(State, self.outcomes[i]) for i in self.open]

    def handed(self) -> list[State]:
        """The open items for the drafts."""
        return [handed(state) for state in self.states()]

    def configs(self, *, quiet: bool = False) -> list[RunnableConfig]:
        """Their configurations; silent for drafts that are not decided about yet."""
        silent = quiet and self._chain.after is not None
        return [quiet_config(self._config[i]) if silent else self._config[i] for i in self.open]

    def gated(self, results: list[Any]) -> None:
        """Note what the gate before drafting said."""

        def note(i: int, result: Any) -> bool:
            self.outcomes[i] = result
            if isinstance(result, Exception):
                return False
            if not _answers(result):
                self.outcomes[i] = {**result, "answer": self._chain.message}
                return False
            return True

        self._each(results, note)

    def drafted(self, results: list[Any]) -> None:
        """Note the drafts; they stay inside while a gate is still to come."""

        def note(i: int, result: Any) -> bool:
            try:
                drafted = {"answer": text_of(raised(result))}
            except Exception as error:
                self.outcomes[i] = error if self._chain.after is None else cast(Exception, unread(error))
                return False
            self.outcomes[i] = {**cast(State, self.outcomes[i]), **drafted}
            return True

        self._each(results, note)

    def worded(self, silent: list[Decision | None]) -> list[State]:
        """The open items with a draft that has a text."""
        return [state for state, stated in zip(self.states(), silent, strict=True) if stated is None]

    def decided(self, silent: list[Decision | None], judged: list[Any]) -> list[tuple[Decision, RunnableConfig]]:
        """Release or withhold each draft; returns the decisions with the configurations of their runs."""
        rest = iter(judged)
        results = [next(rest) if stated is None else stated for stated in silent]
        made: list[tuple[Decision, RunnableConfig]] = []

        def note(i: int, result: Any) -> bool:
            if isinstance(result, Decision):
                made.append((result, self._config[i]))
                self.outcomes[i] = self._released(cast(State, self.outcomes[i]), result)
            else:
                self.outcomes[i] = result
            return False

        self._each(results, note)
        return made

    def _released(self, state: State, decision: Decision) -> StateOrError:
        assert self._chain.after is not None
        if decision.answered or self._chain.after.on_abstain == "annotate":
            return {**state, KEY: decision.to_dict()}
        if self._chain.after.on_abstain == "raise":
            return ISRAbstained(decision, state[self._chain.after.documents_key])
        return {**state, KEY: decision.to_dict(), "answer": self._chain.message}

    def _each(self, results: list[Any], note: Callable[[int, Any], bool]) -> None:
        """Apply results to the open items; those for which `note` says so stay open."""
        self.open = [i for i, result in zip(self.open, results, strict=True) if note(i, result)]


def _undecided(state: State) -> StateOrError:
    """A state without what looks like a draft or a decision already: they are not of this chain, and count for none."""
    try:
        return {name: value for name, value in checked_state(state).items() if name not in ("answer", KEY)}
    except InvalidTypeError as error:
        return error


def _whole(pieces: list[State]) -> State:
    state: State = {}
    for piece in pieces:
        state = dict(AddableDict(state) + AddableDict(checked_state(piece)))
    return {name: value for name, value in state.items() if name not in ("answer", KEY)}


def _answers(state: State) -> bool:
    """Whether a gated state goes on to the draft; anything but a clear answer does not."""
    decision = state.get(KEY)
    return isinstance(decision, dict) and cast(State, decision).get("action") == "answer"
