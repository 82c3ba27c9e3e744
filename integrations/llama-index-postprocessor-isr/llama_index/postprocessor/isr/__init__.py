"""Gates for LlamaIndex: an answer goes out only when the retrieved evidence carries it, whatever its order.

The postprocessor and the query engine are here; every other name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from llama_index.postprocessor.isr.events import AbstainedError, ISRDecisionEvent
from llama_index.postprocessor.isr.gate import ISRGate
from llama_index.postprocessor.isr.query_engine import ISRQueryEngine

if TYPE_CHECKING:
    from llama_index.postprocessor.isr.agent import evidence_tool
    from llama_index.postprocessor.isr.evaluator import ISREvaluator
    from llama_index.postprocessor.isr.gated_agent import GatedAgent
    from llama_index.postprocessor.isr.workflow import ISRWorkflow

_HOMES = {"GatedAgent": "gated_agent", "ISREvaluator": "evaluator", "ISRWorkflow": "workflow", "evidence_tool": "agent"}

__all__ = [
    "AbstainedError",
    "GatedAgent",
    "ISRDecisionEvent",
    "ISREvaluator",
    "ISRGate",
    "ISRQueryEngine",
    "ISRWorkflow",
    "evidence_tool",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
