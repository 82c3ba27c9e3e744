"""Keeps an undecided draft out of streams, checkpoints, stores, handlers and errors; only tracers see it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler, BaseCallbackManager, CallbackManager
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence, ensure_config
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tracers.base import AsyncBaseTracer, BaseTracer
from langchain_core.tracers.log_stream import LogStreamCallbackHandler
from langchain_core.tracers.root_listeners import AsyncRootListenersTracer, RootListenersTracer

from isr_rag.errors import ConfigurationError, ISRError

NO_STREAM = "nostream"
"""The tag by which LangGraph leaves a model out of its message streams."""

# What feeds `astream_log`, `astream_events` and the listeners of `with_listeners` is a tracer too.
_TRACERS = (BaseTracer, AsyncBaseTracer)
_TELLING = (LogStreamCallbackHandler, RootListenersTracer, AsyncRootListenersTracer)

# Where LangGraph keeps what it hands from a graph to the graphs inside its nodes. Its names for them are private.
_INTERNAL = "__pregel_"
_CHECKPOINTER = "__pregel_checkpointer"
_RUNTIME = "__pregel_runtime"
_OF_A_CHECKPOINT = frozenset({"checkpoint_id", "checkpoint_map", "checkpoint_ns"})


class DraftFailedError(ISRError, ValueError):
    """A draft could not be read; what the error said may quote the draft, so it goes to tracers only."""


def quiet_config(config: RunnableConfig | None = None) -> RunnableConfig:
    """A configuration under which nothing that runs reaches a stream, a handler, a store or a checkpoint of the caller.

    A graph that runs under it is a graph of its own: it hands no events to the graph around it, has no stream writer,
    reads the store without writing to it, and keeps no checkpoints, not even with a checkpointer of its own. Tracers,
    such as LangSmith's, still see everything.

    Args:
        config: the configuration to start from; the running one by default.
    """
    quiet = ensure_config(config)
    quiet["tags"] = [*(quiet.get("tags") or []), NO_STREAM]
    callbacks = quiet.get("callbacks")
    if isinstance(callbacks, BaseCallbackManager):
        manager = callbacks.copy()
        manager.handlers = _tracers(callbacks.handlers)
        manager.inheritable_handlers = _tracers(callbacks.inheritable_handlers)
        manager.add_tags([NO_STREAM])
        quiet["callbacks"] = cast(CallbackManager | AsyncCallbackManager, manager)
    elif callbacks is not None:
        quiet["callbacks"] = _tracers(callbacks)
    if settings := quiet.get("configurable"):
        quiet["configurable"] = _alone(settings)
    return quiet


def _alone(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run without what ties it to the graph around it."""
    own = {k: v for k, v in settings.items() if not k.startswith(_INTERNAL) and k not in _OF_A_CHECKPOINT}
    own[_CHECKPOINTER] = None
    if (runtime := settings.get(_RUNTIME)) is not None:
        own[_RUNTIME] = muted(runtime)
    return own


def muted(runtime: Any) -> Any:
    """LangGraph's runtime with a stream writer that writes nowhere, and a store that can only be read."""
    from langchain_isr.read_only import ReadOnlyStore

    store = runtime.store if runtime.store is None else ReadOnlyStore(runtime.store)
    return replace(runtime, stream_writer=_nowhere, store=store)


def _nowhere(_: Any) -> None:
    pass


@contextmanager
def quietly() -> Generator[None, None, None]:
    """Everything called inside runs under `quiet_config` of the running configuration, and fails as `unread` says."""
    token = var_child_runnable_config.set(quiet_config())
    try:
        yield
    except Exception as error:
        raise unread(error) from None
    finally:
        var_child_runnable_config.reset(token)


def unread(error: Exception) -> Exception:
    """The error of a draft without what it quotes of it.

    A parser says what it could not parse, in a `ValueError` or in one of LangChain's errors on structured output. Any
    other error, such as that of a connection, stays what it is.
    """
    if isinstance(error, ISRError) or not (isinstance(error, ValueError) or hasattr(error, "ai_message")):
        return error
    kind = f"{type(error).__module__}.{type(error).__name__}"
    return DraftFailedError(f"the draft raised {kind}; what it says may quote the draft, and only tracers are told")


def refuse_memory(draft: Runnable[Any, Any]) -> None:
    """Refuse a draft that remembers what it said before a gate has decided.

    Raises:
        ConfigurationError: for a `RunnableWithMessageHistory`, alone or as a step of a chain.
    """
    steps = draft.steps if isinstance(draft, RunnableSequence) else [draft]
    if any(isinstance(step, RunnableWithMessageHistory) for step in steps):
        raise ConfigurationError("the draft keeps a history of what is undecided yet: put the history around the gate")


def _tracers(handlers: list[BaseCallbackHandler]) -> list[BaseCallbackHandler]:
    return [handler for handler in handlers if isinstance(handler, _TRACERS) and not isinstance(handler, _TELLING)]
