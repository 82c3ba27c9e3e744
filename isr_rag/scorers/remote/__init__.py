"""Scoring by an OpenAI-compatible inference server: vLLM, SGLang, llama.cpp, Ollama, or a vendor.

`remote_scorer(url)` gives a scorer. To read labels through another client of such servers, use `Rendering`,
`read_reply` and `scores_listed`, which need no HTTP client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from isr_rag.scorers.remote.errors import ServerDeadlineError, ServerError, ServerReplyError
from isr_rag.scorers.remote.prompts import Rendering
from isr_rag.scorers.remote.replies import read_reply, scores_listed

if TYPE_CHECKING:
    from isr_rag.scorers.remote.scorer import RemoteScorer, remote_scorer

__all__ = [
    "RemoteScorer",
    "Rendering",
    "ServerDeadlineError",
    "ServerError",
    "ServerReplyError",
    "read_reply",
    "remote_scorer",
    "scores_listed",
]


def __getattr__(name: str) -> Any:
    if name not in ("RemoteScorer", "remote_scorer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.scorer"), name)
