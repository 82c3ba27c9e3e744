"""Where p_ref comes from: something that can be trusted about the predicate (Section 2.5.1).

With no reference there is no gate. ``Oracle`` and ``ToolChoice`` are exact; ``Verifier`` takes the verdict of a
deterministic check as it stands, and a learned one only through its calibration; ``CalibratedMixture`` calibrates the
mean over the gate's own orderings, with the wording where the calibration weighs it; ``CrossEncoder`` asks a
fact-checking model; ``Lowest`` combines several.
"""

from __future__ import annotations

from isr_rag.references.base import (
    CalibratedMixture,
    Calibration,
    Case,
    Estimate,
    Lowest,
    Oracle,
    Reference,
    ToolChoice,
    Verifier,
)
from isr_rag.references.cross_encoder import CrossEncoder

__all__ = [
    "CalibratedMixture",
    "Calibration",
    "Case",
    "CrossEncoder",
    "Estimate",
    "Lowest",
    "Oracle",
    "Reference",
    "ToolChoice",
    "Verifier",
]
