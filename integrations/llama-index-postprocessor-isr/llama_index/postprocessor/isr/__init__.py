"""Gates for LlamaIndex: an answer goes out only when the retrieved evidence carries it, whatever its order."""

from __future__ import annotations

from llama_index.postprocessor.isr.agent import evidence_tool
from llama_index.postprocessor.isr.evaluator import ISREvaluator
from llama_index.postprocessor.isr.events import AbstainedError, ISRDecisionEvent
from llama_index.postprocessor.isr.gate import ISRGate
from llama_index.postprocessor.isr.gated_agent import GatedAgent
from llama_index.postprocessor.isr.query_engine import ISRQueryEngine
from llama_index.postprocessor.isr.workflow import ISRWorkflow

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
