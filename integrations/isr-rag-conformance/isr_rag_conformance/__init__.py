"""What every adapter of the gate must do, as tests to inherit."""

from isr_rag_conformance.suite import DRAFT as DRAFT
from isr_rag_conformance.suite import HIDDEN as HIDDEN
from isr_rag_conformance.suite import Conformance as Conformance
from isr_rag_conformance.suite import Harness as Harness
from isr_rag_conformance.suite import Outcome as Outcome
from isr_rag_conformance.suite import Passage as Passage
from isr_rag_conformance.suite import Place as Place
from isr_rag_conformance.suite import Setup as Setup
from isr_rag_conformance.suite import Shape as Shape
