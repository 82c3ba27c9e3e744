"""Decide whether retrieved evidence carries an answer, whatever the order of the evidence.

`import isr_rag` loads numpy at most: every name below is imported when it is first used.

Sections, equations and algorithms that docstrings cite are those of *the paper*: Leon Chlon, Ahmed Karim and
MarcAntonio Awada, "Predictable Compression Failures: Order Sensitivity and Information Budgeting for Evidence-Grounded
Binary Adjudication" (2026; see CITATION.cff).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from isr_rag.audit.result import AnswerAudit as AnswerAudit, AuditAction as AuditAction
    from isr_rag.audit.statement import Verdict as Verdict
    from isr_rag.core.decision import Action as Action, Decision as Decision, Reason as Reason
    from isr_rag.core.evidence import Chunk as Chunk
    from isr_rag.core.predicates import (
        Choice as Choice,
        Custom as Custom,
        Refuted as Refuted,
        Sufficient as Sufficient,
        Supported as Supported,
    )
    from isr_rag.core.settings import Orderings as Orderings, Rule as Rule
    from isr_rag.errors import ISRError as ISRError
    from isr_rag.gate import ISRGate as ISRGate
    from isr_rag.gate.acquisition import Trail as Trail, aacquire as aacquire, acquire as acquire
    from isr_rag.scorers.cache import CachedScorer as CachedScorer
    from isr_rag.scorers.transformers import TransformersScorer as TransformersScorer

_HOMES = {
    name: f"isr_rag.{module}"
    for module, names in {
        "audit.result": "AnswerAudit AuditAction",
        "audit.statement": "Verdict",
        "core.decision": "Action Decision Reason",
        "core.evidence": "Chunk",
        "core.predicates": "Choice Custom Refuted Sufficient Supported",
        "core.settings": "Orderings Rule",
        "errors": "ISRError",
        "gate": "ISRGate",
        "gate.acquisition": "Trail aacquire acquire",
        "scorers.cache": "CachedScorer",
        "scorers.transformers": "TransformersScorer",
    }.items()
    for name in names.split()
}

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
