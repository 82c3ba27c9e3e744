"""Keeps an undecided draft out of streams and checkpoints; tracers and handlers of the user still see it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler, BaseCallbackManager, CallbackManager
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers._streaming import _StreamingCallbackHandler, _V2StreamingCallbackHandler

NO_STREAM = "nostream"
"""The tag by which LangGraph leaves a model out of its message streams."""

# What feeds `stream_events`, `astream_events`, `astream_log` and LangGraph's "messages" stream. langchain-core has no
# public name for them; LangGraph imports these too. Anything looser would also silence tracers.
_STREAMS = frozenset({_StreamingCallbackHandler, _V2StreamingCallbackHandler})

# Where LangGraph keeps what it hands from a graph to the graphs inside its nodes. Its names for them are private.
_INTERNAL = "__pregel_"
_CHECKPOINTER = "__pregel_checkpointer"
_RUNTIME = "__pregel_runtime"
_OF_A_CHECKPOINT = frozenset({"checkpoint_id", "checkpoint_map", "checkpoint_ns"})


def quiet_config(config: RunnableConfig | None = None) -> RunnableConfig:
    """A configuration under which nothing that runs reaches a stream or a checkpoint of the caller.

    A graph that runs under it is a graph of its own: it hands no events to the graph around it, has no stream writer,
    and keeps no checkpoints, not even with a checkpointer of its own.

    Args:
        config: the configuration to start from; the running one by default.
    """
    quiet = ensure_config(config)
    quiet["tags"] = [*(quiet.get("tags") or []), NO_STREAM]
    callbacks = quiet.get("callbacks")
    if isinstance(callbacks, BaseCallbackManager):
        manager = callbacks.copy()
        manager.handlers = _silent(callbacks.handlers)
        manager.inheritable_handlers = _silent(callbacks.inheritable_handlers)
        manager.add_tags([NO_STREAM])
        quiet["callbacks"] = cast(CallbackManager | AsyncCallbackManager, manager)
    elif callbacks is not None:
        quiet["callbacks"] = _silent(callbacks)
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
    """LangGraph's runtime with a stream writer that writes nowhere."""
    return replace(runtime, stream_writer=_nowhere)


def _nowhere(_: Any) -> None:
    pass


@contextmanager
def quietly() -> Generator[None, None, None]:
    """Everything called inside runs under `quiet_config` of the running configuration."""
    token = var_child_runnable_config.set(quiet_config())
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _silent(handlers: list[BaseCallbackHandler]) -> list[BaseCallbackHandler]:
    return [handler for handler in handlers if not _STREAMS & set(type(handler).__mro__)]
