"""Gates for LangChain and LangGraph: answer only from evidence that carries the answer.

Every name is imported when it is first used: the middleware needs ``langchain``, the graph needs ``langgraph``, and
:class:`ISRDecisionModel` and :class:`DecisionModelScorer` need langchain-core 1.8.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from langchain_isr.chain import ISRChain
    from langchain_isr.chat_scorer import ChatModelScorer
    from langchain_isr.common import ISRAbstained
    from langchain_isr.compressor import ISRCompressor
    from langchain_isr.decision_models import DecisionModelScorer, ISRDecisionModel
    from langchain_isr.gate import ISRGate
    from langchain_isr.graph import ISRState, create_isr_graph, isr_node
    from langchain_isr.middleware import ISRMiddleware
    from langchain_isr.retriever import ISRRetriever

_HOMES = {
    "ChatModelScorer": ("chat_scorer", "langchain_core", "langchain-isr"),
    "DecisionModelScorer": ("decision_models", "langchain_core.decisions", "langchain-core>=1.8"),
    "ISRAbstained": ("common", "langchain_core", "langchain-isr"),
    "ISRChain": ("chain", "langchain_core", "langchain-isr"),
    "ISRCompressor": ("compressor", "langchain_core", "langchain-isr"),
    "ISRDecisionModel": ("decision_models", "langchain_core.decisions", "langchain-core>=1.8"),
    "ISRGate": ("gate", "langchain_core", "langchain-isr"),
    "ISRMiddleware": ("middleware", "langchain", "langchain-isr[agents]"),
    "ISRRetriever": ("retriever", "langchain_core", "langchain-isr"),
    "ISRState": ("graph", "langgraph", "langchain-isr[graph]"),
    "create_isr_graph": ("graph", "langgraph", "langchain-isr[graph]"),
    "isr_node": ("graph", "langgraph", "langchain-isr[graph]"),
}

__all__ = [
    "ChatModelScorer",
    "DecisionModelScorer",
    "ISRAbstained",
    "ISRChain",
    "ISRCompressor",
    "ISRDecisionModel",
    "ISRGate",
    "ISRMiddleware",
    "ISRRetriever",
    "ISRState",
    "__version__",
    "create_isr_graph",
    "isr_node",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, package, requirement = _HOMES[name]
    try:
        value: object = getattr(importlib.import_module(f"langchain_isr.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(package):
            raise
        raise ImportError(
            f"{name} needs {error.name}, which is not installed. Install it with: pip install '{requirement}'"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
