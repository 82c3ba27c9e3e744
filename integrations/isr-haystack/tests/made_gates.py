"""Functions that make a gate, by which a pipeline can be written to a file."""

from __future__ import annotations

from isr_rag import ISRGate
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer


def sure() -> ISRGate:
    return ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(1.0), h_star=0.2)


def not_a_gate() -> object:
    return "a gate"
