"""Scoring by an OpenAI-compatible inference server: vLLM, SGLang, llama.cpp, Ollama, LM Studio, or a vendor.

`remote_scorer(url)` gives a scorer. To read labels through another client of such servers, use `Rendering`,
`read_reply` and `scores_listed`, which need no HTTP client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from isr_rag.scorers.remote.prompts import Rendering as Rendering
from isr_rag.scorers.remote.replies import read_reply as read_reply, scores_listed as scores_listed

if TYPE_CHECKING:
    from isr_rag.scorers.remote.scorer import RemoteScorer as RemoteScorer, remote_scorer as remote_scorer


def __getattr__(name: str) -> Any:
    if name not in ("RemoteScorer", "remote_scorer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.scorer"), name)
