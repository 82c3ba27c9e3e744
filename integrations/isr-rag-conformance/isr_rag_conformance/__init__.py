"""What every adapter of the gate must do, as tests to inherit."""

from isr_rag_conformance.suite import (
    DRAFT as DRAFT,
    HIDDEN as HIDDEN,
    Conformance as Conformance,
    Harness as Harness,
    Outcome as Outcome,
    Passage as Passage,
    Place as Place,
    Setup as Setup,
    Shape as Shape,
)
