"""Keeps an undecided draft out of streams, checkpoints, caches, stores, handlers, logs and errors.

Only tracers see it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from dis import get_instructions
from functools import partial
from inspect import isroutine
from types import CellType, CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any, NoReturn, cast

from langchain_core.callbacks import (
    AsyncCallbackManager,
    BaseCallbackHandler,
    BaseCallbackManager,
    CallbackManager,
    UsageMetadataCallbackHandler,
)
from langchain_core.documents import Document
from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, ensure_config
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tracers.base import AsyncBaseTracer, BaseTracer
from langchain_core.tracers.context import _configure_hooks  # pyright: ignore[reportPrivateUsage]
from langchain_core.tracers.log_stream import LogStreamCallbackHandler
from langchain_core.tracers.root_listeners import AsyncRootListenersTracer, RootListenersTracer
from pydantic import BaseModel

from isr_rag.errors import ConfigurationError
from isr_rag.gate.adapters import drafting, unquoted
from langchain_isr.common import handed

NO_STREAM = "nostream"
"""The tag by which LangGraph leaves a model out of its message streams."""

# What feeds `astream_log`, `astream_events` and the listeners of `with_listeners` is a tracer too.
_TRACERS = (BaseTracer, AsyncBaseTracer)
_TELLING = (LogStreamCallbackHandler, RootListenersTracer, AsyncRootListenersTracer)

# Where LangGraph keeps what it hands from a graph to the graphs inside its nodes. Its names for them are private.
_INTERNAL = "__pregel_"
_CACHE = "__pregel_cache"
_CHECKPOINTER = "__pregel_checkpointer"
RUNTIME = "__pregel_runtime"
_CALL = "__pregel_call"
_SCRATCHPAD = "__pregel_scratchpad"
_IDLE = ("langgraph.pregel._retry", "_IdleProgressCallbackHandler")  # without it a node that drafts for long is idle
_OF_A_CHECKPOINT = frozenset({"checkpoint_id", "checkpoint_map", "checkpoint_ns"})

_FRAMEWORKS = ("isr_rag", "langchain", "langchain_core", "langchain_isr", "langgraph")
"""Whose functions call nothing of the user's by a name of their own modules."""

_PLAIN = (str, bytes, int, float, type(None), Document, BaseMessage)
"""What holds no runnable, and may come in great numbers."""


def quiet_config(config: RunnableConfig | None = None) -> RunnableConfig:
    """A configuration under which nothing that runs reaches streams, handlers, stores, caches or checkpoints.

    A graph that runs under it is a graph of its own: it hands no events to the graph around it, has no stream writer,
    reads the store without writing to it, and keeps no checkpoints and nothing in a cache, not even with a checkpointer
    or a cache of its own. Tracers, such as LangSmith's, still see everything.

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
    quiet["configurable"] = _alone(quiet.get("configurable") or {})
    quiet["metadata"] = handed(quiet.get("metadata") or {})
    return quiet


def _alone(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run without what ties it to the graph around it."""
    own = handed({k: v for k, v in settings.items() if not k.startswith(_INTERNAL) and k not in _OF_A_CHECKPOINT})
    own[_CACHE] = own[_CHECKPOINTER] = None
    own[_CALL], own[_SCRATCHPAD] = _no_task, _NOBODY
    if (runtime := settings.get(RUNTIME)) is not None:
        own[RUNTIME] = muted(runtime)
    return own


def muted(runtime: Any) -> Any:
    """LangGraph's runtime with a writer that writes nowhere, a store that can only be read, and a copy of the context.

    Nor can what runs stop the graph around it, for a reason that it would say.
    """
    from langchain_isr.read_only import ReadOnlyStore

    store = runtime.store if runtime.store is None else ReadOnlyStore(runtime.store)
    return replace(runtime, stream_writer=_nowhere, store=store, control=None, **handed({"context": runtime.context}))


def _nowhere(_: Any) -> None:
    pass


def _nobody(*_: Any) -> NoReturn:
    raise ConfigurationError(
        "a draft asks a person (interrupt), who would be shown what is undecided yet: ask before it is drafted, or "
        "about what the gate released"
    )


def _no_task(*_: Any, **__: Any) -> NoReturn:
    raise ConfigurationError(
        "a draft calls a task of the graph around it, which keeps in its checkpoint what the task returns: call a "
        "plain function"
    )


_NOBODY = SimpleNamespace(interrupt_counter=_nobody, get_null_resume=_nobody)
"""What `interrupt` asks first, in a function of the draft or in a graph inside it."""


@contextmanager
def quietly() -> Generator[None, None, None]:
    """Everything called inside runs as `_unheard` says, and fails as `drafting` says."""
    with _unheard(), drafting("langchain", "langgraph"):
        yield


@contextmanager
def judging(*drafts: str | None) -> Generator[None, None, None]:
    """A decision about drafts: what a scorer or reference asks a model of LangChain quotes them, and is not heard.

    Errors lose what they say as `unquoted` has it.
    """
    with unquoted(*drafts), nullcontext() if all(draft is None for draft in drafts) else _unheard():
        yield


@contextmanager
def _unheard() -> Generator[None, None, None]:
    """Everything called inside runs under `quiet_config` of the running configuration.

    Handlers of `register_configure_hook`, which every run gets, hear nothing of it, unless they are tracers.
    """
    with ExitStack() as undone:

        def given(var: ContextVar[Any], value: object) -> None:
            undone.callback(var.reset, var.set(value))

        given(var_child_runnable_config, quiet_config())
        for var, _, made, _ in _configure_hooks:
            handler = var.get()
            kind = made if handler is None else type(handler)
            if kind is not None and not _sees(kind):
                given(var, BaseCallbackHandler())
        yield


