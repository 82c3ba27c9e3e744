"""The Factuality Slice: its schema, and the builder that makes it from raw files (Appendix H)."""

from __future__ import annotations

from isr_lab.slice.build import build_slice
from isr_lab.slice.config import SliceConfig, paper_config, training_config
from isr_lab.slice.reading import read_items
from isr_lab.slice.report import BuildReport
from isr_lab.slice.sample import load_sample
from isr_lab.slice.schema import SliceChunk, SliceItem, SupportSpan

__all__ = [
    "BuildReport",
    "SliceChunk",
    "SliceConfig",
    "SliceItem",
    "SupportSpan",
    "build_slice",
    "load_sample",
    "paper_config",
    "read_items",
    "training_config",
]
