"""Scoring by an OpenAI-compatible inference server: vLLM, SGLang, llama.cpp, or a vendor.

`remote_scorer(url)` asks a server what it can do and gives a scorer; `examine(url)` says what it found. A scorer
over another client of such servers uses `Rendering`, `read_reply` and `scores_listed`. Names load when they are
used: code that only reads replies needs no HTTP client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isr_rag.scorers.remote.errors import ServerDeadlineError, ServerError, ServerReplyError
    from isr_rag.scorers.remote.pool import AllServersDownError, ServerPool
    from isr_rag.scorers.remote.probe import examine
    from isr_rag.scorers.remote.prompts import Rendering
    from isr_rag.scorers.remote.replies import read_reply, scores_listed
    from isr_rag.scorers.remote.scorer import RemoteScorer, remote_scorer

_HOMES = {
    "AllServersDownError": "pool",
    "RemoteScorer": "scorer",
    "Rendering": "prompts",
    "ServerDeadlineError": "errors",
    "ServerError": "errors",
    "ServerPool": "pool",
    "ServerReplyError": "errors",
    "examine": "probe",
    "read_reply": "replies",
    "remote_scorer": "scorer",
    "scores_listed": "replies",
}

__all__ = [
    "AllServersDownError",
    "RemoteScorer",
    "Rendering",
    "ServerDeadlineError",
    "ServerError",
    "ServerPool",
    "ServerReplyError",
    "examine",
    "read_reply",
    "remote_scorer",
    "scores_listed",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
