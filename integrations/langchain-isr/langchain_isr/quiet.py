"""Keeps a draft out of every stream while it is undecided; tracers still see it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler, BaseCallbackManager, CallbackManager
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers._streaming import _StreamingCallbackHandler, _V2StreamingCallbackHandler

NO_STREAM = "nostream"
"""The tag by which LangGraph leaves a model out of its message streams."""

# What feeds `stream_events`, `astream_events`, `astream_log` and LangGraph's "messages" stream. langchain-core has no
# public name for them; LangGraph imports these too. Anything looser would also silence tracers.
_STREAMS = frozenset({_StreamingCallbackHandler, _V2StreamingCallbackHandler})


def quiet_config(config: RunnableConfig | None = None) -> RunnableConfig:
    """A configuration under which nothing that runs reaches a stream of the caller.

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
    return quiet


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