def refuse_telling(draft: object) -> None:
    """Refuse a draft that tells or remembers what it said before a gate has decided.

    Raises:
        ConfigurationError: for a `RunnableWithMessageHistory`, a chain with a memory, a graph with a store of its own,
            one with a checkpointer or a cache that a function calls or the object of a method holds, a `RemoteGraph`
            that no function calls, what prints (`debug`, `verbose`), or handlers and listeners that are no tracers, of
            the draft itself or anywhere inside.
    """
    for part, called in _parts(draft, set()):
        own = part if isinstance(part, dict) else vars(part)
        _refuse_handlers(own)
        if isinstance(part, dict):  # settings, of a binding or of a model that is made when it is called
            continue
        if isinstance(part, RunnableWithMessageHistory) or hasattr(own.get("memory"), "save_context"):  # an old chain
            raise ConfigurationError(
                "the draft keeps a history of what is undecided yet: put the history around the gate"
            )
        prints = "debug" if "checkpointer" in own else "" if isinstance(part, BaseLanguageModel) else "verbose"
        if own.get(prints):
            raise ConfigurationError(f"{type(part).__name__} prints what is undecided yet: leave out {prints}=True")
        if "checkpointer" in own and own.get("store") is not None:
            raise ConfigurationError(
                "the draft keeps what is undecided yet in a store of its own: give that to a graph around the gate, "
                "where the draft can read it"
            )
        if called and "checkpointer" in own and (own["checkpointer"] or own.get("cache") is not None):
            raise ConfigurationError(
                "a function of the draft calls, or the object of its method holds, a graph with a checkpointer or a "
                "cache of its own, which on a thread of its own keeps what is undecided yet: make it a step of the "
                "draft, or compile it without; one that the draft does not call is to be held elsewhere"
            )
        if not called and any(base.__name__ == "RemoteGraph" for base in type(part).__mro__):
            raise ConfigurationError(
                "a RemoteGraph that gets the thread of the run keeps there, on its server, what is undecided yet: call "
                "it in a function, as RunnableLambda(lambda state: remote.invoke(state))"
            )


def _refuse_handlers(own: dict[str, Any]) -> None:
    """Refuse handlers and listeners among what a runnable holds, or in a dict of settings that it holds."""
    callbacks = own.get("callbacks") or []
    if isinstance(callbacks, BaseCallbackManager):
        callbacks = [*callbacks.handlers, *callbacks.inheritable_handlers]
    listed = callbacks if isinstance(callbacks, (list, tuple)) else []
    handlers = [one for one in listed if isinstance(one, BaseCallbackHandler)]
    if len(_tracers(handlers)) < len(handlers) or own.get("config_factories"):
        raise ConfigurationError(
            "a part of the draft tells handlers of its own what is undecided yet: give them to the whole run"
        )


def _parts(value: Any, seen: set[tuple[int, bool]], called: bool = False) -> Iterator[tuple[Any, bool]]:
    """The runnables that a runnable or function is made of, as far as they can be found; whether a function calls them.

    With them the dicts that hold handlers. What a function calls it may call with a configuration of its own.
    """
    if (id(value), called) in seen:
        return
    seen.add((id(value), called))
    inner: Any = ()
    functions: Any = ()
    if isinstance(value, Runnable):
        yield value, called
        inner = [*vars(value).values()]
        if isinstance(value, BaseModel):
            inner += (value.__pydantic_private__ or {}).values()
    elif isinstance(value, (list, tuple)):
        inner = value
    elif isinstance(value, dict):
        if "callbacks" in value:
            yield value, called
        inner = value.values()
    elif "bound" in getattr(value, "__dict__", ()):  # a node of a graph
        inner = [value.bound]
    elif isinstance(value, partial):
        functions = [value.func, *value.args, *value.keywords.values()]
    elif callable(value) and not isinstance(value, type):  # a function, a method with its object, an object
        held = getattr(value, "__self__", value) if isinstance(value, MethodType) else value
        functions = [held] if isinstance(held, Runnable) else [*getattr(held, "__dict__", {}).values()]
        functions += [part for cell in getattr(value, "__closure__", None) or () for part in _content(cell)]
        function: Any = value if isroutine(value) else value.__call__
        if isinstance(code := getattr(function, "__code__", None), CodeType) and not _of_a_framework(function):
            functions += _named(code, function.__globals__)
            with suppress(ValueError):  # a variable of a closure that is not set yet
                functions += RunnableLambda(function).deps
    for parts, by_function in ((inner, called), (functions, True)):
        for part in parts:
            if not isinstance(part, _PLAIN):
                yield from _parts(part, seen, by_function)


def _of_a_framework(function: Any) -> bool:
    return str(function.__module__).partition(".")[0] in _FRAMEWORKS


def _named(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """The runnables and functions of its module that the code of a function names."""
    for step in get_instructions(code):
        part = names.get(step.argval) if step.opname == "LOAD_GLOBAL" else None
        if isinstance(part, Runnable) or (isinstance(part, FunctionType) and part.__globals__ is names):
            yield part
    for inner in code.co_consts:  # a function or comprehension inside
        if isinstance(inner, CodeType):
            yield from _named(inner, names)


def _content(cell: CellType) -> list[Any]:
    """What a variable of a closure holds; nothing before it is set."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _tracers(handlers: list[BaseCallbackHandler]) -> list[BaseCallbackHandler]:
    return [handler for handler in handlers if _sees(type(handler))]


def _sees(kind: type[BaseCallbackHandler]) -> bool:
    """Whether handlers of a type hear of a draft: tracers, and those that keep numbers of tokens or times alone."""
    tracer = issubclass(kind, _TRACERS) and not issubclass(kind, _TELLING)
    return tracer or kind is UsageMetadataCallbackHandler or (kind.__module__, kind.__name__) == _IDLE
