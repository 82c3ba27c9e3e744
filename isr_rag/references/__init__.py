"""Where p_ref comes from: something that can be trusted about the predicate (Section 2.5.1).

With no reference there is no gate. `Oracle` and `ToolChoice` are exact; `Verifier` takes the verdict of a
deterministic check as it stands, and a learned one only through its calibration; `CalibratedMixture` calibrates the
mean over the gate's own orderings, with the wording where the calibration weighs it; `ReleasedCut` trusts scores above
a cut that a few labels of one's own traffic released; `CrossEncoder` asks a fact-checking model; `Lowest` combines
several.
"""

from __future__ import annotations

from isr_rag.references.calibrated_mixture import CalibratedMixture
from isr_rag.references.cross_encoder import CrossEncoder
from isr_rag.references.lowest import Lowest
from isr_rag.references.oracle import Oracle
from isr_rag.references.protocol import Calibration, Case, Estimate, Reference
from isr_rag.references.released_cut import ReleasedCut
from isr_rag.references.tool_choice import ToolChoice
from isr_rag.references.verifier import Verifier

__all__ = [
    "CalibratedMixture",
    "Calibration",
    "Case",
    "CrossEncoder",
    "Estimate",
    "Lowest",
    "Oracle",
    "Reference",
    "ReleasedCut",
    "ToolChoice",
    "Verifier",
]
