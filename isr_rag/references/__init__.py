"""Where p_ref comes from: something that can be trusted about the predicate (Section 2.5.1).

With no reference there is no gate. `Oracle` and `ToolReference` are exact; `Verifier` takes the verdict of a
deterministic check as it stands, and a learned one only through its calibration; `CalibratedMixture` calibrates the
mean over the gate's own orderings; `MinReference` combines several.
"""

from isr_rag.core.settings import Calibration as Calibration, Case as Case, Estimate as Estimate, Reference as Reference
from isr_rag.references.calibrated_mixture import CalibratedMixture as CalibratedMixture
from isr_rag.references.direct import (
    MinReference as MinReference,
    Oracle as Oracle,
    ToolReference as ToolReference,
    Verifier as Verifier,
)
